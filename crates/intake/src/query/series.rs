//! Values taken together, step by step. The order of the lines is that of their arrival, not of their times.
//!
//! ```text
//!   rate: a line ── temporality="delta"? ──> its value is the growth
//!                        └ else, by series ──> points that wait ── sorted by time ──> growth from one to the next
//! ```
//!
//! The points of cumulative counters wait for those that come late, all of them while there is room. Without, they are
//! settled but for the newest of each series, and what comes before a settled point is passed over: the growth that it
//! would show is in the newer one, unless the counter began anew in between. Of points of one millisecond the largest
//! counts.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};

use serde::Deserialize;
use tidegate_wire::metrics::Number;

/// Most values that are kept for percentiles, and most points that wait under `rate`.
const MAX_VALUES: usize = 1_000_000;
/// Points of a series that go on waiting when all others are settled.
const NEWEST: usize = 16;
/// Most series that are told apart.
const MAX_SERIES: usize = 10_000;

/// How values become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aggregate {
    Min,
    Max,
    Avg,
    Sum,
    Count,
    /// Growth a second, of counters that may begin anew.
    Rate,
    /// The least value that so many tenths of a percent of all do not exceed.
    Percentile(usize),
}

const ALL: [(&str, Aggregate); 11] = [
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("avg", Aggregate::Avg),
    ("sum", Aggregate::Sum),
    ("count", Aggregate::Count),
    ("rate", Aggregate::Rate),
    ("p50", Aggregate::Percentile(500)),
    ("p90", Aggregate::Percentile(900)),
    ("p95", Aggregate::Percentile(950)),
    ("p99", Aggregate::Percentile(990)),
    ("p99.9", Aggregate::Percentile(999)),
];

impl Aggregate {
    pub(super) const WORDS: &str = "min, max, avg, sum, count, rate, p50, p90, p95, p99 or p99.9";

    pub(super) fn of_word(word: &str) -> Option<Self> {
        ALL.into_iter().find(|(known, _)| *known == word).map(|(_, aggregate)| aggregate)
    }

    pub(super) fn word(self) -> &'static str {
        // Invariant: every one of them is in the list.
        ALL.into_iter().find(|(_, aggregate)| *aggregate == self).map_or("", |(word, _)| word)
    }
}

/// What a step has.
#[derive(Clone, Debug)]
struct StepTotals {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    values: Vec<f64>,
}

const EMPTY: StepTotals =
    StepTotals { count: 0, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY, values: Vec::new() };

/// The points of a query, under way.
pub(super) struct Series {
    aggregate: Aggregate,
    start: i64,
    step: i64,
    steps: Vec<StepTotals>,
    /// Values that are kept, for percentiles or since they wait.
    values: usize,
    /// The counters that are cumulative, by series.
    counters: HashMap<u64, CounterPoints>,
    hasher: RandomState,
}

/// A point of a counter.
type CounterPoint = (i64, Number);

/// The points of a cumulative counter.
#[derive(Debug, Default)]
struct CounterPoints {
    /// The last one whose growth was added up.
    settled: Option<CounterPoint>,
    /// The points behind it, in the order of their arrival.
    waiting: Vec<CounterPoint>,
}

impl CounterPoints {
    /// Sorts the points that wait by time, and hands out the growth up to each of them but the newest `kept`.
    fn settle(&mut self, kept: usize, mut put: impl FnMut(i64, f64)) {
        self.waiting.sort_by(|(at, value), (other, than)| {
            at.cmp(other).then_with(|| value.float().total_cmp(&than.float()))
        });
        let settled = self.waiting.len().saturating_sub(kept);
        for (at, value) in self.waiting.drain(..settled) {
            if let Some((before, last)) = self.settled {
                let growth = value.since(last);
                let is_smaller = growth < 0.0;
                if is_smaller && at == before {
                    // It was passed on the way within this millisecond.
                    continue;
                }
                // A counter that begins anew begins at 0.
                put(at, if is_smaller { value.float() } else { growth });
            }
            self.settled = Some((at, value));
        }
    }
}

/// The tag that says whether a counter's lines are what was added since the last one.
const TEMPORALITY: &str = "temporality";
const DELTA: &str = "delta";

/// What a line has beside its name and time.
#[derive(Deserialize)]
struct Value {
    value: f64,
}

/// The same with what tells series apart.
#[derive(Deserialize)]
struct TaggedValue {
    value: Number,
    tags: BTreeMap<String, String>,
    client: String,
}

impl Series {
    /// No values yet, of times from `start` on and before `end`.
    pub(super) fn new(aggregate: Aggregate, start: i64, step: i64, end: i64) -> Self {
        let steps = usize::try_from((end - start + step - 1) / step).unwrap_or(0);
        Self {
            aggregate,
            start,
            step,
            steps: vec![EMPTY; steps],
            values: 0,
            counters: HashMap::new(),
            hasher: RandomState::new(),
        }
    }

