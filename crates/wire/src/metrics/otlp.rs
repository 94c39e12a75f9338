//! OpenTelemetry's metrics: `ExportMetricsServiceRequest`, in protobuf or JSON.
//!
//! ```text
//!   JSON ── serde, prost ──> protobuf ── field by field, borrowed ──> a line for each number
//! ```
//!
//! JSON is turned into protobuf first, so that there is one reading of what the messages mean.
//!
//! | point | lines | type |
//! |---|---|---|
//! | gauge | the metric's name | gauge |
//! | sum | the same; `temporality="delta"` is a tag where that is so | counter if it is monotonic, else gauge |
//! | histogram | `_count`, `_sum`, `_min`, `_max`, and `_bucket` with the tag `le`, cumulative | histogram |
//! | summary | the name with the tag `quantile`, `_count`, `_sum` | summary |
//! | exponential histogram | none | counted |
//!
//! Attributes of the resource and of the point are tags; the point's win. Lists and maps are JSON in a tag's text.
//! Points without a value, exemplars, and attributes of bytes are left out; the first two are counted. A point is
//! kept with all its lines or not at all.
//!
//! Follows <https://github.com/open-telemetry/opentelemetry-proto>, version 1, and its mapping of JSON.

mod attributes;
mod json;
mod point;
mod reply;

use std::borrow::Cow;

use super::{Kind, LineWriter, MetricError};
use crate::protobuf::{Fields, Malformed};
use attributes::Attributes;
pub use json::{JsonError, from_json};
use point::Point;
pub use reply::{exported, exported_json, refused, refused_json};

/// What became of a request's points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Points that became lines.
    pub points: usize,
    /// Points that say that there is no value.
    pub no_value: usize,
    /// Points with a value that is not finite.
    pub not_finite: usize,
    /// Exponential histograms.
    pub histograms: usize,
    /// Exemplars.
    pub exemplars: usize,
    /// Points that were not acceptable.
    pub rejected: usize,
    /// Why the first of these was not.
    pub error: Option<MetricError>,
}

impl Counts {
    /// Points that a partial success has to name.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.not_finite + self.histograms + self.rejected
    }

    /// Why they were left out.
    #[must_use]
    pub fn reason(&self) -> String {
        let mut reasons = Vec::new();
        if self.not_finite > 0 {
            reasons.push("values must be finite".to_owned());
        }
        if self.histograms > 0 {
            reasons.push("exponential histograms are not kept".to_owned());
        }
        reasons.extend(self.error.as_ref().map(ToString::to_string));
        reasons.join("; ")
    }
}

/// Why nothing of a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// It is not what it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its lines are too long.
    #[error("the lines of the request have more than {0} bytes")]
    TooLong(usize),
}

/// Writes the lines of a request in protobuf.
///
/// # Errors
/// When nothing of the request is to be kept. What `writer` holds then is of no use.
pub fn read_request(body: &[u8], writer: &mut LineWriter) -> Result<Counts, ExportError> {
    let mut reading = Reading { writer, counts: Counts::default() };
    for field in Fields::of(body) {
        if let (1, resource_metrics) = field? {
            reading.read_resource(resource_metrics.bytes()?)?;
        }
    }
    Ok(reading.counts)
}

struct Reading<'w> {
    writer: &'w mut LineWriter,
    counts: Counts,
}

/// What is said of a metric beside its points.
struct About<'a> {
    name: &'a str,
    kind: Kind,
    is_delta: bool,
}

