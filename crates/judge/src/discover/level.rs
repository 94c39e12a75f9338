//! All repeats of one load, taken together.
//!
//! Repeats whose figure was refused (generator-bound, or against Little's law) are counted but have
//! no part in the estimate.

use serde::{Deserialize, Serialize};
use tidegate_algorithms::stats::mean::{self, Estimate};
use tidegate_algorithms::stats::{CONFIDENCE, Interval};

use super::Settings;
use crate::record::StepRecord;
use crate::threshold::{Metric, Threshold};

/// Errors above which a load does not count as kept up with: 1 %.
pub(super) const ERRORS_ALLOWED: f64 = 0.01;
/// Half width of an interval, as a share of its mean, from which it says nothing.
pub(super) const TOO_WIDE: f64 = 0.50;
/// Share of an offered rate below which the service has fallen behind.
const RATE_KEPT: f64 = 0.98;

/// One repeat's figures that the search needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Repeat {
    step: usize,
    usable: bool,
    generator_bound: bool,
    mean: f64,
    error: f64,
    dof: f64,
    error_ratio: f64,
    denied_ratio: f64,
    times_us: [f64; 7],
}

/// Metrics behind `times_us`, in order.
const TIMES: [Metric; 7] =
    [Metric::P50, Metric::P90, Metric::P95, Metric::P99, Metric::P999, Metric::Mean, Metric::Max];

/// All repeats of one load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Connections (closed loop) or requests per second (open loop).
    pub load: f64,
    repeats: Vec<Repeat>,
}

impl Level {
    pub(super) fn new(load: f64, step: usize, record: &StepRecord) -> Self {
        let mut level = Self { load, repeats: Vec::new() };
        level.add(step, record);
        level
    }

    pub(super) fn add(&mut self, step: usize, record: &StepRecord) {
        self.repeats.push(Repeat {
            step,
            usable: record.usable(),
            generator_bound: record.generator_bound(),
            mean: record.throughput.mean,
            error: record.throughput.error,
            dof: record.throughput.dof,
            error_ratio: record.error_ratio(),
            denied_ratio: record.denied_ratio(),
            times_us: TIMES.map(|metric| record.figure(metric)),
        });
    }

    /// Times that the level was measured.
    #[must_use]
    pub fn repeats(&self) -> usize {
        self.repeats.len()
    }

    /// Times that it was measured with a figure that may stand.
    #[must_use]
    pub fn usable(&self) -> usize {
        self.repeats.iter().filter(|r| r.usable).count()
    }

    /// Indices of its steps, in the order in which they ran.
    pub fn steps(&self) -> impl Iterator<Item = usize> + '_ {
        self.repeats.iter().map(|r| r.step)
    }

    /// Indices of the steps whose figure may stand.
    pub fn usable_steps(&self) -> impl Iterator<Item = usize> + '_ {
        self.repeats.iter().filter(|r| r.usable).map(|r| r.step)
    }

    /// Whether the generator was the limit each time.
    #[must_use]
    pub fn generator_bound(&self) -> bool {
        !self.repeats.is_empty() && self.repeats.iter().all(|r| r.generator_bound)
    }

    /// Throughput over the usable repeats; `None` without one.
    #[must_use]
    pub fn throughput(&self) -> Option<Estimate> {
        let usable: Vec<Estimate> = self
            .repeats
            .iter()
            .filter(|r| r.usable)
            .map(|r| Estimate { mean: r.mean, error: r.error, dof: r.dof.max(1.0) })
            .collect();
        mean::pooled(&usable)
    }

    /// The 95 % interval of the throughput, cut at 0; none when nothing is known of its spread.
    #[must_use]
    pub fn interval(&self) -> Option<Interval> {
        let found = self.throughput()?.interval(CONFIDENCE);
        found.half().is_finite().then_some(Interval { low: found.low.max(0.0), high: found.high })
    }

    /// Whether the repeats differ by so much that their interval says nothing.
    #[must_use]
    pub fn is_unsteady(&self) -> bool {
        self.noisy(TOO_WIDE)
    }

    /// Whether more repeats would make the figure better than it is.
    pub(super) fn noisy(&self, precision: f64) -> bool {
        self.throughput().is_some_and(|t| t.relative_half(CONFIDENCE) > precision)
    }

    /// Mean share of errors over all repeats, refused ones too.
    #[must_use]
    pub fn error_ratio(&self) -> f64 {
        mean::mean(&self.repeats.iter().map(|r| r.error_ratio).collect::<Vec<_>>())
    }

    /// Mean share of denials over all repeats.
    #[must_use]
    pub fn denied_ratio(&self) -> f64 {
        mean::mean(&self.repeats.iter().map(|r| r.denied_ratio).collect::<Vec<_>>())
    }

    /// The median over the repeats of one figure, in the metric's unit; no number when no repeat
    /// has one.
    #[must_use]
    pub fn figure(&self, metric: Metric) -> f64 {
        let mut values: Vec<f64> =
            self.repeats.iter().map(|r| r.figure(metric)).filter(|v| !v.is_nan()).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Whether most repeats keep the objectives, the errors allowed and, in an open loop, the rate.
    #[must_use]
    pub fn holds(&self, settings: &Settings) -> bool {
        let kept = self.repeats.iter().filter(|r| r.keeps(self.load, settings)).count();
        2 * kept > self.repeats.len()
    }
}

impl Repeat {
    fn figure(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Errors => self.error_ratio,
            Metric::Denied => self.denied_ratio,
            Metric::Throughput => self.mean,
            // Invariant: TIMES names every metric that is a time.
            time => TIMES.iter().position(|t| *t == time).map_or(f64::NAN, |i| self.times_us[i]),
        }
    }

    fn keeps(&self, load: f64, settings: &Settings) -> bool {
        let met = |objective: &Threshold| objective.met_by(self.figure(objective.metric));
        let behind = !settings.is_closed() && self.mean < RATE_KEPT * load - 2.0 * self.error;
        self.error_ratio <= ERRORS_ALLOWED && !behind && settings.objectives.iter().all(met)
    }
}
