//! Bytes both ways between a client and its backend, until both have ended or neither has said anything for too long.
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
//!
//! The end of one side's bytes is passed on and the other side may go on talking. A side that breaks off breaks the
//! other one off, with a reset where there is no TLS, so that what was cut never looks complete.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tidegate_net::clock::monotonic;
use tidegate_net::connection::LazyTimer;
use tidegate_net::tls::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::splice::{PIPE_BYTES, Pipe};

/// Bytes that are read at once, and that a direction keeps at most.
pub(crate) const BUFFER: usize = 16 << 10;

/// Full reads in a row after which a direction is bulk.
const BULK: u8 = 4;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into());
}

/// One end of a relay.
pub(crate) trait Side: AsyncRead + AsyncWrite + Unpin + Send {
    /// Its socket.
    fn socket(&self) -> &TcpStream;

    /// Whether the socket carries its bytes as they are.
    fn is_plain(&self) -> bool;
}

impl Side for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl Side for TlsStream {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn is_plain(&self) -> bool {
        false
    }
}

/// The bounds of a relay in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How long both sides may be silent.
    pub(crate) idle: Duration,
    /// How long it may last in all.
    pub(crate) longest: Option<Duration>,
}

/// How a relay ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides have said their last byte.
    Closed,
    /// Neither said anything for too long.
    Idle,
    /// It lasted as long as it may.
    Longest,
    /// The client broke off.
    ClientBroke(io::Error),
    /// The backend broke off.
    BackendBroke(io::Error),
}

impl End {
    /// Its word in metrics and logs.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Longest => "longest",
            Self::ClientBroke(_) => "client_broke",
            Self::BackendBroke(_) => "backend_broke",
        }
    }
}

/// A client and its backend.
#[derive(Debug)]
pub(crate) struct Relay<C> {
    client: C,
    backend: TcpStream,
    to_backend: Direction,
    to_client: Direction,
    timer: LazyTimer,
    started: Instant,
    active: Instant,
    patience: Patience,
    /// Bytes that may still be read.
    allowance: u64,
    /// Whether the direction to the client has the first turn, so that neither takes all of the allowance.
    is_client_next: bool,
}

/// Which side of a direction failed.
enum Failure {
    Reader(io::Error),
    Writer(io::Error),
}

#[derive(Debug, Default)]
struct Direction {
    /// Read and not yet written, and how much of it is.
    kept: Box<[u8]>,
    written: usize,
    pipe: Option<Pipe>,
    full_reads: u8,
    /// Whether the writer may have bytes that its socket has not.
    is_unflushed: bool,
    has_ended: bool,
    is_shut: bool,
    bytes: u64,
}

impl<C: Side> Relay<C> {
    /// Begins. `first` goes to the backend before anything else; so many bytes of it are the client's own.
    pub(crate) fn new(
        client: C,
        backend: TcpStream,
        first: Vec<u8>,
        from_client: usize,
        patience: Patience,
    ) -> Self {
        let now = monotonic();
        let to_backend = Direction { bytes: from_client as u64, kept: first.into(), ..Direction::default() };
        let (to_client, timer) = (Direction::default(), LazyTimer::default());
        let (started, active, allowance) = (now, now, u64::MAX);
        Self {
            client,
            backend,
            to_backend,
            to_client,
            timer,
            started,
            active,
            patience,
            allowance,
            is_client_next: false,
        }
    }

    /// How many bytes may still be read from both sides together; without limits more than will ever come. Whoever
    /// adds some when there were none polls again.
    pub(crate) fn allowance(&mut self) -> &mut u64 {
        &mut self.allowance
    }

    /// Bytes that went to the backend, and to the client.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.to_backend.bytes, self.to_client.bytes)
    }

    /// When it began.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Passes bytes on. Ready at the end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let before = self.bytes();
        let (one, other) = if self.is_client_next {
            let down = self.poll_to_client(cx);
            (down, self.poll_to_backend(cx))
        } else {
            let up = self.poll_to_backend(cx);
            (up, self.poll_to_client(cx))
        };
        match (one, other) {
            (Poll::Ready(Err(end)), _) | (_, Poll::Ready(Err(end))) => {
                self.break_off();
                return Poll::Ready(end);
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(End::Closed),
            _ => {}
        }
        if self.bytes() != before {
            self.active = monotonic();
            self.is_client_next = !self.is_client_next;
        }
        let idle = self.active + self.patience.idle;
        let longest = self.patience.longest.map(|longest| self.started + longest);
        let deadline = longest.map_or(idle, |longest| idle.min(longest));
        ready!(self.timer.poll(cx, deadline));
        Poll::Ready(if longest.is_some_and(|longest| longest <= idle) { End::Longest } else { End::Idle })
    }

    fn poll_to_backend(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let up = self.to_backend.poll(&mut self.client, &mut self.backend, &mut self.allowance, cx);
        up.map_err(|failure| match failure {
            Failure::Reader(error) => End::ClientBroke(error),
            Failure::Writer(error) => End::BackendBroke(error),
        })
    }

    fn poll_to_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let down = self.to_client.poll(&mut self.backend, &mut self.client, &mut self.allowance, cx);
        down.map_err(|failure| match failure {
            Failure::Reader(error) => End::BackendBroke(error),
            Failure::Writer(error) => End::ClientBroke(error),
        })
    }

    /// Has each socket that is still owed bytes end with a reset, which does not look like the last byte.
    pub(crate) fn break_off(&self) {
        let sides = [(self.client.socket(), &self.to_client), (&self.backend, &self.to_backend)];
        for (socket, _) in sides.into_iter().filter(|(_, incoming)| !incoming.is_shut) {
            // A socket that is gone already needs no more.
            drop(socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO)));
        }
    }
}

impl Direction {
    fn poll<R: Side, W: Side>(
        &mut self,
        reader: &mut R,
        writer: &mut W,
        allowance: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        loop {
            ready!(self.poll_write_kept(writer, cx)).map_err(Failure::Writer)?;
            if self.has_ended {
                if !self.is_shut {
                    ready!(Pin::new(&mut *writer).poll_shutdown(cx)).map_err(Failure::Writer)?;
                    self.is_shut = true;
                }
                return Poll::Ready(Ok(()));
            }
            if *allowance == 0 {
                ready!(self.poll_empty_pipe(writer, cx)).map_err(Failure::Writer)?;
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
    ) -> Poll<Result<(), Failure>> {
        SHARED.with_borrow_mut(|shared| {
            let most = at_most(*allowance, BUFFER);
            let mut buffer = ReadBuf::new(&mut shared[..most]);
            ready!(Pin::new(reader).poll_read(cx, &mut buffer)).map_err(Failure::Reader)?;
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
                Poll::Ready(written) => written.map_err(Failure::Writer)?,
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
    ) -> Poll<Result<(), Failure>> {
        let most = at_most(*allowance, PIPE_BYTES);
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(())) };
        ready!(pipe.poll_drain(writer.socket(), cx)).map_err(Failure::Writer)?;
        match pipe.poll_fill(reader.socket(), most, cx) {
            Poll::Ready(Ok(0)) => {
                self.pipe = None;
                self.has_ended = true;
            }
            Poll::Ready(Ok(count)) => {
                self.bytes += count as u64;
                *allowance -= count as u64;
                ready!(pipe.poll_drain(writer.socket(), cx)).map_err(Failure::Writer)?;
                if count < most.min(BUFFER / 4) {
                    self.full_reads = 0;
                    self.pipe = None;
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Failure::Reader(error))),
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
