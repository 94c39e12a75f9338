//! One generator thread: what time alone makes due, and how a step ends.
//!
//! ```text
//!   closed loop   over at its end, or when its last request is answered
//!   open loop     over when all that was due in its time is answered, or `drain` after its end;
//!                 what is still unanswered then is a timeout, sent or not
//! ```
//!
//! Timeouts are found by looking at all slots now and then, not by a timer each: a scan of 20,000
//! slots costs 50 us, a timer would cost something at every request.

use std::cmp::Reverse;

use super::{
    progress::Snapshot,
    protocol::Protocol,
    slot::SlotPhase,
    worker::{Release, Worker},
};
use crate::epoch::nanos;
use tidegate_judge::measurement::ErrorClass;

/// Longest wait for events: bounds the reaction to a stop.
const MAX_WAIT: u64 = 50_000_000;
/// Time between two progress snapshots.
const SNAPSHOT: u64 = 250_000_000;

impl<P: Protocol> Worker<P> {
    /// Ends what has taken too long. Timeouts are late by at most a twentieth.
    pub(super) fn sweep(&mut self, now: u64) {
        if now < self.next_sweep {
            return;
        }
        let connect = nanos(self.task.options.connect_timeout);
        let request = nanos(self.task.options.request_timeout);
        self.next_sweep = now + (connect.min(request) / 20).clamp(5_000_000, 100_000_000);
        for id in 0..self.slots.len() {
            let slot = &self.slots[id];
            let age = now.saturating_sub(slot.since);
            match slot.phase {
                SlotPhase::Connecting | SlotPhase::Handshaking if age > connect => {
                    self.connect_failed(id as u32, now, ErrorClass::Timeout)
                }
                SlotPhase::Busy if age > request => self.request_failed(id as u32, now, ErrorClass::Timeout),
                _ => {}
            }
        }
    }

    /// No request of the measured time is still to be sent.
    pub(super) fn released_all(&self, now: u64) -> bool {
        let none_waits = self.pending == 0;
        let spent = self.task.budget == 0;
        match &self.task.release {
            Release::Closed { .. } => now >= self.times.to || (spent && none_waits && self.in_flight() == 0),
            Release::Open(schedule) => {
                let stopped = spent || schedule.due().is_none();
                (stopped && none_waits && (spent || now >= self.times.to)) || now >= self.times.drained
            }
        }
    }

    pub(super) fn over(&self, now: u64) -> bool {
        self.task.stop.is_stopped()
            || match self.task.release {
                Release::Closed { .. } => self.released_all(now),
                Release::Open(_) => {
                    now >= self.times.drained || (self.released_all(now) && self.in_flight() == 0)
                }
            }
    }

    fn in_flight(&self) -> u64 {
        self.task.tally.in_flight()
    }

    /// Closes the books: in an open loop, what was due and has no reply by now was too late.
    pub(super) fn conclude(&mut self, finished: bool) {
        let now = self.now();
        if !finished {
            self.task.tally.finish(now);
        }
        if !self.task.stop.is_stopped()
            && let Release::Open(schedule) = &mut self.task.release
        {
            let mut unsent = 0;
            while schedule.due().is_some() && unsent < self.task.budget {
                schedule.advance();
                unsent += 1;
            }
            let mut late = unsent + self.pending;
            let from = self.times.from;
            late += self
                .slots
                .iter()
                .filter(|slot| slot.phase == SlotPhase::Busy && slot.planned >= from)
                .count() as u64;
            for _ in 0..late {
                self.task.tally.failed(now, ErrorClass::Timeout);
            }
        }
        for slot in &mut self.slots {
            if let Some(fd) = slot.fd.take() {
                super::socket::close_without_time_wait(fd);
            }
        }
    }

    /// Nanoseconds until something may be due.
    pub(super) fn next_wait(&self) -> u64 {
        let now = self.now();
        let started = now >= self.times.origin;
        let closed_start =
            started && matches!(self.task.release, Release::Closed { .. }) && !self.idle.is_empty();
        if closed_start || !self.hot.is_empty() {
            return 0;
        }
        let mut at = (now + MAX_WAIT).min(self.next_sweep);
        for edge in [self.times.origin, self.times.from, self.times.to, self.times.drained] {
            if edge > now {
                at = at.min(edge);
            }
        }
        if let Some(Reverse((due, _))) = self.retry.peek() {
            at = at.min(*due);
        }
        if let Some((due, _)) = self.thinking.front() {
            at = at.min(*due);
        }
        if let Release::Open(schedule) = &self.task.release
            && !self.idle.is_empty()
            && self.task.budget > 0
            && let Some(due) = schedule.due()
        {
            at = at.min(self.times.origin.saturating_add(due));
        }
        if !self.opening.is_empty() && self.connecting < self.task.options.max_connecting {
            at = at.min(self.next_open);
        }
        at.saturating_sub(now)
    }

    pub(super) fn snapshot(&mut self, now: u64) {
        if now < self.next_snapshot {
            return;
        }
        self.next_snapshot = now + SNAPSHOT;
        let (Some(sender), Some(recent)) = (&self.task.snapshots, &mut self.recent) else {
            return;
        };
        let tally = &self.task.tally;
        let snapshot = Snapshot {
            first_connection: self.task.first_connection,
            good: tally.good,
            denied: tally.denied,
            errors: tally.errors.iter().sum(),
            in_flight: tally.in_flight(),
            established: tally.alive(),
            recent: recent.clone(),
        };
        // The last snapshot was not taken: these latencies stay for the next one.
        if sender.try_send(snapshot).is_ok() {
            recent.reset();
        }
    }
}
