//! A server in this process, and clients that speak bytes.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

pub mod tls;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use hyper::body::{Frame, SizeHint};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::monotonic;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{
    Answered, Body, Handle, HandleFuture, HttpConfig, Peer, Plain, Reply, RequestBody, Server, Unwritten,
    UpgradeOffer, Upgraded,
};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::proxied::Proxied;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::{Route, Stats};
use tidegate_net::tls::Tls;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Longer than anything here should take; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The most that `/echo` accepts.
pub const BODY_LIMIT: usize = 64 * 1024;

/// `/`, `/echo` (the request's body), `/large` (16 MiB that all replies share), `/fresh` (64 KiB of its own),
/// `/streamed`, `/events` (an [`EVENT`] each time that one is released, [`EVENTS`] in all), `/nothing`, `/held`
/// (answers when released), `/upgraded` (if that is offered and [`Options::upgrades`], sends back what it gets, and
/// says `bye` at its end) and `/blocked` (keeps its core from everything else until then). `/dated` and
/// `/dated-streamed` state their date.
pub struct Routes {
    release: Arc<Semaphore>,
    large: Bytes,
    upgrades: bool,
}

impl Routes {
    async fn serve(&self, mut request: Request<RequestBody>, peer: &Peer) -> Reply {
        let path = request.uri().path().to_owned();
        let body = match path.as_str() {
            "/echo" => match request.into_body().bytes(BODY_LIMIT).await {
                Ok(bytes) => Body::Full(bytes),
                Err(error) => return status(error.status()),
            },
            "/peer" => Body::from(peer.address.to_string()),
            "/fresh" => Body::from(vec![b'x'; 64 << 10]),
            "/large" => Body::Full(self.large.clone()),
            "/streamed" => Body::streamed(Pieces(vec!["two", "one"], None)),
            "/streamed-known" => Body::streamed(Pieces(vec!["two", "one"], Some(6))),
            "/short" => return short(),
            "/events" => Body::streamed(Events::new(&self.release)),
            "/dated" => return dated(Body::from("ok")),
            "/dated-streamed" => return dated(Body::streamed(Pieces(vec!["two", "one"], None))),
            "/upgraded" => match UpgradeOffer::take(&mut request) {
                None => Body::from("ok"),
                Some(offer) => {
                    let response = Response::builder().header(header::UPGRADE, "echo").body(()).unwrap();
                    return Reply::upgrade(Route::new(1), offer, response, echo);
                }
            },
            "/nothing" => return status(StatusCode::NO_CONTENT),
            "/held" => {
                self.release.acquire().await.unwrap().forget();
                Body::from("held")
            }
            "/blocked" => {
                while self.release.try_acquire().map(SemaphorePermit::forget).is_err() {
                    std::thread::yield_now();
                }
                Body::from("blocked")
            }
            _ => Body::from("ok"),
        };
        Reply::new(Route::new(1), Response::new(body))
    }
}

impl Handle for Routes {
    fn handle<'a>(&'a self, request: Request<RequestBody>, peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(self.serve(request, peer))
    }

    fn is_operational(&self, path: &str) -> bool {
        path == "/readyz"
    }

    fn may_upgrade(&self) -> bool {
        self.upgrades
    }

    /// `/echo`, if nothing keeps it waiting, and `/dated`.
    fn answer_at_once(&self, request: &Plain<'_>, _peer: &Peer, reply: Unwritten<'_>) -> Option<Answered> {
        if request.target() == "/dated" {
            let mut head = reply.head(StatusCode::OK);
            head.field(&header::DATE, |value| value.extend_from_slice(DATE.as_bytes()));
            return Some(head.end(Route::new(1), |body| body.extend_from_slice(b"ok")));
        }
        let echo = request.target() == "/echo" && request.body().len() <= BODY_LIMIT;
        echo.then(|| {
            reply.head(StatusCode::OK).end(Route::new(1), |body| body.extend_from_slice(request.body()))
        })
    }
}

/// A body in pieces, with or without a length that is known before.
struct Pieces(Vec<&'static str>, Option<u64>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.pop().map(|piece| Ok(Frame::data(Bytes::from(piece)))))
    }

    fn size_hint(&self) -> SizeHint {
        self.1.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

/// Sends back what it gets, and says goodbye.
async fn echo(stream: Upgraded) {
    let (mut reading, mut writing) = tokio::io::split(stream);
    if tokio::io::copy(&mut reading, &mut writing).await.is_ok() && writing.write_all(b"bye").await.is_ok() {
        drop(writing.shutdown().await);
    }
}

/// What `/events` sends, and how often.
pub const EVENT: &str = "data: x\n\n";
pub const EVENTS: usize = 3;

/// A body whose pieces are released one by one.
struct Events {
    release: Arc<Semaphore>,
    next: Pin<Box<dyn Future<Output = ()> + Send>>,
    left: usize,
}

impl Events {
    fn new(release: &Arc<Semaphore>) -> Self {
        Self { release: Arc::clone(release), next: Self::next(release), left: EVENTS }
    }

    fn next(release: &Arc<Semaphore>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let release = Arc::clone(release);
        Box::pin(async move { release.acquire().await.unwrap().forget() })
    }
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        self.left -= 1;
        self.next = Self::next(&self.release);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(EVENT)))))
    }
}

