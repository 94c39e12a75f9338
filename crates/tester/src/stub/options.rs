//! Options of a stub: what it does, and what it does badly.

use std::{net::SocketAddr, time::Duration};

/// A stub's behaviour. The default answers 200 at once.
#[derive(Clone, Debug, PartialEq)]
pub struct StubOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Event-loop threads, 1 to 64, each with a listener of its own (`SO_REUSEPORT`).
    pub threads: u32,
    /// Other processes may listen on the port, too. Without it a port that is taken is refused.
    pub share_port: bool,
    /// Bytes are sent back as they come, in place of HTTP.
    pub echo: bool,
    /// Length of the accept queue, at least 1.
    pub backlog: u32,
    /// Pause after each accepted connection.
    pub accept_gap: Duration,
    /// Descriptor limit that the process sets itself. It holds for the *whole* process.
    pub max_descriptors: Option<u64>,
    /// Time that each request takes, whatever the load.
    pub delay: Duration,
    /// Servers in a pool with one FIFO queue, each busy for `delay` with one request; 0: no pool.
    pub workers: u32,
    /// Standstills that come again and again.
    pub stall: Option<Stall>,
    /// One standstill.
    pub freeze: Option<Freeze>,
    /// Added to `delay` for each second since the first request.
    pub drift_per_second: Duration,
    /// Bytes kept for ever at each request, at most [`MAX_LEAK`] in all.
    pub leak_bytes: u32,
    /// When requests are turned away.
    pub admission: Option<Admission>,
    /// Length of the body.
    pub body_bytes: u32,
    /// What the body says, which `body_bytes` is the length of; without it, so many `x`.
    pub body: Option<Box<str>>,
    /// The body is sent in this many pieces...
    pub body_pieces: u32,
    /// ...with this pause between two.
    pub body_gap: Duration,
    /// CPU time used by each request, in the thread that serves it.
    pub burn: Duration,
    /// A service that each request waits for.
    pub upstream: Option<Upstream>,
    /// What goes wrong now and then.
    pub fault: Option<Fault>,
}

/// Most memory that a stub leaks, in bytes.
pub const MAX_LEAK: usize = 1 << 30;

/// A standstill of all threads, `length` long, every `every`, counted from the first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// From the beginning of one to the beginning of the next.
    pub every: Duration,
    /// How long one lasts, less than `every`.
    pub length: Duration,
}

/// One standstill of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// Its beginning, counted from the first request.
    pub after: Duration,
    /// How long it lasts.
    pub length: Duration,
}

/// Requests beyond a bound get `status` at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admission {
    /// 429 or 503, for instance.
    pub status: u16,
    /// The bound.
    pub beyond: Beyond,
}

/// A bound on what is admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Beyond {
    /// The first so many requests are served.
    Requests(u64),
    /// So many per second are, with a burst of a tenth of a second.
    Rate(f64),
    /// So many at a time are.
    InFlight(u64),
}

/// A service behind the stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    /// Connections to it, over all threads; requests beyond wait in a queue.
    pub connections: u32,
}

/// Every `every`-th request goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// At least 1.
    pub every: u64,
    /// In which way.
    pub kind: FaultKind,
}

/// Ways to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The connection is reset.
    Reset,
    /// The connection is closed after half of the reply.
    Truncate,
    /// The reply is not HTTP.
    Garbage,
    /// No reply ever comes.
    Hang,
    /// This status.
    Status(u16),
    /// A good reply, and the connection is closed.
    Close,
}

impl StubOptions {
    /// A stub that answers 200 at once.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            threads: 1,
            share_port: false,
            echo: false,
            backlog: 4_096,
            accept_gap: Duration::ZERO,
            max_descriptors: None,
            delay: Duration::ZERO,
            workers: 0,
            stall: None,
            freeze: None,
            drift_per_second: Duration::ZERO,
            leak_bytes: 0,
            admission: None,
            body_bytes: 2,
            body: None,
            body_pieces: 1,
            body_gap: Duration::ZERO,
            burn: Duration::ZERO,
            upstream: None,
            fault: None,
        }
    }

    /// Nothing is planted: requests can be answered without looking at any shared state.
    pub(super) fn is_plain(&self) -> bool {
        let plain = Self { threads: self.threads, backlog: self.backlog, ..Self::new(self.listen) };
        let plain = Self { share_port: self.share_port, ..plain };
        *self == Self { body_bytes: self.body_bytes, body: self.body.clone(), ..plain }
    }
}
