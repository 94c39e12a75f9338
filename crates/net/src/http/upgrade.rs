//! Connections of HTTP/1.1 that go on in another protocol (RFC 9110, 7.8), such as WebSocket, and streams of HTTP/2
//! that do (RFC 8441).
//!
//! ```text
//!   request with Upgrade ──────> UpgradeOffer ─> Reply::upgrade ─> 101 is written ─> the service's future has Upgraded
//!   CONNECT with :protocol ─> GET with Upgrade ─┘                  200 on HTTP/2
//! ```
//!
//! The stream begins with what the client sent behind its request. On HTTP/1.1 the future runs in the connection's
//! task, so that the connection's permit is held, and a drain waits, until it ends. On HTTP/2 it has a task of its own,
//! and the connection, with its permit, is open for as long as the stream is. A drain leaves the stream alone until
//! shortly before its deadline ([`crate::drain::DrainTiming::last_words`]). Then it reads as if the client had sent its
//! last byte; what the service still writes is sent until the deadline.
//!
//! An extended CONNECT is shown to the service as the GET that would ask for the same on HTTP/1.1, so that whatever
//! judges requests judges it alike. One difference is left: on HTTP/1.1 a service may pass an offer over and answer
//! the GET; a client of HTTP/2 takes any success for a yes, so that a success which accepts nothing becomes 501.
//!
//! Bounds: a client must read what is written to it at [`super::HttpConfig::write`]. How long both sides may be
//! silent is the service's to bound. Nothing is buffered here on HTTP/1.1; on HTTP/2 a few pieces are.
//!
//! Deliberately absent: CONNECT to another host.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, Request, Version};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::RequestBody;
use super::deadline::DeadlineIo;
use crate::connection::Sweep;

/// A client's offer to go on in another protocol, which its request names in the field `Upgrade`.
#[derive(Debug)]
pub struct UpgradeOffer(Offered);

/// Marks a request whose client makes such an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offered {
    /// Of the whole connection, on HTTP/1.1.
    Connection,
    /// Of one stream, on HTTP/2.
    Stream,
}

impl UpgradeOffer {
    /// The request's offer, if it makes one that can be accepted: its service says that it does so
    /// ([`super::Handle::may_upgrade`]), it has no body, and it is of HTTP/1.1 and its field `Connection` names the
    /// offer, or it was an extended CONNECT on HTTP/2. It is there once.
    pub fn take(request: &mut Request<RequestBody>) -> Option<Self> {
        request.extensions_mut().remove::<Offered>().map(Self)
    }

    /// Whether a request makes an offer of a stream of HTTP/2, so that its client takes any success for a yes.
    #[must_use]
    pub fn is_of_stream(request: &Request<RequestBody>) -> bool {
        request.extensions().get::<Offered>() == Some(&Offered::Stream)
    }

    /// Whether it is of a stream of HTTP/2.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.0 == Offered::Stream
    }

    /// Notes the offer that a request makes, if it makes one. What an offer of a stream is made of is returned, and its
    /// request is a GET from then on.
    pub(super) fn note(request: &mut Request<Incoming>, may_upgrade: bool) -> Option<OnUpgrade> {
        // hyper's own offer says that it will let the connection, or the stream, go.
        let free = request.extensions_mut().remove::<OnUpgrade>();
        let protocol = request.extensions_mut().remove::<Protocol>();
        let is_whole = hyper::body::Body::is_end_stream(request.body());
        let free = free.filter(|_| may_upgrade && is_whole)?;
        if request.version() == Version::HTTP_11 && names_upgrade(request.headers()) {
            request.extensions_mut().insert(Offered::Connection);
        }
        if request.version() != Version::HTTP_2 {
            return None;
        }
        // Without a protocol it is a CONNECT to another host, and stays one.
        let protocol = HeaderValue::from_str(protocol?.as_str()).ok()?;
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(UPGRADE, protocol);
        request.extensions_mut().insert(Offered::Stream);
        Some(free)
    }
}

fn names_upgrade(fields: &HeaderMap) -> bool {
    let values = fields.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("upgrade"))
}

/// The byte stream of a connection that goes on in another protocol. It is for the future that it was given to:
/// a task of its own is not told of a drain.
pub type Upgraded = Box<dyn ByteStream>;

/// Any byte stream, in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

type Run = dyn FnOnce(Upgraded) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send;

/// What a service does with the stream.
pub(super) struct Continuation(Box<Run>);

impl Continuation {
    pub(super) fn new<R, F>(run: R) -> Self
    where
        R: FnOnce(Upgraded) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(move |stream| Box::pin(run(stream))))
    }

    /// Runs to its end.
    pub(super) async fn run<S>(self, io: DeadlineIo<S>, sweep: Sweep)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.run_on(Box::new(UpgradedIo { io, sweep })).await;
    }

    /// The same on a stream that hears of a drain by itself.
    pub(super) async fn run_on(self, stream: Upgraded) {
        (self.0)(stream).await;
    }
}

impl std::fmt::Debug for Continuation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Continuation")
    }
}

/// A connection's stream, until the drain tells it the end.
struct UpgradedIo<S> {
    io: DeadlineIo<S>,
    sweep: Sweep,
}

impl<S: AsyncRead + Unpin> AsyncRead for UpgradedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.sweep.poll(cx) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.io).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for UpgradedIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    /// Ends this direction; the other one goes on.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io.poll_half_close(cx)
    }
}
