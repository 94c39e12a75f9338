//! A connection that goes on in another protocol, such as WebSocket: bytes both ways, until both sides have ended or
//! neither has said anything for too long.
//!
//! It holds the server's place to its end, and lives in the client's connection: when a drain ends that, the server
//! is told that the client has sent its last byte.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_net::clock::monotonic;
use tidegate_net::http::Upgraded;
use tidegate_upstream::backend::Place;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{sleep_until, timeout};

use crate::limits::LimitPermit;
use crate::observed::flow::Passing;
use crate::observed::record::{End, Recorder};
use crate::servers::connection::Sender;

/// The server's side, which has agreed.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) server: OnUpgrade,
    /// Kept until the server's side is here.
    pub(crate) sender: Sender,
    pub(crate) place: Place,
    /// How long both sides may be silent.
    pub(crate) idle_timeout: Duration,
    /// Written when it has ended.
    pub(crate) record: Recorder,
    /// Given back then.
    pub(crate) held: Option<LimitPermit>,
    /// Where its bytes are counted.
    passing: Passing,
}

impl Tunnel {
    /// With a server that has agreed.
    pub(crate) fn new(
        server: OnUpgrade,
        sender: Sender,
        place: Place,
        idle_timeout: Duration,
        passing: Passing,
    ) -> Self {
        Self { server, sender, place, idle_timeout, record: Recorder::default(), held: None, passing }
    }

    /// Passes bytes until the end.
    pub(crate) async fn run(self, client: Upgraded) {
        let Self { server, sender, place: _place, idle_timeout, mut record, held: _held, passing } = self;
        let Ok(Ok(server)) = timeout(idle_timeout, server).await else { return };
        drop(sender);
        let opened = monotonic();
        let (last, sent) = (AtomicU64::new(0), AtomicU64::new(0));
        let of_client = |bytes: usize| passing.request_bytes(bytes);
        let of_server = |bytes: usize| {
            passing.reply_bytes(bytes);
            sent.fetch_add(bytes as u64, Relaxed);
        };
        let mut client = ActiveStream { stream: client, opened, last: &last, count: &of_client };
        let mut server =
            ActiveStream { stream: TokioIo::new(server), opened, last: &last, count: &of_server };
        let mut copying = std::pin::pin!(copy_bidirectional(&mut client, &mut server));
        loop {
            let deadline = opened + Duration::from_nanos(last.load(Relaxed)) + idle_timeout;
            tokio::select! {
                ended = copying.as_mut() => {
                    if let Err(error) = &ended {
                        tracing::debug!(%error, "an upgraded connection ended early");
                    }
                    let end = if ended.is_ok() { End::Complete } else { End::BrokenOff };
                    return record.ended(sent.load(Relaxed), end);
                }
                () = sleep_until(deadline.into()) => {
                    if monotonic() >= opened + Duration::from_nanos(last.load(Relaxed)) + idle_timeout {
                        tracing::debug!("an upgraded connection was silent for too long");
                        return record.ended(sent.load(Relaxed), End::Idle);
                    }
                }
            }
        }
    }
}

/// A stream that notes when something was last read from it, and how much.
struct ActiveStream<'a, S> {
    stream: S,
    opened: Instant,
    /// Nanoseconds since it was opened.
    last: &'a AtomicU64,
    /// Counts bytes that were read.
    count: &'a (dyn Fn(usize) + Sync),
}

impl<S: AsyncRead + Unpin> AsyncRead for ActiveStream<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        let length = buffer.filled().len() - before;
        if length > 0 {
            (this.count)(length);
            let since = monotonic().duration_since(this.opened).as_nanos();
            this.last.store(u64::try_from(since).unwrap_or(u64::MAX), Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ActiveStream<'_, S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
