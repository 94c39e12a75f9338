//! The live view of a running step: what threads report, added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use tidegate_judge::live::Running;
use tidegate_judge::measurement::{Latency, StepPlan, latency};

/// One thread's report. Counts are since the step began.
pub(super) struct Snapshot {
    /// Tells the threads apart.
    pub(super) first_connection: u32,
    pub(super) good: u64,
    pub(super) denied: u64,
    pub(super) errors: u64,
    pub(super) in_flight: u64,
    pub(super) established: u32,
    /// Response times since the last report.
    pub(super) recent: Latency,
}

/// A running step, about four times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Seconds since the step's first request.
    pub elapsed_seconds: f64,
    /// Seconds that the step takes, warm-up included.
    pub planned_seconds: f64,
    /// Good replies in the measured time so far.
    pub good: u64,
    /// Denials so far.
    pub denied: u64,
    /// Errors so far.
    pub errors: u64,
    /// Good replies per second since the last report.
    pub throughput: f64,
    /// Requests on the wire.
    pub in_flight: u64,
    /// Connections.
    pub established: u64,
    /// Median response time since the last report, in microseconds.
    pub p50_us: u64,
    /// 99th percentile of it, in microseconds.
    pub p99_us: u64,
}

/// Adds up the threads' reports.
pub(super) struct Board {
    latest: BTreeMap<u32, Snapshot>,
    recent: Latency,
    last: Progress,
    planned_seconds: f64,
}

impl Board {
    pub(super) fn new(plan: &StepPlan) -> Self {
        Self {
            latest: BTreeMap::new(),
            recent: latency(),
            last: Progress::default(),
            planned_seconds: (plan.warmup_ms + plan.measure_ms) as f64 / 1e3,
        }
    }

    pub(super) fn take(&mut self, snapshot: Snapshot) {
        // Invariant: all histograms come from `latency`, so that their ranges are equal.
        self.recent.add(&snapshot.recent).expect("equal ranges");
        self.latest.insert(snapshot.first_connection, snapshot);
    }

    /// The view at `elapsed_seconds`; latencies start afresh.
    pub(super) fn view(&mut self, elapsed_seconds: f64) -> Progress {
        let mut now =
            Progress { elapsed_seconds, planned_seconds: self.planned_seconds, ..Progress::default() };
        for thread in self.latest.values() {
            now.good += thread.good;
            now.denied += thread.denied;
            now.errors += thread.errors;
            now.in_flight += thread.in_flight;
            now.established += u64::from(thread.established);
        }
        let passed = elapsed_seconds - self.last.elapsed_seconds;
        if passed > 0.0 {
            now.throughput = now.good.saturating_sub(self.last.good) as f64 / passed;
        }
        now.p50_us = self.recent.value_at_quantile(0.5);
        now.p99_us = self.recent.value_at_quantile(0.99);
        self.recent.reset();
        self.last = now;
        now
    }
}

/// A step's progress, where its load is not shown.
impl From<&Progress> for Running {
    fn from(now: &Progress) -> Self {
        Self {
            load: 0.0,
            elapsed_seconds: now.elapsed_seconds,
            planned_seconds: now.planned_seconds,
            throughput: now.throughput,
            p50_us: now.p50_us as f64,
            p99_us: now.p99_us as f64,
            in_flight: now.in_flight,
            denied: now.denied,
            errors: now.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_judge::measurement::Loop;

    #[test]
    fn threads_add_up_and_throughput_is_the_difference() {
        let plan = StepPlan {
            connections: 2,
            discipline: Loop::Closed { think_us: 0 },
            warmup_ms: 500,
            measure_ms: 1_500,
            max_requests: 0,
        };
        let report = |first_connection, good| {
            let mut recent = latency();
            recent.saturating_record(1_000);
            Snapshot { first_connection, good, denied: 1, errors: 2, in_flight: 3, established: 4, recent }
        };
        let mut board = Board::new(&plan);
        board.take(report(0, 10));
        board.take(report(8, 20));
        let first = board.view(0.5);
        assert_eq!((first.good, first.denied, first.errors, first.in_flight), (30, 2, 4, 6));
        assert_eq!((first.established, first.planned_seconds), (8, 2.0));
        board.take(report(0, 60));
        let second = board.view(1.0);
        assert_eq!(second.throughput, 100.0);
        assert!((990..=1_010).contains(&second.p99_us), "{second:?}");
        assert_eq!(board.view(1.5).p99_us, 0);
    }
}
