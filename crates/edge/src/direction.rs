//! The bytes of one direction of a relay.
//!
//! ```text
//!            ┌─ copy: read into the core's one buffer, write; what the other side does not take yet is kept
//!   reader ──┤                                                      ^ less than a quarter of a buffer came
//!            └─ splice, once four reads in a row filled the buffer ─┘                       ──> writer
//! ```
//!
//! An idle connection owns no buffer: the one that is read into belongs to the core, and a direction has bytes of its
//! own only while its reader is ahead of its writer, at most [`BUFFER`]. No more is read until these are written, so
//! a slow side slows the other down.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::side::Side;
use crate::splice::{PIPE_BYTES, Pipe};

/// Bytes that are read at once, and that a direction keeps at most.
pub(crate) const BUFFER: usize = 16 << 10;

/// Full reads in a row after which a direction is bulk.
const BULK: u8 = 4;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// Which side of a direction failed.
pub(crate) enum DirectionFailure {
    Reader(io::Error),
    Writer(io::Error),
}

/// One direction: what was read of one side and is not written to the other one yet.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Read and not yet written, and how much of it is.
    kept: Box<[u8]>,
    written: usize,
    pipe: Option<Pipe>,
    full_reads: u8,
    /// Whether the writer may have bytes that its socket has not.
    is_unflushed: bool,
    pub(crate) has_ended: bool,
    pub(crate) is_shut: bool,
    /// Whether its reader broke off before it had ended, so that its writer is not told of an end.
    pub(crate) is_cut: bool,
    pub(crate) bytes: u64,
}

impl Direction {
    /// A direction that writes `first` before anything else; so many `bytes` count as read.
    pub(crate) fn beginning_with(first: Vec<u8>, bytes: u64) -> Self {
        Self { kept: first.into(), bytes, ..Self::default() }
    }

    /// How many bytes were read and not yet written.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.len() - self.written + self.pipe.as_ref().map_or(0, Pipe::held)
    }

    /// Passes bytes on. Ready when its reader has ended and its writer has all.
    pub(crate) fn poll<R: Side, W: Side>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
        allowance: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), DirectionFailure>> {
        loop {
            ready!(self.poll_write_kept(writer, cx)).map_err(DirectionFailure::Writer)?;
            if self.has_ended {
                if !self.is_shut && !self.is_cut {
                    ready!(Pin::new(&mut *writer).poll_shutdown(cx)).map_err(DirectionFailure::Writer)?;
                    self.is_shut = true;
                }
                return Poll::Ready(Ok(()));
            }
            if *allowance == 0 {
                ready!(self.poll_empty_pipe(writer, cx)).map_err(DirectionFailure::Writer)?;
                return Poll::Pending;
            }
            if self.full_reads >= BULK && reader.is_plain() && writer.is_plain() {
                if self.pipe.is_none() {
                    self.pipe = Pipe::take();
                }
                if self.pipe.is_some() {
                    ready!(self.poll_splice(reader, writer, allowance, cx))?;
                    continue;
                }
            }
            ready!(self.poll_copy(reader, writer, allowance, cx))?;
        }
    }

    /// Empties the pipe, if there is one, and gives it back.
    fn poll_empty_pipe<W: Side>(&mut self, writer: &W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(pipe) = &mut self.pipe {
            ready!(pipe.poll_drain(writer.socket(), cx))?;
            self.pipe = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what was kept, until the writer's socket has it. Nothing is owned any more then.
    fn poll_write_kept<W: Side>(&mut self, writer: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.kept.len() {
            let count = ready!(Pin::new(&mut *writer).poll_write(cx, &self.kept[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.is_unflushed = true;
        }
        if !self.kept.is_empty() {
            (self.kept, self.written) = (Box::default(), 0);
        }
        if self.is_unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// One read and one write; what is not taken at once is kept.
    fn poll_copy<R: Side, W: Side>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
        allowance: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), DirectionFailure>> {
        SHARED.with_borrow_mut(|shared| {
            let most = at_most(*allowance, BUFFER);
            let mut buffer = ReadBuf::new(&mut shared[..most]);
            ready!(Pin::new(reader).poll_read(cx, &mut buffer)).map_err(DirectionFailure::Reader)?;
            let bytes = buffer.filled();
            if bytes.is_empty() {
                self.has_ended = true;
                return Poll::Ready(Ok(()));
            }
            self.bytes += bytes.len() as u64;
            *allowance -= bytes.len() as u64;
            if bytes.len() < most {
                self.full_reads = 0;
            } else if most == BUFFER {
                self.full_reads = self.full_reads.saturating_add(1);
            }
            let written = match Pin::new(&mut *writer).poll_write(cx, bytes) {
                Poll::Ready(written) => written.map_err(DirectionFailure::Writer)?,
                Poll::Pending => 0,
            };
            self.is_unflushed = written > 0;
            if written < bytes.len() {
                self.kept = bytes[written..].into();
            }
            Poll::Ready(Ok(()))
        })
    }

    /// One round through the pipe. It is given back when nothing has come.
    fn poll_splice<R: Side, W: Side>(
        &mut self,
        reader: &R,
        writer: &W,
        allowance: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), DirectionFailure>> {
        let most = at_most(*allowance, PIPE_BYTES);
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(())) };
        ready!(pipe.poll_drain(writer.socket(), cx)).map_err(DirectionFailure::Writer)?;
        match pipe.poll_fill(reader.socket(), most, cx) {
            Poll::Ready(Ok(0)) => {
                self.pipe = None;
                self.has_ended = true;
            }
            Poll::Ready(Ok(count)) => {
                self.bytes += count as u64;
                *allowance -= count as u64;
                ready!(pipe.poll_drain(writer.socket(), cx)).map_err(DirectionFailure::Writer)?;
                if count < most.min(BUFFER / 4) {
                    self.full_reads = 0;
                    self.pipe = None;
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(DirectionFailure::Reader(error))),
            Poll::Pending => {
                self.pipe = None;
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// An allowance as a length, of no more than `most`.
fn at_most(allowance: u64, most: usize) -> usize {
    usize::try_from(allowance).map_or(most, |allowance| allowance.min(most))
}
