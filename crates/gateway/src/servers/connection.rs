//! Connections to servers: which protocol they speak, and how one is made.
//!
//! | server | protocol = | spoken |
//! |---|---|---|
//! | `http://` | `http1`, `auto` | HTTP/1.1 |
//! | `http://` | `http2` | HTTP/2 from the first byte |
//! | `https://` | `http1`, `http2` | that one, offered by ALPN as the only one |
//! | `https://` | `auto` | what the server chooses by ALPN |
//!
//! A request that offers to go on in another protocol, such as WebSocket, is sent in HTTP/1.1 whatever is configured: over TLS
//! on a connection of its own, for which that is the only one offered by ALPN. A server that speaks HTTP/2 alone cannot be
//! sent it.
//!
//! A connection of HTTP/1.1 without TLS begins as a [`Direct`] one, and becomes hyper's with the first request that is
//! not at hand. A connection of HTTP/1.1 has one request at a time; one of HTTP/2 has up to [`MAX_STREAMS`], and each
//! of them has its own [`Sender`].

use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::{HOST, HeaderValue};
use http::uri::Scheme;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use thiserror::Error;
use tidegate_upstream::backend::Target;
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::failure::shares_no_protocol;
use tidegate_upstream::tls::TlsClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::config::{Protocol, ServerConfig, UpstreamConfig};
use crate::forwarding::direct::Direct;
use crate::forwarding::fields::{MAX_FIELDS, MAX_HEAD_BYTES};
use crate::forwarding::payload::RequestPayload;

/// Most requests at once on a connection of HTTP/2. Where the server allows fewer, a further connection is made for the others.
pub(crate) const MAX_STREAMS: usize = 100;

/// Requests at once until the server has said how many it allows, which it does in its first frame (RFC 9113, 3.4). It would refuse what is
/// beyond that, and a request whose body is under way cannot be sent again. So those that come in this round trip have connections of
/// their own.
const FIRST_STREAMS: usize = 1;

/// What a server may send of one reply, and of all on a connection, that no client has taken.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// What is queued of one request's body.
const SEND_BYTES: usize = 64 << 10;
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// Leave to send one request on a connection.
#[derive(Debug)]
pub(crate) enum Sender {
    /// The whole connection.
    Direct(Box<Direct>),
    Hyper(HyperSender),
}

/// The same on a connection that hyper speaks on.
#[derive(Debug)]
pub(crate) enum HyperSender {
    /// The whole connection.
    Http1 {
        sender: http1::SendRequest<RequestPayload>,
        /// Whom it leads to.
        peer: IpAddr,
        /// What closes it when it is aborted.
        task: AbortHandle,
        /// It is for one request: others to its server may be sent in HTTP/2.
        is_single: bool,
    },
    /// A stream of one that others use as well.
    Http2(SharedSender),
}

/// A connection of HTTP/2, as one of its users has it.
#[derive(Clone, Debug)]
pub(crate) struct SharedSender {
    sender: http2::SendRequest<RequestPayload>,
    /// Counts the users.
    users: Arc<()>,
    driven: Arc<dyn Driven>,
    pub(crate) peer: IpAddr,
}

/// A connection of HTTP/2 that a task of its own drives. hyper reads what a server allows (SETTINGS) in another task, which wakes nobody
/// here: so it is asked for whenever it counts.
trait Driven: Debug + Send + Sync {
    /// Most requests at once that the server takes on it, or [`FIRST_STREAMS`] until the server has said.
    fn most_streams(&self) -> usize;

    /// Drops it: that is what tells those who have a request to send.
    fn end(&self);
}

/// A connection until it has ended.
type DrivenHttp2<S> = Mutex<Option<http2::Connection<TokioIo<S>, RequestPayload, TokioExecutor>>>;

impl<S> Driven for DrivenHttp2<S>
where
    S: AsyncRead + AsyncWrite + Debug + Unpin + Send + 'static,
{
    fn most_streams(&self) -> usize {
        self.lock().as_ref().map_or(0, http2::Connection::current_max_send_streams)
    }

    fn end(&self) {
        let connection = self.lock().take();
        drop(connection);
    }
}

