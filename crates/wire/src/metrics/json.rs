//! The batch of `POST /metrics`: `{"metrics":[{name, value, type?, tags?, timestamp?}]}`.
//!
//! ```text
//!   bytes ── one UTF-8 check ──> serde_json, metric by metric ── Metric ──> LineWriter
//!                                       │ a field of the wrong type is that metric's error, not the document's
//!                                       └ what is no JSON, or no list of objects, ends the reading
//! ```
//!
//! Numbers are taken as they are written and read by the standard library ([`super::Number`]), so that integers of 64
//! bits keep their digits, and 1e400 is an error of its metric, too.
//!
//! | found | is |
//! |---|---|
//! | a field twice, or a tag | an error: two readers could take different ones (fault 29) |
//! | an unknown field | passed over, as the source does |
//! | `null` for type, tags or timestamp | as if it were absent |
//! | nesting in an unknown field | passed over without recursion, so its depth does not matter |

mod metric;

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use super::{LineWriter, MetricError};
use metric::MetricSeed;

/// How a batch is judged.
#[derive(Clone, Copy, Debug)]
pub struct BatchLimits {
    /// Most metrics of a batch.
    pub metrics: usize,
    /// Whether the good metrics of a batch are kept where others are not acceptable.
    pub partial: bool,
}

/// Why nothing of a batch is kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// It is not JSON in UTF-8. The metric at which reading ended, if there was one.
    #[error("{}{reason}", at(.index))]
    Syntax {
        /// The metric's place.
        index: Option<usize>,
        /// What is wrong, and where.
        reason: String,
    },
    /// It has no list of metrics.
    #[error("metrics is missing")]
    NoMetrics,
    /// The list is empty.
    #[error("Batch cannot be empty")]
    Empty,
    /// The list is too long.
    #[error("the batch has more than {0} metrics")]
    TooMany(usize),
    /// Its lines are too long.
    #[error("its lines have more than {0} bytes")]
    TooLong(usize),
    /// A metric is not acceptable.
    #[error("metrics[{}]: {}", .0.index, .0.error)]
    Metric(Rejected),
}

fn at(index: &Option<usize>) -> String {
    index.map(|index| format!("metrics[{index}]: ")).unwrap_or_default()
}

/// A metric that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its place in the batch.
    pub index: usize,
    /// Why.
    pub error: MetricError,
}

/// Writes a line for each metric of `body`. Returns the metrics that were rejected, if `limits` accept a part of a
/// batch.
///
/// # Errors
/// When nothing of the batch is to be kept. What `writer` holds then is of no use.
pub fn read_batch(
    body: &[u8],
    limits: BatchLimits,
    writer: &mut LineWriter,
) -> Result<Vec<Rejected>, BatchError> {
    let text = std::str::from_utf8(body).map_err(|error| BatchError::Syntax {
        index: None,
        reason: format!("the body is not UTF-8 at byte {}", error.valid_up_to()),
    })?;
    let mut reading = BatchReading { writer, limits, index: None, rejected: Vec::new(), found: None };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = BatchSeed(&mut reading).deserialize(&mut deserializer).and_then(|()| deserializer.end());
    let BatchReading { index, rejected, found, .. } = reading;
    match (read, found) {
        (_, Some(error)) => Err(error),
        (Err(error), None) => Err(BatchError::Syntax { index, reason: error.to_string() }),
        (Ok(()), None) => Ok(rejected),
    }
}

/// How far the reading of a batch has come.
struct BatchReading<'w> {
    writer: &'w mut LineWriter,
    limits: BatchLimits,
    /// The metric that is being read.
    index: Option<usize>,
    rejected: Vec<Rejected>,
    /// What ended it, where serde's error cannot say it.
    found: Option<BatchError>,
}

impl BatchReading<'_> {
    fn take(&mut self, index: usize, read: Result<(), MetricError>) -> Result<(), ()> {
        let Err(error) = read else { return Ok(()) };
        if let MetricError::NoRoom(limit) = error {
            self.found = Some(BatchError::TooLong(limit));
            return Err(());
        }
        let rejected = Rejected { index, error };
        if self.limits.partial {
            self.rejected.push(rejected);
            return Ok(());
        }
        self.found = Some(BatchError::Metric(rejected));
        Err(())
    }

    /// Ends the reading with `error`.
    fn end<E: serde::de::Error>(&mut self, error: BatchError) -> E {
        self.found = Some(error);
        E::custom("see `found`")
    }
}

struct BatchSeed<'r, 'w>(&'r mut BatchReading<'w>);

impl<'de> DeserializeSeed<'de> for BatchSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for BatchSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with a list of metrics")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_metrics = false;
        while let Some(Name(name)) = map.next_key()? {
            if name != "metrics" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if has_metrics {
                return Err(A::Error::custom("metrics is given twice"));
            }
            has_metrics = true;
            map.next_value_seed(MetricsSeed(self.0))?;
            self.0.index = None;
        }
        if has_metrics { Ok(()) } else { Err(self.0.end(BatchError::NoMetrics)) }
    }
}

struct MetricsSeed<'r, 'w>(&'r mut BatchReading<'w>);

impl<'de> DeserializeSeed<'de> for MetricsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MetricsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of metrics")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let reading = self.0;
        let mut tags = Vec::new();
        for index in 0.. {
            reading.index = Some(index);
            tags.clear();
            let seed = MetricSeed { writer: &mut *reading.writer, tags: &mut tags };
            let Some(read) = list.next_element_seed(seed)? else {
                return if index == 0 { Err(reading.end(BatchError::Empty)) } else { Ok(()) };
            };
            if index == reading.limits.metrics {
                return Err(reading.end(BatchError::TooMany(reading.limits.metrics)));
            }
            if reading.take(index, read).is_err() {
                return Err(A::Error::custom("see `found`"));
            }
        }
        Ok(())
    }
}

/// An object's key, borrowed where nothing in it is escaped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests;
