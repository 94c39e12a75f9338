//! The gates that a step passes before its figure stands as the server's.
//!
//! (a) Generator-bound: one of its threads had no idle time left; or it was short of CPU (a thread used up
//! its core, or the cores were taken) AND it was late by as much as matters beside the latency measured:
//! its sends, or its connections that stood idle between a reply and the next send. A busy generator that
//! sends on time is no limit, and late sends with an idle generator are the service's stall seen from
//! outside. Connections that wait for a server that does not answer are in flight, not idle.
//! (b) Little's law in a closed loop, within 10 %. In a step that lasts few latencies the requests cut
//! off at its edges alone break it: the search makes such steps longer, and their line says so.
//! (c) At least 5 s, for an interval to mean something.

use serde::{Deserialize, Serialize};

use super::{Level, Settings, is_closed};
use crate::measurement::Loop;
use crate::record::{Refusal, StepRecord};

/// Shortest step whose figure stands without a remark, in seconds.
pub const SHORTEST_SECONDS: f64 = 5.0;
/// Mean latencies that a closed step has to hold: a connection ends whole requests only, so that
/// what is cut off at the step's edges alone may pass the 10 % of gate (b) in a shorter one.
pub const LATENCIES: f64 = 10.0;
/// Send lag below which no generator is late, in microseconds (99th percentile).
pub const LATE_US: u64 = 1_000;
/// Share of the latency measured, both at p99, from which a send lag matters.
pub const MATERIAL: f64 = 0.10;
/// Share of the connections' time from which it matters that they stood idle.
const IDLE_MATERIAL: f64 = 0.10;
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

/// What a generator was short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// A thread of the generator used up its core.
    OwnCore,
    /// Its threads were ready to run while somebody else had the core.
    TakenCores,
}

/// What the generator was short of in a step, late or not.
#[must_use]
pub fn shortage(record: &StepRecord) -> Option<Shortage> {
    if record.generator.busiest_thread >= BUSY {
        Some(Shortage::OwnCore)
    } else if run_delay(record) >= STARVED {
        Some(Shortage::TakenCores)
    } else {
        None
    }
}

/// Whether the generator was the limit of a step.
#[must_use]
pub fn generator_bound(record: &StepRecord) -> bool {
    let late = || lag_matters(record) || idle_by_own_doing(record);
    record.generator.busiest_thread >= EXHAUSTED || (shortage(record).is_some() && late())
}

/// Whether sends were late by as much as shows in the latency measured.
fn lag_matters(record: &StepRecord) -> bool {
    let lag = record.generator.send_lag_p99_us;
    let latency = record.response.p99_us.max(record.denied_response.p99_us);
    lag >= LATE_US && latency > 0 && lag as f64 >= MATERIAL * latency as f64
}

/// Closed loop: all connections were there and nothing failed, yet rate x latency falls short of them and
/// so do the requests in flight. What is missing passed between a reply and the next send, and that is
/// the generator's own time.
fn idle_by_own_doing(record: &StepRecord) -> bool {
    let Loop::Closed { think_us } = record.plan.discipline else { return false };
    let connections = f64::from(record.plan.connections);
    let replies = (record.good + record.denied) as f64 / record.seconds.max(1e-9);
    let thinking = replies * think_us as f64 / 1e6;
    record.established >= record.plan.connections
        && record.error_count() == 0
        && record.little.deviation < 0.0
        && !record.little.holds()
        && record.mean_in_flight < (1.0 - IDLE_MATERIAL) * (connections - thinking)
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