/// Ends a connection with the task that drives it, also one that ends by a panic: a request on a connection that nobody drives
/// would wait until its time is over, and so would the next one.
struct EndsWithTask(Arc<dyn Driven>);

impl Drop for EndsWithTask {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A reply to come.
pub(crate) type ReplyFuture =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestPayload>>>> + Send>>;

impl SharedSender {
    /// Whether one more request may be sent on it. The pool is one of the users.
    pub(crate) fn has_room(&self) -> bool {
        !self.sender.is_closed() && self.users() <= self.driven.most_streams().min(MAX_STREAMS)
    }

    /// Those who have it.
    pub(crate) fn users(&self) -> usize {
        Arc::strong_count(&self.users)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Sender {
    /// Whether another request may be sent at once. A server may answer before it has the whole body: until the rest is
    /// sent, no other request can be, and would wait for its client.
    pub(crate) fn is_free(&self) -> bool {
        match self {
            Self::Direct(direct) => direct.is_free(),
            Self::Hyper(HyperSender::Http1 { sender, .. }) => sender.is_ready(),
            Self::Hyper(HyperSender::Http2(shared)) => shared.has_room(),
        }
    }

    /// Whom it leads to.
    pub(crate) fn peer(&self) -> IpAddr {
        match self {
            Self::Direct(direct) => direct.peer,
            Self::Hyper(HyperSender::Http1 { peer, .. } | HyperSender::Http2(SharedSender { peer, .. })) => {
                *peer
            }
        }
    }

    /// Whether it is for no further request.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Self::Hyper(HyperSender::Http1 { is_single: true, .. }))
    }

    /// Ends a connection that nobody else uses, whatever is still being sent.
    pub(crate) fn close(self) {
        if let Self::Hyper(HyperSender::Http1 { task, .. }) = self {
            task.abort();
        }
    }

    /// Has hyper speak on it from now on.
    pub(crate) async fn through_hyper(self) -> io::Result<HyperSender> {
        match self {
            Self::Direct(direct) => {
                let peer = direct.peer;
                speak(direct.into_stream(), peer, false).await
            }
            Self::Hyper(sender) => Ok(sender),
        }
    }
}

impl HyperSender {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Waits until a request can be sent.
    pub(crate) async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::Http1 { sender, .. } => sender.ready().await,
            Self::Http2(shared) => shared.sender.ready().await,
        }
    }

    /// Sends a request, before this returns. With an error it comes back, if nothing of it has reached the connection.
    pub(crate) fn send(&mut self, request: Request<RequestPayload>) -> ReplyFuture {
        match self {
            Self::Http1 { sender, .. } => Box::pin(sender.try_send_request(request)),
            Self::Http2(shared) => Box::pin(shared.sender.try_send_request(request)),
        }
    }
}

/// Makes a request one that `server` can be sent: with a host, which on HTTP/2 is part of the target (RFC 9113, 8.3.1).
/// `None` if its host is invalid.
pub(crate) fn addressed<B>(
    mut request: Request<B>,
    server: &ServerConfig,
    is_http2: bool,
) -> Option<Request<B>> {
    let name = server.backend.target.to_string();
    let fields = request.headers_mut();
    if !fields.contains_key(HOST) {
        fields.insert(HOST, HeaderValue::from_str(&name).ok()?);
    }
    if is_http2 {
        let host = fields.remove(HOST)?;
        let mut target = std::mem::take(request.uri_mut()).into_parts();
        target.scheme = Some(if server.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        target.authority = Some(host.as_bytes().try_into().ok()?);
        *request.uri_mut() = Uri::from_parts(target).ok()?;
    }
    Some(request)
}

/// Why a request that offers to go on in another protocol cannot be sent.
#[derive(Debug, Error)]
#[error("the server speaks HTTP/2 alone")]
struct Http2Alone;

/// Whether that is why there is no connection.
pub(crate) fn is_http2_alone(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|why| why.is::<Http2Alone>())
}

