//! Mirror: copies of requests go to a second upstream, whose replies are dropped, to try a new version on real
//! requests.
//!
//! ```text
//!   request ── first upstream ── reply's head ──> client
//!      `── copy, if there is room ─────────'`──> task: second upstream ── status and time compared ── counted
//! ```
//!
//! A copy leaves when the first upstream has answered, in a task of its own, so that nothing of the second one is waited
//! for. Requests whose body was not at hand as a whole, and those that go on in another protocol, have no copy. It is one
//! attempt; its field [`MIRRORED`] says what it is.
//!
//! Bounds: [`MAX_AT_ONCE`] copies of a route under way, each for as long as the route waits for a reply's head; one more is
//! dropped, and so is one while the second upstream's breaker is open or its servers are full. All of that is counted.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tidegate_algorithms::breaker::Outcome;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_upstream::connect::Resolver;
use tokio::time::timeout_at;

use crate::config::MirrorConfig;
use crate::forwarding::attempt::{Attempt, FaultOf, ServerExchange};
use crate::forwarding::message::Message;
use crate::forwarding::payload::RequestPayload;
use crate::random::fraction;
use crate::servers::pool::Return;
use crate::servers::upstream::Upstream;

/// Most copies of a route's requests that are under way.
pub const MAX_AT_ONCE: usize = 128;

/// Says of a request that it is a copy. Clients cannot say it where routes have copies.
pub(crate) const MIRRORED: HeaderName = HeaderName::from_static("tidegate-mirror");

/// A route's second upstream, and what became of the copies for it.
#[derive(Debug)]
pub(crate) struct Mirror {
    route: Arc<str>,
    percent: u64,
    pub(crate) upstream: Arc<Upstream>,
    counts: Arc<Counts>,
}

/// What outlives a change of either upstream.
#[derive(Debug, Default)]
struct Counts {
    at_once: AtomicUsize,
    skipped: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    same: AtomicU64,
    other: AtomicU64,
    first_took: AtomicU64,
    second_took: AtomicU64,
}

/// What became of the copies of a route's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// The route.
    pub route: Arc<str>,
    /// Requests that cannot be copied.
    pub skipped: u64,
    /// Copies for which there was no room.
    pub dropped: u64,
    /// Copies that were not answered.
    pub failed: u64,
    /// Copies that were answered with the first upstream's status.
    pub same_status: u64,
    /// Copies that were answered with another one.
    pub other_status: u64,
    /// Microseconds up to the heads of the first upstream's replies, over the requests that both upstreams answered.
    pub first_took: u64,
    /// Microseconds up to the heads of the second one's.
    pub second_took: u64,
    /// Copies under way.
    pub at_once: usize,
}

/// A copy of a request that is not under way yet.
#[derive(Debug)]
pub(crate) struct Copy {
    mirror: Arc<Mirror>,
    message: Message,
    is_head: bool,
    key: u64,
}

/// What a copy needs to get there.
pub(crate) struct Way {
    pub(crate) core: usize,
    pub(crate) resolver: Resolver,
    pub(crate) clock: Clock,
    pub(crate) patience: Duration,
}

/// Room for one copy.
struct Room(Arc<Mirror>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.counts.at_once.fetch_sub(1, Relaxed);
    }
}

impl Mirror {
    /// That of a route of this name. Copies that went to an upstream of the same name `before` count on.
    pub(crate) fn new(
        config: &MirrorConfig,
        route: &Arc<str>,
        upstream: Arc<Upstream>,
        before: Option<&Self>,
    ) -> Arc<Self> {
        let known = before.filter(|before| before.upstream.config.name == upstream.config.name);
        let counts = known.map(|before| Arc::clone(&before.counts)).unwrap_or_default();
        Arc::new(Self { route: Arc::clone(route), percent: config.percent, upstream, counts })
    }

    pub(crate) fn stats(&self, route: &Arc<str>) -> MirrorStats {
        let counts = &self.counts;
        MirrorStats {
            route: Arc::clone(route),
            skipped: counts.skipped.load(Relaxed),
            dropped: counts.dropped.load(Relaxed),
            failed: counts.failed.load(Relaxed),
            same_status: counts.same.load(Relaxed),
            other_status: counts.other.load(Relaxed),
            first_took: counts.first_took.load(Relaxed),
            second_took: counts.second_took.load(Relaxed),
            at_once: counts.at_once.load(Relaxed),
        }
    }