impl Reading<'_> {
    fn read_resource(&mut self, resource_metrics: &[u8]) -> Result<(), ExportError> {
        let mut resource = Attributes::default();
        for field in Fields::of(resource_metrics) {
            if let (1, message) = field? {
                for field in Fields::of(message.bytes()?) {
                    if let (1, attribute) = field? {
                        resource.add(attribute.bytes()?)?;
                    }
                }
            }
        }
        for field in Fields::of(resource_metrics) {
            if let (2, scope) = field? {
                for field in Fields::of(scope.bytes()?) {
                    if let (2, metric) = field? {
                        self.read_metric(metric.bytes()?, &resource)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn read_metric(&mut self, metric: &[u8], resource: &Attributes<'_>) -> Result<(), ExportError> {
        let mut name = "";
        for field in Fields::of(metric) {
            if let (1, text) = field? {
                name = text.text()?;
            }
        }
        for field in Fields::of(metric) {
            let (number, data) = field?;
            // Those from 5 to 11 are the kinds of data; all others are about the metric.
            let read = match number {
                5 | 7 => Self::read_number,
                9 => Self::read_histogram,
                10 => {
                    self.counts.histograms += count(data.bytes()?, 1)?;
                    continue;
                }
                11 => Self::read_summary,
                _ => continue,
            };
            let data = data.bytes()?;
            let about = about(name, number, data)?;
            for field in Fields::of(data) {
                if let (1, point) = field? {
                    self.read_point(point.bytes()?, &about, resource, read)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps all lines of a point, or none.
    fn read_point(
        &mut self,
        point: &[u8],
        about: &About<'_>,
        resource: &Attributes<'_>,
        read: fn(&Point<'_>, &About<'_>, &mut LineWriter) -> Result<(), MetricError>,
    ) -> Result<(), ExportError> {
        let point = Point::read(point, about.kind, resource)?;
        self.counts.exemplars += point.exemplars;
        if point.has_no_value {
            self.counts.no_value += 1;
            return Ok(());
        }
        let mark = self.writer.mark();
        match read(&point, about, self.writer) {
            Ok(()) => self.counts.points += 1,
            Err(MetricError::NoRoom(limit)) => return Err(ExportError::TooLong(limit)),
            Err(error) => {
                self.writer.cut(mark);
                if error == MetricError::NotFinite {
                    self.counts.not_finite += 1;
                } else {
                    self.counts.rejected += 1;
                    self.counts.error.get_or_insert(error);
                }
            }
        }
        Ok(())
    }

    fn read_number(point: &Point<'_>, about: &About<'_>, writer: &mut LineWriter) -> Result<(), MetricError> {
        let delta = about.is_delta.then_some(("temporality", "delta"));
        point.write(writer, about.name, about.kind, point.value.ok_or(MetricError::Missing("value"))?, delta)
    }

    fn read_histogram(
        point: &Point<'_>,
        about: &About<'_>,
        writer: &mut LineWriter,
    ) -> Result<(), MetricError> {
        let delta = about.is_delta.then_some(("temporality", "delta"));
        let mut write = |suffix: &str, value: f64, le: Option<&str>| {
            let name = format!("{}{suffix}", about.name);
            let tags = delta.into_iter().chain(le.map(|le| ("le", le)));
            point.write(writer, &name, Kind::Histogram, value, tags)
        };
        write("_count", float(point.count), None)?;
        for (suffix, value) in [("_sum", point.sum), ("_min", point.min), ("_max", point.max)] {
            if let Some(value) = value {
                write(suffix, value, None)?;
            }
        }
        let mut sum = 0_u64;
        let bounds = point.bounds.iter().map(|bound| Cow::Owned(bound.to_string()));
        for (count, le) in point.buckets.iter().zip(bounds.chain([Cow::Borrowed("+Inf")])) {
            sum = sum.saturating_add(*count);
            write("_bucket", float(sum), Some(&le))?;
        }
        Ok(())
    }

    fn read_summary(
        point: &Point<'_>,
        about: &About<'_>,
        writer: &mut LineWriter,
    ) -> Result<(), MetricError> {
        let totals = [("_count", Some(float(point.count))), ("_sum", point.sum)];
        for (suffix, value) in totals {
            if let Some(value) = value {
                point.write(writer, &format!("{}{suffix}", about.name), Kind::Summary, value, None)?;
            }
        }
        for (quantile, value) in &point.quantiles {
            let quantile = quantile.to_string();
            point.write(writer, about.name, Kind::Summary, *value, Some(("quantile", quantile.as_str())))?;
        }
        Ok(())
    }
}

/// What the message of its data says of a metric.
fn about<'a>(name: &'a str, number: u64, data: &[u8]) -> Result<About<'a>, Malformed> {
    let (mut is_delta, mut is_monotonic) = (false, false);
    for field in Fields::of(data) {
        match field? {
            (2, temporality) if number != 5 && number != 11 => is_delta = temporality.unsigned()? == 1,
            (3, monotonic) if number == 7 => is_monotonic = monotonic.unsigned()? != 0,
            _ => {}
        }
    }
    let kind = match number {
        7 if is_monotonic => Kind::Counter,
        9 => Kind::Histogram,
        11 => Kind::Summary,
        _ => Kind::Gauge,
    };
    Ok(About { name, kind, is_delta })
}

/// How often a message has a field.
fn count(message: &[u8], number: u64) -> Result<usize, Malformed> {
    Fields::of(message).try_fold(0, |count, field| Ok(count + usize::from(field?.0 == number)))
}

#[expect(clippy::cast_precision_loss, reason = "a line's number is a float")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
