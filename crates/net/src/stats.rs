//! What the servers count: plain numbers, one set per core, summed when somebody asks.
//!
//! A counter shared by two cores costs a cache-line transfer per increment, which at 150,000
//! requests a second is the difference between free and visible. So each core writes its own
//! set, aligned so that no two sets share a line, and readers add them up. Readings are not one
//! atomic snapshot: each counter is exact and only ever grows.
//!
//! Series are bounded by construction: a route is an index into the list of templates given at
//! start, never text that a client sent (fault 53).
//!
//! Deliberately absent: any text format. The admin service renders these.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the request duration histogram in nanoseconds; a last bucket has no bound.
pub const DURATION_BOUNDS: [u64; 16] = [
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

/// The route of a request, as an index into the templates that [`Stats::new`] was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route(u8);

impl Route {
    /// Template 0: requests that matched nothing, and those that were refused before routing.
    pub const OTHER: Self = Self(0);

    /// The template at `index`; an index that was not declared counts as [`Route::OTHER`].
    #[must_use]
    pub const fn new(index: u8) -> Self {
        Self(index)
    }

    /// The template's index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a connection was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The request head did not arrive in time.
    Header,
    /// No request arrived for the idle time.
    Idle,
    /// The peer read the response too slowly.
    Write,
}

/// Why a TLS handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandshakeFailure {
    /// It was not over in time.
    Timeout,
    /// Too many others were under way for all of its time.
    Busy,
    /// The client left.
    Gone,
    /// What the client sent is not TLS.
    NotTls,
    /// The client and this server have no version, suite or application protocol in common.
    Incompatible,
    /// A client certificate is required, and the client showed none.
    ClientCertificateMissing,
    /// The client's certificate is expired, or of none of the authorities, or its key is another's.
    ClientCertificateRefused,
    /// The client refused, with an alert: it does not take our certificate, most likely.
    Alert,
    /// Anything else that a client can do wrong.
    Other,
}

impl HandshakeFailure {
    /// Every reason, in order.
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Busy,
        Self::Gone,
        Self::NotTls,
        Self::Incompatible,
        Self::ClientCertificateMissing,
        Self::ClientCertificateRefused,
        Self::Alert,
        Self::Other,
    ];

    /// The reason's name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Gone => "gone",
            Self::NotTls => "not_tls",
            Self::Incompatible => "incompatible",
            Self::ClientCertificateMissing => "client_certificate_missing",
            Self::ClientCertificateRefused => "client_certificate_refused",
            Self::Alert => "alert",
            Self::Other => "other",
        }
    }
}

/// Counters of one core.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreStats {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections closed, for whatever reason.
    pub closed: AtomicU64,
    /// Times that accepting paused because every connection permit was taken.
    pub accept_paused: AtomicU64,
    /// Connections accepted over the limit, for operation.
    pub accepted_for_operation: AtomicU64,
    /// Times that accepting failed for want of descriptors or memory (EMFILE, ENFILE, ENOBUFS, ENOMEM).
    pub accept_exhausted: AtomicU64,
    /// Other failures to accept, such as a peer that was gone already.
    pub accept_failed: AtomicU64,
    /// Connections closed because their proxy's header was missing or late, or their peer is no proxy.
    pub unproxied: AtomicU64,
    /// Connections cut because the request head was late.
    pub cut_header: AtomicU64,
    /// Connections closed because they were idle.
    pub cut_idle: AtomicU64,
    /// Connections, and requests of HTTP/2, cut because the peer did not read.
    pub cut_write: AtomicU64,
    /// TLS handshakes that succeeded.
    pub handshakes: AtomicU64,
    /// Those that failed, by reason.
    handshakes_failed: [AtomicU64; HandshakeFailure::ALL.len()],
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

impl CoreStats {
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

    /// Counts a TLS handshake that failed.
    pub fn handshake_failed(&self, reason: HandshakeFailure) {
        self.handshakes_failed[reason as usize].fetch_add(1, Relaxed);
    }

