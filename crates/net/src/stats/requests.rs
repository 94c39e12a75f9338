//! Counters of requests, by the names that the service gives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the request duration histogram in nanoseconds; a last bucket has no bound.
pub const DURATION_BOUNDS: [u64; 20] = [
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// The route of a request, as an index into the names that [`super::Stats::new`] was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route(u8);

impl Route {
    /// Name 0: requests that matched nothing, and those that were refused before routing.
    pub const OTHER: Self = Self(0);

    /// The name at `index`; an index that was not declared counts as [`Route::OTHER`].
    #[must_use]
    pub const fn new(index: u8) -> Self {
        Self(index)
    }

    /// The name's index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Counters of requests on one core.
#[derive(Debug, Default)]
pub struct RequestStats {
    /// Requests that a service began.
    pub started: AtomicU64,
    /// Requests whose client left, or whose connection was cut, before the service had answered.
    pub abandoned: AtomicU64,
    routes: Box<[RouteStats]>,
}

/// Counters of one route on one core, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct RouteStats {
    by_class: [AtomicU64; 5],
    buckets: [AtomicU64; DURATION_BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl RequestStats {
    /// Counters for so many names.
    pub(super) fn new(names: usize) -> Self {
        let routes = (0..names).map(|_| RouteStats::default()).collect();
        Self { routes, ..Self::default() }
    }

    /// Counts a request that a service answered.
    pub fn answered(&self, route: Route, status: u16, took: Duration) {
        self.answered_together(route, status, took, 1);
    }

    /// Counts `count` requests of a pipeline that a service answered together, each in that time.
    pub fn answered_together(&self, route: Route, status: u16, took: Duration, count: u64) {
        let routes = &self.routes;
        let Some(route) = routes.get(usize::from(route.0)).or_else(|| routes.first()) else { return };
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        route.by_class[class].fetch_add(count, Relaxed);
        route.buckets[bucket(nanos)].fetch_add(count, Relaxed);
        route.nanos.fetch_add(nanos.saturating_mul(count), Relaxed);
    }

    /// Adds what was counted under the name at `index`.
    pub(super) fn add_to(&self, totals: &mut RouteTotals, index: usize) {
        let Some(route) = self.routes.get(index) else { return };
        add(&mut totals.by_class, &route.by_class);
        add(&mut totals.buckets, &route.buckets);
        totals.nanos = totals.nanos.wrapping_add(route.nanos.load(Relaxed));
    }
}

/// Fast requests are the common case, so the search starts at the short end.
fn bucket(nanos: u64) -> usize {
    DURATION_BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(DURATION_BOUNDS.len())
}

/// One route's totals, as read at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTotals {
    /// The name that the service gave it, such as a route template.
    pub template: Arc<str>,
    /// Requests answered with 1xx, 2xx, 3xx, 4xx and 5xx.
    pub by_class: [u64; 5],
    /// Requests per duration bucket, not cumulative; the last one is above every bound.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// Sum of the durations in nanoseconds.
    pub nanos: u64,
}

impl RouteTotals {
    pub(super) fn new(template: Arc<str>) -> Self {
        Self { template, by_class: [0; 5], buckets: [0; DURATION_BOUNDS.len() + 1], nanos: 0 }
    }
}

pub(super) fn add<const N: usize>(totals: &mut [u64; N], counters: &[AtomicU64; N]) {
    for (total, counter) in totals.iter_mut().zip(counters) {
        *total += counter.load(Relaxed);
    }
}
