//! One generator thread: its event loop and its timers.
//!
//! ```text
//!            +--------- due (open) / free and thought (closed) --------+
//!            v                                                         |
//!   dispatch --connected--> send --> Busy --reply--> record --> free --+
//!            --no connection--> opening --> Connecting --> send        |
//!                                   ^            |failed               |
//!                                   +-- retry <--+   (backoff)         |
//! ```
//!
//! Every queue holds slot numbers, each slot at most once, so all are bounded by the connections.
//! Nothing is allocated per request. `worker` owns the queues, `edges` time, `exchange` the
//! sockets, `closes` the requests that go out again: from Busy back to opening.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    io,
    sync::{Arc, mpsc},
    time::Duration,
};

use tidegate_algorithms::pacing::{Pace, Schedule};

use super::{
    options::{Options, Reuse, Stop},
    progress::Snapshot,
    protocol::Protocol,
    slot::{Slot, SlotPhase},
    tally::Tally,
};
use crate::{epoch::Epoch, poller::Poller};
use tidegate_judge::measurement::Latency;

/// Size of the read buffer that all connections of a thread share.
const READ_BUFFER: usize = 64 << 10;
/// Closed loop: first requests released between two polls, so that replies are not kept waiting.
const STARTS_PER_TURN: usize = 128;

/// How requests are released in this thread.
pub(super) enum Release {
    Closed {
        think: u64,
    },
    /// Boxed: it is large, and touched once a request.
    Open(Box<Schedule>),
}

/// When a step's parts begin and end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// First request.
    pub(super) origin: u64,
    /// Measured time.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Open loop: end of waiting for what was due.
    pub(super) drained: u64,
}

const NOT_STARTED: Times = Times { origin: u64::MAX, from: u64::MAX, to: u64::MAX, drained: u64::MAX };

/// What a worker needs beside its protocol.
pub(super) struct Assignment {
    pub(super) epoch: Epoch,
    pub(super) options: Arc<Options>,
    pub(super) stop: Stop,
    /// Number of the first connection, over all threads and processes.
    pub(super) first_connection: u32,
    pub(super) connections: u32,
    /// Connections per second that this thread may open.
    pub(super) connect_rate: Option<f64>,
    /// Requests that this thread may send.
    pub(super) budget: u64,
    pub(super) release: Release,
    pub(super) tally: Tally,
    /// Where snapshots go; `None`: nobody looks.
    pub(super) snapshots: Option<mpsc::SyncSender<Snapshot>>,
}

pub(super) struct Worker<P: Protocol> {
    pub(super) task: Assignment,
    pub(super) protocol: P,
    pub(super) poller: Poller,
    pub(super) slots: Vec<Slot<P::State>>,
    pub(super) buffer: Box<[u8]>,
    pub(super) times: Times,
    /// Slots that wait to be connected.
    pub(super) opening: VecDeque<u32>,
    pub(super) connecting: u32,
    /// Slots whose connection failed, by the time of their next try.
    pub(super) retry: BinaryHeap<Reverse<(u64, u32)>>,
    /// Slots that think, in order of their next request.
    pub(super) thinking: VecDeque<(u64, u32)>,
    /// Slots without a request.
    pub(super) idle: VecDeque<u32>,
    /// Slots with more to read than one turn allows.
    pub(super) hot: Vec<(u32, bool)>,
    /// Requests that are given to a slot and not yet sent.
    pub(super) pending: u64,
    pub(super) recent: Option<Latency>,
    pub(super) next_open: u64,
    pub(super) next_sweep: u64,
    pub(super) next_snapshot: u64,
    measuring: bool,
}

