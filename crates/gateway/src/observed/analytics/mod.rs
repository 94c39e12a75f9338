//! How many requests each route, API key and server had, with which status and how fast.
//!
//! ```text
//!   RequestTally, when its request has ended ──> the shard of its core
//!                                             │ when a minute ends, or somebody asks
//!                                             v
//!                                          the batch under way, of a minute
//!                                             │ when its minute is over, sealed
//!                                             v
//!                       batches that wait ────────> control: minutes, hours, days of all nodes
//!                             │                        │
//!   query: labels, times ─────┴────────────────────────┴──> rows
//! ```
//!
//! On unless the configuration says otherwise. A request has no record for it, only a tally: it costs a lock of its core that nobody else
//! takes, two readings of clocks, a few counts of references and one look-up by numbers. Nothing is written on a request's way.
//! `keep.rs` says how often something is written, and what a process loses that is killed. A process that is told to end writes
//! everything first.
//!
//! A batch has a number, larger than the one before, and never changes once it was taken to be written. So it can be written
//! again after an outcome that was lost, and an answer counts it in the store or here, never in both: the store tells
//! with its sums which of this process's batches are in them.
//!
//! Bounds: [`MAX_SERIES`] combinations of labels in a shard, in a batch, and in a minute, hour or day that is stored; further ones are
//! counted together as `others`. While the store is away, [`MAX_WAITING`] batches wait; then the oldest is dropped, and
//! its requests are counted as lost.

mod counter;
mod keep;
mod labels;
mod latency;
mod query;
mod shard;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::time::Wall;
use tidegate_control::{MAX_COUNTED, Span, Sums};
use tidegate_net::clock::wall;

use self::labels::Labels;
pub use self::query::{AnalyticsAnswer, AnalyticsQuery, QueryMistake};
use self::shard::{CountShard, CountedSeries, EndedRequest, SHARDS, SeriesKey};
use crate::random::random;

/// Most combinations of route, key, server and status that are told apart in one minute, hour or day.
pub const MAX_SERIES: usize = MAX_COUNTED;

/// Most batches that wait for the store: two hours without it, where requests come in order.
pub const MAX_WAITING: usize = 120;

/// The pause between two writes, where nothing else is said.
const INTERVAL: Duration = Duration::from_secs(60);

/// Requests of all services of this process.
#[derive(Debug)]
pub struct Analytics {
    /// Each of one core, or of some. One is locked before `counting`, never after it.
    shards: Box<[Mutex<CountShard>]>,
    counting: Mutex<Counting>,
    /// The writer's number, drawn for each process, so that its batches are its own.
    writer: u64,
    /// Between two writes.
    pause: Duration,
    others: AtomicU64,
    lost: AtomicU64,
}

/// What the metrics page says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnalyticsStats {
    /// Combinations of labels in the last minute that has some: those that are stored, or those that wait.
    pub series: usize,
    /// Requests that were counted as `others`.
    pub others: u64,
    /// Requests that are not stored yet.
    pub waiting: u64,
    /// Requests that were forgotten, since the store was away for too long.
    pub lost: u64,
}

/// What is counted and not stored.
#[derive(Debug, Default)]
struct Counting {
    /// By number.
    batches: VecDeque<Arc<Unstored>>,
    /// The number of the last one.
    last: u64,
    /// The minute of the last one that was stored, and the combinations that it has, of all nodes.
    stored: (u64, usize),
}

/// What was counted in a minute, or in a part of one. A copy shares it until it changes.
#[derive(Clone, Debug)]
struct Unstored {
    number: u64,
    minute: u64,
    /// It is being written, or was: nothing is added.
    is_sealed: bool,
    requests: u64,
    series: HashMap<Labels, Sums>,
}

