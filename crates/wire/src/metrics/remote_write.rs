//! Prometheus remote write, 1.0 and 2.0: the messages behind snappy.
//!
//! ```text
//!   1.0  WriteRequest { TimeSeries { Label { name, value }*, Sample { value, timestamp }* }* }
//!   2.0  Request { symbols*, TimeSeries { label references*, Sample*, Metadata }* }
//! ```
//!
//! Follows <https://prometheus.io/docs/specs/prw/remote_write_spec/> and `remote_write_spec_2_0/`. A sample becomes a
//! line: its name is the label `__name__`, and the others are its tags. 1.0 does not say of what type a series is, so
//! it is a gauge.
//!
//! What a line cannot hold is counted and never stored as something else: values that are not finite (a summary
//! without observations has such), the marker that a series has ended, the buckets of native histograms, exemplars. Of a
//! native histogram `_count` and `_sum` are lines, as a classic one has them. A sample that is
//! not acceptable is left out, and the others are kept: the sender does not send a request again that was answered
//! 400, so to refuse it whole would lose the good ones. So are those of a series with a label that is not UTF-8.

use super::{Kind, LineWriter, MAX_TAGS, Metric, MetricError, Number};
use crate::protobuf::{Fields, Malformed, Packed};

/// The value that says that a series has ended: a NaN with these bits.
const STALE: u64 = 0x7ff0_0000_0000_0002;
const NAME: &str = "__name__";
/// Most symbols of a request of 2.0. Each has a byte of the body at least, and 16 of memory.
const MAX_SYMBOLS: usize = 1 << 20;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

/// What became of a request's parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Samples that became lines.
    pub samples: usize,
    /// Markers that a series has ended.
    pub stale: usize,
    /// Samples whose value is not finite.
    pub not_finite: usize,
    /// Native histograms, whose buckets are left out.
    pub histograms: usize,
    /// Exemplars.
    pub exemplars: usize,
    /// Samples that were not acceptable.
    pub rejected: usize,
    /// Why the first of these was not.
    pub error: Option<MetricError>,
}

/// Why nothing of a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is not what it should be.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its lines are too long.
    #[error("the lines of the request have more than {0} bytes")]
    TooLong(usize),
}

/// Writes a line for each sample of a request.
///
/// # Errors
/// When nothing of the request is to be kept. What `writer` holds then is of no use.
pub fn read_request(
    version: Version,
    body: &[u8],
    writer: &mut LineWriter,
) -> Result<SampleCounts, RequestError> {
    let mut reading = SeriesReading { version, symbols: Vec::new(), writer, counts: SampleCounts::default() };
    if version == Version::V2 {
        reading.read_symbols(body)?;
    }
    let series_field = if version == Version::V1 { 1 } else { 5 };
    let mut labels = Vec::with_capacity(MAX_TAGS);
    for field in Fields::of(body) {
        let (number, value) = field?;
        if number == series_field {
            reading.read_series(value.bytes()?, &mut labels)?;
        }
    }
    Ok(reading.counts)
}

/// How far the reading of a request has come.
struct SeriesReading<'w, 'a> {
    version: Version,
    /// `None`: one that is not UTF-8.
    symbols: Vec<Option<&'a str>>,
    writer: &'w mut LineWriter,
    counts: SampleCounts,
}

