//! `drift`: the service gets slower, or its memory grows, with time at constant load.
//!
//! Positive: within steps of a closed loop the mean latency of the buckets has a rising trend whose
//! interval leaves out 0, in most steps and over all of them together, and it amounts to something
//! over the run. Excluded: an interval that holds 0. Open-loop steps have no part in it: a queue that
//! grows because the rate is too high is saturation, not drift. Growing memory alone is told, with
//! less confidence, when it grows at every repeat of one load.

use tidegate_algorithms::stats::trend;

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use super::percent;
use crate::discover::is_closed;
use crate::record::StepRecord;

/// Buckets below which a trend says nothing.
const FEWEST_BUCKETS: usize = 20;
/// Median deviations from which a bucket is a hiccup.
const HICCUP: f64 = 5.0;
/// Share of the steps that must rise.
const RISING: f64 = 0.75;
/// Growth over the whole run from which it matters.
const MATTERS: f64 = 0.15;

/// Growth of memory over the run from which it is told.
const MEMORY_NOTICED: f64 = 0.05;

/// Relative growth per second of one step with its standard error.
struct Slope {
    per_second: f64,
    error: f64,
}

pub(in super::super) fn slower_with_time(evidence: &Evidence) -> Option<Cause> {
    let steps: Vec<&StepEvidence> = evidence.steps.iter().filter(|s| is_closed(&s.step.plan)).collect();
    let slopes: Vec<Slope> = steps.iter().filter_map(|s| slope(&s.step)).collect();
    let seconds: f64 = steps.iter().map(|s| s.step.seconds + s.step.plan.warmup_ms as f64 / 1e3).sum();
    if slopes.len() < 3 {
        return None;
    }
    let weight: f64 = slopes.iter().map(|s| s.error.powi(-2)).sum();
    let pooled = slopes.iter().map(|s| s.per_second * s.error.powi(-2)).sum::<f64>() / weight;
    let error = weight.powf(-0.5);
    let rising = slopes.iter().filter(|s| s.per_second > 0.0).count();
    let growth = (1.0 + pooled).powf(seconds) - 1.0;
    // Beyond the 95 % interval: the question is asked of every run, so chance gets less room.
    let significant = pooled - 3.0 * error > 0.0;
    let typical = median(slopes.iter().map(|s| s.per_second).collect());
    let alike = typical > 0.3 * pooled;
    if !significant || !alike || (rising as f64) < RISING * slopes.len() as f64 || growth < MATTERS {
        return None;
    }
    if !repeats_agree(&steps) {
        return None;
    }
    let mut cause = Cause::new(
        CauseName::Drift,
        0.94,
        format!("the service gets {:.1} % slower per minute at constant load", pooled * 6_000.0),
    )
    .saw(format!("{rising} of {} steps grow slower within themselves", slopes.len()))
    .saw(format!("growth per second {:.3} % +- {:.3} %", pooled * 100.0, 196.0 * error))
    .number("growth_per_second", pooled)
    .number("growth_over_run", growth);
    if let Some(memory) = memory_growth(&steps) {
        cause = cause
            .saw(format!("its memory grew by {} over the run", percent(memory)))
            .number("memory_growth", memory);
    }
    Some(cause)
}

fn slope(step: &StepRecord) -> Option<Slope> {
    let points: Vec<(f64, f64)> = step
        .timeline
        .iter()
        .enumerate()
        .filter(|(_, b)| b.good > 0)
        .map(|(i, b)| (i as f64 * step.bucket_ms as f64 / 1e3, b.sum_us as f64 / b.good as f64))
        .collect();
    if points.len() < FEWEST_BUCKETS {
        return None;
    }
    let points = without_hiccups(points);
    if points.len() < FEWEST_BUCKETS {
        return None;
    }
    let (x, y): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
    let mean = y.iter().sum::<f64>() / y.len() as f64;
    let found = trend::linear(&x, &y).filter(|_| mean > 0.0)?;
    // Below a hundredth of a percent per second the clock's own resolution speaks.
    Some(Slope { per_second: found.slope / mean, error: (found.slope_error / mean).max(1e-4) })
}

/// The points within [`HICCUP`] median deviations of the median: a busy machine's pauses are not the
/// service's.
fn without_hiccups(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    let centre = median(points.iter().map(|p| p.1).collect());
    let deviation = median(points.iter().map(|p| (p.1 - centre).abs()).collect());
    points.into_iter().filter(|p| (p.1 - centre).abs() <= HICCUP * deviation.max(0.01 * centre)).collect()
}

/// Where a load was repeated, later repeats must not be faster than earlier ones.
fn repeats_agree(steps: &[&StepEvidence]) -> bool {
    let (mut slower, mut faster) = (0, 0);
    for (i, a) in steps.iter().enumerate() {
        for b in steps[i + 1..].iter().filter(|b| b.step.load() == a.step.load()) {
            if b.step.service.p50_us > a.step.service.p50_us {
                slower += 1;
            } else {
                faster += 1;
            }
        }
    }
    slower >= 3 * faster
}

fn memory_growth(steps: &[&StepEvidence]) -> Option<f64> {
    let known: Vec<f64> =
        steps.iter().filter_map(|s| s.server.as_ref()?.resident_bytes).map(|b| b as f64).collect();
    let (first, last) = (known.first()?, known.last()?);
    let growth = if *first > 0.0 { last / first - 1.0 } else { 0.0 };
    (growth >= MEMORY_NOTICED).then_some(growth)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
