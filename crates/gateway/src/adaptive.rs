//! An upstream's adaptive limit: how many attempts may wait for its servers at once, found by how long they take
//! ([`tidegate_algorithms::overload::gradient`]).
//!
//! A permit is held from before a server is chosen until the head of its reply is there, which is what is measured, too:
//! bodies that take their time, and connections that go on in another protocol, take no room of others. A failure counts
//! if it took longer than a request should: one that came at once says nothing about a queue.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::overload::gradient::{Gradient, Settings};
use tidegate_algorithms::time::Tick;

/// The limit that all requests of an upstream share.
#[derive(Debug)]
pub(crate) struct AdaptiveLimit {
    settings: Settings,
    /// Held for nanoseconds, once an attempt.
    state: Mutex<Gradient>,
    limit: AtomicU32,
    under_way: AtomicU32,
    refused: AtomicU64,
}

/// What is known of an upstream's adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveStatus {
    /// Attempts that may wait for its servers now.
    pub limit: u32,
    /// Attempts that do.
    pub under_way: u32,
    /// Attempts that were not made for it.
    pub refused: u64,
    /// Nanoseconds that a reply takes without a queue; 0: not known yet.
    pub base: u64,
}

/// Leave for one attempt, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    limit: &'a AdaptiveLimit,
    /// How many were under way when it was given.
    under_way: u32,
}

impl AdaptiveLimit {
    pub(crate) fn new(settings: Settings) -> Self {
        let state = Gradient::new(settings);
        let limit = AtomicU32::new(state.limit(Tick(0)));
        let (under_way, refused) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { settings, state: Mutex::new(state), limit, under_way, refused }
    }

    /// As it was configured.
    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// Leave for an attempt, if there is room.
    pub(crate) fn enter(&self, now: Tick) -> Option<Permit<'_>> {
        let below = |limit| {
            self.under_way.fetch_update(Relaxed, Relaxed, |many| (many < limit).then(|| many + 1)).ok()
        };
        // A limit that was lowered for a moment may be over although nothing has ended since.
        let entered = below(self.limit.load(Relaxed)).or_else(|| {
            let state = self.state();
            let limit = state.limit(now);
            self.limit.store(limit, Relaxed);
            below(limit)
        });
        if entered.is_none() {
            self.refused.fetch_add(1, Relaxed);
        }
        entered.map(|many| Permit { limit: self, under_way: many + 1 })
    }

    pub(crate) fn status(&self) -> AdaptiveStatus {
        AdaptiveStatus {
            limit: self.limit.load(Relaxed),
            under_way: self.under_way.load(Relaxed),
            refused: self.refused.load(Relaxed),
            base: self.state().base(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Gradient> {
        self.state.lock()
    }
}

impl Permit<'_> {
    /// Takes note of how the attempt ended: after `took` nanoseconds of its server.
    pub(crate) fn ended(self, failed: bool, took: u64, now: Tick) {
        let mut state = self.limit.state();
        if !failed || took > state.base() {
            state.sample(took, self.under_way, now);
            self.limit.limit.store(state.limit(now), Relaxed);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.limit.under_way.fetch_sub(1, Relaxed);
    }
}
