//! Metrics on their way in: what a client sends, and the line that is kept of it.
//!
//! ```text
//!   JSON, remote write, OTLP, line protocol, StatsD ── a decoder each ──> Metric, borrowed
//!                                                                           │ checked, escaped
//!                                                     LineWriter ── one buffer of whole lines, and a Fact for each
//! ```
//!
//! A decoder hands each metric over as soon as it has read it, so that a batch needs one buffer and no allocation
//! for each metric. The checks are here and not in the decoders: they are the same for everyone.
//!
//! | bound | value | why |
//! |---|---|---|
//! | name | 1 to 255 bytes | the source's |
//! | value | finite; an integer of 64 bits is kept by its digits | JSON has no other numbers |
//! | tags of a metric | 64 | Prometheus' own targets rarely have 40 |
//! | tag name | 1 to 255 bytes | as names |
//! | tag names and values of a metric | 16 KiB | so that a line has a bound |
//! | timestamp | years 0000 to 9999 | RFC 3339 has no others |

pub mod forward;
mod json;
mod kept;
pub mod line_protocol;
mod lines;
mod number;
pub mod otlp;
pub mod remote_write;
pub mod rfc3339;
pub mod statsd;

use thiserror::Error;

pub use json::{BatchError, BatchLimits, Rejected, read_batch};
pub use kept::{KeptLine, read_line};
pub use lines::{Described, Fact, LineWriter, Lines, SeriesLimit, describe};
pub use number::Number;

/// Longest name of a metric or a tag, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Most tags of a metric.
pub const MAX_TAGS: usize = 64;
/// Most bytes of a metric's tags, names and values together.
pub const MAX_TAG_BYTES: usize = 16 << 10;

/// What stands before the name of a sender's tag that is called as one of ours, as Prometheus has it before labels.
const EXPORTED: &str = "exported_";

/// What a metric's value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A reading.
    #[default]
    Gauge,
    /// A sum that only grows.
    Counter,
    /// A part of a distribution.
    Histogram,
    /// A distribution's quantile, sum or count.
    Summary,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gauge, Self::Counter, Self::Histogram, Self::Summary];

    /// The word for it in requests and lines.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }

    /// The kind that `word` names.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// One metric, not yet checked.
#[derive(Clone, Copy, Debug)]
pub struct Metric<'a, T> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: Number,
    /// What the value is.
    pub kind: Kind,
    /// When it was measured, in Unix milliseconds; the time of its arrival if `None`.
    pub millis: Option<i64>,
    /// Names and values of its tags, an iterator.
    pub tags: T,
}

/// Why a metric is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetricError {
    /// A field comes twice, so that two readers could take different ones.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// A field that it must have.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field is something else than it must be.
    #[error("{field} must be {expected}")]
    Type {
        /// Which one.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The name is empty or too long.
    #[error("the name has {0} bytes; 1 to {MAX_NAME_BYTES} are accepted")]
    NameLength(usize),
    /// A text of protobuf is not UTF-8.
    #[error("a name or the value of a tag is not UTF-8")]
    NotText,
    /// The value is infinite or not a number.
    #[error("the value is not finite")]
    NotFinite,
    /// There is no such type.
    #[error("the type must be gauge, counter, histogram or summary")]
    UnknownKind,
    /// A text that is no time.
    #[error("the timestamp must be Unix milliseconds or RFC 3339, as in 2026-11-23T08:00:00Z")]
    Timestamp,
    /// A time that no line can hold.
    #[error("the timestamp is outside the years 0000 to 9999")]
    TimestampRange,
    /// Too many tags.
    #[error("there are more than {MAX_TAGS} tags")]
    TooManyTags,
    /// A tag's name is empty or too long.
    #[error("a tag's name has {0} bytes; 1 to {MAX_NAME_BYTES} are accepted")]
    TagNameLength(usize),
    /// A tag comes twice.
    #[error("a tag is given twice")]
    TagTwice,
    /// The lines of its batch are too long.
    #[error("the lines of the batch have more than {0} bytes")]
    NoRoom(usize),
    /// It is of a series that its client does not have yet, and has no room for.
    #[error("the series is new, and its client has as many as it may have")]
    SeriesLimit,
    /// The tags are too long.
    #[error("the tags have more than {MAX_TAG_BYTES} bytes")]
    TagBytes,
}
