//! One generator thread: connections that end, the requests that they take with them, and those that go out again.
//!
//! A server may close a kept connection at any time, and one that closes for good says so (GOAWAY). A request that meets this
//! was not taken, as far as a client can tell: it goes out again on a new connection, as clients do (RFC 9112, 9.3.1;
//! RFC 9113, 6.8), with its planned start, so that the time that was lost is in its latency. It is drawn anew from the
//! workload: its bytes are not kept for this.
//!
//! Invariants: a request goes out again [`MAX_REPEATS`] times at most, and on HTTP/1.1 only when its connection had carried
//! a reply before; else it is an error. A reset after the request was written is an error always: the server had
//! taken it, and lost it. All of it is counted apart from errors ([`tidegate_judge::measurement::ServerCloses`]).

use super::{
    options::Reuse,
    protocol::{Protocol, Reply},
    slot::SlotPhase,
    worker::Worker,
};
use tidegate_judge::measurement::ErrorClass;

/// How often one request goes out again, at most; then it is an error.
const MAX_REPEATS: u8 = 2;

impl<P: Protocol> Worker<P> {
    /// The peer closed.
    pub(super) fn end_of_file(&mut self, id: u32, now: u64) {
        let slot = &mut self.slots[id as usize];
        if slot.phase != SlotPhase::Busy {
            return self.broke(id, now, ErrorClass::Reset);
        }
        match self.protocol.closed(&mut slot.state) {
            Reply::Done { verdict, status, .. } => self.finished(id, now, verdict, status, false),
            _ => self.not_taken(id, now, ErrorClass::Reset),
        }
    }

    /// The connection failed, in its handshake or later.
    pub(super) fn broke(&mut self, id: u32, now: u64, class: ErrorClass) {
        match self.slots[id as usize].phase {
            SlotPhase::Handshaking => self.connect_failed(id, now, class),
            // Between two requests a peer may close as it likes; the next request opens anew.
            SlotPhase::Idle if class == ErrorClass::Reset => self.closed_idle(id, now),
            _ => self.request_failed(id, now, class),
        }
    }

    /// A reply is complete: whether its server ended the connection with it, without the header that says so.
    pub(super) fn ended_with_reply(&mut self, now: u64, reusable: bool, hung_up: bool) {
        if reusable && !hung_up {
            return;
        }
        if !self.task.tally.counts(now) || self.task.options.reuse == Reuse::PerRequest {
            return;
        }
        if reusable {
            self.task.tally.closes.idle += 1;
        } else if P::SAYS_GOAWAY {
            self.task.tally.closes.goaway += 1;
        }
    }

    /// The server closed a connection on which nothing was in flight.
    pub(super) fn closed_idle(&mut self, id: u32, now: u64) {
        if self.slots[id as usize].kept && self.task.tally.counts(now) {
            self.task.tally.closes.idle += 1;
        }
        self.disconnect(id);
    }

    /// The server takes no more requests on this connection; the one in flight, if there is one, it has not taken.
    pub(super) fn said_goaway(&mut self, id: u32, now: u64) {
        let busy = self.slots[id as usize].phase == SlotPhase::Busy;
        let counted = if busy { self.counts(id, now) } else { self.task.tally.counts(now) };
        self.task.tally.closes.goaway += u64::from(counted);
        if busy {
            self.repeat(id, now);
        } else {
            self.disconnect(id);
        }
    }

    /// The connection ended before a byte of the reply came: the request goes out again where the server had closed it
    /// after an earlier reply, and is an error otherwise.
    pub(super) fn not_taken(&mut self, id: u32, now: u64, class: ErrorClass) {
        if class == ErrorClass::Reset && self.slots[id as usize].is_untaken() {
            self.task.tally.closes.idle += u64::from(self.counts(id, now));
            self.repeat(id, now);
        } else {
            self.broke(id, now, class);
        }
    }

    /// Sends the slot's request again as soon as there is a new connection.
    fn repeat(&mut self, id: u32, now: u64) {
        let slot = &mut self.slots[id as usize];
        if slot.repeats == MAX_REPEATS {
            return self.request_failed(id, now, ErrorClass::Reset);
        }
        slot.repeats += 1;
        self.task.tally.landed(now);
        self.task.tally.closes.repeated += u64::from(self.counts(id, now));
        self.disconnect(id);
        self.slots[id as usize].pending = true;
        self.pending += 1;
        self.opening.push_back(id);
    }
}
