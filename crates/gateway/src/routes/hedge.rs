//! What a route knows for hedging (`hedging.rs`): how long its replies took, and what became of second attempts.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::recent::RecentTimes;

/// A route's hedging: how long its replies took, and what became of second attempts.
#[derive(Debug, Default)]
pub(crate) struct Hedge {
    times: Mutex<RecentTimes>,
    pub(crate) won: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// What became of the second attempts of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HedgeStats {
    /// The route.
    pub route: Arc<str>,
    /// Second attempts whose reply went on.
    pub won: u64,
    /// Second attempts that the first one forestalled, or that failed.
    pub lost: u64,
    /// Late first attempts without a second one: no server was left, or the budget or a breaker forbade it.
    pub refused: u64,
    /// Microseconds after which a second server is asked; 0: not known yet.
    pub after: u64,
}

impl Hedge {
    pub(crate) fn stats(&self, route: &Arc<str>) -> HedgeStats {
        HedgeStats {
            route: Arc::clone(route),
            won: self.won.load(Relaxed),
            lost: self.lost.load(Relaxed),
            refused: self.refused.load(Relaxed),
            after: self.times().slow().unwrap_or(0),
        }
    }

    /// Takes note of a reply.
    pub(crate) fn took(&self, time: Duration) {
        self.times().add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// After how long a second server is asked, if that is known yet.
    pub(crate) fn after(&self) -> Option<Duration> {
        self.times().slow().map(Duration::from_micros)
    }

    fn times(&self) -> MutexGuard<'_, RecentTimes> {
        self.times.lock()
    }
}