    /// A copy of a request on its way to the first upstream, if it is to have one. `key`: what a hash ring goes by.
    pub(crate) fn copy(self: &Arc<Self>, parts: &Parts, payload: &RequestPayload, key: u64) -> Option<Copy> {
        if self.percent < 100 && fraction() * 100.0 >= self.percent as f64 {
            return None;
        }
        let RequestPayload::Whole(bytes) = payload else {
            self.counts.skipped.fetch_add(1, Relaxed);
            return None;
        };
        let (mut parts, is_head) = (Box::new(parts.clone()), parts.method == Method::HEAD);
        parts.headers.insert(MIRRORED, HeaderValue::from_static("1"));
        let message = Message::new(parts, RequestPayload::Whole(bytes.clone()), None);
        Some(Copy { mirror: Arc::clone(self), message, is_head, key })
    }

    fn room(self: &Arc<Self>) -> Option<Room> {
        let more = |count| (count < MAX_AT_ONCE).then_some(count + 1);
        let taken = self.counts.at_once.fetch_update(Relaxed, Relaxed, more);
        taken.ok().map(|_| Room(Arc::clone(self)))
    }
}

impl Copy {
    /// Sends it on its way, to be compared with a reply of `status` that took so long.
    pub(crate) fn send(self, status: StatusCode, took: Duration, way: Way) {
        match self.mirror.room() {
            Some(room) => drop(tokio::spawn(self.arrive(status, took, way, room))),
            None => drop(self.mirror.counts.dropped.fetch_add(1, Relaxed)),
        }
    }

    async fn arrive(mut self, status: StatusCode, took: Duration, way: Way, _room: Room) {
        let mirror = Arc::clone(&self.mirror);
        let (counts, begun) = (&mirror.counts, monotonic());
        match answer(&mut self, &way, begun).await {
            CopyOutcome::NoRoom => drop(counts.dropped.fetch_add(1, Relaxed)),
            CopyOutcome::None => drop(counts.failed.fetch_add(1, Relaxed)),
            CopyOutcome::Head(answered, second) => {
                let count = if answered == status { &counts.same } else { &counts.other };
                count.fetch_add(1, Relaxed);
                counts.first_took.fetch_add(microseconds(took), Relaxed);
                counts.second_took.fetch_add(microseconds(second), Relaxed);
            }
        }
    }
}

/// What became of a copy.
enum CopyOutcome {
    NoRoom,
    None,
    Head(StatusCode, Duration),
}

async fn answer(copy: &mut Copy, way: &Way, begun: Instant) -> CopyOutcome {
    let Copy { mirror, message, is_head, key } = copy;
    let (upstream, now) = (&mirror.upstream, way.clock.tick());
    let Ok(admission) = upstream.breaker.as_ref().map(|breaker| breaker.admit(now)).transpose() else {
        return CopyOutcome::NoRoom;
    };
    let Ok((server, _place)) = upstream.group.pick(*key, &[], now) else { return CopyOutcome::NoRoom };
    let deadline = begun + way.patience;
    let attempt = Attempt {
        route: &mirror.route,
        upstream,
        server,
        core: way.core,
        resolver: &way.resolver,
        clock: way.clock,
        begun,
        patience: way.patience,
        deadline: Some(deadline),
        explains: false,
    };
    let sent = attempt.send(message).await;
    let (took, now) = (monotonic().duration_since(begun), way.clock.tick());
    let failed = sent.as_ref().map_or(true, |exchange| exchange.reply.status().is_server_error());
    if sent.as_ref().err().is_none_or(|failure| failure.fault_of != FaultOf::Gateway) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        upstream.ended(server, failed, nanoseconds, now);
        if let Some(admission) = admission
            && upstream.counts(server, failed, now)
        {
            admission.ended(Outcome { failed, took: nanoseconds }, now);
        }
    }
    let Ok(exchange) = sent else { return CopyOutcome::None };
    let promised = exchange.idle_time();
    let ServerExchange { reply, mut sender, heard, .. } = *exchange;
    let (head, mut body) = reply.into_parts();
    // The rest is dropped; it is read to its end so that the connection can be used again.
    let rest =
        async { while poll_fn(|cx| body.poll_frame(&mut sender, cx)).await.is_some_and(|it| it.is_ok()) {} };
    if *is_head || (timeout_at(deadline.into(), rest).await.is_ok() && body.is_at_end(&sender)) {
        let pool = Arc::clone(&upstream.pools[server]);
        Return::new(sender, promised, pool, way.core, heard).now();
    }
    CopyOutcome::Head(head.status, took)
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
