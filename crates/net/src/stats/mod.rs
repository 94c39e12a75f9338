//! What the servers count: plain numbers, one set per core, summed when somebody asks.
//!
//! A counter shared by two cores costs a cache-line transfer per increment, which at 150,000
//! requests a second is the difference between free and visible. So each core writes its own
//! set, aligned so that no two sets share a line, and readers add them up. Readings are not one
//! atomic snapshot: each counter is exact and only ever grows.
//!
//! ```text
//!   Stats ─ one for each core: CoreStats ─┬─ ConnectionStats: accepted, closed, cut, handshakes; of every protocol
//!                                         └─ RequestStats: by the names that the service gives; if it has requests
//! ```
//!
//! Series are bounded by construction: a route is an index into the list of names that the service gave at
//! start, never text that a client sent (fault 53).
//!
//! Deliberately absent: any text format. The admin service renders these.

mod connections;
mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use connections::{ConnectionStats, Cut, HandshakeFailure};
use requests::add;
pub use requests::{DURATION_BOUNDS, RequestStats, Route, RouteTotals};

/// Counters of one core.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreStats {
    /// Of its connections.
    pub connections: ConnectionStats,
    /// Of the requests on them. A protocol that has no requests has none to count.
    pub requests: RequestStats,
}

/// The counters of one server over all cores.
#[derive(Debug)]
pub struct Stats {
    cores: Box<[CoreStats]>,
    names: Box<[Arc<str>]>,
}

/// A server's totals, as read at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// See [`ConnectionStats::accepted`].
    pub accepted: u64,
    /// Connections open.
    pub open: u64,
    /// See [`ConnectionStats::accept_paused`].
    pub accept_paused: u64,
    /// See [`ConnectionStats::accepted_for_operation`].
    pub accepted_for_operation: u64,
    /// See [`ConnectionStats::accept_exhausted`].
    pub accept_exhausted: u64,
    /// See [`ConnectionStats::accept_failed`].
    pub accept_failed: u64,
    /// See [`ConnectionStats::unproxied`].
    pub unproxied: u64,
    /// See [`ConnectionStats::cut_header`].
    pub cut_header: u64,
    /// See [`ConnectionStats::cut_idle`].
    pub cut_idle: u64,
    /// See [`ConnectionStats::cut_write`].
    pub cut_write: u64,
    /// See [`ConnectionStats::handshakes`].
    pub handshakes: u64,
    /// TLS handshakes that failed, in the order of [`HandshakeFailure::ALL`].
    pub handshakes_failed: [u64; HandshakeFailure::ALL.len()],
    /// Requests that are being answered.
    pub in_flight: u64,
    /// Requests answered.
    pub answered: u64,
    /// See [`RequestStats::abandoned`].
    pub abandoned: u64,
}

impl Stats {
    /// Counters for `cores` cores, and for requests by these names, which are the service's; the first name stands
    /// for everything unmatched. At most 256 names are told apart.
    #[must_use]
    pub fn new<N: AsRef<str>>(cores: usize, names: &[N]) -> Self {
        let requests = || RequestStats::new(names.len());
        let cores = (0..cores).map(|_| CoreStats { requests: requests(), ..CoreStats::default() }).collect();
        Self { cores, names: names.iter().map(|name| name.as_ref().into()).collect() }
    }

    /// How many cores it has counters for.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// The counters that core `index` writes; indices wrap around.
    #[must_use]
    pub fn core(&self, index: usize) -> &CoreStats {
        &self.cores[index % self.cores.len()]
    }

    /// Sums over all cores.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let sum = |read: fn(&CoreStats) -> &AtomicU64| -> u64 {
            self.cores.iter().map(|core| read(core).load(Relaxed)).sum()
        };
        // What ends is read before what begins, so that a difference never comes out negative
        // by more than the saturation hides.
        let closed = sum(|core| &core.connections.closed);
        let abandoned = sum(|core| &core.requests.abandoned);
        let answered = self.routes().iter().flat_map(|route| route.by_class).sum();
        let accepted = sum(|core| &core.connections.accepted);
        let mut handshakes_failed = [0; HandshakeFailure::ALL.len()];
        self.cores.iter().for_each(|core| add(&mut handshakes_failed, &core.connections.handshakes_failed));
        Totals {
            accepted,
            open: accepted.saturating_sub(closed),
            accept_paused: sum(|core| &core.connections.accept_paused),
            accepted_for_operation: sum(|core| &core.connections.accepted_for_operation),
            accept_exhausted: sum(|core| &core.connections.accept_exhausted),
            accept_failed: sum(|core| &core.connections.accept_failed),
            unproxied: sum(|core| &core.connections.unproxied),
            cut_header: sum(|core| &core.connections.cut_header),
            cut_idle: sum(|core| &core.connections.cut_idle),
            cut_write: sum(|core| &core.connections.cut_write),
            handshakes: sum(|core| &core.connections.handshakes),
            handshakes_failed,
            in_flight: sum(|core| &core.requests.started).saturating_sub(answered + abandoned),
            answered,
            abandoned,
        }
    }

    /// Sums over all cores, route by route.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteTotals> {
        let total = |(index, name): (usize, &Arc<str>)| {
            let mut totals = RouteTotals::new(Arc::clone(name));
            self.cores.iter().for_each(|core| core.requests.add_to(&mut totals, index));
            totals
        };
        self.names.iter().enumerate().map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cores_are_summed_by_route_and_class() {
        let stats = Stats::new(2, &["other", "/a"]);
        stats.core(0).requests.answered(Route::new(1), 200, Duration::from_micros(100));
        stats.core(1).requests.answered(Route::new(1), 204, Duration::from_secs(60));
        stats.core(1).requests.answered(Route::new(1), 500, Duration::from_nanos(100_001));
        stats.core(0).requests.answered_together(Route::new(9), 404, Duration::ZERO, 3);
        let routes = stats.routes();
        assert_eq!(routes[1].by_class, [0, 2, 0, 0, 1]);
        assert_eq!((routes[1].buckets[4], routes[1].buckets[5], routes[1].buckets[20]), (1, 1, 1));
        assert_eq!(routes[0].by_class, [0, 0, 0, 3, 0], "an undeclared route counts as other");
        assert_eq!(stats.totals().answered, 6);
    }

    #[test]
    fn no_two_cores_share_a_cache_line() {
        assert_eq!(size_of::<CoreStats>() % 128, 0);
        assert_eq!(align_of::<CoreStats>(), 128);
    }
}
