//! Forwarding: every line of the log to another system, at least once and in the order of its partition.
//!
//! ```text
//!   log ── read from the committed offset ── a sink: HTTP, Kafka ──┬─ taken ── commit, once a second
//!    ^                                                             ├─ refused for good ── halves, down to the line: set aside
//!    └── an outage costs only disk                                 └─ anything else ── wait, and the same again
//! ```
//!
//! A task for each forward and partition has at most one batch under way, so nothing overtakes. What was delivered is
//! kept as the group `forward.<name>`: a process that dies between sending and committing sends its last second again
//! (fault 70). The log is the queue, so an outage leaves no hole until retention removes lines that were not delivered;
//! these are counted as soon as they are gone, and logged (fault 71).
//!
//! Forwards change while the process runs (`running.rs`): one that is gone ends and keeps its place, and what has its name goes
//! on from there.
//!
//! By remote write deltas go as sums, which each task has in memory and begins anew when it starts
//! ([`tidegate_wire::metrics::forward::Sums`]).
//!
//! | answer over HTTP | lines |
//! |---|---|
//! | 2xx | are delivered, but for those that the answer says are not: OTLP's partial success, remote write's number of samples written |
//! | 400, 413, 422 | are sent again in halves; a single line that is refused is set aside, counted and logged |
//! | any other, none | are sent again after 0.1 to 30 s, longer each time; 401, 403 and 404 can be mended on the other side |
//!
//! | bound | value |
//! |---|---|
//! | lines of a batch | 5,000 |
//! | bytes of a batch's lines | 1 MiB, unless one line has more |
//! | a try | 30 s |
//! | tries of a batch of which all lines are refused | one for each line, and 13 |
//! | time between two commits | 1 s |
//! | forwards | 16 |
//! | series of deltas by remote write, of a forward and partition | 100,000 |

mod config;
mod http;
mod partition;
mod refused;
mod running;
mod sent;
mod sink;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_log::Log;

pub use config::{
    Destination, FORWARD_KEYS, ForwardConfig, HttpDestination, HttpProtocol, KafkaTopic, MAX_FORWARDS,
};
pub use running::{Forwards, start};
pub use sent::Sent;
pub use sink::{TopicSink, Topics};

/// What the groups of forwards are called; no reader commits for them.
pub const GROUP_PREFIX: &str = "forward.";

/// What a forward has done, and how far it is behind.
#[derive(Debug)]
pub struct ForwardState {
    name: String,
    log: Arc<Log>,
    /// The next offset of each partition.
    places: Vec<AtomicU64>,
    delivered: AtomicU64,
    superseded: AtomicU64,
    skipped: AtomicU64,
    missing: AtomicU64,
    failed: AtomicU64,
}

impl ForwardState {
    /// A forward that has delivered nothing since the process started.
    #[must_use]
    pub fn new(config: &ForwardConfig, log: &Arc<Log>) -> Self {
        let group = group(&config.name);
        let place = |partition| {
            let kept = log.offsets(partition).unwrap_or_default();
            log.committed(&group, partition).unwrap_or(kept.start).into()
        };
        Self {
            name: config.name.clone(),
            log: Arc::clone(log),
            places: (0..log.partitions()).map(place).collect(),
            delivered: AtomicU64::new(0),
            superseded: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            missing: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What became of lines, and tries that failed: the words for them, and how many.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 5] {
        [
            ("delivered", self.delivered.load(Relaxed)),
            ("superseded", self.superseded.load(Relaxed)),
            ("skipped", self.skipped.load(Relaxed)),
            ("missing", self.missing.load(Relaxed)),
            ("failed_tries", self.failed.load(Relaxed)),
        ]
    }

    /// Lines that are not delivered yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let waiting = |(partition, next): (u16, &AtomicU64)| {
            let kept = self.log.offsets(partition).unwrap_or_default();
            kept.end.saturating_sub(next.load(Relaxed).max(kept.start))
        };
        (0..).zip(&self.places).map(waiting).sum()
    }

    /// How long ago the oldest line came that is not delivered, whatever time it states; zero if all are. As exact as
    /// [`Log::age`].
    #[must_use]
    pub fn oldest_age(&self) -> Duration {
        let age = |(partition, next): (u16, &AtomicU64)| {
            let kept = self.log.offsets(partition)?;
            self.log.age(partition, next.load(Relaxed).max(kept.start))
        };
        (0..).zip(&self.places).filter_map(age).max().unwrap_or_default()
    }
}

/// The group of the forward of this name.
#[must_use]
pub fn group(name: &str) -> String {
    format!("{GROUP_PREFIX}{name}")
}
