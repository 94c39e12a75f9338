//! `periodic-stall`: the server stops at a stable period, at every load.
//!
//! Positive: the largest latency of each bucket spikes with one period (autocorrelation significant
//! over all lags looked at), the same at low and at high load. Excluded: no significant
//! autocorrelation; a CPU quota, whose period is its own cause. Only the presence of a spike enters the
//! series, so that one huge spike does not hide the others. How high a spike is cannot be known before:
//! a busy machine has hiccups of its own between the stalls. So several bounds are tried, from high to
//! low, and a period counts when some bound leaves spikes at even distances; that a period found by
//! chance would be the same in most steps, at low load and at high, is what the rule rests on.

use tidegate_algorithms::stats::autocorrelation::{self, Periodicity};

use super::super::{Cause, CauseName, Evidence, StepEvidence};
use crate::record::StepRecord;

/// A spike is this much above the median of the buckets' maxima.
const SPIKE_FACTOR: f64 = 2.0;
/// And at least this much, in microseconds.
const SPIKE_LEAST_US: f64 = 2_000.0;
/// Bounds that are tried, as shares of the highest spike.
const BOUNDS: [f64; 4] = [0.7, 0.5, 0.35, 0.25];
/// Share of the steps that must show the period.
const SHOWN: f64 = 0.6;
/// Most that the periods of two steps may differ by.
const STABLE: f64 = 0.15;
/// Buckets below which three periods cannot be told from chance.
const FEWEST_BUCKETS: usize = 20;

pub(in super::super) fn stall(evidence: &Evidence) -> Option<Cause> {
    let throttled = |s: &StepEvidence| s.server.as_ref().and_then(|v| v.throttled).is_some_and(|t| t > 0);
    // A generator that is the limit stops and starts by itself.
    let told = |s: &&StepEvidence| s.step.timeline.len() >= FEWEST_BUCKETS && !s.step.generator_bound();
    let steps: Vec<&StepEvidence> = evidence.steps.iter().filter(told).collect();
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
    let (spacing, height, correlation) = even_spikes(&largest)?;
    Some((spacing * step.bucket_ms as f64, height / 1e3, correlation))
}

/// Distance of evenly spaced spikes in buckets, their height above the median, and the correlation.
fn even_spikes(largest: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = largest.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (median, highest) = (*sorted.get(sorted.len() / 2)?, *sorted.last()?);
    let floor =
        (SPIKE_FACTOR * median).min(median + sorted[0].max(SPIKE_LEAST_US)).max(median + SPIKE_LEAST_US);
    BOUNDS
        .iter()
        .map(|share| median + share * (highest - median))
        .filter(|bound| *bound >= floor)
        .chain([floor])
        .find_map(|bound| spikes_above(largest, bound, median))
}

fn spikes_above(largest: &[f64], bound: f64, median: f64) -> Option<(f64, f64, f64)> {
    let above = |i: usize| largest[i] > bound;
    let edges: Vec<f64> =
        (0..largest.len()).map(|i| if above(i) && (i == 0 || !above(i - 1)) { 1.0 } else { 0.0 }).collect();
    let count = edges.iter().sum::<f64>() as usize;
    if count < 3 || count > largest.len() / 3 {
        return None;
    }
    let Periodicity { lag, correlation, .. } = autocorrelation::period(&widened(&edges), 3)?;
    // The edges' own spacing must agree, or the lag is a coincidence of a few spikes.
    let spacing = spacing(&edges)?;
    let heights: Vec<f64> = largest.iter().filter(|v| **v > bound).map(|v| v - median).collect();
    let height = heights.iter().sum::<f64>() / heights.len() as f64;
    ((spacing / lag as f64 - 1.0).abs() <= STABLE).then_some((spacing, height, correlation))
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_algorithms::random::Random;

    /// Largest latency per 100 ms in milliseconds, recorded on a machine with a load of 10: a stub
    /// that stops for 80 ms every 700 ms, at 8 and at 32 connections.
    const RECORDED: [[u16; 50]; 2] = [
        [
            5, 29, 83, 32, 15, 5, 5, 6, 7, 83, 6, 7, 8, 8, 13, 37, 86, 30, 19, 31, 19, 25, 15, 84, 7, 8, 5,
            6, 6, 8, 81, 4, 7, 6, 17, 31, 29, 101, 16, 8, 9, 16, 8, 8, 92, 30, 9, 12, 20, 21,
        ],
        [
            27, 35, 32, 29, 38, 95, 28, 32, 31, 51, 26, 18, 83, 17, 19, 29, 15, 43, 16, 91, 19, 10, 10, 11,
            9, 11, 85, 8, 9, 9, 10, 10, 8, 87, 28, 12, 28, 32, 8, 11, 87, 11, 11, 12, 11, 11, 11, 87, 8, 13,
        ],
    ];

    #[test]
    fn recorded_stalls_are_found_among_the_machines_own_hiccups() {
        for recorded in RECORDED {
            let largest = recorded.map(|ms| f64::from(ms) * 1e3);
            let (spacing, height, _) = even_spikes(&largest).unwrap();
            assert!((spacing - 7.0).abs() < 0.2 && (height - 74_000.0).abs() < 8_000.0, "{spacing} {height}");
        }
    }

    #[test]
    fn hiccups_at_random_are_seldom_even() {
        let found = (0..500)
            .filter(|&seed| {
                let mut random = Random::seeded(seed);
                let largest: Vec<f64> = (0..50)
                    .map(|_| {
                        5_000.0 + if random.unit() < 0.15 { 60_000.0 * random.exponential() } else { 0.0 }
                    })
                    .collect();
                even_spikes(&largest).is_some()
            })
            .count();
        // Most steps must agree on one period before a cause is named.
        assert!(found < 40, "{found} of 500");
    }
}