    /// Adds a line, if it has these tags; whether there is room for more.
    pub(super) fn add(&mut self, line: &[u8], ms: i64, tags: &[(String, String)]) -> bool {
        if tags.is_empty() && self.aggregate != Aggregate::Rate {
            // A line that the log described has a value.
            return serde_json::from_slice(line).map_or(true, |Value { value }| self.put(ms, value));
        }
        let Ok(TaggedValue { value, tags: own, client }) = serde_json::from_slice(line) else { return true };
        if tags.iter().any(|(name, wanted)| own.get(name) != Some(wanted)) {
            return true;
        }
        if self.aggregate != Aggregate::Rate {
            return self.put(ms, value.float());
        }
        if own.get(TEMPORALITY).is_some_and(|temporality| temporality == DELTA) {
            return self.put(ms, value.float());
        }
        self.wait(self.hasher.hash_one((own, client)), (ms, value))
    }

    /// Keeps a point of a cumulative counter until its place among the others is known.
    fn wait(&mut self, series: u64, point: CounterPoint) -> bool {
        let has_room = self.counters.len() < MAX_SERIES;
        let counter = match self.counters.entry(series) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !has_room => return false,
            Entry::Vacant(new) => new.insert(CounterPoints::default()),
        };
        if counter.settled.is_some_and(|(settled, _)| point.0 < settled) {
            return true;
        }
        counter.waiting.push(point);
        self.values += 1;
        if self.values == MAX_VALUES {
            self.settle(NEWEST);
        }
        true
    }

    /// Adds up the growth of all counters, but for their newest points.
    fn settle(&mut self, kept: usize) {
        let mut counters = std::mem::take(&mut self.counters);
        for counter in counters.values_mut() {
            counter.settle(kept, |ms, growth| {
                self.put(ms, growth);
            });
        }
        self.values = counters.values().map(|counter| counter.waiting.len()).sum();
        self.counters = counters;
    }

    fn put(&mut self, ms: i64, value: f64) -> bool {
        let place = usize::try_from((ms - self.start) / self.step).ok();
        let Some(step) = place.and_then(|place| self.steps.get_mut(place)) else { return true };
        step.count += 1;
        step.sum += value;
        step.min = step.min.min(value);
        step.max = step.max.max(value);
        if let Aggregate::Percentile(_) = self.aggregate {
            step.values.push(value);
            self.values += 1;
        }
        self.values < MAX_VALUES
    }

    /// The beginning of each step that has values, and what they are together.
    pub(super) fn points(mut self) -> Vec<(i64, f64)> {
        self.settle(0);
        let (aggregate, start, length) = (self.aggregate, self.start, self.step);
        let times = (0..).map(|place| start + place * length);
        let filled = times.zip(self.steps).filter(|(_, step)| step.count > 0);
        filled.map(|(at, step)| (at, step.together(aggregate, length))).collect()
    }
}