impl<P: Protocol> Worker<P> {
    pub(super) fn new(task: Assignment, protocol: P) -> io::Result<Self> {
        // Without this the kernel may be 50 us late with every timed wait. A refusal costs accuracy only.
        let _refused = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).is_err();
        let connections = task.connections as usize;
        let recent = task.snapshots.as_ref().map(|_| tidegate_judge::measurement::latency());
        Ok(Self {
            slots: (0..connections).map(|_| Slot::new(protocol.fresh())).collect(),
            protocol,
            poller: Poller::new()?,
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            times: NOT_STARTED,
            opening: VecDeque::with_capacity(connections),
            connecting: 0,
            retry: BinaryHeap::with_capacity(connections),
            thinking: VecDeque::with_capacity(connections),
            idle: VecDeque::with_capacity(connections),
            hot: Vec::new(),
            pending: 0,
            recent,
            next_open: 0,
            next_sweep: 0,
            next_snapshot: 0,
            measuring: false,
            task,
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.task.epoch.now()
    }

    /// Opens all connections, before the clock of the step starts. Connections that fail are tried again in the step
    /// itself.
    pub(super) fn connect(&mut self) -> io::Result<()> {
        if P::CONNECT_ONLY || self.task.options.reuse == Reuse::PerRequest {
            self.idle.extend(0..self.task.connections);
            return Ok(());
        }
        self.opening.extend(0..self.task.connections);
        while (!self.opening.is_empty() || self.connecting > 0) && !self.task.stop.is_stopped() {
            let now = self.now();
            self.open_some(now);
            self.sweep(now);
            self.poll(if self.can_open(self.now()) { 0 } else { 1_000_000 })?;
        }
        Ok(())
    }

    /// Runs the step; the tally holds what was measured.
    pub(super) fn run(mut self, times: Times) -> io::Result<Tally> {
        self.times = times;
        self.task.tally.start_at(times.from);
        if let Release::Closed { think: think @ 1.. } = self.task.release {
            // Spread over the first pause: thinkers do not march in step.
            let count = self.idle.len().max(1) as u64;
            let starts = std::mem::take(&mut self.idle).into_iter().enumerate();
            self.thinking.extend(starts.map(|(i, id)| (times.origin + think * i as u64 / count, id)));
        }
        let mut finished_at = None;
        loop {
            let now = self.now();
            if !self.measuring && now >= times.from {
                self.task.tally.begin();
                self.measuring = true;
            }
            if finished_at.is_none() && self.released_all(now) {
                finished_at = Some(now);
                self.task.tally.finish(now);
            }
            if self.over(now) {
                break;
            }
            self.turn(now);
            let wait = self.next_wait();
            self.poll(wait)?;
        }
        self.conclude(finished_at.is_some());
        Ok(self.task.tally)
    }

    /// Everything that time alone makes due.
    fn turn(&mut self, now: u64) {
        while self.retry.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            if let Some(Reverse((_, id))) = self.retry.pop() {
                self.free(id, now);
            }
        }
        while self.thinking.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((at, id)) = self.thinking.pop_front() {
                self.slots[id as usize].free_since = at;
                self.start_closed(id, at);
            }
        }
        if now >= self.times.origin {
            match &self.task.release {
                Release::Closed { .. } => {
                    for _ in 0..STARTS_PER_TURN.min(self.idle.len()) {
                        if let Some(id) = self.idle.pop_front() {
                            self.slots[id as usize].free_since = now;
                            self.start_closed(id, now);
                        }
                    }
                }
                Release::Open(_) => self.pump(now),
            }
        }
        self.open_some(now);
        self.sweep(now);
        self.snapshot(now);
    }

    /// Open loop: gives what is due to the connections that are free.
    fn pump(&mut self, now: u64) {
        while self.task.budget > 0 && !self.idle.is_empty() {
            let Release::Open(schedule) = &mut self.task.release else {
                return;
            };
            let Pace::Send { planned } = schedule.pace(now - self.times.origin) else {
                return;
            };
            schedule.advance();
            if let Some(id) = self.idle.pop_front() {
                self.task.budget -= 1;
                self.dispatch(id, self.times.origin + planned);
            }
        }
    }

    /// A slot can take a request.
    pub(super) fn free(&mut self, id: u32, now: u64) {
        let slot = &mut self.slots[id as usize];
        slot.free_since = now;
        match self.task.release {
            _ if self.times.origin == u64::MAX => self.idle.push_back(id),
            Release::Closed { think: 0 } => self.start_closed(id, now),
            Release::Closed { think } => self.thinking.push_back((now + think, id)),
            Release::Open(_) => self.idle.push_back(id),
        }
    }

    /// Closed loop: the next request of a slot, unless the step is over.
    fn start_closed(&mut self, id: u32, planned: u64) {
        if self.task.budget > 0 && planned < self.times.to {
            self.task.budget -= 1;
            self.dispatch(id, planned);
        }
    }

    /// Gives a request to a slot; it is sent at once or when the slot has its connection.
    fn dispatch(&mut self, id: u32, planned: u64) {
        let slot = &mut self.slots[id as usize];
        slot.planned = planned;
        slot.repeats = 0;
        if slot.phase == SlotPhase::Idle {
            self.send(id, false);
        } else {
            slot.pending = true;
            self.pending += 1;
            self.opening.push_back(id);
        }
    }

    pub(super) fn can_open(&self, now: u64) -> bool {
        !self.opening.is_empty()
            && self.connecting < self.task.options.max_connecting
            && (self.task.connect_rate.is_none() || now >= self.next_open)
    }

    /// Until one fails at once: without a free port the kernel searches all of them each time, and replies are not kept waiting for that.
    fn open_some(&mut self, now: u64) {
        let failed = self.retry.len();
        while self.can_open(now) && self.retry.len() == failed {
            if let Some(rate) = self.task.connect_rate {
                let gap = (1e9 / rate) as u64;
                // At most 10 ms of unused openings are made up for.
                self.next_open = self.next_open.max(now.saturating_sub(10_000_000)) + gap;
            }
            if let Some(id) = self.opening.pop_front() {
                self.open(id);
            }
        }
    }

    /// Waits for events, at most `wait` nanoseconds, and handles them.
    fn poll(&mut self, wait: u64) -> io::Result<()> {
        let count = self.poller.wait(Duration::from_nanos(wait))?;
        let now = self.now();
        for index in 0..count {
            let ready = self.poller.ready(index);
            self.on_ready(ready, now);
        }
        for (id, hung_up) in std::mem::take(&mut self.hot) {
            self.read(id, now, hung_up);
        }
        Ok(())
    }
}
