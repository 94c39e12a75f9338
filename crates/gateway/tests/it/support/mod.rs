//! A gateway in this process, backends that do as they are told, and a client that speaks bytes.
//!
//! Over 400 lines because every test binary of the crate takes its servers and clients from here.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::{LimitedRequest, Limits};
use tidegate_gateway::service::{Gateway, GatewayService, GatewaySettings, TEMPLATES};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_net::tls::{self, PairFiles, Tls, TlsConfig, TlsFiles};
use tidegate_testkit::certificates::Certificates;
use tidegate_wire::tls_version::TlsVersion;

/// Longer than anything here should take; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a backend does with a request.
pub enum Reaction {
    /// These bytes, and on with the next request.
    Bytes(Vec<u8>),
    /// These bytes, and no more on this connection.
    Last(Vec<u8>),
    /// No reply for as long as the peer waits.
    Silence,
}

/// A reply with a body.
pub fn reply(status: u16, fields: &[&str], body: &str) -> Reaction {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let text = format!("HTTP/1.1 {status} Status\r\n{fields}content-length: {}\r\n\r\n{body}", body.len());
    Reaction::Bytes(text.into_bytes())
}

/// A request as a backend got it.
#[derive(Clone, Debug)]
pub struct Got {
    pub line: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

type React = dyn Fn(&Got) -> Reaction + Send + Sync;

/// A server behind the gateway.
pub struct Backend {
    pub address: SocketAddr,
    got: Arc<Mutex<Vec<Got>>>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    pub fn start(react: impl Fn(&Got) -> Reaction + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), react)
    }

    /// At an address that a stopped backend had.
    pub fn start_at(address: SocketAddr, react: impl Fn(&Got) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (got, connections) = (Arc::default(), Arc::default());
        let stopped = Arc::new(AtomicBool::new(false));
        let react: Arc<React> = Arc::new(react);
        let thread = {
            let (got, connections, stopped) =
                (Arc::clone(&got), Arc::clone(&connections), Arc::clone(&stopped));
            std::thread::spawn(move || accept(&listener, &react, &got, &connections, &stopped))
        };
        Self { address, got, connections, stopped, thread: Some(thread) }
    }

    /// One that says its name.
    pub fn named(name: &'static str) -> Self {
        Self::start(move |_| reply(200, &[], name))
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that it got.
    pub fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Connections that it accepted.
    pub fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// Connections that the other side has not closed.
    pub fn open(&self) -> usize {
        // To look at what is there without waiting for it, nor taking it (Linux: MSG_PEEK, MSG_DONTWAIT).
        const LOOK: i32 = 0x42;
        let is_open = |stream: &&TcpStream| {
            let looked = SockRef::from(*stream).recv_with_flags(&mut [MaybeUninit::uninit()], LOOK);
            looked.map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |bytes| bytes > 0)
        };
        self.connections.lock().unwrap().iter().filter(is_open).count()
    }

    /// Ends it: no connection is accepted, those that are open are closed.
    pub fn stop(&mut self) {
        self.stopped.store(true, SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        for connection in self.connections.lock().unwrap().iter() {
            drop(connection.shutdown(std::net::Shutdown::Both));
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

fn accept(
    listener: &TcpListener,
    react: &Arc<React>,
    got: &Arc<Mutex<Vec<Got>>>,
    connections: &Arc<Mutex<Vec<TcpStream>>>,
    stopped: &AtomicBool,
) {
    for stream in listener.incoming() {
        if stopped.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else { continue };
        connections.lock().unwrap().push(stream.try_clone().unwrap());
        let (react, got) = (Arc::clone(react), Arc::clone(got));
        std::thread::spawn(move || serve(stream, &*react, &got));
    }
}

fn serve(mut stream: TcpStream, react: &React, got: &Mutex<Vec<Got>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read_message(&mut reader) {
        got.lock().unwrap().push(request.clone());
        match react(&request) {
            Reaction::Bytes(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Reaction::Last(bytes) => {
                drop(stream.write_all(&bytes));
                drop(stream.shutdown(std::net::Shutdown::Both));
                return;
            }
            // Until the peer gives up.
            Reaction::Silence => drop(reader.read(&mut [0])),
        }
    }
}

/// A message with a body by length or in chunks, `None` at the end.
fn read_message(reader: &mut impl BufRead) -> Option<Got> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut fields = Vec::new();
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else { break };
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let mut body = Vec::new();
    if field("transfer-encoding").is_some_and(|value| value == "chunked") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else if let Some(length) = field("content-length") {
        body = vec![0; length.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
    }
    Some(Got { line: line.trim_end().to_owned(), fields, body })
}

/// A running gateway.
pub struct TestGateway {
    pub address: SocketAddr,
    pub gateway: Arc<Gateway>,
    drain: Drain,
    cores: Option<Cores>,
}

impl TestGateway {
    pub fn start(
        limits: impl for<'r> Limits<LimitedRequest<'r>>,
        settings: GatewaySettings,
        config: &GatewayConfig,
    ) -> Self {
        Self::start_with(limits, settings, config, |gateway| gateway)
    }

    /// With what `add` adds to it.
    pub fn start_with(
        limits: impl for<'r> Limits<LimitedRequest<'r>>,
        settings: GatewaySettings,
        config: &GatewayConfig,
        add: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        Self::listen(2, None, limits, settings, config, add)
    }

    /// Over TLS, with this certificate.
    pub fn start_tls(
        limits: impl for<'r> Limits<LimitedRequest<'r>>,
        config: &GatewayConfig,
        certificates: &Certificates,
    ) -> Self {
        let pair = PairFiles { certificate: certificates.certificate(), key: certificates.key() };
        let files =
            TlsFiles { pair: Some(pair), named: Vec::new(), client_ca: None, is_client_auth_optional: false };
        let tls = Tls::load(TlsConfig {
            files,
            named: None,
            protocols: tls::HTTP,
            passed: Vec::new(),
            min_version: TlsVersion::default(),
            handshake_timeout: PATIENCE,
            max_handshakes: tls::MAX_HANDSHAKES,
        });
        let settings = GatewaySettings::default();
        Self::listen(2, Some(tls.unwrap()), limits, settings, config, |gateway| gateway)
    }

    /// On so many cores, each of which keeps connections of its own.
    pub fn start_on(
        cores: usize,
        limits: impl for<'r> Limits<LimitedRequest<'r>>,
        settings: GatewaySettings,
        config: &GatewayConfig,
        add: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        Self::listen(cores, None, limits, settings, config, add)
    }

    fn listen(
        cores: usize,
        tls: Option<Tls>,
        limits: impl for<'r> Limits<LimitedRequest<'r>>,
        settings: GatewaySettings,
        config: &GatewayConfig,
        add: impl FnOnce(Gateway) -> Gateway,
    ) -> Self {
        let count = NonZeroUsize::new(cores).unwrap();
        let cores = Cores::start(count).unwrap();
        let drain = Drain::new();
        let stats = Arc::new(Stats::new(count.get(), TEMPLATES));
        let buffers = Buffers::new(256 << 20);
        let gate = Gate { permits: Permits::new(10_000), buffers, drain: drain.clone(), stats };
        let gateway = Arc::new(add(Gateway::new(Arc::new(limits), settings, Clock::start(), &cores)));
        gateway.apply(config);
        let listeners = Listeners::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap(), count)).unwrap();
        let address = listeners.address();
        let listeners = listeners.with_tls(tls);
        Server::new(GatewayService::new(Arc::clone(&gateway)), HttpConfig::default(), gate)
            .start(&cores, listeners);
        drain.advance(Stage::Ready);
        Self { address, gateway, drain, cores: Some(cores) }
    }

    /// Puts another configuration in force.
    pub fn apply(&self, config: &GatewayConfig) {
        self.gateway.apply(config);
    }

    /// Ends it as SIGTERM does.
    pub fn drain(&self, timing: DrainTiming) -> Drained {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.drain.run(timing))
    }

    /// Sends bytes on a connection of their own and reads the reply.
    pub fn send(&self, request: &str) -> Got {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        read_message(&mut BufReader::new(stream)).expect("there is a reply")
    }

    pub fn get(&self, path: &str) -> Got {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n"))
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.drain.advance(Stage::Stopped);
        if let Some(cores) = self.cores.take() {
            cores.stop();
        }
    }
}

/// The status of a reply.
pub fn status(got: &Got) -> u16 {
    got.line.split(' ').nth(1).unwrap().parse().unwrap()
}

pub fn text(got: &Got) -> String {
    String::from_utf8(got.body.clone()).unwrap()
}

/// A checked configuration.
pub fn config(upstreams: Value, routes: Value) -> GatewayConfig {
    GatewayConfig::check(upstreams.as_array().unwrap(), routes.as_array().unwrap(), &["per-client"]).unwrap()
}

/// A server that does this with each connection.
pub fn server(serve: impl Fn(BufReader<TcpStream>) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || serve(BufReader::new(stream)));
        }
    });
    address
}