impl Counting {
    /// Where requests of this minute are counted, and how many are lost for that. A clock that went back has its minute
    /// again.
    fn of_minute(&mut self, minute: u64) -> (&mut Unstored, u64) {
        let is_it = |batch: &Arc<Unstored>| batch.minute == minute && !batch.is_sealed;
        let mut lost = 0;
        let at = self.batches.iter().rposition(is_it).unwrap_or_else(|| {
            if self.batches.len() >= MAX_WAITING {
                // What is being written may be stored, so it is not called lost.
                let oldest = self.batches.iter().position(|batch| !batch.is_sealed).unwrap_or_default();
                lost = self.batches.remove(oldest).map_or(0, |batch| batch.requests);
            }
            self.last += 1;
            let (number, is_sealed, requests) = (self.last, false, 0);
            self.batches.push_back(Arc::new(Unstored {
                number,
                minute,
                is_sealed,
                requests,
                series: HashMap::new(),
            }));
            self.batches.len() - 1
        });
        (Arc::make_mut(&mut self.batches[at]), lost)
    }
}

impl Default for Analytics {
    fn default() -> Self {
        Self::for_cores(SHARDS)
    }
}

impl Analytics {
    /// For so many cores.
    #[must_use]
    pub fn for_cores(count: usize) -> Self {
        let [drawn, ..] = random();
        let (others, lost) = Default::default();
        let shards = (0..count.clamp(1, SHARDS)).map(|_| Mutex::default()).collect();
        // Databases have 63 bits for the writer.
        Self { shards, counting: Mutex::default(), writer: drawn >> 1, pause: INTERVAL, others, lost }
    }

    /// The same with this pause between two writes, in the place of a minute.
    #[must_use]
    pub fn written_every(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Counts a request of a core on the route of this number and name, as one that has ended: for measurements of what counting costs.
    #[doc(hidden)]
    pub fn count_one(&self, core: usize, number: u64, route: &Arc<str>) {
        let key = SeriesKey { route: number, status: 200, ..SeriesKey::default() };
        let named = || {
            let labels = Labels { route: Some(Arc::clone(route)), status: 200, ..Labels::default() };
            CountedSeries::new(labels, None)
        };
        self.count(core, &EndedRequest { key, bytes: 100, micros: 1_000 }, wall(), named);
    }

    fn count(&self, core: usize, ended: &EndedRequest, now: Wall, named: impl FnOnce() -> CountedSeries) {
        let minute = Span::Minute.begin(second(now));
        let mut shard = self.shards[core % self.shards.len()].lock();
        if shard.minute != minute || !shard.has_room(&ended.key) {
            self.collect(&mut shard);
            shard.minute = minute;
        }
        shard.add(ended, named);
    }

    /// Moves what a shard has to the batch of its minute.
    fn collect(&self, shard: &mut CountShard) {
        if shard.series.is_empty() {
            return;
        }
        let mut counting = self.counting();
        let (batch, lost) = counting.of_minute(shard.minute);
        let mut others = 0;
        for (_, series) in shard.series.drain() {
            let (labels, sums) = series.into_sums();
            batch.requests += sums.requests;
            let (known, is_other) = shard::find(&mut batch.series, labels);
            known.merge(&sums);
            others += if is_other { sums.requests } else { 0 };
        }
        drop(counting);
        self.others.fetch_add(others, Relaxed);
        self.lost.fetch_add(lost, Relaxed);
    }

    /// What is counted and not stored, all shards emptied into it.
    fn collected(&self) -> MutexGuard<'_, Counting> {
        for shard in &self.shards {
            self.collect(&mut shard.lock());
        }
        self.counting()
    }

    /// What the metrics page says of it.
    #[must_use]
    pub fn stats(&self) -> AnalyticsStats {
        let counting = self.collected();
        let (minute, stored) = counting.stored;
        let under_way = counting.batches.back().map_or(0, |batch| batch.series.len());
        let is_over = counting.batches.back().is_some_and(|batch| batch.minute != minute);
        AnalyticsStats {
            series: if is_over { under_way } else { stored.max(under_way) },
            others: self.others.load(Relaxed),
            waiting: counting.batches.iter().map(|batch| batch.requests).sum(),
            lost: self.lost.load(Relaxed),
        }
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock()
    }
}

fn second(now: Wall) -> u64 {
    now.0 / 1_000_000_000
}

#[cfg(test)]
mod tests;
