//! One generator thread: its sockets, from opening to the end of a reply.
//!
//! A time stamp taken when events are returned serves all replies of that batch: they had arrived by
//! then. A send reads the clock itself, right before its system call.

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send, sockopt::socket_error},
};

use super::{
    options::Reuse,
    protocol::{Protocol, Reply, Verdict},
    slot::SlotPhase,
    socket::{Opened, classify, open},
    tally::Moments,
    worker::{Release, Worker},
};
use crate::poller::Ready;
use tidegate_judge::measurement::ErrorClass;

/// Full buffers read from one connection before the others get their turn.
const READS_PER_TURN: usize = 4;

impl<P: Protocol> Worker<P> {
    /// Starts a slot's connection.
    pub(super) fn open(&mut self, id: u32) {
        let sources = &self.task.options.sources;
        let source = match sources.len() {
            0 => None,
            count => Some(sources[(self.task.first_connection + id) as usize % count]),
        };
        let slot = &mut self.slots[id as usize];
        slot.since = self.task.epoch.now();
        let (fd, established) = match open(self.task.options.target, source, self.task.options.nodelay) {
            Ok(Opened::Established(fd)) => (fd, true),
            Ok(Opened::InProgress(fd)) => (fd, false),
            Err(error) => {
                let now = self.now();
                return self.connect_failed(id, now, classify(error));
            }
        };
        if let Err(error) = self.poller.add(&fd, slot.token(id)) {
            let now = self.now();
            let class =
                error.raw_os_error().map_or(ErrorClass::Other, |raw| classify(Errno::from_raw_os_error(raw)));
            return self.connect_failed(id, now, class);
        }
        slot.fd = Some(fd);
        slot.phase = SlotPhase::Connecting;
        self.connecting += 1;
        if established {
            let now = self.now();
            self.established(id, now);
        }
    }

    /// TCP's part of a connection is done.
    fn established(&mut self, id: u32, now: u64) {
        let slot = &mut self.slots[id as usize];
        self.task.tally.connect_took(now.saturating_sub(slot.since));
        if P::CONVERSES {
            slot.established = now;
            slot.phase = SlotPhase::Handshaking;
            let at_once = self.protocol.open(&mut slot.state);
            if !self.answer(id, now) || !at_once {
                return;
            }
        }
        self.ready(id, now);
    }

    /// The connection takes requests from now on.
    fn ready(&mut self, id: u32, now: u64) {
        self.connecting -= 1;
        let slot = &mut self.slots[id as usize];
        slot.phase = SlotPhase::Idle;
        slot.failures = 0;
        slot.kept = false;
        self.task.tally.connected();
        if !slot.pending {
            return self.free(id, now);
        }
        slot.pending = false;
        slot.free_since = now;
        self.pending -= 1;
        if P::CONNECT_ONLY {
            slot.first_byte = now;
            slot.phase = SlotPhase::Busy;
            let since = slot.since;
            let counted = self.counts(id, since);
            self.task.tally.sent(since, counted, 0, 0);
            self.finished(id, now, Verdict::Good, 0, false);
        } else {
            self.send(id, true);
        }
    }

    /// The connection could not be made: its request, if it had one, is an error; the slot tries
    /// again later.
    pub(super) fn connect_failed(&mut self, id: u32, now: u64, class: ErrorClass) {
        let before_step = self.times.origin == u64::MAX;
        let slot = &mut self.slots[id as usize];
        if slot.fd.take().is_some() {
            self.connecting -= 1;
        }
        slot.phase = SlotPhase::Closed;
        slot.generation = slot.generation.wrapping_add(1);
        slot.unsent.clear();
        let again = now + slot.backoff();
        if std::mem::take(&mut slot.pending) {
            self.pending -= 1;
        }
        if before_step || self.counts(id, now) {
            self.task.tally.failed(now, class);
        }
        self.retry.push(std::cmp::Reverse((again, id)));
        if self.task.tally.alive() == 0 && !before_step {
            self.fail_all_due(now, class);
        }
    }

    /// Open loop without a single connection: what is due now meets the same fate.
    fn fail_all_due(&mut self, now: u64, class: ErrorClass) {
        let (origin, from) = (self.times.origin, self.times.from);
        let Release::Open(schedule) = &mut self.task.release else {
            return;
        };
        while let Some(due) = schedule.due().filter(|due| origin + due <= now && self.task.budget > 0) {
            schedule.advance();
            self.task.budget -= 1;
            if origin + due >= from {
                self.task.tally.failed(now, class);
            }
        }
    }

