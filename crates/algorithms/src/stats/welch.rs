//! Welch's test: do two means with unequal variances differ, and by how much.
//!
//! Reference: Welch, "The generalization of Student's problem when several different population
//! variances are involved", Biometrika 34 (1947).

use super::mean::Estimate;
use super::{CONFIDENCE, Interval, student};

/// `b - a`, its 95 % interval, and how likely such a difference is when there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// `b.mean - a.mean`.
    pub value: f64,
    /// 95 % interval of the difference.
    pub interval: Interval,
    /// Two-sided p-value.
    pub p_value: f64,
    /// Welch-Satterthwaite degrees of freedom.
    pub dof: f64,
}

impl Difference {
    /// Whether the interval leaves out 0.
    #[must_use]
    pub fn significant(&self) -> bool {
        !self.interval.contains(0.0)
    }
}

/// Compares `b` with `a`.
#[must_use]
pub fn difference(a: &Estimate, b: &Estimate) -> Difference {
    let value = b.mean - a.mean;
    let (va, vb) = (a.error * a.error, b.error * b.error);
    let square = va + vb;
    if square <= 0.0 {
        let p_value = if value == 0.0 { 1.0 } else { 0.0 };
        return Difference {
            value,
            interval: Interval { low: value, high: value },
            p_value,
            dof: f64::INFINITY,
        };
    }
    let dof = (square * square / (va * va / a.dof + vb * vb / b.dof)).min(1e7);
    let half = student::quantile(0.5 + CONFIDENCE / 2.0, dof) * square.sqrt();
    Difference {
        value,
        interval: Interval::around(value, half),
        p_value: student::two_sided(value / square.sqrt(), dof),
        dof,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::stats::mean::independent;

    #[test]
    fn published_example() {
        // Example 1 of "Welch's t-test", Wikipedia: t = -2.46, 25.0 degrees of freedom, p = 0.021.
        let a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4];
        let b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4];
        let found = difference(&independent(&a).unwrap(), &independent(&b).unwrap());
        assert!((found.dof - 25.0).abs() < 0.1, "{found:?}");
        assert!((found.p_value - 0.021).abs() < 0.001, "{found:?}");
        assert!(found.significant());
    }

    #[test]
    fn calls_noise_a_difference_no_more_often_than_promised() {
        let runs = 1_000;
        let false_alarms = (0..runs)
            .filter(|&seed| {
                let mut random = Random::seeded(seed);
                let a: Vec<f64> = (0..8).map(|_| random.normal()).collect();
                let b: Vec<f64> = (0..12).map(|_| 3.0 * random.normal()).collect();
                difference(&independent(&a).unwrap(), &independent(&b).unwrap()).significant()
            })
            .count();
        assert!((25..=75).contains(&false_alarms), "{false_alarms} of {runs}, 50 expected");
    }

    #[test]
    fn exact_values_differ_exactly() {
        let (a, b) = (Estimate::exact(1.0), Estimate::exact(2.0));
        assert!(difference(&a, &b).significant());
        assert!(!difference(&a, &a).significant());
    }
}
