//! How many requests each route, API key and server had, with which status and how fast.
//!
//! ```text
//!   Record, when its request has ended ──> the minute under way ──> the hour and the day, when the minute is over
//!                                                 |                        |
//!   query: labels, times ─────────────────────────┴────────────────────────┘ ──> rows
//! ```
//!
//! Off unless the configuration wants it: a request then has a record, which costs about a microsecond. Counts are
//! those of this process since it started.
//!
//! Bounds: [`MAX_SERIES`] combinations of labels in a minute, an hour or a day, further ones are counted together as
//! `others`; and the minutes, hours and days that are kept ([`Step::kept`]).

mod latency;
mod query;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_algorithms::time::Wall;
use tidegate_net::clock::wall;
use tidegate_upstream::backend::Target;

use self::latency::Latencies;
pub use self::query::{AnalyticsQuery, QueryMistake};
use crate::record::Record;

/// Most combinations of route, key, server and status that are told apart in one minute, hour or day.
pub const MAX_SERIES: usize = 1_000;

/// Requests of all services of this process.
#[derive(Debug, Default)]
pub struct Analytics {
    counted: Mutex<Counted>,
    others: AtomicU64,
}

/// What the metrics page says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnalyticsStats {
    /// Combinations of labels in the minute under way.
    pub series: usize,
    /// Requests that were counted as `others`.
    pub others: u64,
}

/// How long a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Minute,
    Hour,
    Day,
}

impl Step {
    const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }

    /// How many of them are kept: two hours, two days, a month.
    fn kept(self) -> usize {
        match self {
            Self::Minute => 120,
            Self::Hour => 48,
            Self::Day => 31,
        }
    }

    /// When the one begins in which this second is.
    fn begin(self, second: u64) -> u64 {
        second - second % self.seconds()
    }
}

/// A copy shares what is in it until one side changes.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// By [`Step::ALL`], the latest last. Hours and days have what minutes that are over had.
    spans: [VecDeque<Arc<Span>>; 3],
}

/// A minute, an hour or a day.
#[derive(Clone, Debug)]
struct Span {
    begin: u64,
    series: HashMap<Labels, Tally>,
}

/// What requests are told apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Labels {
    route: Option<Arc<str>>,
    /// The id of its API key.
    key: Option<Box<str>>,
    server: Option<(Arc<str>, Target)>,
    status: u16,
    /// One of those that there was no room to tell apart.
    is_other: bool,
}

/// What is known of requests with the same labels.
#[derive(Clone, Debug, Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    micros: u64,
    latencies: Latencies,
}

impl Tally {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.micros += other.micros;
        self.latencies.merge(&other.latencies);
    }
}

impl Span {
    /// The tally of these labels, or of `others`; whether it is that.
    fn tally(&mut self, labels: Labels) -> (&mut Tally, bool) {
        let is_other = !self.series.contains_key(&labels) && self.series.len() >= MAX_SERIES;
        let labels = if is_other {
            Labels { status: labels.status, is_other: true, ..Labels::default() }
        } else {
            labels
        };
        (self.series.entry(labels).or_default(), is_other)
    }
}

impl Counted {
    /// The minute in which this second is. A clock that went back makes no minute again that is over.
    fn minute(&mut self, second: u64) -> &mut Span {
        let begin = Step::Minute.begin(second);
        let latest = self.spans[0].back().map(|span| span.begin);
        if latest.is_none_or(|latest| latest < begin) {
            self.roll();
            push(&mut self.spans[0], begin, Step::Minute);
        }
        // Invariant: the first request makes one.
        Arc::make_mut(self.spans[0].back_mut().expect("there is a minute under way"))
    }

    /// Puts the minute that is over into its hour and its day.
    fn roll(&mut self) {
        let [minutes, longer @ ..] = &mut self.spans;
        let Some(over) = minutes.back() else { return };
        for (spans, step) in longer.iter_mut().zip([Step::Hour, Step::Day]) {
            let begin = step.begin(over.begin);
            if spans.back().is_none_or(|latest| latest.begin < begin) {
                push(spans, begin, step);
            }
            // Invariant: there is one now.
            let span = Arc::make_mut(spans.back_mut().expect("there is a span under way"));
            for (labels, tally) in &over.series {
                span.tally(labels.clone()).0.merge(tally);
            }
        }
    }
}

/// Begins a span, and forgets the oldest if there are too many.
fn push(spans: &mut VecDeque<Arc<Span>>, begin: u64, step: Step) {
    if spans.len() >= step.kept() {
        spans.pop_front();
    }
    spans.push_back(Arc::new(Span { begin, series: HashMap::new() }));
}

impl Analytics {
    /// Counts a request that has ended.
    pub(crate) fn note(&self, record: &Record) {
        let (server, _) = record.attempts();
        let server = server.map(|(upstream, place)| {
            let target = upstream.group.backends()[place].target().clone();
            (Arc::clone(&upstream.config.name), target)
        });
        let key = record.identity.as_ref().and_then(|identity| identity.key()).map(Box::from);
        let route = record.route.as_ref().map(|route| Arc::clone(&route.config.name));
        let labels = Labels { route, key, server, status: record.status, is_other: false };
        let micros = u64::try_from(record.took().as_micros()).unwrap_or(u64::MAX);
        self.count(labels, record.bytes, micros, wall());
    }

    fn count(&self, labels: Labels, bytes: u64, micros: u64, now: Wall) {
        let mut counted = self.counted();
        let (tally, is_other) = counted.minute(now.0 / 1_000_000_000).tally(labels);
        tally.requests += 1;
        tally.bytes = tally.bytes.saturating_add(bytes);
        tally.micros = tally.micros.saturating_add(micros);
        tally.latencies.add(micros);
        drop(counted);
        if is_other {
            self.others.fetch_add(1, Relaxed);
        }
    }

    /// What the metrics page says of it.
    #[must_use]
    pub fn stats(&self) -> AnalyticsStats {
        let series = self.counted().spans[0].back().map_or(0, |span| span.series.len());
        AnalyticsStats { series, others: self.others.load(Relaxed) }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        // A panicking holder left a request uncounted at worst.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
