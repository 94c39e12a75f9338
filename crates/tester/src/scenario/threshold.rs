//! Thresholds: what a step must keep for a run to succeed, as typed values.
//!
//! `p99 < 100ms`, `mean <= 1.5s`, `errors < 1%`, `denied < 50%`, `throughput > 2000`. Latencies are
//! response times of good replies; throughput is good replies per second; a ratio is of everything
//! that ended. Without a single good reply no bound on latency or throughput holds.

use std::fmt;

use thiserror::Error;

use crate::measurement::Measurement;

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Response time at a quantile, 0 to 1, in microseconds.
    Quantile(f64),
    /// Mean response time, in microseconds.
    Mean,
    /// Largest response time, in microseconds.
    Max,
    /// Errors over everything that ended, 0 to 1.
    Errors,
    /// Denials over everything that ended, 0 to 1.
    Denied,
    /// Good replies per second.
    Throughput,
}

/// How it is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
}

/// One bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// What.
    pub metric: Metric,
    /// How.
    pub comparison: Comparison,
    /// Bound, in the metric's unit.
    pub bound: f64,
}

/// Why a text is no threshold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ThresholdError {
    /// No comparison in it.
    #[error("{0:?} has no <, <=, > or >=")]
    NoComparison(String),
    /// Not a metric.
    #[error(
        "{0:?} is none of p50, p90, p95, p99, p99.9 (any p1 to p99.999), mean, max, errors, denied, throughput"
    )]
    Metric(String),
    /// Not a bound for that metric.
    #[error("{text:?} is not {accepted}")]
    Bound {
        /// As written.
        text: String,
        /// What is accepted there.
        accepted: &'static str,
    },
}

impl Threshold {
    /// Reads `metric comparison bound`.
    ///
    /// # Errors
    /// When a part is missing or not what is accepted there.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        let at = text.find(['<', '>']).ok_or_else(|| ThresholdError::NoComparison(text.to_owned()))?;
        let (name, rest) = text.split_at(at);
        let (comparison, bound) = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ]
        .into_iter()
        .find_map(|(sign, comparison)| Some((comparison, rest.strip_prefix(sign)?)))
        .ok_or_else(|| ThresholdError::NoComparison(text.to_owned()))?;
        let metric = Metric::parse(name.trim())?;
        Ok(Self { metric, comparison, bound: metric.bound(bound.trim())? })
    }

    /// The metric's value in a measurement; `None` when there is nothing to take it from.
    #[must_use]
    pub fn observed(&self, measured: &Measurement) -> Option<f64> {
        let ended = measured.good + measured.denied + measured.errors.values().sum::<u64>();
        let response = &measured.response;
        match self.metric {
            Metric::Quantile(_) | Metric::Mean | Metric::Max if response.is_empty() => None,
            Metric::Quantile(quantile) => Some(response.value_at_quantile(quantile) as f64),
            Metric::Mean => Some(response.mean()),
            Metric::Max => Some(response.max() as f64),
            Metric::Errors => Some(measured.error_ratio()),
            Metric::Denied => (ended > 0).then(|| measured.denied as f64 / ended as f64),
            Metric::Throughput => Some(measured.throughput()),
        }
    }

    /// Whether a measurement keeps it.
    #[must_use]
    pub fn holds(&self, measured: &Measurement) -> bool {
        self.observed(measured).is_some_and(|value| match self.comparison {
            Comparison::Less => value < self.bound,
            Comparison::AtMost => value <= self.bound,
            Comparison::More => value > self.bound,
            Comparison::AtLeast => value >= self.bound,
        })
    }
}

impl Metric {
    fn parse(name: &str) -> Result<Self, ThresholdError> {
        let quantile = |digits: &str| digits.parse::<f64>().ok().filter(|p| (1.0..=99.999).contains(p));
        match name {
            "mean" => Ok(Self::Mean),
            "max" => Ok(Self::Max),
            "errors" => Ok(Self::Errors),
            "denied" => Ok(Self::Denied),
            "throughput" => Ok(Self::Throughput),
            _ => name
                .strip_prefix('p')
                .and_then(quantile)
                .map(|percent| Self::Quantile(percent / 100.0))
                .ok_or_else(|| ThresholdError::Metric(name.to_owned())),
        }
    }

    fn bound(self, text: &str) -> Result<f64, ThresholdError> {
        let number = |digits: &str, scale: f64| {
            digits
                .trim()
                .parse::<f64>()
                .ok()
                .filter(|value| value.is_finite() && *value >= 0.0)
                .map(|value| value * scale)
        };
        let (value, accepted) = match self {
            Self::Quantile(_) | Self::Mean | Self::Max => {
                let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
                let value =
                    units.into_iter().find_map(|(unit, scale)| number(text.strip_suffix(unit)?, scale));
                (value, "a time such as 500us, 100ms or 1.5s")
            }
            Self::Errors | Self::Denied => {
                let value =
                    text.strip_suffix('%').map_or_else(|| number(text, 1.0), |digits| number(digits, 0.01));
                (value.filter(|ratio| *ratio <= 1.0), "a share such as 1% or 0.01, at most 100%")
            }
            Self::Throughput => {
                (number(text.strip_suffix("/s").unwrap_or(text), 1.0), "a rate such as 2000 or 2000/s")
            }
        };
        value.ok_or_else(|| ThresholdError::Bound { text: text.to_owned(), accepted })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.comparison {
            Comparison::Less => "<",
            Comparison::AtMost => "<=",
            Comparison::More => ">",
            Comparison::AtLeast => ">=",
        };
        match self.metric {
            // Up to three decimals of a percentile, none that f64 adds.
            Metric::Quantile(quantile) => write!(out, "p{}", (quantile * 1e5).round() / 1e3)?,
            Metric::Mean => out.write_str("mean")?,
            Metric::Max => out.write_str("max")?,
            Metric::Errors => out.write_str("errors")?,
            Metric::Denied => out.write_str("denied")?,
            Metric::Throughput => out.write_str("throughput")?,
        }
        match self.metric {
            Metric::Quantile(_) | Metric::Mean | Metric::Max => write!(out, " {sign} {}ms", self.bound / 1e3),
            Metric::Errors | Metric::Denied => write!(out, " {sign} {}%", (self.bound * 1e6).round() / 1e4),
            Metric::Throughput => write!(out, " {sign} {}/s", self.bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thresholds_are_read_and_shown() {
        for (text, shown) in [
            ("p99 < 100ms", "p99 < 100ms"),
            ("p99.9<=1.5s", "p99.9 <= 1500ms"),
            ("errors < 1%", "errors < 1%"),
            ("denied <= 0.5", "denied <= 50%"),
            ("throughput > 2000", "throughput > 2000/s"),
            ("mean >= 500us", "mean >= 0.5ms"),
        ] {
            assert_eq!(Threshold::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_threshold_says_what_is_accepted() {
        for (text, part) in [
            ("p99 = 1ms", "no <"),
            ("p0 < 1ms", "none of p50"),
            ("latency < 1ms", "none of p50"),
            ("p99 < 100", "a time such as"),
            ("errors < 101%", "at most 100%"),
            ("throughput > fast", "a rate such as"),
            ("mean < -1ms", "a time such as"),
        ] {
            let error = Threshold::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends_without_a_panic(text in ".{0,30}") {
            if let Ok(threshold) = Threshold::parse(&text) {
                prop_assert!(threshold.bound >= 0.0);
            }
        }
    }
}
