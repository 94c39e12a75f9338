//! `generator-cpu`: the load generator itself is the limit.
//!
//! Positive: the steps in question are generator-bound (late sends by its own doing while short of
//! CPU, or a thread without idle time; see `discover::gates`). Excluded: send lag below 1 ms and one
//! more worker adds less than 3 %.

use super::super::{Cause, CauseName, Evidence};
use super::percent;
use crate::discover::gates;

/// Gain of one more worker below which the generator is not the limit.
const NO_GAIN: f64 = 0.03;

pub(in super::super) fn cpu(evidence: &Evidence) -> Option<Cause> {
    let focus = evidence.at_focus();
    let bound = focus.iter().filter(|s| gates::generator_bound(&s.step)).count();
    if bound == 0 || 2 * bound < focus.len() {
        return None;
    }
    let lag = focus.iter().map(|s| s.step.generator.send_lag_p99_us).max()? as f64;
    let busiest = focus.iter().map(|s| s.step.generator.busiest_thread).fold(0.0, f64::max);
    let delay = focus.iter().map(|s| gates::run_delay(&s.step)).fold(0.0, f64::max);
    let gain = evidence.extra_worker_gain;
    if lag < gates::LATE_US as f64 && gain.is_some_and(|g| g < NO_GAIN) {
        return None;
    }
    let confirmed = gain.is_some_and(|g| g >= NO_GAIN);
    let mut cause = Cause::new(
        CauseName::GeneratorCpu,
        if confirmed { 0.98 } else { 0.95 },
        "the load generator was the limit: these figures are not the server's",
    )
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
