//! Two-stage resampling of steps: repeats, then what is inside them.
//!
//! Neighbouring samples within a step are correlated, so a rate is resampled in batches of half a
//! second, and a percentile's own noise is taken as if only every tenth reply were independent.

use tidegate_algorithms::random::Random;
use tidegate_algorithms::stats::Interval;
use tidegate_algorithms::stats::bootstrap::RESAMPLES;
use tidegate_algorithms::stats::mean::mean;

use crate::record::StepRecord;

/// Length of a batch, in milliseconds.
const BATCH_MS: u64 = 500;
/// Replies for one independent sample of a percentile.
const CORRELATED: f64 = 10.0;

/// Mean rate over the steps.
pub(super) fn rate(steps: &[&StepRecord]) -> f64 {
    mean(&steps.iter().map(|s| s.throughput.mean).collect::<Vec<_>>())
}

/// Quantile of all replies of the steps together, in microseconds.
pub(super) fn quantile(steps: &[&StepRecord], q: f64) -> f64 {
    let picks: Vec<&[(u64, u64)]> = steps.iter().map(|s| s.response.histogram.as_slice()).collect();
    merged_quantile(&picks, q)
}

/// 95 % interval of rate(b) / rate(a).
pub(super) fn rate_ratio(a: &[&StepRecord], b: &[&StepRecord], seed: u64) -> Interval {
    let (left, right): (Vec<_>, Vec<_>) =
        (a.iter().map(|s| batches(s)).collect(), b.iter().map(|s| batches(s)).collect());
    ratio(seed, |random| (resampled_rate(&left, random), resampled_rate(&right, random)))
}

/// 95 % interval of quantile(b) / quantile(a).
pub(super) fn quantile_ratio(a: &[&StepRecord], b: &[&StepRecord], q: f64, seed: u64) -> Interval {
    ratio(seed, |random| (resampled_quantile(a, q, random), resampled_quantile(b, q, random)))
}

fn ratio(seed: u64, mut draw: impl FnMut(&mut Random) -> (f64, f64)) -> Interval {
    let mut random = Random::seeded(seed);
    let mut values: Vec<f64> =
        (0..RESAMPLES).map(|_| draw(&mut random)).filter(|(a, _)| *a > 0.0).map(|(a, b)| b / a).collect();
    if values.is_empty() {
        return Interval { low: 0.0, high: f64::INFINITY };
    }
    values.sort_by(f64::total_cmp);
    let at = |p: f64| values[((values.len() - 1) as f64 * p).round() as usize];
    Interval { low: at(0.025), high: at(0.975) }
}

fn batches(step: &StepRecord) -> Vec<f64> {
    let group = (BATCH_MS / step.bucket_ms.max(1)).max(1) as usize;
    let rates = step.rates();
    if rates.is_empty() {
        return vec![step.throughput.mean];
    }
    rates.chunks(group).map(mean).collect()
}

fn resampled_rate(steps: &[Vec<f64>], random: &mut Random) -> f64 {
    let mut sum = 0.0;
    for _ in 0..steps.len() {
        let batches = &steps[random.index(steps.len())];
        sum += (0..batches.len()).map(|_| batches[random.index(batches.len())]).sum::<f64>()
            / batches.len() as f64;
    }
    sum / steps.len() as f64
}

fn resampled_quantile(steps: &[&StepRecord], q: f64, random: &mut Random) -> f64 {
    let picks: Vec<&[(u64, u64)]> =
        (0..steps.len()).map(|_| steps[random.index(steps.len())].response.histogram.as_slice()).collect();
    let count: u64 = picks.iter().flat_map(|h| h.iter()).map(|b| b.1).sum();
    let error = (q * (1.0 - q) * CORRELATED / (count as f64).max(CORRELATED)).sqrt();
    merged_quantile(&picks, (q + error * random.normal()).clamp(0.0, 1.0))
}

/// Quantile of several histograms together, interpolated within its bucket.
fn merged_quantile(histograms: &[&[(u64, u64)]], q: f64) -> f64 {
    let mut all: Vec<(u64, u64)> = histograms.iter().flat_map(|h| h.iter().copied()).collect();
    all.sort_unstable();
    let total: u64 = all.iter().map(|b| b.1).sum();
    let rank = q * total as f64;
    let (mut seen, mut i) = (0.0, 0);
    while i < all.len() {
        let end = all[i].0;
        let mut inside = 0.0;
        while i < all.len() && all[i].0 == end {
            inside += all[i].1 as f64;
            i += 1;
        }
        if seen + inside >= rank {
            let share = if inside > 0.0 { ((rank - seen) / inside).clamp(0.0, 1.0) } else { 1.0 };
            let start = end as f64 / 1.05;
            return start + (end as f64 - start) * share;
        }
        seen += inside;
    }
    all.last().map_or(0.0, |b| b.0 as f64)
}
