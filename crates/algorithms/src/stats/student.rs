//! Student's t distribution: the quantile for intervals from few samples, and the tail for p-values.
//!
//! The distribution function is a regularised incomplete beta function, evaluated by its continued
//! fraction; the quantile inverts it by bisection, which cannot diverge and costs microseconds.
//! Reference: Abramowitz and Stegun, 26.5.8 and 26.7.1. Degrees of freedom may be fractions, as
//! Welch's test needs.

/// Probability that a t variable with `dof` > 0 degrees of freedom is at most `t`.
#[must_use]
pub fn cumulative(t: f64, dof: f64) -> f64 {
    if t.is_infinite() {
        return if t > 0.0 { 1.0 } else { 0.0 };
    }
    let tail = 0.5 * incomplete_beta(dof / 2.0, 0.5, dof / (dof + t * t));
    if t > 0.0 { 1.0 - tail } else { tail }
}

/// The `t` that a variable with `dof` > 0 degrees of freedom exceeds with probability `1 - p`,
/// for 0 < p < 1.
#[must_use]
pub fn quantile(p: f64, dof: f64) -> f64 {
    if p < 0.5 {
        return -quantile(1.0 - p, dof);
    }
    let (mut low, mut high) = (0.0, 2.0);
    while cumulative(high, dof) < p && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if cumulative(middle, dof) < p {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= 1e-12 * high {
            break;
        }
    }
    0.5 * (low + high)
}

/// Two-sided p-value of the statistic `t`.
#[must_use]
pub(crate) fn two_sided(t: f64, dof: f64) -> f64 {
    (2.0 * (1.0 - cumulative(t.abs(), dof))).clamp(0.0, 1.0)
}

/// I_x(a, b) for a, b > 0 and x in [0, 1].
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges fast on this side of the mean only; the other side is its mirror.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of the incomplete beta function, by Lentz's method.
fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let guard = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / guard(1.0 + term * d);
            c = guard(1.0 + term / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// ln of the gamma function for x > 0: recurrence up to 10, then Stirling's series (error < 1e-13).
fn ln_gamma(x: f64) -> f64 {
    let (mut shifted, mut product) = (x, 1.0);
    while shifted < 10.0 {
        product *= shifted;
        shifted += 1.0;
    }
    let inverse = 1.0 / (shifted * shifted);
    let series = (1.0 / 12.0
        - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse * (1.0 / 1680.0 - inverse / 1188.0))))
        / shifted;
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_the_nist_table() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
        let table = [
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 5.0, 2.571),
            (0.975, 10.0, 2.228),
            (0.975, 30.0, 2.042),
            (0.975, 100.0, 1.984),
            (0.95, 10.0, 1.812),
            (0.995, 4.0, 4.604),
        ];
        for (p, dof, expected) in table {
            let found = quantile(p, dof);
            assert!((found - expected).abs() < 6e-4, "t({p}, {dof}) = {found}, table {expected}");
        }
        // The normal limit.
        assert!((quantile(0.975, 1e7) - 1.959_964).abs() < 1e-5);
    }

    #[test]
    fn gamma_has_its_known_values() {
        assert!((ln_gamma(5.0) - 24.0_f64.ln()).abs() < 1e-12);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn quantile_inverts_the_distribution(p in 0.001_f64..0.999, dof in 0.8_f64..400.0) {
            prop_assert!((cumulative(quantile(p, dof), dof) - p).abs() < 1e-9);
        }

        #[test]
        fn distribution_is_symmetric_and_monotone(t in -50.0_f64..50.0, step in 0.0_f64..5.0, dof in 0.8_f64..400.0) {
            prop_assert!((cumulative(t, dof) + cumulative(-t, dof) - 1.0).abs() < 1e-12);
            prop_assert!(cumulative(t + step, dof) >= cumulative(t, dof) - 1e-12);
        }
    }
}
