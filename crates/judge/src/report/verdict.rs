//! Thresholds against a report: what sets the exit status in CI.
//!
//! A search deliberately overloads the service, so its thresholds are asked of the load at which the
//! capacity was measured. A list of given levels (a scenario) must meet them at every level: the worst
//! figure counts. A figure that the report does not have meets nothing.

use serde::{Deserialize, Serialize};

use super::Report;
use crate::record::StepRecord;
use crate::threshold::{Metric, Relation, Threshold};

/// A threshold with the figure that was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The condition.
    pub threshold: Threshold,
    /// The figure in the metric's unit; null when the report has none.
    pub figure: Option<f64>,
    /// Whether it is met.
    pub met: bool,
}

/// Evaluates thresholds against a report.
#[must_use]
pub fn evaluate(thresholds: &[Threshold], report: &Report) -> Vec<Verdict> {
    thresholds
        .iter()
        .map(|&threshold| {
            let figure = figure(report, &threshold);
            Verdict { threshold, figure, met: figure.is_some_and(|f| threshold.met_by(f)) }
        })
        .collect()
}

fn figure(report: &Report, threshold: &Threshold) -> Option<f64> {
    let searched = report.settings.levels.is_empty();
    if searched && threshold.metric == Metric::Throughput && report.capacity.is_some() {
        return report.capacity.map(|c| c.throughput);
    }
    let steps: Vec<&StepRecord> = if searched && report.capacity.is_some() {
        report.capacity_steps()
    } else {
        report.steps.iter().collect()
    };
    let figures = steps.iter().map(|s| s.figure(threshold.metric));
    // No number is worse than any number, and stays one through the fold.
    let worst = |a: f64, b: f64| match threshold.relation {
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        Relation::Below | Relation::AtMost => a.max(b),
        Relation::Above | Relation::AtLeast => a.min(b),
    };
    figures.reduce(worst).filter(|f| f.is_finite())
}
