//! Autocorrelation: does a series resemble itself some buckets later, and with which period.
//!
//! A lag counts as significant when its correlation exceeds what white noise of that length shows in
//! one of twenty series, over ALL lags looked at (Bonferroni), so that a search over a hundred lags
//! does not find a period in noise. Of the significant lags the shortest strong one is the period:
//! a series with period 7 also repeats at 14 and 21.
//! Reference: Box, Jenkins, Reinsel, "Time Series Analysis", 2.1.6.

use super::student;

/// A period found in a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Periodicity {
    /// Length in samples, >= 2.
    pub lag: usize,
    /// Correlation at that lag, -1 to 1.
    pub correlation: f64,
    /// What noise would have stayed below.
    pub bound: f64,
}

/// Correlation of the series with itself `lag` samples later, -1 to 1; 0 where it has no meaning.
#[must_use]
pub fn at(series: &[f64], lag: usize) -> f64 {
    let n = series.len();
    if n < 2 || lag >= n {
        return 0.0;
    }
    let centre = series.iter().sum::<f64>() / n as f64;
    let total: f64 = series.iter().map(|x| (x - centre).powi(2)).sum();
    if total <= f64::EPSILON * centre * centre * n as f64 {
        return 0.0;
    }
    let shared: f64 = series.iter().zip(&series[lag..]).map(|(x, y)| (x - centre) * (y - centre)).sum();
    shared / total
}

/// The correlation that the largest of `lags` lags of white noise exceeds in 5 % of series.
#[must_use]
pub(crate) fn noise_bound(samples: usize, lags: usize) -> f64 {
    let p = 1.0 - 0.05 / lags.max(1) as f64;
    student::quantile(p, 1e6) / (samples.max(1) as f64).sqrt()
}

/// The period of a series, among lags from `shortest` (>= 2) to a third of its length, so that at
/// least three whole periods were seen; none when no lag is significant.
#[must_use]
pub fn period(series: &[f64], shortest: usize) -> Option<Periodicity> {
    let longest = series.len() / 3;
    let shortest = shortest.max(2);
    if longest <= shortest {
        return None;
    }
    let correlations: Vec<f64> = (shortest - 1..=longest + 1).map(|lag| at(series, lag)).collect();
    let bound = noise_bound(series.len(), longest - shortest + 1);
    let peaks: Vec<Periodicity> = correlations
        .windows(3)
        .enumerate()
        .filter(|(_, w)| w[1] > bound && w[1] >= w[0] && w[1] >= w[2])
        .map(|(i, w)| Periodicity { lag: i + shortest, correlation: w[1], bound })
        .collect();
    let strongest = peaks.iter().map(|p| p.correlation).fold(0.0, f64::max);
    peaks.into_iter().find(|p| p.correlation >= 0.6 * strongest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    #[test]
    fn known_correlation_of_a_short_series() {
        // By hand: centre 3, deviations -2 -1 0 1 2, total 10; lag 1 shares 2 + 0 + 0 + 2 = 4.
        assert!((at(&[1.0, 2.0, 3.0, 4.0, 5.0], 1) - 0.4).abs() < 1e-12);
        assert_eq!(at(&[5.0; 9], 1), 0.0);
    }

    #[test]
    fn white_noise_has_a_period_in_at_most_one_series_of_ten() {
        let found = (0..500)
            .filter(|&seed| {
                let mut random = Random::seeded(seed);
                let series: Vec<f64> = (0..120).map(|_| random.normal()).collect();
                period(&series, 2).is_some()
            })
            .count();
        assert!(found <= 50, "{found} of 500");
    }

    proptest! {
        #[test]
        fn a_spike_every_k_samples_is_found(k in 4_usize..30, phase in 0_usize..30, seed: u64) {
            let mut random = Random::seeded(seed);
            let series: Vec<f64> = (0..150)
                .map(|i| random.unit() + if i % k == phase % k { 20.0 } else { 0.0 })
                .collect();
            prop_assert_eq!(period(&series, 2).map(|p| p.lag), Some(k));
        }

        #[test]
        fn correlations_are_bounded(series in prop::collection::vec(-1e6_f64..1e6, 2..80), lag in 0_usize..90) {
            prop_assert!(at(&series, lag).abs() <= 1.0 + 1e-9);
        }
    }
}
