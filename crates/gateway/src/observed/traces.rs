//! The last requests with what was done for each, kept for as long as somebody looks at them.
//!
//! ```text
//!   request ── is anybody looking? ── no: nothing more
//!                      └── yes: Record ── its end ──> Trace ──> answered or turned away, MAX_KEPT of each
//!   look (admin API) ── for WATCHED from now on somebody looks ──> what is kept
//! ```
//!
//! A request that nobody looks at pays one load of a flag that does not change, and has no record. While somebody looks it
//! pays what the access log costs it, without the file. Answered and refused requests are kept apart, so that a busy
//! gateway's good replies do not push out the few refusals.
//!
//! A trace has the path of a request without its query, and none of its other fields: some clients put secrets there.
//!
//! Bounds: [`MAX_KEPT`] of each kind, and of each trace the texts that `RequestRecord` bounds, about 6 KiB.

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tidegate_net::clock::{monotonic, wall};

use crate::authentication::identity::Identity;
use crate::observed::access_log::line::{cut, field};
use crate::observed::record::{ReadsRecords, RequestRecord};

/// Most traces that are kept of answered requests, and as many of requests that were refused or failed.
pub const MAX_KEPT: usize = 100;

/// How long requests are kept after somebody has looked.
pub const WATCHED: Duration = Duration::from_secs(60);

/// Most bytes that are kept of a path, and of each other text of a client.
const MAX_PATH_BYTES: usize = 512;
const MAX_TEXT_BYTES: usize = 128;

/// Decides by the value of the field `Authorization` whether a client may ask for traces.
pub struct TraceGuard(Box<Admits>);

type Admits = dyn Fn(&[u8]) -> bool + Send + Sync;

impl TraceGuard {
    /// A guard that lets pass the values that `admits` accepts.
    pub fn new(admits: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Box::new(admits))
    }

    pub(crate) fn admits(&self, authorization: &[u8]) -> bool {
        (self.0)(authorization)
    }
}

impl fmt::Debug for TraceGuard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TraceGuard")
    }
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trace {
    /// Its name here, which no other trace has, of this process or of one before it.
    pub id: String,
    /// When it came, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// The address of its client.
    pub client: IpAddr,
    /// Its method.
    pub method: String,
    /// The host that it named.
    pub host: String,
    /// Its path, without a query.
    pub path: String,
    /// The route that took it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// The upstream of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Arc<str>>,
    /// The server of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// How often a server was tried.
    pub attempts: usize,
    /// The reply's status; 499: the client left before it.
    pub status: u16,
    /// Bytes of the reply's body that were handed to the client's connection.
    pub bytes: u64,
    /// From its head to the reply's end.
    pub duration_ms: f64,
    /// How the reply ended.
    pub end: &'static str,
    /// Why the gateway answered itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<&'static str>,
    /// The id of the API key that it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The consumer that the key or token belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// The request's id, as its server was told.
    pub request_id: String,
    /// What was done, in order: members of a list as the field `tidegate-trace` has them.
    #[serde(skip)]
    pub steps: Vec<String>,
}

impl Trace {
    fn of(record: &RequestRecord) -> Self {
        let (last, attempts) = record.attempts();
        let server = last.and_then(|(upstream, server)| upstream.config.servers.get(server));
        let short = |text: &str| cut(text, MAX_TEXT_BYTES).to_owned();
        let identity = record.identity.as_ref();
        Self {
            id: String::new(),
            at_unix_ms: record.came.0 / 1_000_000,
            client: record.client,
            method: short(record.asked.method.as_str()),
            host: short(&field(&record.asked.host)),
            path: cut(record.asked.target.path(), MAX_PATH_BYTES).to_owned(),
            route: record.route.as_ref().map(|route| Arc::clone(&route.config.name)),
            upstream: last.map(|(upstream, _)| Arc::clone(&upstream.config.name)),
            server: server.map(|server| server.backend.target.to_string()),
            attempts,
            status: record.status,
            bytes: record.bytes,
            duration_ms: record.took().as_micros() as f64 / 1_000.0,
            end: record.end.word(),
            because: record.refusal,
            key: identity.and_then(Identity::key).map(short),
            consumer: identity.and_then(Identity::consumer).map(short),
            request_id: short(&field(&record.request_id)),
            steps: record.steps_in_words(),
        }
    }

    /// Whether the client got what it came for.
    fn is_good(&self) -> bool {
        self.because.is_none() && self.status < 400
    }
}

/// The last requests of a gateway.
#[derive(Debug)]
pub struct Traces {
    /// Whether somebody looks: the only check that a request makes.
    is_watched: AtomicBool,
    kept: Mutex<WatchedTraces>,
}

#[derive(Debug)]
struct WatchedTraces {
    /// Until when somebody looks.
    until: Instant,
    /// When this began: the first part of each id.
    began_unix_ms: u64,
    /// How many were kept so far: the second part.
    count: u64,
    good: VecDeque<Arc<Trace>>,
    bad: VecDeque<Arc<Trace>>,
}

