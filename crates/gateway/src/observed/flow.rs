//! What is counted of each route's requests, and of what each server is sent and answers, for the metrics page.
//!
//! Each core writes counters of its own, so that counting costs no line of another core's cache. They belong to the route of
//! a name and to the server at an address of an upstream, and stay while these do, whatever is edited of them.
//!
//! Bounds: [`MAX_APART`] routes and as many servers have counters of their own, whoever the clients are (fault 53); all beyond share
//! one set, of routes and of servers. A route or server stays where it is counted for as long as it is there, so that no sum ever
//! falls: a name that goes or comes never lowers the sum of the others. A place that one leaves is for the next that comes.
//!
//! Rejected: counters for each, and the sum of those beyond the first ones made by the page. It falls when one of the first ones goes,
//! which Prometheus takes for a restart, and 256 bytes for each core and route are 160 MB at 10,000 routes and 64 cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the histograms in nanoseconds; a last bucket has no bound.
pub const TIME_BOUNDS: [u64; 11] = [
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
    5_000_000_000,
];

/// Routes that are counted apart, and servers.
pub const MAX_APART: usize = 200;

/// The name of those beyond, who are counted together. A route of this name is one of them.
pub const OTHERS: &str = "others";

/// Counters of a route, or of a server, or of all others together.
#[derive(Debug)]
pub(crate) struct Flow {
    cores: Box<[CoreFlow]>,
}

/// Counters that one core writes, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CoreFlow {
    by_class: [AtomicU64; 5],
    buckets: [AtomicU64; TIME_BOUNDS.len() + 1],
    nanos: AtomicU64,
    request_bytes: AtomicU64,
    reply_bytes: AtomicU64,
    opened: AtomicU64,
    reused: AtomicU64,
    limited: AtomicU64,
    limit_nanos: AtomicU64,
    denied: AtomicU64,
}

/// Who has counters of their own: of a gateway's routes, or of its servers.
#[derive(Debug)]
pub(crate) struct FlowSet {
    cores: usize,
    others: Arc<Flow>,
}

/// Gives counters to the routes, or to the servers, of the next site.
#[derive(Debug)]
pub(crate) struct FlowsToCome<'s> {
    set: &'s FlowSet,
    /// How many of those that come may have their own.
    free: usize,
}

/// What was counted, of all cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Replies with 1xx, 2xx, 3xx, 4xx and 5xx.
    pub by_class: [u64; 5],
    /// Replies by the time to their heads, not cumulative; the last one is above every bound of [`TIME_BOUNDS`].
    pub buckets: [u64; TIME_BOUNDS.len() + 1],
    /// Sum of these times in nanoseconds.
    pub nanos: u64,
    /// Bytes of request bodies: of a route those that came, of a server those that it was sent.
    pub request_bytes: u64,
    /// Bytes of reply bodies that came from a server.
    pub reply_bytes: u64,
    /// Connections that were opened to a server.
    pub opened: u64,
    /// Requests that went on a connection which was there.
    pub reused: u64,
    /// Requests of a route whose limits were asked.
    pub limited: u64,
    /// Nanoseconds in which they waited for the answer.
    pub limit_nanos: u64,
    /// Of those, the requests that a used-up limit denied.
    pub denied: u64,
}

/// What was counted of a route, or of all [`OTHERS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFlow {
    /// Its name.
    pub route: Arc<str>,
    /// Its counts.
    pub totals: FlowTotals,
}

/// What was counted at a server, or at all [`OTHERS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFlow {
    /// Its upstream's name.
    pub upstream: Arc<str>,
    /// Its address.
    pub server: String,
    /// Its counts.
    pub totals: FlowTotals,
}

impl FlowSet {
    /// For `cores`.
    pub(crate) fn new(cores: usize) -> Self {
        Self { cores, others: Arc::new(Flow::new(cores)) }
    }

