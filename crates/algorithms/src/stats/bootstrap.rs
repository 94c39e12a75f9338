//! Bootstrap intervals: the spread of any statistic under resampling, for quantities (ratios,
//! percentiles) that have no convenient formula.
//!
//! Percentile method with a seed, so that a comparison of two reports gives the same interval each
//! time. Resamples are of whole units (buckets or repeats), drawn from both sides independently.
//! Reference: Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13.

use super::Interval;
use crate::random::Random;

/// Resamples per interval: enough for ends that move less than their own width / 20.
pub const RESAMPLES: usize = 2_000;

/// 95 % interval of `statistic(a)` under resampling of `a`. The point itself when `a` has fewer than
/// two samples.
pub fn interval(a: &[f64], seed: u64, statistic: impl Fn(&[f64]) -> f64) -> Interval {
    pair_interval(a, &[], seed, |a, _| statistic(a))
}

/// 95 % interval of `statistic(a, b)` under independent resampling of both.
pub(crate) fn pair_interval(
    a: &[f64],
    b: &[f64],
    seed: u64,
    statistic: impl Fn(&[f64], &[f64]) -> f64,
) -> Interval {
    let mut random = Random::seeded(seed);
    let (mut left, mut right) = (a.to_vec(), b.to_vec());
    let mut values: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample(a, &mut left, &mut random);
            resample(b, &mut right, &mut random);
            statistic(&left, &right)
        })
        .filter(|v| v.is_finite())
        .collect();
    if values.is_empty() {
        let point = statistic(a, b);
        return Interval { low: point, high: point };
    }
    values.sort_by(f64::total_cmp);
    let at = |p: f64| values[((values.len() - 1) as f64 * p).round() as usize];
    Interval { low: at(0.025), high: at(0.975) }
}

fn resample(from: &[f64], into: &mut [f64], random: &mut Random) {
    for slot in into {
        *slot = from[random.index(from.len())];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::mean::{independent, mean};
    use proptest::prelude::*;

    #[test]
    fn agrees_with_the_t_interval_on_a_normal_sample() {
        let mut random = Random::seeded(3);
        let sample: Vec<f64> = (0..60).map(|_| 50.0 + 5.0 * random.normal()).collect();
        let (found, expected) = (interval(&sample, 1, mean), independent(&sample).unwrap().interval(0.95));
        assert!((found.low - expected.low).abs() < 0.3 && (found.high - expected.high).abs() < 0.3);
    }

    #[test]
    fn ratio_of_means_covers_the_truth() {
        let covered = (0..200_u64)
            .filter(|&seed| {
                let mut random = Random::seeded(seed);
                let a: Vec<f64> = (0..30).map(|_| 100.0 + 8.0 * random.normal()).collect();
                let b: Vec<f64> = (0..30).map(|_| 113.0 + 8.0 * random.normal()).collect();
                pair_interval(&a, &b, seed, |a, b| mean(b) / mean(a)).contains(1.13)
            })
            .count();
        assert!(covered > 175, "{covered} of 200");
    }

    proptest! {
        #[test]
        fn same_seed_same_interval_inside_the_range(a in prop::collection::vec(1.0_f64..100.0, 1..40), seed: u64) {
            let found = interval(&a, seed, mean);
            prop_assert_eq!(found, interval(&a, seed, mean));
            let (low, high) = a.iter().fold((f64::MAX, f64::MIN), |(l, h), &x| (l.min(x), h.max(x)));
            prop_assert!(found.low >= low - 1e-9 && found.high <= high + 1e-9 && found.low <= found.high);
        }
    }
}
