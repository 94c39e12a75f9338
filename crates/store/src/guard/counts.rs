//! What a guard counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a guard has seen since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardStats {
    /// Answers counted in this node's memory.
    pub degraded_local: u64,
    /// Answers allowed blindly.
    pub degraded_open: u64,
    /// Answers denied blindly.
    pub degraded_closed: u64,
    /// Calls that failed or were too late.
    pub failures: u64,
    /// Calls for keys whose state the store cannot read.
    pub unreadable: u64,
    /// Calls not made because too many were under way.
    pub saturated: u64,
    /// Times the breaker opened.
    pub opened: u64,
    /// Whether it is open.
    pub is_open: bool,
    /// Units admitted blindly.
    pub blind_units: u64,
    /// Of those, what the store had no room for when they were charged to it afterwards.
    pub over_admitted_units: u64,
    /// Of those, what the store has charged afterwards. What had come back by itself by then is in none
    /// of the three.
    pub charged_units: u64,
    /// Of those, what could not be charged afterwards, so that nobody knows: see [`super::outage`].
    pub unsettled_units: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) local: AtomicU64,
    pub(super) open: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) unreadable: AtomicU64,
    pub(super) saturated: AtomicU64,
    pub(super) opened: AtomicU64,
    pub(super) blind_units: AtomicU64,
    pub(super) over_admitted: AtomicU64,
    pub(super) charged: AtomicU64,
    pub(super) unsettled: AtomicU64,
}

impl Counts {
    /// What was counted, and whether the breaker is open.
    pub(super) fn read(&self, is_open: bool) -> GuardStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GuardStats {
            degraded_local: read(&self.local),
            degraded_open: read(&self.open),
            degraded_closed: read(&self.closed),
            failures: read(&self.failures),
            unreadable: read(&self.unreadable),
            saturated: read(&self.saturated),
            opened: read(&self.opened),
            is_open,
            blind_units: read(&self.blind_units),
            over_admitted_units: read(&self.over_admitted),
            charged_units: read(&self.charged),
            unsettled_units: read(&self.unsettled),
        }
    }
}