impl<'a> SeriesReading<'_, 'a> {
    fn read_symbols(&mut self, body: &'a [u8]) -> Result<(), Malformed> {
        for field in Fields::of(body) {
            if let (4, value) = field? {
                self.symbols.push(value.text()?);
                if self.symbols.len() > MAX_SYMBOLS {
                    return Err(Malformed);
                }
            }
        }
        Ok(())
    }

    /// Reads the labels first, wherever they stand, and then the samples.
    fn read_series(
        &mut self,
        series: &'a [u8],
        labels: &mut Vec<(&'a str, &'a str)>,
    ) -> Result<(), RequestError> {
        labels.clear();
        let (mut kind, mut is_text) = (Kind::Gauge, true);
        for field in Fields::of(series) {
            match (self.version, field?) {
                (Version::V1, (1, label)) => match label_of(label.bytes()?)? {
                    Some(label) => labels.push(label),
                    None => is_text = false,
                },
                (Version::V2, (1, references)) => is_text &= self.resolve(references.bytes()?, labels)?,
                (Version::V1, (3, _)) | (Version::V2, (4, _)) => self.counts.exemplars += 1,
                (Version::V1, (4, _)) | (Version::V2, (3, _)) => self.counts.histograms += 1,
                (Version::V2, (5, metadata)) => kind = kind_of(metadata.bytes()?)?,
                _ => {}
            }
        }
        let name = labels.iter().position(|(name, _)| *name == NAME);
        let name = name.map(|place| labels.remove(place).1).unwrap_or_default();
        for field in Fields::of(series) {
            match (self.version, field?) {
                (_, (2, _)) | (Version::V1, (4, _)) | (Version::V2, (3, _)) if !is_text => {
                    self.left_out(MetricError::NotText)?;
                }
                (_, (2, sample)) => self.read_sample(sample.bytes()?, name, kind, labels)?,
                (Version::V1, (4, histogram)) | (Version::V2, (3, histogram)) => {
                    self.read_histogram(histogram.bytes()?, name, labels)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Keeps count and sum of a native histogram, or neither.
    fn read_histogram(
        &mut self,
        histogram: &[u8],
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<(), RequestError> {
        let (mut count, mut sum, mut millis) = (Number::Float(0.0), 0.0, 0);
        for field in Fields::of(histogram) {
            match field? {
                (1, field) => count = field.unsigned()?.into(),
                (2, field) => count = field.double()?.into(),
                (3, field) => sum = field.double()?,
                (15, field) => millis = field.int64()?,
                _ => {}
            }
        }
        if f64::to_bits(sum) == STALE {
            self.counts.stale += 1;
            return Ok(());
        }
        let mark = self.writer.mark();
        let mut write = |suffix: &str, value: Number| {
            let name = format!("{name}{suffix}");
            let (kind, tags) = (Kind::Histogram, labels.iter().copied());
            self.writer.write(&Metric { name: &name, value, kind, millis: Some(millis), tags })
        };
        let written = write("_count", count).and_then(|()| write("_sum", sum.into()));
        written.or_else(|error| {
            self.writer.cut(mark);
            self.left_out(error)
        })
    }

    /// Counts what is not acceptable.
    fn left_out(&mut self, error: MetricError) -> Result<(), RequestError> {
        match error {
            MetricError::NoRoom(limit) => return Err(RequestError::TooLong(limit)),
            MetricError::NotFinite => self.counts.not_finite += 1,
            error => {
                self.counts.rejected += 1;
                self.counts.error.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Adds the labels that pairs of references to symbols stand for; `false`: some of these are not UTF-8.
    fn resolve(&self, references: &[u8], labels: &mut Vec<(&'a str, &'a str)>) -> Result<bool, Malformed> {
        let mut symbols = Packed(references).map(|reference| {
            let place = usize::try_from(reference?).map_err(|_| Malformed)?;
            self.symbols.get(place).copied().ok_or(Malformed)
        });
        let mut is_text = true;
        while let Some(name) = symbols.next() {
            match (name?, symbols.next().ok_or(Malformed)??) {
                (Some(name), Some(value)) => labels.push((name, value)),
                _ => is_text = false,
            }
        }
        Ok(is_text)
    }

    fn read_sample(
        &mut self,
        sample: &[u8],
        name: &str,
        kind: Kind,
        labels: &[(&str, &str)],
    ) -> Result<(), RequestError> {
        let (mut value, mut millis) = (0.0, 0);
        for field in Fields::of(sample) {
            match field? {
                (1, field) => value = field.double()?,
                (2, field) => millis = field.int64()?,
                _ => {}
            }
        }
        if f64::to_bits(value) == STALE {
            self.counts.stale += 1;
            return Ok(());
        }
        let tags = labels.iter().copied();
        match self.writer.write(&Metric { name, value: value.into(), kind, millis: Some(millis), tags }) {
            Ok(()) => {
                self.counts.samples += 1;
                Ok(())
            }
            Err(error) => self.left_out(error),
        }
    }
}

/// Name and value of a label; `None`: one of them is not UTF-8.
fn label_of(label: &[u8]) -> Result<Option<(&str, &str)>, Malformed> {
    let (mut name, mut value) = (Some(""), Some(""));
    for field in Fields::of(label) {
        match field? {
            (1, field) => name = field.text()?,
            (2, field) => value = field.text()?,
            _ => {}
        }
    }
    Ok(name.zip(value))
}

fn kind_of(metadata: &[u8]) -> Result<Kind, Malformed> {
    let mut kind = Kind::Gauge;
    for field in Fields::of(metadata) {
        if let (1, field) = field? {
            kind = match field.unsigned()? {
                1 => Kind::Counter,
                3 | 4 => Kind::Histogram,
                5 => Kind::Summary,
                _ => Kind::Gauge,
            };
        }
    }
    Ok(kind)
}

#[cfg(test)]
mod tests;
