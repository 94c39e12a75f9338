//! The Universal Scalability Law, fitted to (concurrency, throughput) points.
//!
//! ```text
//!   X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))
//! ```
//!
//! lambda is the throughput of one, sigma the contention (waiting for what is shared), kappa the
//! coherency (agreeing on what is shared), all >= 0; with kappa > 0 the curve peaks at
//! sqrt((1 - sigma) / kappa). The fit is least squares with those bounds: a linear start, then
//! Levenberg-Marquardt steps projected onto the bounds. It describes; it does not find the knee,
//! because a poor fit can put the peak at a third of the best measured level. [`Fit::poor`] says so.
//! Reference: Gunther, "Guerrilla Capacity Planning", chapters 4 and 5.

use super::{CONFIDENCE, Interval, student};

const LAMBDA: usize = 0;
const SIGMA: usize = 1;
const KAPPA: usize = 2;
type Vector = [f64; 3];

/// R2 below which the law does not describe the points.
pub(crate) const POOR_R2: f64 = 0.95;

/// A fitted law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Throughput of one, per second.
    pub lambda: f64,
    /// Contention, 0 to 1 for a service that queues.
    pub sigma: f64,
    /// Coherency, >= 0.
    pub kappa: f64,
    /// 95 % interval of each parameter, cut at 0.
    pub intervals: [Interval; 3],
    /// Share of the variance explained; can be negative for a bad fit.
    pub r2: f64,
    /// Concurrency of the highest throughput; none when the curve never falls.
    pub peak: Option<f64>,
}

impl Fit {
    /// Throughput that the law gives at `n`.
    #[must_use]
    pub fn at(&self, n: f64) -> f64 {
        model(&[self.lambda, self.sigma, self.kappa], n)
    }

    /// Whether the law should not be trusted here: little variance explained, or a peak outside of
    /// what was measured (largest level `max_n`).
    #[must_use]
    pub fn poor(&self, max_n: f64) -> bool {
        self.r2 < POOR_R2 || self.peak.is_some_and(|p| p > 2.0 * max_n)
    }
}

/// Fits the law to points with n >= 1 and x >= 0; none from fewer than four distinct levels.
#[must_use]
pub fn fit(points: &[(f64, f64)]) -> Option<Fit> {
    let mut levels: Vec<f64> = points.iter().map(|p| p.0).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    let usable = points.iter().all(|&(n, x)| n >= 1.0 && x >= 0.0 && n.is_finite() && x.is_finite());
    let scale = points.iter().map(|p| p.1).fold(0.0, f64::max);
    if levels.len() < 4 || !usable || scale <= 0.0 {
        return None;
    }
    let scaled: Vec<(f64, f64)> = points.iter().map(|&(n, x)| (n, x / scale)).collect();
    let best = starts(&scaled)
        .into_iter()
        .map(|start| descend(&scaled, start))
        .min_by(|a, b| squares(&scaled, a).total_cmp(&squares(&scaled, b)))?;
    Some(describe(&scaled, best, scale))
}

fn model(p: &Vector, n: f64) -> f64 {
    p[LAMBDA] * n / (1.0 + p[SIGMA] * (n - 1.0) + p[KAPPA] * n * (n - 1.0))
}

fn gradient(p: &Vector, n: f64) -> Vector {
    let denominator = 1.0 + p[SIGMA] * (n - 1.0) + p[KAPPA] * n * (n - 1.0);
    let common = -p[LAMBDA] * n / (denominator * denominator);
    [n / denominator, common * (n - 1.0), common * n * (n - 1.0)]
}

fn squares(points: &[(f64, f64)], p: &Vector) -> f64 {
    points.iter().map(|&(n, x)| (x - model(p, n)).powi(2)).sum()
}

/// Starting points: one per plausible plateau, because the surface has a valley for each.
fn starts(points: &[(f64, f64)]) -> Vec<Vector> {
    let first = points.iter().min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1.0, |&(n, x)| x.max(1e-9) / n);
    let widest = points.iter().map(|p| p.0).fold(1.0, f64::max);
    let mut found = Vec::new();
    for lambda in [first, 1.5 * first] {
        for sigma in [0.0, 0.01, 0.1, lambda.min(0.9)] {
            for kappa in [0.0, 1.0 / (widest * widest), 10.0 / (widest * widest)] {
                found.push([lambda, sigma, kappa]);
            }
        }
    }
    found
}

