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
//! | exponential histogram | `_count`, `_sum`, `_min`, `_max`; its buckets are left out, counted and named | histogram |
//!
//! Attributes of the resource, of the scope and of the point are tags; the point's win, then the scope's. Name and version
//! of the scope are the tags `otel.scope.name` and `otel.scope.version`, and its attributes begin with `otel.scope.`, as
//! OpenTelemetry says for formats without scopes: two libraries may count under one name. Lists and maps are JSON in a
//! tag's text, bytes are base64. An attribute called as a tag of ours (`temporality`, `le`, `quantile`) is
//! `exported_temporality`, as Prometheus renames such labels. Points without a value and exemplars are left out and
//! counted, and so are quantiles of a summary that are NaN, which is how a summary says that nothing was observed lately. All
//! other points are kept with all their lines or not at all. A point whose name or attributes are not UTF-8 is rejected by
//! name, and the others of its request are kept: not every sender checks its texts.
//!
//! Follows <https://github.com/open-telemetry/opentelemetry-proto>, version 1, and its mapping of JSON.

mod attributes;
mod json;
mod point;
mod reply;

use std::borrow::Cow;

use super::{Kind, LineWriter, MetricError, Number};
use crate::protobuf::{Fields, Malformed};
use attributes::Attributes;
pub use json::{JsonError, from_json};
use point::{Data, Point};
pub use reply::{exported, exported_json, refused, refused_json};

/// What became of a request's points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Points that became lines.
    pub points: usize,
    /// Points that say that there is no value.
    pub no_value: usize,
    /// Points with a value that is not finite.
    pub not_finite: usize,
    /// Quantiles of summaries that are NaN.
    pub empty_quantiles: usize,
    /// Exponential histograms, whose buckets are left out.
    pub histograms: usize,
    /// Exemplars.
    pub exemplars: usize,
    /// Points that were not acceptable.
    pub rejected: usize,
    /// Why the first of these was not.
    pub error: Option<MetricError>,
}

impl ExportCounts {
    /// Points that are left out entirely.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.not_finite + self.rejected
    }

    /// Whether a partial success has something to say. With no point left out it is a warning, as the protocol has it.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.left_out() > 0 || self.histograms > 0
    }

    /// Why points were left out, and what else was.
    #[must_use]
    pub fn reason(&self) -> String {
        let mut reasons = Vec::new();
        if self.not_finite > 0 {
            reasons.push("values must be finite".to_owned());
        }
        if self.histograms > 0 {
            reasons.push("the buckets of exponential histograms are not kept".to_owned());
        }
        reasons.extend(self.error.as_ref().map(ToString::to_string));
        reasons.join("; ")
    }
}

/// Why nothing of a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// It is malformed.
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
pub fn read_request(body: &[u8], writer: &mut LineWriter) -> Result<ExportCounts, ExportError> {
    let mut reading = ExportReading { writer, counts: ExportCounts::default() };
    for field in Fields::of(body) {
        if let (1, resource_metrics) = field? {
            reading.read_resource(resource_metrics.bytes()?)?;
        }
    }
    Ok(reading.counts)
}

struct ExportReading<'w> {
    writer: &'w mut LineWriter,
    counts: ExportCounts,
}

/// A metric's description, without its points.
struct MetricDescription<'a> {
    name: &'a str,
    /// Whether the name is UTF-8; otherwise it is empty here.
    is_text: bool,
    data: Data,
    kind: Kind,
    is_delta: bool,
}

