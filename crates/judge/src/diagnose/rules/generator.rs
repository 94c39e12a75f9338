//! `generator-cpu`: the load generator itself is the limit.
//!
//! Positive: the steps in question are generator-bound (it was short of cores, and late by as much as shows
//! in what was measured; see `discover::gates`). Excluded: send lag below 1 ms and one more worker adds
//! less than 3 %; and cores that the server or other programs took from it: then the machine is full, and
//! that is the server's limit or nobody's.

use super::super::cores::{CoreUse, Taker};
use super::super::{Cause, CauseName, Evidence};
use super::percent;
use crate::discover::gates::{self, Shortage};

/// Gain of one more worker below which the generator is not the limit.
const NO_GAIN: f64 = 0.03;

pub(in super::super) fn cpu(evidence: &Evidence) -> Option<Cause> {
    let focus = evidence.at_focus();
    let bound: Vec<_> = focus.iter().copied().filter(|s| gates::generator_bound(&s.step)).collect();
    if bound.is_empty() || 2 * bound.len() < focus.len() {
        return None;
    }
    let lag = focus.iter().map(|s| s.step.generator.send_lag_p99_us).max()? as f64;
    let busiest = focus.iter().map(|s| s.step.generator.busiest_thread).fold(0.0, f64::max);
    let delay = focus.iter().map(|s| gates::run_delay(&s.step)).fold(0.0, f64::max);
    let gain = evidence.extra_worker_gain;
    if lag < gates::LATE_US as f64 && gain.is_some_and(|g| g < NO_GAIN) {
        return None;
    }
    let starved = bound.iter().all(|s| gates::shortage(&s.step) == Some(Shortage::TakenCores));
    let taken = starved.then(|| CoreUse::of(&bound)).flatten().map(|used| used.taker());
    if matches!(taken, Some(Taker::Server | Taker::Others)) {
        return None;
    }
    let confidence = match (gain.is_some_and(|g| g >= NO_GAIN), starved) {
        (true, _) => 0.98,
        (false, false) => 0.95,
        (false, true) => 0.80,
    };
    let what = if starved {
        "the load generator was starved of cores: these figures are not the server's"
    } else {
        "the load generator was the limit: these figures are not the server's"
    };
    let mut cause = Cause::new(CauseName::GeneratorCpu, confidence, what)
        .saw(format!("sends were late by {:.1} ms (p99) by the generator's own doing", lag / 1e3))
        .saw(format!(
            "its busiest thread used {} of a core, and waited for one {}",
            percent(busiest),
            percent(delay)
        ))
        .number("send_lag_p99_ms", lag / 1e3)
        .number("busiest_thread", busiest)
        .number("run_delay", delay);
    if let Some(gain) = gain {
        cause =
            cause.saw(format!("one more worker adds {}", percent(gain))).number("extra_worker_gain", gain);
    }
    Some(cause)
}