/// A date that is not the present one.
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn dated(body: Body) -> Reply {
    let response = Response::builder().header(header::DATE, DATE).body(body).unwrap();
    Reply::new(Route::new(1), response)
}

/// A streamed reply that announces more than it has.
fn short() -> Reply {
    let body = Body::streamed(Pieces(vec!["two", "one"], None));
    let response = Response::builder().header(header::CONTENT_LENGTH, 7).body(body).unwrap();
    Reply::new(Route::new(1), response)
}

fn status(status: StatusCode) -> Reply {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    Reply::new(Route::new(1), response)
}

/// How a test server differs from the usual one.
pub struct Options {
    pub http: HttpConfig,
    pub cores: usize,
    pub permits: Permits,
    pub buffers: Buffers,
    pub listen: ListenConfig,
    pub tls: Option<Tls>,
    pub upgrades: bool,
    pub proxied: Option<Proxied>,
}

impl Default for Options {
    fn default() -> Self {
        let listen = ListenConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), NonZeroUsize::MIN);
        Self {
            http: HttpConfig::default(),
            cores: 2,
            permits: Permits::new(10_000),
            buffers: Buffers::new(64 << 20),
            listen,
            tls: None,
            upgrades: false,
            proxied: None,
        }
    }
}

/// A running server.
pub struct TestServer {
    pub address: SocketAddr,
    pub drain: Drain,
    pub stats: Arc<Stats>,
    pub buffers: Buffers,
    pub release: Arc<Semaphore>,
    cores: Option<Cores>,
}

impl TestServer {
    pub fn start(options: Options) -> Self {
        Self::start_with(options, Server::start)
    }

    /// The same, for clients that speak HTTP/2.
    pub fn start_http2(options: Options) -> Self {
        Self::start_with(options, Server::start_http2)
    }

    fn start_with(options: Options, serve: fn(&Server, &Cores, Listeners)) -> Self {
        let sockets = NonZeroUsize::new(options.cores).unwrap();
        let cores = Cores::start(sockets).unwrap();
        let listeners = Listeners::bind(&ListenConfig { sockets, ..options.listen }).unwrap();
        let listeners = listeners.with_tls(options.tls).with_proxied(options.proxied);
        let address = listeners.address();
        let stats = Arc::new(Stats::new(cores.count(), &["other", "routes"]));
        let drain = Drain::new();
        let gate = Gate {
            permits: options.permits,
            buffers: options.buffers.clone(),
            drain: drain.clone(),
            stats: Arc::clone(&stats),
        };
        let release = Arc::new(Semaphore::new(0));
        let large = vec![b'x'; 16 << 20].into();
        let routes = Routes { release: Arc::clone(&release), large, upgrades: options.upgrades };
        serve(&Server::new(routes, options.http, gate), &cores, listeners);
        drain.advance(Stage::Ready);
        Self { address, drain, stats, buffers: options.buffers, release, cores: Some(cores) }
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.address).unwrap()
    }

    /// Drains on the caller's thread and stops the cores.
    pub fn drain(&mut self, timing: DrainTiming) -> Drained {
        let cores = self.cores.take().unwrap();
        let drained = cores.handle(0).clone().block_on(self.drain.run(timing));
        cores.stop();
        drained
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(cores) = self.cores.take() {
            cores.stop();
        }
    }
}

pub fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends `bytes` on a new connection and reads until the server closes it.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    read_to_end(&mut stream)
}

pub fn read_to_end(stream: &mut TcpStream) -> String {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    String::from_utf8_lossy(&reply).into_owned()
}

/// One keep-alive request. The head of the reply, or why there is none.
pub fn request(stream: &mut (impl Read + Write), path: &str) -> std::io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")?;
    read_reply(stream)
}

/// Reads one reply with a length, and returns its head.
pub fn read_reply(stream: &mut impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Ok(head);
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Waits for a condition that another thread brings about.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    within(PATIENCE, what, condition);
}

/// As [`eventually`], for what takes long.
pub fn within(patience: Duration, what: &str, condition: impl Fn() -> bool) {
    let start = monotonic();
    while !condition() {
        assert!(start.elapsed() < patience, "did not happen: {what}");
        std::thread::yield_now();
    }
}
