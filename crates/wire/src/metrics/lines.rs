//! The line that is kept of a metric.
//!
//! ```text
//!   {"timestamp":"2026-11-23T08:00:00.000Z","name":"cpu.usage","value":81.5,"type":"gauge","tags":{"host":"a"},"client":"web"}
//! ```
//!
//! One JSON object to a line, ended by a line feed, its fields in this order and without blanks. So any tool reads
//! it, and [`describe`] tells a whole one from a torn one without a parser of JSON. Times have UTC, milliseconds and
//! a fixed length, so lines of one name sort as their times do.
//!
//! The writer checks each metric before it writes a byte of it.

use std::borrow::Cow;
use std::fmt::Debug;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::{Kind, MAX_NAME_BYTES, MAX_TAG_BYTES, MAX_TAGS, Metric, MetricError, rfc3339};

const BEFORE_TIME: &[u8] = b"{\"timestamp\":\"";
const BEFORE_NAME: &[u8] = b"\",\"name\":\"";
/// Where the name begins in a line.
const NAME_AT: usize = BEFORE_TIME.len() + rfc3339::LENGTH + BEFORE_NAME.len();

/// What an index needs to know of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Where its name stands in the bytes of [`Lines`]: see [`Lines::name`].
    name: Range<usize>,
    /// Its length in bytes, with the line feed.
    pub length: usize,
    /// Its time in Unix milliseconds.
    pub millis: i64,
}

/// Whole lines, each ended by a line feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The lines.
    pub bytes: Vec<u8>,
    /// One for each line, in order.
    pub facts: Vec<Fact>,
    /// The digest of each line's series, in order; none unless the writer was asked for them.
    pub series: Vec<u64>,
}

impl Lines {
    /// The name of one of these lines.
    #[must_use]
    pub fn name(&self, fact: &Fact) -> Cow<'_, str> {
        // Invariant: the writer has put a string there.
        self.bytes.get(fact.name.clone()).and_then(unescaped).unwrap_or_default()
    }
}

/// Name and time of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its time in Unix milliseconds.
    pub millis: i64,
}

/// The end of the lines at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    bytes: usize,
    facts: usize,
}

/// Says which series a client may have.
pub trait SeriesLimit: Debug + Send + Sync {
    /// Whether a line of this name and these tags, in any order, may be kept.
    fn admits<'m>(&self, name: &str, tags: &mut dyn Iterator<Item = (&'m str, &'m str)>) -> bool;
}

/// Writes the lines of one client's metrics.
#[derive(Debug)]
pub struct LineWriter {
    lines: Lines,
    limit: usize,
    arrival: i64,
    /// From the end of the tags to the end of the line.
    ending: Vec<u8>,
    limits: Option<Arc<dyn SeriesLimit>>,
    digests: bool,
}

impl LineWriter {
    /// A writer for the metrics that `client` sent and that came at `arrival`, in Unix milliseconds. It writes no
    /// line that begins beyond `limit` bytes: in some protocols a few bytes stand for a long line.
    #[must_use]
    pub fn new(client: &str, arrival: i64, limit: usize) -> Self {
        let mut ending = b"},\"client\":".to_vec();
        string(&mut ending, client);
        ending.extend_from_slice(b"}\n");
        let arrival = arrival.clamp(rfc3339::FIRST, rfc3339::LAST);
        Self { lines: Lines::default(), limit, arrival, ending, limits: None, digests: false }
    }

    /// The same, for lines of those series only that `limit` admits.
    #[must_use]
    pub fn limited(self, limit: Option<Arc<dyn SeriesLimit>>) -> Self {
        Self { limits: limit, ..self }
    }

    /// The same, which also fills [`Lines::series`] if `digests` is set.
    #[must_use]
    pub fn with_series(self, digests: bool) -> Self {
        Self { digests, ..self }
    }

    /// Makes room for a batch of `metrics` whose request has `bytes` bytes.
    pub fn reserve(&mut self, metrics: usize, bytes: usize) {
        self.lines.facts.reserve(metrics);
        self.lines.bytes.reserve(bytes + metrics * self.ending.len());
    }

    /// Writes the line of `metric`.
    ///
    /// # Errors
    /// When the metric is not acceptable; nothing is written then.
    pub fn write<'m, T>(&mut self, metric: &Metric<'_, T>) -> Result<(), MetricError>
    where
        T: Iterator<Item = (&'m str, &'m str)> + Clone,
    {
        if self.lines.bytes.len() > self.limit {
            return Err(MetricError::NoRoom(self.limit));
        }
        let millis = metric.millis.unwrap_or(self.arrival);
        let time = rfc3339::format(millis).ok_or(MetricError::TimestampRange)?;
        if !(1..=MAX_NAME_BYTES).contains(&metric.name.len()) {
            return Err(MetricError::NameLength(metric.name.len()));
        }
        if !metric.value.is_finite() {
            return Err(MetricError::NotFinite);
        }
        check_tags(metric.tags.clone())?;
        if self.limits.as_ref().is_some_and(|limit| !limit.admits(metric.name, &mut metric.tags.clone())) {
            return Err(MetricError::SeriesLimit);
        }

        let bytes = &mut self.lines.bytes;
        let start = bytes.len();
        let name = start + NAME_AT;
        bytes.extend_from_slice(BEFORE_TIME);
        bytes.extend_from_slice(&time);
        bytes.extend_from_slice(&BEFORE_NAME[..BEFORE_NAME.len() - 1]);
        string(bytes, metric.name);
        let name = name..bytes.len() - 1;
        bytes.extend_from_slice(b",\"value\":");
        // Invariant: a vector takes all bytes, and a finite number is written.
        serde_json::to_writer(&mut *bytes, &metric.value).unwrap_or_default();
        bytes.extend_from_slice(kind_field(metric.kind));
        for (place, (name, value)) in metric.tags.clone().enumerate() {
            if place > 0 {
                bytes.push(b',');
            }
            string(bytes, name);
            bytes.push(b':');
            string(bytes, value);
        }
        bytes.extend_from_slice(&self.ending);
        self.lines.facts.push(Fact { name, length: bytes.len() - start, millis });
        if self.digests {
            self.lines.series.push(series_digest(metric.name, metric.tags.clone()));
        }
        Ok(())
    }

    /// Where the lines end now, for [`Self::cut`].
    pub(super) fn mark(&self) -> Mark {
        Mark { bytes: self.lines.bytes.len(), facts: self.lines.facts.len() }
    }

    /// Takes back the lines that were written since `mark`.
    pub(super) fn cut(&mut self, mark: Mark) {
        self.lines.bytes.truncate(mark.bytes);
        self.lines.facts.truncate(mark.facts);
        self.lines.series.truncate(mark.facts);
    }

    /// How many lines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lines.facts.len()
    }

    /// The lines.
    #[must_use]
    pub fn finish(self) -> Lines {
        self.lines
    }
}

