//! The end of a connection that the server closes first.
//!
//! To close at once would reset the connection while the peer still sends, and the peer might never see the
//! last reply. So the server half-closes, then reads and drops what comes, for so long and so many bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::LazyTimer;
use crate::clock::monotonic;

/// A half-closed connection that is read dry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linger {
    until: Instant,
    bytes: usize,
}

impl Linger {
    /// From now on, for so long and so many bytes at most.
    pub(crate) fn begin(patience: Duration, bytes: usize) -> Self {
        Self { until: monotonic() + patience, bytes }
    }

    /// Reads and drops. Ready when the peer has ended, too, or has had its time or its bytes.
    pub(crate) fn poll<S>(&mut self, stream: &mut S, timer: &mut LazyTimer, cx: &mut Context<'_>) -> Poll<()>
    where
        S: AsyncRead + Unpin,
    {
        let mut scratch = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.bytes = self.bytes.saturating_sub(buffer.filled().len());
                    if self.bytes == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return timer.poll(cx, self.until),
            }
        }
    }
}

/// Half-closes, and reads dry. The time counts for both.
///
/// # Errors
/// When the stream cannot be half-closed: then the client is gone already.
pub async fn half_close<S>(mut stream: S, patience: Duration, bytes: usize) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut linger, mut timer) = (Linger::begin(patience, bytes), LazyTimer::default());
    let mut is_closed = false;
    std::future::poll_fn(move |cx| {
        if !is_closed {
            match Pin::new(&mut stream).poll_shutdown(cx) {
                Poll::Ready(closed) => closed?,
                // TLS has a last word of its own, which the peer may not take.
                Poll::Pending => return timer.poll(cx, linger.until).map(Ok),
            }
            is_closed = true;
        }
        linger.poll(&mut stream, &mut timer, cx).map(Ok)
    })
    .await
}
