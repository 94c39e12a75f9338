//! The gates that a step passes before its figure stands as the server's.
//!
//! (a) Generator-bound: while it was short of CPU, the generator's sends were late by its own doing or its
//! connections stood idle by it; or one of its threads had no idle time left. A busy generator that
//! sends on time is no limit, and late sends with an idle generator are the service's stall seen from
//! outside: both signs together.
//! (b) Little's law in a closed loop, within 10 %. In a step that lasts few latencies the requests cut
//! off at its edges alone break it: the search makes such steps longer, and their line says so.
//! (c) At least 5 s, for an interval to mean something.

use serde::{Deserialize, Serialize};

use super::{Level, Settings, is_closed};
use crate::record::{Refusal, StepRecord};

/// Shortest step whose figure stands without a remark, in seconds.
pub const SHORTEST_SECONDS: f64 = 5.0;
/// Mean latencies that a closed step has to hold: a connection ends whole requests only, so that
/// what is cut off at the step's edges alone may pass the 10 % of gate (b) in a shorter one.
pub const LATENCIES: f64 = 10.0;
/// Send lag from which the generator is late, in microseconds (99th percentile).
pub const LATE_US: u64 = 1_000;
/// Share of a core from which a generator thread is busy.
pub const BUSY: f64 = 0.90;
/// Share of a core from which a generator thread has nothing left.
pub const EXHAUSTED: f64 = 0.97;
/// Share of its threads' time spent waiting for a core from which the generator is starved.
pub const STARVED: f64 = 0.10;
/// Repeats near the knee below which gate (c) fails.
const REPEATS: usize = 3;

/// One gate's verdict over a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// `a` to `f`.
    pub id: char,
    /// What it asks.
    pub rule: String,
    /// Whether the run passes.
    pub passed: bool,
    /// The figures behind the verdict.
    pub detail: String,
}

/// Share of the generator threads' time that they were runnable without a core.
#[must_use]
pub fn run_delay(record: &StepRecord) -> f64 {
    let time = record.seconds * f64::from(record.generator.threads.max(1));
    if time > 0.0 { record.generator.run_delay_seconds / time } else { 0.0 }
}

/// Whether the generator was the limit of a step.
#[must_use]
pub fn generator_bound(record: &StepRecord) -> bool {
    let g = &record.generator;
    let short_of_cpu = g.busiest_thread >= BUSY || run_delay(record) >= STARVED;
    let late = g.send_lag_p99_us >= LATE_US || idle_by_own_doing(record);
    g.busiest_thread >= EXHAUSTED || (late && short_of_cpu)
}

/// Closed loop: all connections were there and nothing failed, yet rate x latency falls short of them.
/// What is missing passed between a reply and the next send, and that is the generator's own time.
fn idle_by_own_doing(record: &StepRecord) -> bool {
    is_closed(&record.plan)
        && record.established >= record.plan.connections
        && record.error_count() == 0
        && record.little.deviation < 0.0
        && !record.little.holds()
}

/// How many of its own mean latencies a step lasted, if that is too few for gate (b) to be fair.
#[must_use]
pub fn too_few_latencies(record: &StepRecord) -> Option<f64> {
    let lasted = record.seconds * 1e6 / record.response.mean_us;
    (is_closed(&record.plan) && lasted < LATENCIES).then_some(lasted)
}

/// Writes the refusals into a record.
pub fn apply(record: &mut StepRecord) {
    record.refusals.clear();
    if generator_bound(record) {
        record.refusals.push(Refusal::GeneratorBound {
            send_lag_p99_us: record.generator.send_lag_p99_us,
            busiest_thread: record.generator.busiest_thread,
            run_delay: run_delay(record),
        });
    }
    if is_closed(&record.plan) && !record.little.holds() {
        record.refusals.push(Refusal::LittlesLaw { check: record.little });
    }
    if record.seconds < 0.99 * SHORTEST_SECONDS {
        record.refusals.push(Refusal::TooShort { seconds: record.seconds });
    }
}

/// The gates over a run. `near` are the levels that the capacity and the knee rest on.
#[must_use]
pub fn verdicts(settings: &Settings, levels: &[Level], steps: &[StepRecord], near: &[f64]) -> Vec<Gate> {
    let rests: Vec<&Level> = levels.iter().filter(|l| near.contains(&l.load)).collect();
    let used: Vec<&StepRecord> = rests.iter().flat_map(|l| l.usable_steps()).map(|i| &steps[i]).collect();
    let bound = steps.iter().filter(|s| s.generator_bound()).count();
    let broken =
        steps.iter().filter(|s| s.refusals.iter().any(|r| matches!(r, Refusal::LittlesLaw { .. }))).count();
    let worst = used.iter().map(|s| s.little.deviation.abs()).fold(0.0, f64::max);
    let shortest = used.iter().map(|s| s.seconds).fold(f64::INFINITY, f64::min);
    let fewest = rests.iter().map(|l| l.usable()).min().unwrap_or(0);
    let gate = |id, rule: &str, passed, detail| Gate { id, rule: rule.to_owned(), passed, detail };
    let mut found = vec![gate(
        'a',
        "no figure rests on a step that the generator limited",
        !used.is_empty(),
        format!("{bound} of {} steps were generator-bound and are refused", steps.len()),
    )];
    if settings.is_closed() {
        found.push(gate(
            'b',
            "rate x mean latency gives the stated concurrency within 10 %",
            !used.is_empty(),
            format!("worst deviation of the steps used {:.1} %; {broken} steps are refused", worst * 100.0),
        ));
    }
    found.push(gate(
        'c',
        "steps of 5 s or more, with 3 repeats near the knee",
        shortest >= 0.99 * SHORTEST_SECONDS && !used.is_empty() && fewest >= REPEATS,
        if used.is_empty() {
            "no usable step".to_owned()
        } else {
            format!("shortest {shortest:.1} s, fewest repeats {fewest}")
        },
    ));
    found.push(gate(
        'd',
        "the knee is the last step with a significant gain whose objective holds",
        near.len() >= 2,
        format!("{} levels measured, {} decide", levels.len(), near.len()),
    ));
    found.push(gate(
        'e',
        "response time (from the planned send) and service time are both shown",
        steps.iter().all(|s| s.response.count == s.service.count),
        format!("{} steps", steps.len()),
    ));
    found
}