/// Levenberg-Marquardt with projection: a parameter at 0 that wants to go below is held there.
fn descend(points: &[(f64, f64)], start: Vector) -> Vector {
    let (mut p, mut damping) = (start, 1e-3);
    let mut best = squares(points, &p);
    for _ in 0..300 {
        let (normal, slope) = normal_equations(points, &p);
        let held: [bool; 3] = std::array::from_fn(|i| p[i] <= 0.0 && slope[i] <= 0.0);
        let Some(step) = damped_step(&normal, &slope, held, damping) else { break };
        let candidate: Vector = std::array::from_fn(|i| (p[i] + step[i]).max(0.0));
        let found = squares(points, &candidate);
        if found < best {
            let improvement = best - found;
            (p, best) = (candidate, found);
            damping = (damping / 4.0).max(1e-12);
            if improvement <= 1e-15 * (1.0 + best) {
                break;
            }
        } else {
            damping *= 4.0;
            if damping > 1e12 {
                break;
            }
        }
    }
    p
}

/// J'J and J'r.
fn normal_equations(points: &[(f64, f64)], p: &Vector) -> ([Vector; 3], Vector) {
    let (mut normal, mut slope) = ([[0.0; 3]; 3], [0.0; 3]);
    for &(n, x) in points {
        let g = gradient(p, n);
        let residual = x - model(p, n);
        for i in 0..3 {
            slope[i] += g[i] * residual;
            for j in 0..3 {
                normal[i][j] += g[i] * g[j];
            }
        }
    }
    (normal, slope)
}

fn damped_step(normal: &[Vector; 3], slope: &Vector, held: [bool; 3], damping: f64) -> Option<Vector> {
    let (mut matrix, mut right) = (*normal, *slope);
    for i in 0..3 {
        matrix[i][i] += damping * matrix[i][i].max(1e-30);
        if held[i] {
            hold(&mut matrix, i, 1.0);
            right[i] = 0.0;
        }
    }
    let inverse = invert(&matrix)?;
    Some(std::array::from_fn(|i| (0..3).map(|j| inverse[i][j] * right[j]).sum()))
}

/// Takes parameter `i` out of the equations, leaving `diagonal` so that they stay solvable.
fn hold(matrix: &mut [Vector; 3], i: usize, diagonal: f64) {
    matrix[i] = [0.0; 3];
    for row in matrix.iter_mut() {
        row[i] = 0.0;
    }
    matrix[i][i] = diagonal;
}

/// Inverse by the adjugate, on a matrix scaled to unit diagonal.
fn invert(m: &[Vector; 3]) -> Option<[Vector; 3]> {
    let scale: Vector = std::array::from_fn(|i| m[i][i].max(1e-300).sqrt());
    let s: [Vector; 3] = std::array::from_fn(|i| std::array::from_fn(|j| m[i][j] / scale[i] / scale[j]));
    let minor = |r: usize, c: usize| {
        let (a, b, d, e) = ((r + 1) % 3, (r + 2) % 3, (c + 1) % 3, (c + 2) % 3);
        s[a][d] * s[b][e] - s[a][e] * s[b][d]
    };
    let determinant: f64 = (0..3).map(|c| s[0][c] * minor(0, c)).sum();
    if determinant.abs() < 1e-14 {
        return None;
    }
    Some(std::array::from_fn(|i| std::array::from_fn(|j| minor(j, i) / determinant / scale[i] / scale[j])))
}

