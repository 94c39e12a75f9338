//! Bytes from one socket to another without passing through this process: splice(2) by way of a pipe.
//!
//! ```text
//!   socket ──splice──> pipe ──splice──> socket
//!                       '── back to the core's pool when it is empty and nothing more has come
//! ```
//!
//! A pipe takes two descriptors and up to 64 KiB of the kernel's memory, so each core has at most
//! [`MAX_PIPES`] in use; a direction that gets none goes on with copies. A pipe that is not empty when its connection
//! ends is closed and never pooled, so that no other connection gets its bytes.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Most pipes that the connections of one core use at once.
pub(crate) const MAX_PIPES: usize = 256;

/// Most pipes that a core keeps for the next connection.
const MAX_KEPT: usize = 64;

/// Most bytes that are moved at once: what a pipe holds.
pub(crate) const PIPE_BYTES: usize = 64 << 10;

thread_local! {
    static KEPT: RefCell<Vec<(OwnedFd, OwnedFd)>> = const { RefCell::new(Vec::new()) };
    static IN_USE: Cell<usize> = const { Cell::new(0) };
}

/// A pipe in use.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// `None` while it is being given back.
    ends: Option<(OwnedFd, OwnedFd)>,
    held: usize,
}

impl Pipe {
    /// A pipe, unless this core uses as many as it may or the process has no descriptors left.
    pub(crate) fn take() -> Option<Self> {
        if IN_USE.get() >= MAX_PIPES {
            return None;
        }
        let kept = KEPT.with_borrow_mut(Vec::pop);
        let ends = kept.or_else(|| pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok())?;
        IN_USE.set(IN_USE.get() + 1);
        Some(Self { ends: Some(ends), held: 0 })
    }

    /// How many bytes are in it.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Fills the pipe with at most `most` bytes from `from`: how many came, 0 at the end of the stream.
    pub(crate) fn poll_fill(
        &mut self,
        from: &TcpStream,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let Some((_, into)) = &self.ends else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(from.poll_read_ready(cx))?;
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let moved = from.try_io(Interest::READABLE, || {
                splice(from, None, into, None, most, flags).map_err(io::Error::from)
            });
            match moved {
                Ok(count) => {
                    self.held += count;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Empties the pipe into `to`.
    pub(crate) fn poll_drain(&mut self, to: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((from, _)) = &self.ends else { return Poll::Ready(Ok(())) };
        while self.held > 0 {
            ready!(to.poll_write_ready(cx))?;
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let moved = to.try_io(Interest::WRITABLE, || {
                splice(from, None, to, None, self.held, flags).map_err(io::Error::from)
            });
            match moved {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.held -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // At the end of a thread there is no pool any more, and the descriptors are closed.
        let _at_the_end = IN_USE.try_with(|count| count.set(count.get().saturating_sub(1)));
        let Some(ends) = self.ends.take().filter(|_| self.held == 0) else { return };
        let _at_the_end = KEPT.try_with(|kept| {
            if let Ok(mut kept) = kept.try_borrow_mut()
                && kept.len() < MAX_KEPT
            {
                kept.push(ends);
            }
        });
    }
}
