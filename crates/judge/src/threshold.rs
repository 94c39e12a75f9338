//! A pass or fail condition on one figure: `p99 < 100ms`, `errors < 1%`, `throughput > 2000`.
//!
//! One small language for scenario files, `--slo` and CI, so that a condition reads the same
//! everywhere. Values are kept in the unit of the metric: microseconds, a ratio, or per second.
//! Deliberately absent: `and`, `or` and arithmetic; a list of thresholds is their conjunction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The figure that a threshold looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Median response time.
    P50,
    /// 90th percentile of response time.
    P90,
    /// 95th percentile of response time.
    P95,
    /// 99th percentile of response time.
    P99,
    /// 99.9th percentile of response time.
    P999,
    /// Mean response time.
    Mean,
    /// Largest response time.
    Max,
    /// Errors over everything that ended, 0 to 1. Denials are not errors.
    Errors,
    /// Denials over everything that ended, 0 to 1.
    Denied,
    /// Good replies per second.
    Throughput,
}

/// How the figure must relate to the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Relation {
    /// Strictly below.
    #[serde(rename = "<")]
    Below,
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// Strictly above.
    #[serde(rename = ">")]
    Above,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
}

/// One condition.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Threshold {
    /// The figure looked at.
    pub metric: Metric,
    /// The relation that must hold.
    pub relation: Relation,
    /// Finite and >= 0: microseconds for times, a ratio for errors and denials, per second for
    /// throughput.
    pub value: f64,
}

/// Why a text is not a threshold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// No relation sign.
    #[error("`{0}`: expected a metric, one of < <= > >=, and a value, as in `p99 < 100ms`")]
    Shape(String),
    /// Not a metric.
    #[error("`{0}` is no metric: use p50, p90, p95, p99, p999, mean, max, errors, denied or throughput")]
    Metric(String),
    /// Not a value, or one in a unit that the metric does not have.
    #[error("`{value}` is no value for {metric}: use {accepted}")]
    Value {
        /// The metric, as written.
        metric: String,
        /// The value, as written.
        value: String,
        /// What would be accepted.
        accepted: &'static str,
    },
}

const METRICS: [(&str, Metric); 10] = [
    ("p50", Metric::P50),
    ("p90", Metric::P90),
    ("p95", Metric::P95),
    ("p99", Metric::P99),
    ("p999", Metric::P999),
    ("mean", Metric::Mean),
    ("max", Metric::Max),
    ("errors", Metric::Errors),
    ("denied", Metric::Denied),
    ("throughput", Metric::Throughput),
];

/// Longest first, so that `<=` is not read as `<`.
const RELATIONS: [(&str, Relation); 4] =
    [("<=", Relation::AtMost), (">=", Relation::AtLeast), ("<", Relation::Below), (">", Relation::Above)];

impl Metric {
    /// Whether the metric is a response time.
    #[must_use]
    pub fn is_time(self) -> bool {
        !matches!(self, Self::Errors | Self::Denied | Self::Throughput)
    }

    fn accepted(self) -> &'static str {
        match self {
            Self::Errors | Self::Denied => "a percentage (1%) or a ratio from 0 to 1 (0.01)",
            Self::Throughput => "a rate per second (2000 or 2000/s)",
            _ => "a time with its unit (250us, 100ms, 1.5s)",
        }
    }

    /// Reads a value in the metric's unit.
    fn value(self, text: &str) -> Option<f64> {
        let (units, limit): (&[(&str, f64)], f64) = match self {
            Self::Errors | Self::Denied => (&[("%", 0.01), ("", 1.0)], 1.0),
            Self::Throughput => (&[("/s", 1.0), ("", 1.0)], f64::MAX),
            _ => (&[("us", 1.0), ("ms", 1e3), ("s", 1e6)], f64::MAX),
        };
        let number = |(unit, factor): &(&str, f64)| {
            let digits = text.strip_suffix(unit)?.trim_end();
            Some(digits.parse::<f64>().ok()? * factor)
        };
        units.iter().find_map(number).filter(|v| v.is_finite() && (0.0..=limit).contains(v))
    }
}

