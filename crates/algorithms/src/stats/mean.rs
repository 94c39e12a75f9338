//! How sure a mean is: independent samples, batch means of a correlated series, pooled repeats.
//!
//! The buckets of one load step are correlated (a queue that is long stays long for a while), so the
//! textbook interval over them would be too narrow. Batch means group neighbours until the groups
//! look independent, and inflate the variance by what correlation is left.
//! Repeats of a step vary for reasons that no single step shows (placement, caches), so pooling takes
//! the larger of the two variances: within the repeats and between them.
//! Reference: Law, "Simulation Modeling and Analysis", chapter 9 (batch means).

use super::{Interval, autocorrelation, student};

/// Batches below which the t quantile grows faster than correlation shrinks.
const MIN_BATCHES: usize = 8;
/// Batches above which an interval hardly narrows.
const MAX_BATCHES: usize = 40;

/// A mean, the standard error of that mean, and how many degrees of freedom stand behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Standard error of the mean, >= 0.
    pub error: f64,
    /// Degrees of freedom, > 0; infinite for an exact value.
    pub dof: f64,
}

impl Estimate {
    /// A value known without error.
    #[must_use]
    pub fn exact(mean: f64) -> Self {
        Self { mean, error: 0.0, dof: f64::INFINITY }
    }

    /// The two-sided interval that holds the true mean with probability `confidence` (0 to 1).
    #[must_use]
    pub fn interval(&self, confidence: f64) -> Interval {
        if self.error == 0.0 {
            return Interval { low: self.mean, high: self.mean };
        }
        Interval::around(self.mean, student::quantile(0.5 + confidence / 2.0, self.dof.min(1e7)) * self.error)
    }

    /// Half width of the interval over the mean; infinite when the mean is 0.
    #[must_use]
    pub fn relative_half(&self, confidence: f64) -> f64 {
        if self.mean == 0.0 { f64::INFINITY } else { (self.interval(confidence).half() / self.mean).abs() }
    }
}

/// Arithmetic mean; 0 of nothing.
#[must_use]
pub fn mean(samples: &[f64]) -> f64 {
    if samples.is_empty() { 0.0 } else { samples.iter().sum::<f64>() / samples.len() as f64 }
}

/// Unbiased sample variance; 0 of fewer than two samples.
#[must_use]
pub fn variance(samples: &[f64]) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let centre = mean(samples);
    samples.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (samples.len() - 1) as f64
}

/// The estimate from independent samples; none from fewer than two.
#[must_use]
pub fn independent(samples: &[f64]) -> Option<Estimate> {
    let n = samples.len();
    (n >= 2).then(|| Estimate {
        mean: mean(samples),
        error: (variance(samples) / n as f64).sqrt(),
        dof: (n - 1) as f64,
    })
}

/// The estimate from a series in time order whose neighbours may be correlated; none from fewer than
/// two samples. Samples that do not fill the last batch are left out of the error, not of the mean.
#[must_use]
pub fn batch_means(series: &[f64]) -> Option<Estimate> {
    if series.len() < 2 {
        return None;
    }
    let mut batches = series.len().min(MAX_BATCHES);
    let mut grouped = group(series, batches);
    while batches / 2 >= MIN_BATCHES && correlated(&grouped) {
        batches /= 2;
        grouped = group(series, batches);
    }
    let rest = autocorrelation::at(&grouped, 1).clamp(0.0, 0.9);
    // Of an AR(1) series: the variance of its mean grows by (1 + r) / (1 - r).
    let inflation = if correlated(&grouped) { (1.0 + rest) / (1.0 - rest) } else { 1.0 };
    let estimate = independent(&grouped)?;
    Some(Estimate { mean: mean(series), error: estimate.error * inflation.sqrt(), dof: estimate.dof })
}

/// One estimate of one quantity from repeats of its measurement; none of nothing.
#[must_use]
pub fn pooled(repeats: &[Estimate]) -> Option<Estimate> {
    let n = repeats.len();
    match repeats {
        [] => None,
        [only] => Some(*only),
        _ => {
            let means: Vec<f64> = repeats.iter().map(|r| r.mean).collect();
            let between = variance(&means) / n as f64;
            let within = repeats.iter().map(|r| r.error * r.error).sum::<f64>() / (n * n) as f64;
            let (square, dof) = if between > within {
                (between, (n - 1) as f64)
            } else {
                (within, repeats.iter().map(|r| r.dof).sum())
            };
            Some(Estimate { mean: mean(&means), error: square.sqrt(), dof })
        }
    }
}

fn group(series: &[f64], batches: usize) -> Vec<f64> {
    let size = series.len() / batches;
    series.chunks_exact(size.max(1)).take(batches).map(mean).collect()
}

fn correlated(series: &[f64]) -> bool {
    autocorrelation::at(series, 1) > 1.645 / (series.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    #[test]
    fn interval_of_a_worked_example() {
        // NIST e-Handbook 1.3.5.2, data set ZARR13.DAT: 195 samples, mean 9.261460, s 0.022789,
        // 95 % interval (9.258242, 9.264679).
        let estimate = Estimate { mean: 9.261_460, error: 0.022_789 / 195.0_f64.sqrt(), dof: 194.0 };
        let interval = estimate.interval(0.95);
        assert!((interval.low - 9.258_242).abs() < 2e-6 && (interval.high - 9.264_679).abs() < 2e-6);
    }

    #[test]
    fn batch_means_cover_a_correlated_series_and_the_naive_interval_does_not() {
        let (mut naive, mut batched, runs) = (0, 0, 300);
        for seed in 0..runs {
            let mut random = Random::seeded(seed);
            let mut state = 0.0;
            let series: Vec<f64> = (0..400)
                .map(|_| {
                    state = 0.7 * state + random.normal();
                    100.0 + state
                })
                .collect();
            naive += u32::from(independent(&series).unwrap().interval(0.95).contains(100.0));
            batched += u32::from(batch_means(&series).unwrap().interval(0.95).contains(100.0));
        }
        assert!(batched > 264, "{batched} of {runs} intervals hold the truth");
        assert!(naive < 225, "{naive}");
    }

    #[test]
    fn pooling_takes_the_larger_variance() {
        let tight = |mean| Estimate { mean, error: 0.1, dof: 9.0 };
        let spread = pooled(&[tight(90.0), tight(100.0), tight(110.0)]).unwrap();
        assert!((spread.error - 10.0 / 3.0_f64.sqrt()).abs() < 1e-9 && spread.dof == 2.0);
        let agreeing = pooled(&[tight(100.0), tight(100.0), tight(100.0)]).unwrap();
        assert!((agreeing.error - 0.1 / 3.0_f64.sqrt()).abs() < 1e-9 && agreeing.dof == 27.0);
        assert!(pooled(&[]).is_none());
    }

    proptest! {
        #[test]
        fn estimates_hold_their_own_mean(samples in prop::collection::vec(0.0_f64..1e6, 2..200)) {
            for estimate in [independent(&samples).unwrap(), batch_means(&samples).unwrap()] {
                prop_assert!(estimate.interval(0.95).contains(estimate.mean));
                prop_assert!(estimate.error >= 0.0 && estimate.dof >= 1.0);
            }
        }
    }
}