    /// Sends the slot's request now; `waited` when it had to wait for its connection.
    pub(super) fn send(&mut self, id: u32, waited: bool) {
        let slot = &mut self.slots[id as usize];
        let bytes = self.protocol.request(&mut slot.state);
        let now = self.task.epoch.now();
        let ready_at = slot.planned.max(slot.free_since);
        if !waited && matches!(self.task.release, Release::Closed { think: 0 }) {
            // Sent as soon as it could be: planned and actual send are one moment.
            slot.planned = now;
        }
        slot.since = now;
        slot.first_byte = 0;
        slot.phase = SlotPhase::Busy;
        let counted = match self.task.release {
            Release::Closed { .. } => self.task.tally.counts(now),
            Release::Open(_) => self.task.tally.counts(slot.planned),
        };
        if slot.repeats == 0 {
            self.task.tally.sent(now, counted, bytes.len(), now.saturating_sub(ready_at));
        } else {
            self.task.tally.sent_again(now, counted, bytes.len());
        }
        let Some(fd) = &slot.fd else {
            return;
        };
        if P::CONVERSES {
            if bytes.is_empty() {
                return self.not_taken(id, now, ErrorClass::Reset);
            }
            if !slot.unsent.is_empty() {
                return slot.unsent.extend_from_slice(bytes);
            }
        }
        match send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(taken) if taken == bytes.len() => {}
            Ok(taken) => slot.unsent.extend_from_slice(&bytes[taken..]),
            Err(Errno::AGAIN | Errno::INTR) => slot.unsent.extend_from_slice(bytes),
            Err(error) => self.not_taken(id, now, classify(error)),
        }
    }

    /// A connection has news.
    pub(super) fn on_ready(&mut self, ready: Ready, now: u64) {
        let id = ready.token as u32;
        let Some(slot) = self.slots.get_mut(id as usize).filter(|slot| slot.token(id) == ready.token) else {
            return;
        };
        match slot.phase {
            SlotPhase::Closed => {}
            SlotPhase::Connecting if ready.writable => {
                let outcome = slot.fd.as_ref().map(socket_error);
                match outcome {
                    Some(Ok(Ok(()))) => self.established(id, now),
                    Some(Ok(Err(error)) | Err(error)) => self.connect_failed(id, now, classify(error)),
                    None => {}
                }
            }
            SlotPhase::Connecting => {}
            SlotPhase::Handshaking | SlotPhase::Idle | SlotPhase::Busy => {
                if ready.writable && !slot.unsent.is_empty() {
                    self.flush(id, now);
                }
                // What is written may have ended the connection, and begun the next one.
                if ready.readable && self.slots[id as usize].token(id) == ready.token {
                    self.read(id, now, ready.hung_up);
                }
            }
        }
    }

    fn flush(&mut self, id: u32, now: u64) {
        let slot = &mut self.slots[id as usize];
        let Some(fd) = &slot.fd else {
            return;
        };
        match send(fd, &slot.unsent, SendFlags::NOSIGNAL) {
            Ok(taken) => {
                slot.unsent.drain(..taken);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) if P::CONVERSES => self.broke(id, now, classify(error)),
            Err(error) => self.cut_off(id, now, classify(error)),
        }
    }

    /// The server takes no more of a request. If it has answered before it closed, as one does that finds a body too large,
    /// that is what became of the request.
    fn cut_off(&mut self, id: u32, now: u64, class: ErrorClass) {
        let slot = &mut self.slots[id as usize];
        slot.unsent.clear();
        let token = slot.token(id);
        self.read(id, now, true);
        // Otherwise the reading goes on, or has ended the request.
        if self.slots[id as usize].token(id) == token && !self.hot.contains(&(id, true)) {
            self.not_taken(id, now, class);
        }
    }

    /// Sends what the protocol has to say by itself; whether the connection is still there.
    fn answer(&mut self, id: u32, now: u64) -> bool {
        let slot = &mut self.slots[id as usize];
        let waiting = !slot.unsent.is_empty();
        self.protocol.answer(&mut slot.state, &mut slot.unsent);
        // What waits already is sent when the socket says that it has room.
        if !waiting && !slot.unsent.is_empty() {
            self.flush(id, now);
        }
        self.slots[id as usize].fd.is_some()
    }

    /// Reads what is there. An edge is reported once, so reading goes on until a read comes back
    /// short, and to the very end when the peer has hung up.
    pub(super) fn read(&mut self, id: u32, now: u64, hung_up: bool) {
        for _ in 0..READS_PER_TURN {
            let slot = &mut self.slots[id as usize];
            let Some(fd) = &slot.fd else {
                return;
            };
            match recv(fd, &mut *self.buffer, RecvFlags::empty()) {
                Ok((0, _)) => return self.end_of_file(id, now),
                Ok((length, _)) => {
                    let more = length == self.buffer.len() || hung_up;
                    if !self.took(id, now, length, hung_up) || !more {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // It had closed before what was written reached it.
                Err(Errno::PIPE) => return self.end_of_file(id, now),
                Err(error) => return self.broke(id, now, classify(error)),
            }
        }
        self.hot.push((id, hung_up));
    }

    /// Hands `length` bytes to the protocol; whether the same connection is to be read on.
    fn took(&mut self, id: u32, now: u64, length: usize, hung_up: bool) -> bool {
        self.task.tally.received(now, length);
        let slot = &mut self.slots[id as usize];
        if !P::CONVERSES && slot.phase != SlotPhase::Busy {
            // Nobody asked.
            self.request_failed(id, now, ErrorClass::Protocol);
            return false;
        }
        let reply = self.protocol.receive(&mut slot.state, &self.buffer[..length]);
        // A peer that goes needs no answer; one that cannot be sent would hide what it said last.
        let is_over = matches!(reply, Reply::Goaway | Reply::Done { reusable: false, .. });
        if P::CONVERSES && !is_over && !self.answer(id, now) {
            return false;
        }
        let slot = &mut self.slots[id as usize];
        match (reply, slot.phase) {
            (Reply::Aside, _) => true,
            (Reply::Ready, SlotPhase::Handshaking) => {
                self.task.tally.handshake_took(now.saturating_sub(slot.established));
                self.ready(id, now);
                self.slots[id as usize].fd.is_some()
            }
            (Reply::More, SlotPhase::Busy) => {
                slot.begin_reply(now);
                true
            }
            (Reply::Done { verdict, status, reusable }, SlotPhase::Busy) => {
                slot.begin_reply(now);
                self.ended_with_reply(now, reusable, hung_up);
                self.finished(id, now, verdict, status, reusable && !hung_up);
                false
            }
            (Reply::Goaway, SlotPhase::Idle | SlotPhase::Busy) => {
                self.said_goaway(id, now);
                false
            }
            (Reply::Goaway, _) => {
                self.broke(id, now, ErrorClass::Reset);
                false
            }
            (Reply::Reset, _) => {
                self.broke(id, now, ErrorClass::Reset);
                false
            }
            (Reply::Broken | Reply::Ready | Reply::More | Reply::Done { .. }, _) => {
                self.broke(id, now, ErrorClass::Protocol);
                false
            }
        }
    }

    /// A reply is complete.
    pub(super) fn finished(&mut self, id: u32, now: u64, verdict: Verdict, status: u16, reusable: bool) {
        let slot = &mut self.slots[id as usize];
        let moments =
            Moments { planned: slot.planned, sent: slot.since, first_byte: slot.first_byte, ended: now };
        slot.phase = SlotPhase::Idle;
        slot.kept = true;
        // The next request would stand in the middle of what is left of one that was answered early.
        let reusable = reusable && (P::CONVERSES || slot.unsent.is_empty());
        let tally = &mut self.task.tally;
        tally.landed(now);
        if self.counts(id, now) {
            let tally = &mut self.task.tally;
            tally.status(status);
            match verdict {
                Verdict::Good => tally.good(moments),
                Verdict::Denied => tally.denied(moments),
                Verdict::BadStatus => tally.failed(now, ErrorClass::BadStatus),
                Verdict::FailedCheck => tally.failed(now, ErrorClass::FailedCheck),
            }
            if verdict == Verdict::Good
                && let Some(recent) = &mut self.recent
            {
                recent.saturating_record(now.saturating_sub(moments.planned) / 1_000);
            }
        }
        if !reusable || self.task.options.reuse == Reuse::PerRequest {
            self.disconnect(id);
        }
        self.free(id, now);
    }

    /// The request in flight, if there is one, failed, and its connection with it.
    pub(super) fn request_failed(&mut self, id: u32, now: u64, class: ErrorClass) {
        let busy = self.slots[id as usize].phase == SlotPhase::Busy;
        if busy {
            self.task.tally.landed(now);
            if self.counts(id, now) {
                self.task.tally.failed(now, class);
            }
        }
        self.disconnect(id);
        if busy {
            // By way of the queue: a server that resets at once must not make this recursive.
            self.retry.push(std::cmp::Reverse((now, id)));
        }
    }

    pub(super) fn disconnect(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        if slot.fd.take().is_some() {
            self.task.tally.disconnected();
        }
        slot.phase = SlotPhase::Closed;
        slot.generation = slot.generation.wrapping_add(1);
        slot.unsent.clear();
    }

    /// Whether a slot's request, ending now, belongs to the measured time.
    pub(super) fn counts(&self, id: u32, now: u64) -> bool {
        match self.task.release {
            Release::Closed { .. } => self.task.tally.counts(now),
            Release::Open(_) => self.task.tally.counts(self.slots[id as usize].planned),
        }
    }
}
