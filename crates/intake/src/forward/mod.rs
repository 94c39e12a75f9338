//! Forwarding: every line of the log to another system, at least once and in the order of its partition.
//!
//! ```text
//!   log ── read from the committed offset ── a sink: HTTP, Kafka ──┬─ taken ── commit, once a second
//!    ^                                                             ├─ refused for good ── halves, down to the line: skipped
//!    └── an outage costs only disk                                 └─ anything else ── wait, and the same again
//! ```
//!
//! A task for each forward and partition has at most one batch under way, so nothing overtakes. What was delivered is
//! kept as the group `forward.<name>`: a process that dies between sending and committing sends its last second again
//! (fault 70). The log is the queue, so an outage leaves no hole until retention removes lines that were not delivered;
//! these are counted as soon as they are gone, and logged (fault 71).
//!
//! | answer over HTTP | lines |
//! |---|---|
//! | 2xx | are delivered |
//! | 400, 413, 422 | are sent again in halves; a single line that is refused is skipped, counted and logged |
//! | any other, none | are sent again after 0.1 to 30 s, longer each time; 401, 403 and 404 can be mended on the other side |
//!
//! | bound | value |
//! |---|---|
//! | lines of a batch | 5,000 |
//! | bytes of a batch's lines | 1 MiB, unless one line has more |
//! | a try | 30 s |
//! | time between two commits | 1 s |
//! | forwards | 16 |

mod config;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod partition;
mod sink;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use tidegate_log::Log;
use tidegate_net::runtime::Cores;

use crate::intake::{Intake, millis};
use crate::limits::Limits;

pub use config::{
    Destination, FORWARD_KEYS, ForwardConfig, HttpDestination, HttpProtocol, KafkaTopic, MAX_FORWARDS,
};
use partition::Forwarder;

/// What the groups of forwards are called; no reader commits for them.
pub(crate) const GROUP_PREFIX: &str = "forward.";

/// No line waits.
const NONE: i64 = i64::MIN;

/// What a forward has done, and how far it is behind.
#[derive(Debug)]
pub struct ForwardState {
    name: String,
    log: Arc<Log>,
    places: Vec<Place>,
    delivered: AtomicU64,
    skipped: AtomicU64,
    missing: AtomicU64,
    failed: AtomicU64,
}

/// How far a partition is delivered.
#[derive(Debug)]
struct Place {
    next: AtomicU64,
    /// The time of the oldest line under way, in Unix milliseconds.
    oldest: AtomicI64,
}

impl ForwardState {
    /// A forward that has delivered nothing since the process started.
    #[must_use]
    pub fn new(config: &ForwardConfig, log: &Arc<Log>) -> Self {
        let group = group(&config.name);
        let place = |partition| {
            let kept = log.offsets(partition).unwrap_or_default();
            let next = log.committed(&group, partition).unwrap_or(kept.start);
            Place { next: next.into(), oldest: NONE.into() }
        };
        Self {
            name: config.name.clone(),
            log: Arc::clone(log),
            places: (0..log.partitions()).map(place).collect(),
            delivered: AtomicU64::new(0),
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
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        [
            ("delivered", self.delivered.load(Relaxed)),
            ("skipped", self.skipped.load(Relaxed)),
            ("missing", self.missing.load(Relaxed)),
            ("failed_tries", self.failed.load(Relaxed)),
        ]
    }

    /// Lines that are not delivered yet.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let waiting = |(partition, place): (u16, &Place)| {
            let kept = self.log.offsets(partition).unwrap_or_default();
            kept.end.saturating_sub(place.next.load(Relaxed).max(kept.start))
        };
        (0..).zip(&self.places).map(waiting).sum()
    }

    /// How old the oldest line is that is under way, by its own time, in milliseconds; 0 if there is none.
    #[must_use]
    pub fn oldest_age_ms(&self) -> u64 {
        let oldest =
            self.places.iter().map(|place| place.oldest.load(Relaxed)).filter(|oldest| *oldest != NONE).min();
        oldest.map_or(0, |oldest| u64::try_from(millis().saturating_sub(oldest)).unwrap_or(0))
    }
}

fn group(name: &str) -> String {
    format!("{GROUP_PREFIX}{name}")
}

/// Begins to forward, until the process drains: partition `i` on core `i`.
pub fn start<L: Limits>(
    intake: &Arc<Intake<L>>,
    forwards: &[(ForwardConfig, Arc<ForwardState>)],
    cores: &Cores,
) {
    for (config, state) in forwards {
        for partition in 0..intake.log().partitions() {
            let forwarder = Forwarder::new(Arc::clone(intake), config.clone(), Arc::clone(state), partition);
            cores.spawn_on(usize::from(partition), forwarder.run());
        }
    }
}