impl Default for Traces {
    fn default() -> Self {
        let kept = WatchedTraces {
            until: monotonic(),
            began_unix_ms: wall().0 / 1_000_000,
            count: 0,
            good: VecDeque::new(),
            bad: VecDeque::new(),
        };
        Self { is_watched: AtomicBool::new(false), kept: Mutex::new(kept) }
    }
}

impl ReadsRecords for Traces {
    /// Keeps a request that has ended.
    fn note(&self, record: &RequestRecord) {
        self.keep(Trace::of(record), monotonic());
    }
}

impl Traces {
    /// Whether somebody looks.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Relaxed)
    }

    fn keep(&self, mut trace: Trace, now: Instant) {
        let mut kept = self.kept();
        if now >= kept.until {
            self.is_watched.store(false, Relaxed);
            return;
        }
        kept.count += 1;
        trace.id = format!("{:x}-{}", kept.began_unix_ms, kept.count);
        let shelf = if trace.is_good() { &mut kept.good } else { &mut kept.bad };
        let oldest = if shelf.len() < MAX_KEPT { None } else { shelf.pop_front() };
        shelf.push_back(Arc::new(trace));
        drop(kept);
        drop(oldest);
    }

    /// The kept traces, the newest first. From now on requests are kept for [`WATCHED`].
    #[must_use]
    pub fn look(&self) -> Vec<Arc<Trace>> {
        self.look_at(monotonic())
    }

    fn look_at(&self, now: Instant) -> Vec<Arc<Trace>> {
        let mut kept = self.kept();
        kept.until = now + WATCHED;
        self.is_watched.store(true, Relaxed);
        let mut all: Vec<Arc<Trace>> = kept.good.iter().chain(&kept.bad).cloned().collect();
        drop(kept);
        all.sort_by_key(|trace| std::cmp::Reverse(trace.at_unix_ms));
        all
    }

    /// The trace of this id, if it is still kept.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Arc<Trace>> {
        let kept = self.kept();
        kept.good.iter().chain(&kept.bad).find(|trace| trace.id == id).cloned()
    }

    /// How many have been kept since the start, and how many are.
    #[must_use]
    pub fn counts(&self) -> (u64, usize) {
        let kept = self.kept();
        (kept.count, kept.good.len() + kept.bad.len())
    }

    fn kept(&self) -> MutexGuard<'_, WatchedTraces> {
        self.kept.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn trace(at_unix_ms: u64, status: u16) -> Trace {
        Trace {
            id: String::new(),
            at_unix_ms,
            client: Ipv4Addr::LOCALHOST.into(),
            method: "GET".to_owned(),
            host: "shop.example".to_owned(),
            path: "/".to_owned(),
            route: None,
            upstream: None,
            server: None,
            attempts: 0,
            status,
            bytes: 0,
            duration_ms: 0.1,
            end: "complete",
            because: None,
            key: None,
            consumer: None,
            request_id: String::new(),
            steps: Vec::new(),
        }
    }

    #[test]
    fn nothing_is_kept_before_somebody_looks_and_a_minute_after() {
        let traces = Traces::default();
        let now = monotonic();
        assert!(!traces.is_watched());
        traces.keep(trace(1, 200), now + Duration::from_secs(1));
        assert!(traces.look_at(now).is_empty() && traces.is_watched());
        traces.keep(trace(2, 200), now + WATCHED - Duration::from_nanos(1));
        assert_eq!(traces.counts(), (1, 1));
        assert!(traces.is_watched());
        traces.keep(trace(3, 200), now + WATCHED);
        assert_eq!((traces.counts(), traces.is_watched()), ((1, 1), false), "nobody looks any more");
        let seen = traces.look_at(now + 2 * WATCHED);
        assert_eq!(seen.iter().map(|it| it.at_unix_ms).collect::<Vec<_>>(), [2], "it is there for the next");
    }

    #[test]
    fn good_replies_do_not_push_out_what_was_turned_away() {
        let traces = Traces::default();
        let now = monotonic();
        drop(traces.look_at(now));
        traces.keep(trace(1, 429), now);
        for at in 0..1_000 {
            traces.keep(trace(2 + at, 200), now);
        }
        let seen = traces.look_at(now);
        assert_eq!(seen.len(), MAX_KEPT + 1);
        assert_eq!((seen[0].at_unix_ms, seen[MAX_KEPT].status), (1_001, 429), "the newest first");
        let last = &seen[MAX_KEPT];
        assert_eq!(traces.find(&last.id).as_ref(), Some(last));
        assert_eq!(traces.find("0-1"), None);
        let mut ids: Vec<&str> = seen.iter().map(|it| &*it.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), seen.len());
    }
}