/// A number that is the same for this name with these tags, in any order, in every process and version: partitions
/// are chosen by it.
fn series_digest<'m>(name: &str, tags: impl Iterator<Item = (&'m str, &'m str)>) -> u64 {
    let digest = |name: &str, value: &str| {
        let mut hasher = SipHasher13::new();
        for text in [name, value] {
            hasher.write(&(text.len() as u64).to_le_bytes());
            hasher.write(text.as_bytes());
        }
        hasher.finish()
    };
    // No tag has an empty name. The sum is the same for any order of the tags.
    tags.fold(digest("", name), |sum, (name, value)| sum.wrapping_add(digest(name, value)))
}

fn check_tags<'m>(tags: impl Iterator<Item = (&'m str, &'m str)> + Clone) -> Result<(), MetricError> {
    let mut bytes = 0;
    for (place, (name, value)) in tags.clone().enumerate() {
        if place == MAX_TAGS {
            return Err(MetricError::TooManyTags);
        }
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            return Err(MetricError::TagNameLength(name.len()));
        }
        bytes += name.len() + value.len();
        if bytes > MAX_TAG_BYTES {
            return Err(MetricError::TagBytes);
        }
        // At most 64 of them, and three as a rule.
        if tags.clone().take(place).any(|(other, _)| other == name) {
            return Err(MetricError::TagTwice);
        }
    }
    Ok(())
}

const fn kind_field(kind: Kind) -> &'static [u8] {
    match kind {
        Kind::Gauge => b",\"type\":\"gauge\",\"tags\":{",
        Kind::Counter => b",\"type\":\"counter\",\"tags\":{",
        Kind::Histogram => b",\"type\":\"histogram\",\"tags\":{",
        Kind::Summary => b",\"type\":\"summary\",\"tags\":{",
    }
}

/// Writes a JSON string with its quotes.
fn string(bytes: &mut Vec<u8>, text: &str) {
    // Invariant: a vector takes all bytes, and every text can be written.
    serde_json::to_writer(bytes, text).unwrap_or_default();
}

/// Time and name of a line that a [`LineWriter`] wrote, with or without its line feed. `None` for any other bytes: for
/// a line that was cut anywhere, and for one that has bytes in it which no text has.
#[must_use]
pub fn describe(line: &[u8]) -> Option<Described<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if line.iter().any(|byte| *byte < b' ') || std::str::from_utf8(line).is_err() {
        return None;
    }
    let (time, rest) = line.strip_prefix(BEFORE_TIME)?.split_at_checked(rfc3339::LENGTH)?;
    let millis = rfc3339::parse(std::str::from_utf8(time).ok()?)?;
    let (name, rest) = rest_of_string(rest.strip_prefix(BEFORE_NAME)?)?;
    let rest = rest.strip_prefix(b",\"value\":")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte)).count();
    let rest = rest[digits..].strip_prefix(b",\"type\":\"")?;
    let (kind, rest) = rest_of_string(rest)?;
    let is_known = digits > 0 && Kind::ALL.iter().any(|it| it.word().as_bytes() == kind);
    let rest = rest_of_tags(rest.strip_prefix(b",\"tags\":{").filter(|_| is_known)?)?;
    let (_, rest) = rest_of_string(rest.strip_prefix(b",\"client\":\"")?)?;
    let name = unescaped(name).filter(|name| rest == b"}" && !name.is_empty())?;
    Some(Described { name, millis })
}

/// What follows the brace that ends tags.
fn rest_of_tags(mut rest: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = rest.strip_prefix(b"}") {
        return Some(rest);
    }
    loop {
        let (_, value) = rest_of_string(rest.strip_prefix(b"\"")?)?;
        let (_, after) = rest_of_string(value.strip_prefix(b":\"")?)?;
        match after.split_first()? {
            (b',', next) => rest = next,
            (b'}', after) => return Some(after),
            _ => return None,
        }
    }
}

/// What is between the quotes of a JSON string whose first quote was read, and what follows the other one.
fn rest_of_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut from = 0;
    loop {
        let found = from + memchr::memchr2(b'"', b'\\', bytes.get(from..)?)?;
        if bytes[found] == b'"' {
            return Some((&bytes[..found], &bytes[found + 1..]));
        }
        from = found + 2;
    }
}

/// The text of a JSON string that stands between its quotes.
fn unescaped(inner: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    let quoted = [b"\"", inner, b"\""].concat();
    serde_json::from_slice(&quoted).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests;