impl Threshold {
    /// Whether a figure in the metric's unit meets the condition. A figure that is no number does not.
    #[must_use]
    pub fn met_by(&self, figure: f64) -> bool {
        match self.relation {
            Relation::Below => figure < self.value,
            Relation::AtMost => figure <= self.value,
            Relation::Above => figure > self.value,
            Relation::AtLeast => figure >= self.value,
        }
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (at, sign, relation) = RELATIONS
            .iter()
            .filter_map(|&(sign, relation)| text.find(sign).map(|at| (at, sign, relation)))
            .next()
            .ok_or_else(|| ThresholdError::Shape(text.to_owned()))?;
        let (name, value) = (text[..at].trim(), text[at + sign.len()..].trim());
        let metric = METRICS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, metric)| metric)
            .ok_or_else(|| ThresholdError::Metric(name.to_owned()))?;
        let value = metric.value(value).ok_or_else(|| ThresholdError::Value {
            metric: name.to_owned(),
            value: value.to_owned(),
            accepted: metric.accepted(),
        })?;
        Ok(Self { metric, relation, value })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Invariant: METRICS names every variant.
        f.write_str(METRICS.iter().find(|(_, m)| m == self).map_or("?", |(name, _)| name))
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = RELATIONS.iter().find(|(_, r)| *r == self.relation).map_or("?", |(sign, _)| sign);
        write!(f, "{} {sign} ", self.metric)?;
        match self.metric {
            Metric::Errors | Metric::Denied => write!(f, "{}%", self.value * 100.0),
            Metric::Throughput => write!(f, "{}/s", self.value),
            _ if self.value >= 1e6 => write!(f, "{}s", self.value / 1e6),
            _ if self.value >= 1e3 => write!(f, "{}ms", self.value / 1e3),
            _ => write!(f, "{}us", self.value),
        }
    }
}

impl TryFrom<String> for Threshold {
    type Error = ThresholdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> Self {
        threshold.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_forms_of_the_reports() {
        let read = |text: &str| text.parse::<Threshold>().unwrap();
        let is = |metric, relation, value| Threshold { metric, relation, value };
        assert_eq!(read("p99 < 100ms"), is(Metric::P99, Relation::Below, 100_000.0));
        assert_eq!(read("p99<50ms"), is(Metric::P99, Relation::Below, 50_000.0));
        assert_eq!(read("errors <= 1%"), is(Metric::Errors, Relation::AtMost, 0.01));
        assert_eq!(read("throughput > 2000"), is(Metric::Throughput, Relation::Above, 2_000.0));
        assert_eq!(read("throughput>=2000/s"), is(Metric::Throughput, Relation::AtLeast, 2_000.0));
        assert_eq!(read(" max < 1.5 s "), is(Metric::Max, Relation::Below, 1_500_000.0));
    }

    #[test]
    fn names_what_is_wrong() {
        let wrong = |text: &str| text.parse::<Threshold>().unwrap_err().to_string();
        insta::assert_snapshot!(
            [wrong("p99"), wrong("p98 < 1ms"), wrong("p99 < 100"), wrong("errors < 2"), wrong("throughput > -1")]
                .join("\n"),
            @r"
        `p99`: expected a metric, one of < <= > >=, and a value, as in `p99 < 100ms`
        `p98` is no metric: use p50, p90, p95, p99, p999, mean, max, errors, denied or throughput
        `100` is no value for p99: use a time with its unit (250us, 100ms, 1.5s)
        `2` is no value for errors: use a percentage (1%) or a ratio from 0 to 1 (0.01)
        `-1` is no value for throughput: use a rate per second (2000 or 2000/s)
        "
        );
    }

    #[test]
    fn nothing_is_met_by_no_number() {
        for (_, relation) in RELATIONS {
            assert!(!Threshold { metric: Metric::P99, relation, value: 1.0 }.met_by(f64::NAN));
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_threshold_or_an_error(text in ".{0,40}") {
            if let Ok(threshold) = text.parse::<Threshold>() {
                prop_assert!(threshold.value.is_finite() && threshold.value >= 0.0);
            }
        }

        #[test]
        fn what_is_written_is_read_back(metric in 0_usize..10, relation in 0_usize..4, value in 0_u32..100) {
            let metric = METRICS[metric].1;
            let value = if metric.is_time() || metric == Metric::Throughput {
                f64::from(value) * 1_000.0
            } else {
                f64::from(value) / 100.0
            };
            let written = Threshold { metric, relation: RELATIONS[relation].1, value };
            let read: Threshold = written.to_string().parse().unwrap();
            prop_assert!((read.value - value).abs() < 1e-9 * (1.0 + value));
            prop_assert_eq!((read.metric, read.relation), (metric, written.relation));
        }
    }
}
