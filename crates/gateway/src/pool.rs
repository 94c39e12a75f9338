//! Connections to one server that wait for their next request.
//!
//! Each core has its own stack of them, so that a request stays on the core of its client and no lock is
//! fought over. The newest is taken first: the others age, and go when they have been idle for too long.
//! Both the number and the time are bounded.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;

use crate::body::RequestPayload;

/// A connection on which HTTP/1.1 requests can be sent.
pub(crate) type Sender = SendRequest<RequestPayload>;

/// Idle connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    cores: Box<[Mutex<Vec<Idle>>]>,
    most: usize,
    longest: Duration,
}

#[derive(Debug)]
struct Idle {
    sender: Sender,
    since: Instant,
}

impl Pool {
    /// An empty pool for each of `cores`, with at most `most` connections that are idle for `longest`.
    pub(crate) fn new(cores: usize, most: usize, longest: Duration) -> Self {
        Self { cores: (0..cores.max(1)).map(|_| Mutex::default()).collect(), most, longest }
    }

    /// A connection that was open a moment ago, if there is one.
    pub(crate) fn take(&self, core: usize, now: Instant) -> Option<Sender> {
        let mut idle = self.core(core);
        while let Some(Idle { sender, since }) = idle.pop() {
            if now.duration_since(since) >= self.longest {
                // Those below it are older still.
                idle.clear();
                return None;
            }
            if !sender.is_closed() {
                return Some(sender);
            }
        }
        None
    }

    /// Keeps a connection for the next request, if there is room.
    pub(crate) fn put(&self, core: usize, sender: Sender, now: Instant) {
        let mut idle = self.core(core);
        if idle.len() < self.most && !sender.is_closed() {
            idle.push(Idle { sender, since: now });
        }
    }

    /// Closes what has been idle for too long, on every core.
    pub(crate) fn sweep(&self, now: Instant) {
        for core in 0..self.cores.len() {
            self.core(core)
                .retain(|idle| now.duration_since(idle.since) < self.longest && !idle.sender.is_closed());
        }
    }

    fn core(&self, core: usize) -> MutexGuard<'_, Vec<Idle>> {
        self.cores[core % self.cores.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
