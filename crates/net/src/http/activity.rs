//! The activity of a connection, shared by its socket and its service.
//!
//! Both live on one core, so the atomics are plain loads and stores in practice; they are atomics
//! because tasks must be `Send`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::stats::{CoreStats, Stats};

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of a request head.
    Head,
    /// The service, its body or the end of a streamed reply.
    Busy,
    /// Nothing: it was cut, or it was idle when a drain closed it.
    Leaving,
}

/// The present phase and since when the connection has been idle.
#[derive(Debug)]
pub(super) struct Activity {
    opened: Instant,
    phase: AtomicU8,
    /// Nothing more is written.
    is_shut_down: AtomicBool,
    idle_since_nanos: AtomicU64,
    stats: Arc<Stats>,
    core: usize,
}

impl Activity {
    pub(super) fn new(opened: Instant, stats: Arc<Stats>, core: usize) -> Self {
        let phase = AtomicU8::new(Phase::Idle as u8);
        let (is_shut_down, idle_since_nanos) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { opened, phase, is_shut_down, idle_since_nanos, stats, core }
    }

    /// The counters of the connection's core.
    pub(super) fn stats(&self) -> &CoreStats {
        self.stats.core(self.core)
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Busy,
            _ => Phase::Leaving,
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// The last byte was written.
    pub(super) fn shut_down(&self) {
        self.is_shut_down.store(true, Relaxed);
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Relaxed)
    }

    /// An idle connection has no bytes under way that would have to be read before it is closed.
    pub(super) fn leave_if_idle(&self) {
        if self.phase() == Phase::Idle {
            self.enter(Phase::Leaving);
        }
    }

    pub(super) fn idle_from(&self, now: Instant) {
        let nanos = now.saturating_duration_since(self.opened).as_nanos();
        self.idle_since_nanos.store(u64::try_from(nanos).unwrap_or(u64::MAX), Relaxed);
        self.enter(Phase::Idle);
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.opened + Duration::from_nanos(self.idle_since_nanos.load(Relaxed))
    }
}