/// Connects to a server, TLS included, within the upstream's bound; for a request that `offers` to go on in another protocol,
/// in HTTP/1.1.
pub(crate) async fn connect(
    resolver: &Resolver,
    upstream: &UpstreamConfig,
    server: &ServerConfig,
    offers: bool,
) -> io::Result<Sender> {
    let target: &Target = &server.backend.target;
    if offers && !server.is_tls && upstream.protocol == Protocol::Http2 {
        return Err(io::Error::other(Http2Alone));
    }
    let connecting = async {
        let stream = resolver.connect_from(&upstream.sources, target, upstream.connect_timeout).await?;
        let peer = stream.peer_addr()?.ip();
        match upstream.tls.as_ref().filter(|_| server.is_tls) {
            None if upstream.protocol == Protocol::Http2 => speak(stream, peer, true).await,
            None => return Ok(Sender::Direct(Box::new(Direct::new(stream, peer)))),
            Some(tls) if offers && upstream.protocol != Protocol::Http1 => {
                single(tls, target, stream, upstream.protocol == Protocol::Http2).await
            }
            Some(tls) => {
                let stream = tls.handshake(target, stream).await?;
                let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
                match (upstream.protocol, agreed.as_deref()) {
                    (Protocol::Http2, Some(b"h2")) | (Protocol::Auto, Some(b"h2")) => {
                        speak(stream, peer, true).await
                    }
                    (Protocol::Http2, _) => Err(io::Error::other("the server does not agree on HTTP/2")),
                    _ => speak(stream, peer, false).await,
                }
            }
        }
        .map(Sender::Hyper)
    };
    timeout(upstream.connect_timeout, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Speaks HTTP/1.1 over TLS to a server that others may speak HTTP/2 to. `must_agree`: one that chooses nothing by ALPN is taken to
/// speak HTTP/2 still.
async fn single(
    tls: &TlsClient,
    target: &Target,
    stream: TcpStream,
    must_agree: bool,
) -> io::Result<HyperSender> {
    let peer = stream.peer_addr()?.ip();
    let stream = tls
        .handshake_in("http/1.1", target, stream)
        .await
        .map_err(|error| if shares_no_protocol(&error) { io::Error::other(Http2Alone) } else { error })?;
    if must_agree && stream.get_ref().1.alpn_protocol().is_none() {
        return Err(io::Error::other(Http2Alone));
    }
    let mut sender = speak(stream, peer, false).await?;
    if let HyperSender::Http1 { is_single, .. } = &mut sender {
        *is_single = true;
    }
    Ok(sender)
}

async fn speak<S>(stream: S, peer: IpAddr, is_http2: bool) -> io::Result<HyperSender>
where
    S: AsyncRead + AsyncWrite + Debug + Unpin + Send + 'static,
{
    if is_http2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_max_send_streams(FIRST_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
            .max_send_buf_size(SEND_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let driven = Arc::new(Mutex::new(Some(connection)));
        let ends = EndsWithTask(Arc::<DrivenHttp2<S>>::clone(&driven));
        drop(tokio::spawn(drive(Arc::clone(&driven), ends)));
        return Ok(HyperSender::Http2(SharedSender { sender, users: Arc::new(()), driven, peer }));
    }
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_FIELDS)
        .writev(false)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let task = tokio::spawn(async move { ended(connection.with_upgrades().await) }).abort_handle();
    Ok(HyperSender::Http1 { sender, peer, task, is_single: false })
}

/// Drives a connection of HTTP/2 to its end. It is dropped then, whoever still has a request to send.
async fn drive<S>(driven: Arc<DrivenHttp2<S>>, ends: EndsWithTask)
where
    S: AsyncRead + AsyncWrite + Debug + Unpin + Send + 'static,
{
    let end = poll_fn(|cx| match driven.lock().as_mut() {
        Some(connection) => Pin::new(connection).poll(cx),
        None => Poll::Ready(Ok(())),
    });
    let end = end.await;
    drop(ends);
    ended(end);
}

fn ended(end: hyper::Result<()>) {
    if let Err(error) = end {
        tracing::debug!(%error, "a connection to an upstream ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_http2_whose_task_is_gone_takes_no_request() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            speak(stream, address.ip(), true).await.unwrap()
        });
        let HyperSender::Http2(shared) = sender else { panic!("it speaks HTTP/2") };
        assert!(shared.has_room());
        // Its task ends before the connection does, as by a panic.
        drop(runtime);
        assert!(!shared.has_room());
    }
}