impl StepTotals {
    fn together(mut self, aggregate: Aggregate, length: i64) -> f64 {
        match aggregate {
            Aggregate::Min => self.min,
            Aggregate::Max => self.max,
            Aggregate::Avg => self.sum / self.count as f64,
            Aggregate::Sum => self.sum,
            Aggregate::Count => self.count as f64,
            Aggregate::Rate => self.sum * 1_000.0 / length as f64,
            Aggregate::Percentile(per_mille) => {
                let rank = (self.values.len() * per_mille).div_ceil(1_000).max(1) - 1;
                *self.values.select_nth_unstable_by(rank, f64::total_cmp).1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: f64, host: &str) -> Vec<u8> {
        format!("{{\"timestamp\":\"\",\"name\":\"n\",\"value\":{value},\"type\":\"gauge\",\"tags\":{{\"host\":\"{host}\"}},\"client\":\"c\"}}").into_bytes()
    }

    fn points(
        aggregate: Aggregate,
        lines: &[(i64, f64, &str)],
        tags: &[(String, String)],
    ) -> Vec<(i64, f64)> {
        let mut series = Series::new(aggregate, 1_000, 10_000, 30_500);
        for (ms, value, host) in lines {
            assert!(series.add(&line(*value, host), *ms, tags));
        }
        series.points()
    }

    #[test]
    fn values_of_a_step_become_one() {
        let lines: Vec<(i64, f64, &str)> =
            (1..=100_u8).map(|value| (1_000 + i64::from(value) * 99, f64::from(value), "a")).collect();
        for (word, expected) in [
            ("min", 1.0),
            ("max", 100.0),
            ("avg", 50.5),
            ("sum", 5_050.0),
            ("count", 100.0),
            ("p50", 50.0),
            ("p90", 90.0),
            ("p99", 99.0),
            ("p99.9", 100.0),
        ] {
            let aggregate = Aggregate::of_word(word).unwrap();
            assert_eq!(aggregate.word(), word);
            assert_eq!(points(aggregate, &lines, &[]), [(1_000, expected)], "{word}");
        }
        assert_eq!(
            points(Aggregate::Max, &[(1_000, 1.0, "a"), (30_499, 2.0, "a")], &[]),
            [(1_000, 1.0), (21_000, 2.0)]
        );
    }

    #[test]
    fn tags_choose_lines() {
        let lines = [(1_000, 1.0, "a"), (2_000, 10.0, "b"), (3_000, 100.0, "a")];
        let tags = |host: &str| vec![("host".to_owned(), host.to_owned())];
        assert_eq!(points(Aggregate::Sum, &lines, &tags("a")), [(1_000, 101.0)]);
        assert_eq!(points(Aggregate::Sum, &lines, &tags("c")), []);
        assert_eq!(points(Aggregate::Sum, &lines, &[("zone".to_owned(), String::new())]), []);
    }

    #[test]
    fn a_rate_adds_up_series_and_survives_a_counter_that_begins_anew() {
        let lines = [
            (1_000, 100.0, "a"),
            (1_000, 7_000.0, "b"),
            (6_000, 150.0, "a"),
            (5_000, 140.0, "a"),
            (7_000, 7_010.0, "b"),
            (12_000, 5.0, "a"),
        ];
        assert_eq!(points(Aggregate::Rate, &lines, &[]), [(1_000, 6.0), (11_000, 0.5)]);
    }

    #[test]
    fn a_rate_of_deltas_is_their_sum_also_of_the_first_and_of_one_millisecond() {
        let delta = |value: f64| {
            format!("{{\"value\":{value},\"tags\":{{\"temporality\":\"delta\"}},\"client\":\"c\"}}")
                .into_bytes()
        };
        let mut series = Series::new(Aggregate::Rate, 1_000, 10_000, 30_500);
        for (ms, value) in [(2_000, 3.0), (2_000, 5.0), (1_500, 2.0), (12_000, 7.0)] {
            assert!(series.add(&delta(value), ms, &[]));
        }
        assert_eq!(series.points(), [(1_000, 1.0), (11_000, 0.7)]);
    }

    #[test]
    fn a_rate_puts_points_that_came_late_where_they_belong() {
        for lines in [
            // The newest first, one of them at the beginning of the counter's second life.
            [(9_000, 30.0, "a"), (6_000, 10.0, "a"), (5_000, 60.0, "a"), (2_000, 50.0, "a")],
            [(2_000, 50.0, "a"), (6_000, 10.0, "a"), (9_000, 30.0, "a"), (5_000, 60.0, "a")],
        ] {
            // From 50 to 60, anew to 10, to 30.
            assert_eq!(points(Aggregate::Rate, &lines, &[]), [(1_000, 4.0)]);
        }
    }

    #[test]
    fn points_of_one_millisecond_are_no_beginning_anew() {
        let lines = [(2_000, 50.0, "a"), (3_000, 70.0, "a"), (3_000, 60.0, "a"), (4_000, 90.0, "a")];
        assert_eq!(points(Aggregate::Rate, &lines, &[]), [(1_000, 4.0)]);
    }

    #[test]
    fn the_growth_of_large_counters_is_that_of_their_digits() {
        let line = |value: &str| format!("{{\"value\":{value},\"tags\":{{}},\"client\":\"c\"}}").into_bytes();
        let mut series = Series::new(Aggregate::Rate, 0, 1_000, 1_000);
        for (ms, value) in [(0, "9007199254740993"), (1, "9007199254740994"), (2, "9007199254740995")] {
            assert!(series.add(&line(value), ms, &[]));
        }
        assert_eq!(series.points(), [(0, 2.0)]);
    }

    #[test]
    fn what_waits_under_a_rate_has_a_bound_and_nothing_is_lost_by_it() {
        let mut series = Series::new(Aggregate::Rate, 0, 10_000, 10_000);
        assert!((1..MAX_VALUES).all(|_| series.wait(7, (0, 1.0.into()))));
        assert_eq!(series.values, MAX_VALUES - 1);
        assert!(series.wait(7, (1, 11.0.into())));
        assert_eq!(series.values, NEWEST);
        assert!(series.wait(7, (2, 31.0.into())));
        assert_eq!(series.points(), [(0, 3.0)]);
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut series = Series::new(Aggregate::Percentile(500), 0, 1_000, 1_000);
        assert!((1..MAX_VALUES).all(|_| series.put(0, 1.0)));
        assert!(!series.put(0, 1.0));
        let mut series = Series::new(Aggregate::Rate, 0, 1_000, 1_000);
        assert!((0..MAX_SERIES).all(|host| series.add(&line(1.0, &host.to_string()), 0, &[])));
        assert!(!series.add(&line(1.0, "one more"), 0, &[]));
    }
}
