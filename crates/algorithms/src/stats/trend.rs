//! Linear trend by least squares, with an interval for the slope that allows for correlated errors.
//!
//! A queue's latency wanders, and a wandering series fakes a trend when its samples are taken for
//! independent. The slope's error is therefore widened by the correlation of neighbouring residuals,
//! as for an AR(1) process. Reference: von Storch and Zwiers, "Statistical Analysis in Climate
//! Research", 6.6.8 (equivalent sample size).

use super::{CONFIDENCE, Interval, autocorrelation, student};

/// `y = intercept + slope x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// y at x = 0.
    pub intercept: f64,
    /// Change of y per unit of x.
    pub slope: f64,
    /// Standard error of the slope, correlation allowed for.
    pub slope_error: f64,
    /// 95 % interval of the slope.
    pub interval: Interval,
    /// Share of the variance explained, 0 to 1.
    pub r2: f64,
}

/// Fits a line to points in the order of x; none from fewer than four points or a single x.
#[must_use]
pub fn linear(x: &[f64], y: &[f64]) -> Option<Trend> {
    let n = x.len().min(y.len());
    if n < 4 {
        return None;
    }
    let (mx, my) = (x[..n].iter().sum::<f64>() / n as f64, y[..n].iter().sum::<f64>() / n as f64);
    let sxx: f64 = x[..n].iter().map(|v| (v - mx).powi(2)).sum();
    if sxx <= 0.0 {
        return None;
    }
    let sxy: f64 = x.iter().zip(y).map(|(a, b)| (a - mx) * (b - my)).sum();
    let syy: f64 = y[..n].iter().map(|v| (v - my).powi(2)).sum();
    let slope = sxy / sxx;
    let intercept = my - slope * mx;
    let residuals: Vec<f64> = x.iter().zip(y).map(|(a, b)| b - intercept - slope * a).collect();
    let sse: f64 = residuals.iter().map(|r| r * r).sum();
    let neighbours = autocorrelation::at(&residuals, 1).clamp(0.0, 0.95);
    let significant = neighbours > 1.645 / (n as f64).sqrt();
    let widening = if significant { (1.0 + neighbours) / (1.0 - neighbours) } else { 1.0 };
    let dof = ((n as f64 / widening) - 2.0).max(1.0);
    let slope_error = (sse / (n - 2) as f64 / sxx * widening).sqrt();
    Some(Trend {
        intercept,
        slope,
        slope_error,
        interval: Interval::around(slope, student::quantile(0.5 + CONFIDENCE / 2.0, dof) * slope_error),
        r2: if syy > 0.0 { (1.0 - sse / syy).clamp(0.0, 1.0) } else { 0.0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// NIST Statistical Reference Datasets, Norris (x, y).
    const NORRIS: [(f64, f64); 36] = [
        (0.2, 0.1),
        (337.4, 338.8),
        (118.2, 118.1),
        (884.6, 888.0),
        (10.1, 9.2),
        (226.5, 228.1),
        (666.3, 668.5),
        (996.3, 998.5),
        (448.6, 449.1),
        (777.0, 778.9),
        (558.2, 559.2),
        (0.4, 0.3),
        (0.6, 0.1),
        (775.5, 778.1),
        (666.9, 668.8),
        (338.0, 339.3),
        (447.5, 448.9),
        (11.6, 10.8),
        (556.0, 557.7),
        (228.1, 228.3),
        (995.8, 998.0),
        (887.6, 888.8),
        (120.2, 119.6),
        (0.3, 0.3),
        (0.3, 0.6),
        (556.8, 557.6),
        (339.1, 339.3),
        (887.2, 888.0),
        (999.0, 998.5),
        (779.0, 778.9),
        (11.1, 10.2),
        (118.3, 117.6),
        (229.2, 228.9),
        (669.1, 668.4),
        (448.9, 449.2),
        (0.5, 0.2),
    ];

    #[test]
    fn certified_values_of_norris() {
        let (x, y): (Vec<f64>, Vec<f64>) = NORRIS.into_iter().unzip();
        let found = linear(&x, &y).unwrap();
        assert!((found.slope - 1.002_116_818_020_45).abs() < 1e-11, "{found:?}");
        assert!((found.intercept + 0.262_323_073_774_029).abs() < 1e-9, "{found:?}");
        assert!(found.slope_error >= 0.429_796_848e-3 - 1e-9, "{found:?}");
    }

    #[test]
    fn a_wandering_series_is_rarely_called_a_trend() {
        let alarms = (0..300)
            .filter(|&seed| {
                let mut random = Random::seeded(seed);
                let mut state = 0.0;
                let (x, y): (Vec<f64>, Vec<f64>) = (0..200)
                    .map(|i| {
                        state = 0.6 * state + random.normal();
                        (f64::from(i), state)
                    })
                    .unzip();
                !linear(&x, &y).unwrap().interval.contains(0.0)
            })
            .count();
        assert!(alarms < 30, "{alarms} of 300");
    }

    #[test]
    fn a_true_slope_lies_in_the_interval() {
        let held = (0..200)
            .filter(|&seed| {
                let mut random = Random::seeded(seed);
                let (x, y): (Vec<f64>, Vec<f64>) =
                    (0..60).map(|i| (f64::from(i), 5.0 + 0.3 * f64::from(i) + random.normal())).unzip();
                linear(&x, &y).unwrap().interval.contains(0.3)
            })
            .count();
        assert!(held > 180, "{held} of 200");
        assert!(linear(&[1.0; 9], &[2.0; 9]).is_none());
    }
}