    /// Counts a connection that was cut.
    pub fn cut(&self, cause: Cut) {
        let counter = match cause {
            Cut::Header => &self.cut_header,
            Cut::Idle => &self.cut_idle,
            Cut::Write => &self.cut_write,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// Fast requests are the common case, so the search starts at the short end.
fn bucket(nanos: u64) -> usize {
    DURATION_BOUNDS.iter().position(|bound| nanos <= *bound).unwrap_or(DURATION_BOUNDS.len())
}

/// The counters of one server over all cores.
#[derive(Debug)]
pub struct Stats {
    cores: Box<[CoreStats]>,
    templates: &'static [&'static str],
}

/// One route's totals, as read at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTotals {
    /// The route template.
    pub template: &'static str,
    /// Requests answered with 1xx, 2xx, 3xx, 4xx and 5xx.
    pub by_class: [u64; 5],
    /// Requests per duration bucket, not cumulative; the last one is above every bound.
    pub buckets: [u64; DURATION_BOUNDS.len() + 1],
    /// Sum of the durations in nanoseconds.
    pub nanos: u64,
}

/// A server's totals, as read at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// See [`CoreStats::accepted`].
    pub accepted: u64,
    /// Connections open.
    pub open: u64,
    /// See [`CoreStats::accept_paused`].
    pub accept_paused: u64,
    /// See [`CoreStats::accepted_for_operation`].
    pub accepted_for_operation: u64,
    /// See [`CoreStats::accept_exhausted`].
    pub accept_exhausted: u64,
    /// See [`CoreStats::accept_failed`].
    pub accept_failed: u64,
    /// See [`CoreStats::unproxied`].
    pub unproxied: u64,
    /// See [`CoreStats::cut_header`].
    pub cut_header: u64,
    /// See [`CoreStats::cut_idle`].
    pub cut_idle: u64,
    /// See [`CoreStats::cut_write`].
    pub cut_write: u64,
    /// See [`CoreStats::handshakes`].
    pub handshakes: u64,
    /// TLS handshakes that failed, in the order of [`HandshakeFailure::ALL`].
    pub handshakes_failed: [u64; HandshakeFailure::ALL.len()],
    /// Requests that are being answered.
    pub in_flight: u64,
    /// Requests answered.
    pub answered: u64,
    /// See [`CoreStats::abandoned`].
    pub abandoned: u64,
}

impl Stats {
    /// Counters for `cores` cores and these route templates; the first template stands for
    /// everything unmatched. At most 256 templates are told apart.
    #[must_use]
    pub fn new(cores: usize, templates: &'static [&'static str]) -> Self {
        let routes = || templates.iter().map(|_| RouteStats::default()).collect();
        let cores = (0..cores).map(|_| CoreStats { routes: routes(), ..CoreStats::default() }).collect();
        Self { cores, templates }
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
        let closed = sum(|core| &core.closed);
        let abandoned = sum(|core| &core.abandoned);
        let answered = self.routes().iter().flat_map(|route| route.by_class).sum();
        let accepted = sum(|core| &core.accepted);
        let mut handshakes_failed = [0; HandshakeFailure::ALL.len()];
        self.cores.iter().for_each(|core| add(&mut handshakes_failed, &core.handshakes_failed));
        Totals {
            accepted,
            open: accepted.saturating_sub(closed),
            accept_paused: sum(|core| &core.accept_paused),
            accepted_for_operation: sum(|core| &core.accepted_for_operation),
            accept_exhausted: sum(|core| &core.accept_exhausted),
            accept_failed: sum(|core| &core.accept_failed),
            unproxied: sum(|core| &core.unproxied),
            cut_header: sum(|core| &core.cut_header),
            cut_idle: sum(|core| &core.cut_idle),
            cut_write: sum(|core| &core.cut_write),
            handshakes: sum(|core| &core.handshakes),
            handshakes_failed,
            in_flight: sum(|core| &core.started).saturating_sub(answered + abandoned),
            answered,
            abandoned,
        }
    }

    /// Sums over all cores, route by route.
    #[must_use]
    pub fn routes(&self) -> Vec<RouteTotals> {
        let total = |index: usize, template| {
            let mut totals =
                RouteTotals { template, by_class: [0; 5], buckets: [0; DURATION_BOUNDS.len() + 1], nanos: 0 };
            for route in self.cores.iter().filter_map(|core| core.routes.get(index)) {
                add(&mut totals.by_class, &route.by_class);
                add(&mut totals.buckets, &route.buckets);
                totals.nanos = totals.nanos.wrapping_add(route.nanos.load(Relaxed));
            }
            totals
        };
        self.templates.iter().enumerate().map(|(index, template)| total(index, *template)).collect()
    }
}

fn add<const N: usize>(totals: &mut [u64; N], counters: &[AtomicU64; N]) {
    for (total, counter) in totals.iter_mut().zip(counters) {
        *total += counter.load(Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_summed_by_route_and_class() {
        let stats = Stats::new(2, &["other", "/a"]);
        stats.core(0).answered(Route::new(1), 200, Duration::from_micros(100));
        stats.core(1).answered(Route::new(1), 204, Duration::from_secs(60));
        stats.core(1).answered(Route::new(1), 500, Duration::from_nanos(100_001));
        stats.core(0).answered_together(Route::new(9), 404, Duration::ZERO, 3);
        let routes = stats.routes();
        assert_eq!(routes[1].by_class, [0, 2, 0, 0, 1]);
        assert_eq!((routes[1].buckets[0], routes[1].buckets[1], routes[1].buckets[16]), (1, 1, 1));
        assert_eq!(routes[0].by_class, [0, 0, 0, 3, 0], "an undeclared route counts as other");
        assert_eq!(stats.totals().answered, 6);
    }

    #[test]
    fn no_two_cores_share_a_cache_line() {
        assert_eq!(size_of::<CoreStats>() % 128, 0);
        assert_eq!(align_of::<CoreStats>(), 128);
    }
}