    /// Those of the next site, beside these that stay.
    pub(crate) fn to_come<'f>(&self, stay: impl Iterator<Item = &'f Arc<Flow>>) -> FlowsToCome<'_> {
        let apart = stay.filter(|flow| !self.is_shared(flow)).count();
        FlowsToCome { set: self, free: MAX_APART.saturating_sub(apart) }
    }

    /// Whether these are the counters of all others.
    pub(crate) fn is_shared(&self, flow: &Arc<Flow>) -> bool {
        Arc::ptr_eq(&self.others, flow)
    }

    /// What was counted of all others together, also of those that have gone; `None`: there was none.
    pub(crate) fn others(&self) -> Option<FlowTotals> {
        let (is_used, totals) = (Arc::strong_count(&self.others) > 1, self.others.totals());
        (is_used || totals != FlowTotals::default()).then_some(totals)
    }
}

impl FlowsToCome<'_> {
    /// How many cores count.
    pub(crate) fn cores(&self) -> usize {
        self.set.cores
    }

    /// The counters of one that had these `before`, or that comes.
    pub(crate) fn counters(&mut self, before: Option<&Arc<Flow>>) -> Arc<Flow> {
        if let Some(before) = before {
            return Arc::clone(before);
        }
        if self.free == 0 {
            return self.shared();
        }
        self.free -= 1;
        Arc::new(Flow::new(self.set.cores))
    }

    /// The counters of all others.
    pub(crate) fn shared(&self) -> Arc<Flow> {
        Arc::clone(&self.set.others)
    }
}

impl Flow {
    /// Counters for `cores`.
    pub(crate) fn new(cores: usize) -> Self {
        Self { cores: (0..cores.max(1)).map(|_| CoreFlow::default()).collect() }
    }

    fn core(&self, core: usize) -> &CoreFlow {
        &self.cores[core % self.cores.len()]
    }

    /// A reply of this status, whose head was there after so many nanoseconds.
    pub(crate) fn answered(&self, core: usize, status: u16, nanos: u64) {
        let core = self.core(core);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        core.by_class[class].fetch_add(1, Relaxed);
        let bucket = TIME_BOUNDS.iter().position(|bound| nanos <= *bound);
        core.buckets[bucket.unwrap_or(TIME_BOUNDS.len())].fetch_add(1, Relaxed);
        core.nanos.fetch_add(nanos, Relaxed);
    }