impl ExportReading<'_> {
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
            if let (2, scope_metrics) = field? {
                self.read_scope(scope_metrics.bytes()?, &resource)?;
            }
        }
        Ok(())
    }

    fn read_scope(&mut self, scope_metrics: &[u8], resource: &Attributes<'_>) -> Result<(), ExportError> {
        let mut around = resource.clone();
        for field in Fields::of(scope_metrics) {
            if let (1, scope) = field? {
                around.add_scope(scope.bytes()?)?;
            }
        }
        for field in Fields::of(scope_metrics) {
            if let (2, metric) = field? {
                self.read_metric(metric.bytes()?, &around)?;
            }
        }
        Ok(())
    }

    fn read_metric(&mut self, metric: &[u8], around: &Attributes<'_>) -> Result<(), ExportError> {
        let mut name = Some("");
        for field in Fields::of(metric) {
            if let (1, text) = field? {
                name = text.text()?;
            }
        }
        for field in Fields::of(metric) {
            let (number, data) = field?;
            // Fields 5 to 11 are the kinds of data; all others describe the metric.
            let read = match number {
                5 | 7 => Self::read_number,
                // A histogram of kind 10 has no buckets that a line could hold.
                9 | 10 => Self::read_histogram,
                11 => Self::read_summary,
                _ => continue,
            };
            let data = data.bytes()?;
            let about = about(name, number, data)?;
            for field in Fields::of(data) {
                if let (1, point) = field? {
                    self.read_point(point.bytes()?, &about, around, read)?;
                }
            }
        }
        Ok(())
    }

    /// Keeps all lines of a point, or none.
    fn read_point(
        &mut self,
        point: &[u8],
        about: &MetricDescription<'_>,
        around: &Attributes<'_>,
        read: fn(&Point<'_>, &MetricDescription<'_>, &mut LineWriter) -> Result<(), MetricError>,
    ) -> Result<(), ExportError> {
        let point = Point::read(point, about.data, around)?;
        self.counts.exemplars += point.exemplars;
        self.counts.empty_quantiles += point.empty_quantiles;
        if point.has_no_value {
            self.counts.no_value += 1;
            return Ok(());
        }
        let mark = self.writer.mark();
        let is_text = about.is_text && point.is_whole();
        let kept = if is_text { read(&point, about, self.writer) } else { Err(MetricError::NotText) };
        match kept {
            Ok(()) => {
                self.counts.points += 1;
                self.counts.histograms += usize::from(about.data == Data::ExponentialHistogram);
            }
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

    fn read_number(
        point: &Point<'_>,
        about: &MetricDescription<'_>,
        writer: &mut LineWriter,
    ) -> Result<(), MetricError> {
        let delta = about.is_delta.then_some(("temporality", "delta"));
        point.write(writer, about.name, about.kind, point.value.ok_or(MetricError::Missing("value"))?, delta)
    }

    fn read_histogram(
        point: &Point<'_>,
        about: &MetricDescription<'_>,
        writer: &mut LineWriter,
    ) -> Result<(), MetricError> {
        let delta = about.is_delta.then_some(("temporality", "delta"));
        if point.bounds.iter().any(|bound| !bound.is_finite()) {
            return Err(MetricError::NotFinite);
        }
        let mut write = |suffix: &str, value: Number, le: Option<&str>| {
            let name = format!("{}{suffix}", about.name);
            let tags = delta.into_iter().chain(le.map(|le| ("le", le)));
            point.write(writer, &name, Kind::Histogram, value, tags)
        };
        write("_count", point.count.into(), None)?;
        for (suffix, value) in [("_sum", point.sum), ("_min", point.min), ("_max", point.max)] {
            if let Some(value) = value {
                write(suffix, value.into(), None)?;
            }
        }
        let mut sum = 0_u64;
        let bounds = point.bounds.iter().map(|bound| Cow::Owned(bound.to_string()));
        for (count, le) in point.buckets.iter().zip(bounds.chain([Cow::Borrowed("+Inf")])) {
            sum = sum.saturating_add(*count);
            write("_bucket", sum.into(), Some(&le))?;
        }
        Ok(())
    }

    fn read_summary(
        point: &Point<'_>,
        about: &MetricDescription<'_>,
        writer: &mut LineWriter,
    ) -> Result<(), MetricError> {
        let totals = [("_count", Some(point.count.into())), ("_sum", point.sum.map(Number::from))];
        for (suffix, value) in totals {
            if let Some(value) = value {
                point.write(writer, &format!("{}{suffix}", about.name), Kind::Summary, value, None)?;
            }
        }
        for (quantile, value) in &point.quantiles {
            let quantile = quantile.to_string();
            let value = Number::from(*value);
            point.write(writer, about.name, Kind::Summary, value, Some(("quantile", quantile.as_str())))?;
        }
        Ok(())
    }
}

/// What the message of its data says of a metric.
fn about<'a>(name: Option<&'a str>, number: u64, data: &[u8]) -> Result<MetricDescription<'a>, Malformed> {
    let (mut is_delta, mut is_monotonic) = (false, false);
    for field in Fields::of(data) {
        match field? {
            (2, temporality) if number != 5 && number != 11 => is_delta = temporality.unsigned()? == 1,
            (3, monotonic) if number == 7 => is_monotonic = monotonic.unsigned()? != 0,
            _ => {}
        }
    }
    let (data, kind) = match number {
        7 if is_monotonic => (Data::Number, Kind::Counter),
        9 => (Data::Histogram, Kind::Histogram),
        10 => (Data::ExponentialHistogram, Kind::Histogram),
        11 => (Data::Summary, Kind::Summary),
        _ => (Data::Number, Kind::Gauge),
    };
    Ok(MetricDescription { name: name.unwrap_or_default(), is_text: name.is_some(), data, kind, is_delta })
}

#[cfg(test)]
mod tests;
