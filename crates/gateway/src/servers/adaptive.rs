//! An upstream's adaptive limit: how many attempts may wait for its servers at once, found by how long they take
//! ([`tidegate_algorithms::overload::gradient`]).
//!
//! A permit is held from before a server is chosen until the head of its reply is there, which is what is measured, too:
//! bodies that take their time, and connections that go on in another protocol, take no room of others. A failure counts
//! if it took longer than a request should: one that came at once says nothing about a queue.
//!
//! In shadow it lets in what it has no room for, and counts that. These take no room of others, as they would not if they were refused.
//! They make replies later than those would be, so that more is counted than would be refused.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::overload::gradient::Gradient;
use tidegate_algorithms::time::Tick;

use crate::config::AdaptiveConfig;

/// The limit that all requests of an upstream share.
#[derive(Debug)]
pub(crate) struct AdaptiveLimit {
    config: AdaptiveConfig,
    /// Held for nanoseconds, once an attempt.
    state: Mutex<Gradient>,
    limit: AtomicU32,
    under_way: AtomicU32,
    /// In shadow, those beside them that there was no room for.
    beyond: AtomicU32,
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
    /// Attempts that would not have been made, and were since it is in shadow.
    pub shadow_refused: u64,
    /// Whether it is in shadow.
    pub is_shadow: bool,
    /// Nanoseconds that a reply takes without a queue; 0: not known yet.
    pub base: u64,
}

/// Leave for one attempt, until it is dropped.
#[derive(Debug)]
pub(crate) struct AttemptPermit<'a> {
    limit: &'a AdaptiveLimit,
    /// How many were under way when it was given.
    under_way: u32,
    /// There was no room for it.
    is_beyond: bool,
}

impl AdaptiveLimit {
    /// The limit that `config` asks for: `known` itself if nothing changed. One that begins to refuse, or ceases to, goes on from what it
    /// has found.
    pub(crate) fn of(config: AdaptiveConfig, known: Option<&Arc<Self>>) -> Arc<Self> {
        let known = known.filter(|known| known.config.bounds == config.bounds);
        if let Some(same) = known.filter(|known| known.config == config) {
            return Arc::clone(same);
        }
        let state = known.map_or_else(|| Gradient::new(config.bounds), |known| known.state().clone());
        let state = state.with_probes(!config.is_shadow);
        let limit = AtomicU32::new(state.limit(Tick(0)));
        let (under_way, beyond, refused) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU64::new(0));
        Arc::new(Self { config, state: Mutex::new(state), limit, under_way, beyond, refused })
    }

    /// Leave for an attempt, if there is room, or in shadow.
    pub(crate) fn enter(&self, now: Tick) -> Option<AttemptPermit<'_>> {
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
        if let Some(many) = entered {
            let under_way = many + 1 + self.beyond.load(Relaxed);
            return Some(AttemptPermit { limit: self, under_way, is_beyond: false });
        }
        self.refused.fetch_add(1, Relaxed);
        self.config.is_shadow.then(|| {
            let under_way = self.beyond.fetch_add(1, Relaxed) + 1 + self.under_way.load(Relaxed);
            AttemptPermit { limit: self, under_way, is_beyond: true }
        })
    }

    pub(crate) fn status(&self) -> AdaptiveStatus {
        let (refused, is_shadow) = (self.refused.load(Relaxed), self.config.is_shadow);
        AdaptiveStatus {
            limit: self.limit.load(Relaxed),
            under_way: self.under_way.load(Relaxed) + self.beyond.load(Relaxed),
            refused: if is_shadow { 0 } else { refused },
            shadow_refused: if is_shadow { refused } else { 0 },
            is_shadow,
            base: self.state().base(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Gradient> {
        self.state.lock()
    }
}

impl AttemptPermit<'_> {
    /// Takes note of how the attempt ended: after `took` nanoseconds of its server.
    pub(crate) fn ended(self, failed: bool, took: u64, now: Tick) {
        let mut state = self.limit.state();
        if !failed || took > state.base() {
            state.sample(took, self.under_way, now);
            self.limit.limit.store(state.limit(now), Relaxed);
        }
    }
}

impl Drop for AttemptPermit<'_> {
    fn drop(&mut self) {
        let counter = if self.is_beyond { &self.limit.beyond } else { &self.limit.under_way };
        counter.fetch_sub(1, Relaxed);
    }
}
