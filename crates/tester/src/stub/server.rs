//! One thread of a stub: its event loop.
//!
//! ```text
//!   accept -> read request -> Behaviour::arrive -> timer / upstream / at once -> write reply -> read
//!                                   standstill: the loop itself stops, as a paused process does
//! ```
//!
//! Replies leave at the moment that `behaviour` computed, from a heap of timers that holds at most
//! one entry per connection. `server` owns accepting, time and places; `serve` the exchanges.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{SocketFlags, accept_with, sockopt::set_tcp_nodelay},
};

use super::{
    behaviour::Behaviour,
    connection::{ExchangeStage, Replies, StubConnection, StubPlace},
    options::StubOptions,
    stats::StubCounters,
    upstream::{LinkPool, TOKEN},
};
use crate::{
    epoch::{Epoch, nanos},
    load::Stop,
    poller::{Poller, Ready},
};

/// Token of the listener.
const LISTENER: u64 = u64::MAX >> 1;
/// Connections accepted before the others get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause in accepting after it failed for want of descriptors.
const ACCEPT_BACKOFF: u64 = 10_000_000;
/// Longest wait for events: bounds the reaction to a stop.
const MAX_WAIT: u64 = 50_000_000;
const READ_BUFFER: usize = 64 << 10;

/// What the threads of a stub share.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) epoch: Epoch,
    pub(super) options: Arc<StubOptions>,
    pub(super) behaviour: Arc<Behaviour>,
    pub(super) counters: Arc<StubCounters>,
    pub(super) stop: Stop,
}

pub(super) struct StubServer {
    pub(super) common: Common,
    pub(super) poller: Poller,
    listener: OwnedFd,
    /// When the listener, now unwatched, is to be watched again.
    listen_again: Option<u64>,
    pub(super) places: Vec<StubPlace>,
    vacant: Vec<u32>,
    /// (time, place, generation)
    pub(super) timers: BinaryHeap<Reverse<(u64, u32, u32)>>,
    pub(super) pool: Option<LinkPool>,
    pub(super) replies: Replies,
    pub(super) buffer: Box<[u8]>,
    pub(super) out: Vec<u8>,
}

impl StubServer {
    pub(super) fn new(common: Common, listener: OwnedFd, index: u32) -> io::Result<Self> {
        // Without this the kernel may be 50 us late with every timed wait. A refusal costs accuracy only.
        let _refused = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).is_err();
        let poller = Poller::new()?;
        poller.add_level(&listener, LISTENER)?;
        let threads = common.options.threads.max(1);
        let pool = common.options.upstream.map(|upstream| {
            let share = upstream.connections / threads + u32::from(index < upstream.connections % threads);
            LinkPool::new(upstream, share.max(1))
        });
        Ok(Self {
            poller,
            listener,
            listen_again: None,
            places: Vec::new(),
            vacant: Vec::new(),
            timers: BinaryHeap::new(),
            pool,
            replies: Replies::new(&common.options),
            buffer: vec![0; READ_BUFFER].into_boxed_slice(),
            out: Vec::new(),
            common,
        })
    }

    pub(super) fn run(mut self) -> io::Result<()> {
        while !self.common.stop.is_stopped() {
            self.stand_still();
            let now = self.now();
            self.fire(now);
            self.listen(now)?;
            let count = self.poller.wait(Duration::from_nanos(self.next_wait()))?;
            self.stand_still();
            let now = self.now();
            for index in 0..count {
                let ready = self.poller.ready(index);
                self.on_ready(ready, now)?;
            }
        }
        Ok(())
    }

    pub(super) fn now(&self) -> u64 {
        self.common.epoch.now()
    }

    /// Does nothing at all until a standstill is over.
    fn stand_still(&self) {
        loop {
            let now = self.now();
            match self.common.behaviour.standstill(now) {
                Some(end) if end > now && !self.common.stop.is_stopped() => {
                    thread::park_timeout(Duration::from_nanos((end - now).min(MAX_WAIT)));
                }
                _ => return,
            }
        }
    }

    /// Replies whose time has come.
    fn fire(&mut self, now: u64) {
        while self.timers.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, id, generation))) = self.timers.pop()
                && self.places[id as usize].generation == generation
            {
                self.due(id, now);
            }
        }
    }

    fn listen(&mut self, now: u64) -> io::Result<()> {
        if self.listen_again.is_some_and(|at| at <= now) {
            self.listen_again = None;
            self.poller.add_level(&self.listener, LISTENER)?;
        }
        Ok(())
    }

    fn next_wait(&self) -> u64 {
        let now = self.now();
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        let standstill = self.common.behaviour.next_standstill(now);
        let at = [timer, standstill, self.listen_again].into_iter().flatten().min();
        at.map_or(MAX_WAIT, |at| at.saturating_sub(now).min(MAX_WAIT))
    }

    fn on_ready(&mut self, ready: Ready, now: u64) -> io::Result<()> {
        if ready.token == LISTENER {
            return self.accept(now);
        }
        if ready.token & TOKEN != 0 {
            if let Some(pool) = &mut self.pool
                && let Some(((id, generation), served)) = pool.on_ready(ready, &mut self.buffer, &self.poller)
            {
                self.upstream_answered(id, generation, served);
            }
            return Ok(());
        }
        let (id, generation) = (ready.token as u32, (ready.token >> 32) as u32);
        if self.places.get(id as usize).is_some_and(|place| place.generation == generation) {
            if ready.writable {
                self.flush(id, now);
            }
            if ready.readable {
                self.read(id, now, ready.hung_up);
            }
        }
        Ok(())
    }

    fn accept(&mut self, now: u64) -> io::Result<()> {
        for _ in 0..ACCEPTS_PER_TURN {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(fd) => {
                    self.admit(fd)?;
                    if !self.common.options.accept_gap.is_zero() {
                        return self.pause_accepting(now + nanos(self.common.options.accept_gap));
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE) => {
                    self.common.counters.accept_failures.fetch_add(1, Ordering::Relaxed);
                    return self.pause_accepting(now + ACCEPT_BACKOFF);
                }
                // The connection died in the queue; the next one may live.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn pause_accepting(&mut self, until: u64) -> io::Result<()> {
        self.listen_again = Some(until);
        self.poller.remove(&self.listener)
    }

    fn admit(&mut self, fd: OwnedFd) -> io::Result<()> {
        // A peer that is gone already needs no option.
        let _gone = set_tcp_nodelay(&fd, true).is_err();
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.places.push(StubPlace::default());
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[id as usize];
        // 31 bits: the highest bit of a token is the upstream's.
        place.generation = (place.generation + 1) & (u32::MAX >> 1);
        self.poller.add(&fd, u64::from(place.generation) << 32 | u64::from(id))?;
        place.connection = Some(StubConnection::new(fd));
        self.common.counters.opened();
        Ok(())
    }

    /// Drops a connection and whatever it waited for.
    pub(super) fn close(&mut self, id: u32) {
        let place = &mut self.places[id as usize];
        let Some(connection) = place.connection.take() else {
            return;
        };
        place.generation = (place.generation + 1) & (u32::MAX >> 1);
        self.vacant.push(id);
        self.common.counters.closed();
        if connection.fate.is_some() {
            self.common.behaviour.leave();
        }
        if connection.stage != ExchangeStage::Reading {
            self.common.counters.left(None);
        }
    }
}