    /// So many bytes of a request's body.
    pub(crate) fn request_bytes(&self, core: usize, bytes: usize) {
        if bytes > 0 {
            self.core(core).request_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// So many bytes of a reply's body.
    pub(crate) fn reply_bytes(&self, core: usize, bytes: usize) {
        if bytes > 0 {
            self.core(core).reply_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// A connection for a request: one that was there, or a new one.
    pub(crate) fn connected(&self, core: usize, was_kept: bool) {
        let core = self.core(core);
        let counter = if was_kept { &core.reused } else { &core.opened };
        counter.fetch_add(1, Relaxed);
    }

    /// The limits of a request were asked, which took so long.
    pub(crate) fn limited(&self, core: usize, took: Duration) {
        let core = self.core(core);
        core.limited.fetch_add(1, Relaxed);
        core.limit_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// A limit of a request was used up.
    pub(crate) fn denied(&self, core: usize) {
        self.core(core).denied.fetch_add(1, Relaxed);
    }

    /// All of it.
    pub(crate) fn totals(&self) -> FlowTotals {
        let mut totals = FlowTotals::default();
        for core in &self.cores {
            add_up(&mut totals.by_class, &core.by_class);
            add_up(&mut totals.buckets, &core.buckets);
            totals.nanos = totals.nanos.wrapping_add(core.nanos.load(Relaxed));
            totals.request_bytes += core.request_bytes.load(Relaxed);
            totals.reply_bytes += core.reply_bytes.load(Relaxed);
            totals.opened += core.opened.load(Relaxed);
            totals.reused += core.reused.load(Relaxed);
            totals.limited += core.limited.load(Relaxed);
            totals.limit_nanos = totals.limit_nanos.wrapping_add(core.limit_nanos.load(Relaxed));
            totals.denied += core.denied.load(Relaxed);
        }
        totals
    }
}

fn add_up<const N: usize>(totals: &mut [u64; N], counters: &[AtomicU64; N]) {
    for (total, counter) in totals.iter_mut().zip(counters) {
        *total += counter.load(Relaxed);
    }
}

/// Where bytes are counted that pass between a client and a server.
#[derive(Clone, Debug)]
pub(crate) struct Passing {
    route: Arc<Flow>,
    server: Option<Arc<Flow>>,
    core: usize,
}

impl Passing {
    /// On a route, by the core that serves the client.
    pub(crate) fn on(route: &Arc<Flow>, core: usize) -> Self {
        Self { route: Arc::clone(route), server: None, core }
    }

    /// The same from now on at a server, too.
    pub(crate) fn goes_to(&mut self, server: &Arc<Flow>) {
        self.server = Some(Arc::clone(server));
    }

    /// So many bytes that the client sent.
    pub(crate) fn request_bytes(&self, bytes: usize) {
        self.route.request_bytes(self.core, bytes);
        if let Some(server) = &self.server {
            server.request_bytes(self.core, bytes);
        }
    }

    /// So many bytes that the server sent.
    pub(crate) fn reply_bytes(&self, bytes: usize) {
        self.route.reply_bytes(self.core, bytes);
        if let Some(server) = &self.server {
            server.reply_bytes(self.core, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cores_count_is_summed_and_no_two_share_a_cache_line() {
        let flow = Flow::new(2);
        flow.answered(0, 200, 1_000_000);
        flow.answered(1, 204, 1_000_001);
        flow.answered(3, 503, 6_000_000_000);
        flow.request_bytes(0, 3);
        flow.reply_bytes(1, 4);
        flow.connected(0, false);
        flow.connected(1, true);
        flow.limited(0, Duration::from_nanos(7));
        flow.denied(0);
        flow.denied(1);
        let totals = flow.totals();
        assert_eq!(totals.by_class, [0, 2, 0, 0, 1]);
        assert_eq!((totals.buckets[0], totals.buckets[1], totals.buckets[TIME_BOUNDS.len()]), (1, 1, 1));
        assert_eq!((totals.request_bytes, totals.reply_bytes), (3, 4));
        assert_eq!((totals.opened, totals.reused, totals.limited, totals.limit_nanos), (1, 1, 1, 7));
        assert_eq!(totals.denied, 2);
        assert_eq!((align_of::<CoreFlow>(), size_of::<CoreFlow>() % 128), (128, 0));
    }

    #[test]
    fn fault_53_ten_thousand_routes_have_a_bounded_number_of_counters() {
        let set = FlowSet::new(2);
        assert_eq!(set.others(), None);
        let apart = |flows: &[Arc<Flow>]| flows.iter().filter(|flow| !set.is_shared(flow)).count();
        let mut coming = set.to_come(std::iter::empty());
        let first: Vec<_> = (0..10_000).map(|_| coming.counters(None)).collect();
        assert_eq!((apart(&first), set.others()), (MAX_APART, Some(FlowTotals::default())));
        first[MAX_APART].answered(0, 200, 1);
        first[9_999].answered(1, 200, 1);
        // Five that were named go, and ten come: who stays is counted where it was.
        let mut coming = set.to_come(first[5..].iter());
        let mut next: Vec<_> = first[5..].iter().map(|before| coming.counters(Some(before))).collect();
        next.extend((0..10).map(|_| coming.counters(None)));
        assert!(first[5..].iter().zip(&next).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert_eq!((apart(&next), apart(&next[next.len() - 10..])), (MAX_APART, 5));
        // All others go. What was counted of them stays.
        drop((first, next));
        assert_eq!(set.others().map(|totals| totals.by_class[1]), Some(2));
    }
}