/// An address where connections are never accepted nor refused, for as long as what is with it lives.
pub fn black_hole() -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    // Until the queue is full, and the kernel answers no more.
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue has no end");
    }
    (address, socket, queued)
}

/// Reads HTTP/2, and answers the head of each request with a frame, on the request's stream.
pub fn answer_in_http2(mut reader: BufReader<TcpStream>, mut answer: [u8; 9], payload: &[u8]) {
    reader.get_ref().write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    reader.read_exact(&mut [0; 24]).unwrap();
    let mut frame = [0; 9];
    while reader.read_exact(&mut frame).is_ok() {
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        std::io::copy(&mut (&mut reader).take(length.into()), &mut std::io::sink()).unwrap();
        // HEADERS.
        if frame[3] == 1 {
            answer[5..].copy_from_slice(&frame[5..]);
            reader.get_ref().write_all(&[&answer[..], payload].concat()).unwrap();
        }
    }
}

/// Reads a head, of a request or a reply.
pub fn head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "a head: {head}");
    }
    head
}

/// Sends a request on a kept connection, and returns the status of its reply.
pub fn ask_on(reader: &mut BufReader<TcpStream>, path: &str) -> u16 {
    reader.get_ref().write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).unwrap();
    let head = head(reader).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length = length.split('\r').next().unwrap().parse().unwrap();
    reader.read_exact(&mut vec![0; length]).unwrap();
    head[9..12].parse().unwrap()
}

/// Sends so many requests each, from eight clients on kept connections, and returns the statuses.
pub fn load(gateway: &TestGateway, each: usize) -> Vec<u16> {
    load_timed(gateway, each).into_iter().map(|(_, status)| status).collect()
}

/// The same, in the order in which requests were sent, with when that was.
pub fn load_timed(gateway: &TestGateway, each: usize) -> Vec<(Instant, u16)> {
    let replies = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut reader = BufReader::new(gateway.connect());
                let got: Vec<_> = (0..each).map(|_| (monotonic(), ask_on(&mut reader, "/"))).collect();
                replies.lock().unwrap().extend(got);
            });
        }
    });
    let mut replies = replies.into_inner().unwrap();
    replies.sort_unstable();
    replies
}
