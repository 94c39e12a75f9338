//! `periodic-stall`: the server stops at a stable period, at every load.
//!
//! Positive: the largest latency of each bucket spikes with one period (autocorrelation significant
//! over all lags looked at), the same at low and at high load. Excluded: no significant
//! autocorrelation; a CPU quota, whose period is its own cause. Spikes are found against the step's
//! own median, and only their presence enters the series, so that one huge spike does not hide the
//! others.

use tidegate_algorithms::stats::autocorrelation::{self, Period};

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use crate::record::StepRecord;

/// A spike is this much above the median of the buckets' maxima.
const SPIKE_FACTOR: f64 = 2.0;
/// And at least this much, in microseconds.
const SPIKE_LEAST_US: f64 = 2_000.0;
/// Share of the steps that must show the period.
const SHOWN: f64 = 0.6;
/// Most that the periods of two steps may differ by.
const STABLE: f64 = 0.15;
/// Buckets below which three periods cannot be told from chance.
const FEWEST_BUCKETS: usize = 20;

pub(in super::super) fn stall(evidence: &Evidence) -> Option<Cause> {
    let throttled = |s: &StepEvidence| s.server.as_ref().and_then(|v| v.throttled).is_some_and(|t| t > 0);
    let steps: Vec<&StepEvidence> =
        evidence.steps.iter().filter(|s| s.step.timeline.len() >= FEWEST_BUCKETS).collect();
    if steps.len() < 2 || steps.iter().any(|s| throttled(s)) {
        return None;
    }
    let found: Vec<(f64, f64, f64)> = steps.iter().filter_map(|s| period(&s.step)).collect();
    if (found.len() as f64) < SHOWN * steps.len() as f64 {
        return None;
    }
    let mut periods: Vec<f64> = found.iter().map(|f| f.0).collect();
    periods.sort_by(f64::total_cmp);
    let period_ms = periods[periods.len() / 2];
    let stable = periods.iter().filter(|p| (*p / period_ms - 1.0).abs() <= STABLE).count();
    let low = evidence.steps.iter().map(|s| s.step.load()).fold(f64::INFINITY, f64::min);
    let shown_low = steps.iter().any(|s| s.step.load() <= 4.0 * low && period(&s.step).is_some());
    if (stable as f64) < 0.8 * periods.len() as f64 || !shown_low {
        return None;
    }
    let mut lengths: Vec<f64> = found.iter().map(|f| f.1).collect();
    lengths.sort_by(f64::total_cmp);
    let length_ms = lengths[lengths.len() / 2];
    let correlation = found.iter().map(|f| f.2).sum::<f64>() / found.len() as f64;
    Some(
        Cause::new(
            CauseName::PeriodicStall,
            0.95,
            format!("the server stops for about {length_ms:.0} ms every {period_ms:.0} ms, at every load"),
        )
        .saw(format!(
            "{} of {} steps show the period, autocorrelation {correlation:.2} on average",
            found.len(),
            steps.len()
        ))
        .number("period_ms", period_ms)
        .number("length_ms", length_ms)
        .number("autocorrelation", correlation),
    )
}

/// Period and length of a step's spikes in milliseconds, and the correlation.
fn period(step: &StepRecord) -> Option<(f64, f64, f64)> {
    let largest: Vec<f64> = step.timeline.iter().map(|b| b.max_us as f64).collect();
    let mut sorted = largest.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    // Where the load's own latency is as long as a stall the stall adds to it, hence the lesser rule.
    let bound =
        (SPIKE_FACTOR * median).min(median + sorted[0].max(SPIKE_LEAST_US)).max(median + SPIKE_LEAST_US);
    let spikes: Vec<f64> = largest.iter().map(|&v| if v > bound { 1.0 } else { 0.0 }).collect();
    let edges: Vec<f64> = spikes
        .iter()
        .enumerate()
        .map(|(i, &s)| if s > 0.0 && (i == 0 || spikes[i - 1] == 0.0) { 1.0 } else { 0.0 })
        .collect();
    let count = edges.iter().sum::<f64>() as usize;
    if count < 3 || count > largest.len() / 3 {
        return None;
    }
    let Period { lag, correlation, .. } = autocorrelation::period(&widened(&edges), 3)?;
    let heights: Vec<f64> = largest.iter().filter(|&&v| v > bound).map(|v| v - median).collect();
    let length = heights.iter().sum::<f64>() / heights.len() as f64;
    let period = lag as f64 * step.bucket_ms as f64;
    // The edges' own spacing must agree, or the lag is a coincidence of a few spikes.
    let spacing = spacing(&edges)? * step.bucket_ms as f64;
    ((spacing / period - 1.0).abs() <= STABLE).then_some((spacing, length / 1e3, correlation))
}

/// Half weight beside each edge: a period that is no whole number of buckets jitters by one.
fn widened(edges: &[f64]) -> Vec<f64> {
    (0..edges.len())
        .map(|i| {
            let beside = |at: Option<&f64>| at.copied().unwrap_or(0.0);
            edges[i] + 0.5 * (beside(i.checked_sub(1).and_then(|j| edges.get(j))) + beside(edges.get(i + 1)))
        })
        .collect()
}

/// Mean distance of the edges in buckets, when the distances are alike.
fn spacing(edges: &[f64]) -> Option<f64> {
    let at: Vec<usize> = edges.iter().enumerate().filter(|(_, e)| **e > 0.0).map(|(i, _)| i).collect();
    let gaps: Vec<f64> = at.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    (!gaps.is_empty() && gaps.iter().all(|g| (g - mean).abs() <= 1.5_f64.max(0.1 * mean))).then_some(mean)
}