fn describe(points: &[(f64, f64)], p: Vector, scale: f64) -> Fit {
    let centre = points.iter().map(|v| v.1).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|v| (v.1 - centre).powi(2)).sum();
    let left = squares(points, &p);
    let dof = points.len().saturating_sub(3).max(1) as f64;
    let t = student::quantile(0.5 + CONFIDENCE / 2.0, dof);
    // A parameter on its bound has no curvature of its own there: its neighbours' intervals are
    // those of the law without it.
    let held: [bool; 3] = std::array::from_fn(|i| p[i] <= 0.0);
    let (mut normal, _) = normal_equations(points, &p);
    for i in (0..3).filter(|&i| held[i]) {
        let own = normal[i][i];
        hold(&mut normal, i, own.max(1e-300));
    }
    let errors: Vector = invert(&normal).map_or([f64::INFINITY; 3], |inverse| {
        std::array::from_fn(|i| (left / dof * inverse[i][i]).max(0.0).sqrt())
    });
    let units = [scale, 1.0, 1.0];
    let intervals = std::array::from_fn(|i| Interval {
        low: (units[i] * (p[i] - t * errors[i])).max(0.0),
        high: units[i] * (p[i] + t * errors[i]),
    });
    let peak = (p[KAPPA] > 0.0 && p[SIGMA] < 1.0).then(|| ((1.0 - p[SIGMA]) / p[KAPPA]).sqrt());
    Fit {
        lambda: p[LAMBDA] * scale,
        sigma: p[SIGMA],
        kappa: p[KAPPA],
        intervals,
        r2: if total > 0.0 { 1.0 - left / total } else { 0.0 },
        peak,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spec_sdm91_has_its_published_parameters() {
        // SPEC SDM91 on a Sun SPARCcenter 2000, as in Gunther 2007 and the R package usl:
        // sigma 0.0277, kappa 0.000104, peak near 96.5.
        let points = [
            (1.0, 64.9),
            (18.0, 995.9),
            (36.0, 1652.4),
            (72.0, 1853.2),
            (108.0, 1828.9),
            (144.0, 1775.0),
            (216.0, 1702.2),
        ];
        let found = fit(&points).unwrap();
        assert!((found.sigma - 0.0277).abs() < 0.002, "{found:?}");
        assert!((found.kappa - 0.000_104_4).abs() < 5e-6, "{found:?}");
        assert!((found.peak.unwrap() - 96.5).abs() < 1.0, "{found:?}");
        assert!(found.r2 > 0.98 && !found.poor(216.0), "{found:?}");
    }

    #[test]
    fn the_reports_own_ladder_is_called_poor() {
        // The rate limiter's 1,000-acceptor ladder: 5,000 was its best measured level.
        let points = [
            (10.0, 1851.85),
            (25.0, 3472.22),
            (50.0, 7575.76),
            (100.0, 6711.41),
            (200.0, 6451.61),
            (500.0, 8680.56),
            (1e3, 10_298.66),
            (2.5e3, 12_431.63),
            (5e3, 13_248.54),
            (1e4, 11_678.15),
            (2.5e4, 7660.72),
            (5e4, 4726.08),
        ];
        let found = fit(&points).unwrap();
        assert!(found.r2 < 0.92 && found.poor(5e4), "{found:?}");
    }

    #[test]
    fn too_little_is_no_fit() {
        assert!(fit(&[(1.0, 1.0), (2.0, 2.0), (4.0, 3.0)]).is_none());
        assert!(fit(&[(1.0, 0.0), (2.0, 0.0), (4.0, 0.0), (8.0, 0.0)]).is_none());
    }

    proptest! {
        #[test]
        fn recovers_planted_parameters(lambda in 10.0_f64..5e3, sigma in 0.0_f64..0.3, kappa in 1e-6_f64..1e-3) {
            let points: Vec<(f64, f64)> =
                (0..10).map(|i| f64::from(1 << i)).map(|n| (n, model(&[lambda, sigma, kappa], n))).collect();
            let found = fit(&points).unwrap();
            prop_assert!(found.r2 > 0.999_9, "{:?}", found);
            prop_assert!((found.sigma - sigma).abs() < 0.01 + 0.02 * sigma, "{:?}", found);
            for &(n, x) in &points {
                prop_assert!((found.at(n) - x).abs() < 0.01 * x + 1e-6, "{:?} at {}", found, n);
            }
        }

        #[test]
        fn never_leaves_its_bounds(values in prop::collection::vec(0.0_f64..1e5, 4..12)) {
            let points: Vec<(f64, f64)> =
                values.iter().enumerate().map(|(i, &x)| (f64::from(1_u32 << i), x)).collect();
            if let Some(found) = fit(&points) {
                prop_assert!(found.lambda >= 0.0 && found.sigma >= 0.0 && found.kappa >= 0.0);
                prop_assert!(found.r2.is_finite());
            }
        }
    }
}
