//! InfluxDB's line protocol: `measurement,tag=value field=1,other=2i 1795420800000000000`.
//!
//! Each field is a metric of its own, `measurement.field`; a field called `value` has the measurement's name. Numbers
//! and booleans (1 and 0) become lines, texts cannot and are counted. A line that is not acceptable is left out
//! whole, and the others are kept, as InfluxDB does it.
//!
//! Follows <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>:
//!
//! | in | escaped by a backslash |
//! |---|---|
//! | measurement | comma, space |
//! | tag's name and value, field's name | comma, equals sign, space |
//! | text between quotes | quote, backslash |
//!
//! A backslash before anything else is itself. A line feed in a text, or behind a backslash, ends no line, as InfluxDB has it:
//! whoever can write a log message could otherwise write a point of any name behind it. A text without an end takes the rest
//! of the request along.

use std::borrow::Cow;

use thiserror::Error;

use super::{Kind, LineWriter, MAX_TAGS, Metric, MetricError, Number};

/// The unit of timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Billionths of a second.
    Nanoseconds,
    /// Millionths.
    Microseconds,
    /// Thousandths.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes, which version 1 has.
    Minutes,
    /// Hours, which version 1 has.
    Hours,
}

impl Precision {
    /// What the parameter `precision` names, in either version.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Some(match word {
            "n" | "ns" => Self::Nanoseconds,
            "u" | "us" | "\u{b5}" => Self::Microseconds,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            _ => return None,
        })
    }

    fn millis(self, time: i64) -> i64 {
        match self {
            Self::Nanoseconds => time.div_euclid(1_000_000),
            Self::Microseconds => time.div_euclid(1_000),
            Self::Milliseconds => time,
            Self::Seconds => time.saturating_mul(1_000),
            Self::Minutes => time.saturating_mul(60_000),
            Self::Hours => time.saturating_mul(3_600_000),
        }
    }
}

/// What became of a request's lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointCounts {
    /// Numbers that became lines.
    pub fields: usize,
    /// Fields that are texts.
    pub texts: usize,
    /// Lines that were not acceptable.
    pub rejected: usize,
    /// The first of these, counted from 1, and why.
    pub error: Option<(usize, PointError)>,
}

/// Why a line is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PointError {
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// A part is missing or has another form.
    #[error("{0}")]
    Syntax(&'static str),
    /// A field or a tag is out of bounds.
    #[error(transparent)]
    Metric(#[from] MetricError),
}

/// Why nothing of a request is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the lines of the request have more than {0} bytes")]
pub struct TooLong(pub usize);

/// Writes a line for each number in `body`.
///
/// # Errors
/// When nothing of the request is to be kept. What `writer` holds then is of no use.
pub fn read_points(
    body: &[u8],
    precision: Precision,
    writer: &mut LineWriter,
) -> Result<PointCounts, TooLong> {
    let mut counts = PointCounts::default();
    let mut name = String::new();
    let mut tags = Vec::with_capacity(MAX_TAGS);
    for (place, line) in (PointLines { rest: body, place: 0 }) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        tags.clear();
        let (mark, before) = (writer.mark(), (counts.fields, counts.texts));
        let mut point = PointReader { rest: "", precision, writer, name: &mut name, counts: &mut counts };
        match point.read(line, &mut tags) {
            Ok(()) => {}
            Err(PointError::Metric(MetricError::NoRoom(limit))) => return Err(TooLong(limit)),
            Err(error) => {
                writer.cut(mark);
                (counts.fields, counts.texts) = before;
                counts.rejected += 1;
                counts.error.get_or_insert((place + 1, error));
            }
        }
    }
    Ok(counts)
}

/// The lines of a request, each with how many line feeds stand before it.
struct PointLines<'b> {
    rest: &'b [u8],
    place: usize,
}

impl<'b> Iterator for PointLines<'b> {
    type Item = (usize, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (line, rest) = self.rest.split_at(length_of_line(self.rest));
        let place = self.place;
        self.place += 1 + line.iter().filter(|byte| **byte == b'\n').count();
        self.rest = rest.strip_prefix(b"\n").unwrap_or_default();
        Some((place, line))
    }
}

/// Bytes up to the line feed that ends the first line. A quote begins a text only where a field's value does: behind the
/// first space, and where more equals signs than commas have come.
fn length_of_line(bytes: &[u8]) -> usize {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    if memchr::memchr2(b'"', b'\\', &bytes[..end]).is_none() {
        return end;
    }
    let (mut at, mut is_text, mut is_behind_space, mut is_value) = (0, false, false, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' if is_behind_space && is_value => is_text = !is_text,
            _ if is_text => {}
            b'\n' => return at,
            b' ' => is_behind_space = true,
            b'=' => is_value = is_behind_space,
            b',' => is_value = false,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

type PointTags<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

struct PointReader<'a, 'w> {
    rest: &'a str,
    precision: Precision,
    writer: &'w mut LineWriter,
    /// The name of the line that is being written; kept for the next one's.
    name: &'w mut String,
    counts: &'w mut PointCounts,
}

const NO_FIELD: PointError =
    PointError::Syntax("a field is missing: measurement,tag=value field=1 timestamp");

impl<'a> PointReader<'a, '_> {
    fn read(&mut self, line: &'a [u8], tags: &mut PointTags<'a>) -> Result<(), PointError> {
        self.rest = std::str::from_utf8(line).map_err(|_| PointError::NotText)?;
        let measurement = self.take(b", ");
        if measurement.is_empty() {
            return Err(PointError::Syntax("the measurement is missing"));
        }
        while let Some(rest) = self.rest.strip_prefix(',') {
            self.rest = rest;
            let name = self.take(b",= ");
            let value = self.equals().ok_or(PointError::Syntax("a tag has no value"))?.take(b", ");
            if tags.len() == MAX_TAGS {
                return Err(MetricError::TooManyTags.into());
            }
            tags.push((name, value));
        }
        self.rest = self.rest.strip_prefix(' ').ok_or(NO_FIELD)?.trim_start_matches(' ');
        // The time stands last, so the fields are read twice: for where they end, and to be written.
        let fields = self.rest;
        self.skip_fields()?;
        let time = self.rest.trim();
        let millis = match time {
            "" => None,
            digits => {
                let time = digits.parse().map_err(|_| PointError::Syntax("the timestamp is no integer"))?;
                Some(self.precision.millis(time))
            }
        };
        self.rest = fields;
        self.write_fields(&measurement, tags, millis)
    }

    fn skip_fields(&mut self) -> Result<(), PointError> {
        loop {
            self.take(b",= ");
            self.equals().ok_or(NO_FIELD)?.take_value()?;
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => return Ok(()),
            }
        }
    }

    fn write_fields(
        &mut self,
        measurement: &str,
        tags: &PointTags<'a>,
        millis: Option<i64>,
    ) -> Result<(), PointError> {
        loop {
            let field = self.take(b",= ");
            let value = self.equals().ok_or(NO_FIELD)?.take_value()?;
            if field.is_empty() {
                return Err(PointError::Syntax("a field has no name"));
            }
            match number(value)? {
                None => self.counts.texts += 1,
                Some(value) => {
                    self.name.clear();
                    self.name.push_str(measurement);
                    if field != "value" {
                        self.name.push('.');
                        self.name.push_str(&field);
                    }
                    let tags = tags.iter().map(|(name, value)| (&**name, &**value));
                    let kind = Kind::Gauge;
                    self.writer.write(&Metric { name: self.name, value, kind, millis, tags })?;
                    self.counts.fields += 1;
                }
            }
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => return Ok(()),
            }
        }
    }

    fn equals(&mut self) -> Option<&mut Self> {
        self.rest = self.rest.strip_prefix('=')?;
        Some(self)
    }

    /// The text up to one of `ends`, which are ASCII, without its escapes.
    fn take(&mut self, ends: &[u8]) -> Cow<'a, str> {
        let bytes = self.rest.as_bytes();
        let (mut at, mut is_escaped) = (0, false);
        while let Some(byte) = bytes.get(at) {
            if *byte == b'\\' && bytes.get(at + 1).is_some_and(|next| b",= ".contains(next)) {
                is_escaped = true;
                at += 2;
            } else if ends.contains(byte) {
                break;
            } else {
                at += 1;
            }
        }
        let (text, rest) = self.rest.split_at(at);
        self.rest = rest;
        if is_escaped { Cow::Owned(unescaped(text, ",= ")) } else { Cow::Borrowed(text) }
    }

    /// A field's value as it is written.
    fn take_value(&mut self) -> Result<&'a str, PointError> {
        let bytes = self.rest.as_bytes();
        let mut at = 0;
        if bytes.first() == Some(&b'"') {
            at = 1;
            loop {
                match bytes.get(at) {
                    None => return Err(PointError::Syntax("a text has no end")),
                    Some(b'\\') => at += 2,
                    Some(b'"') => break,
                    Some(_) => at += 1,
                }
            }
            at += 1;
        } else {
            at += bytes.iter().take_while(|byte| **byte != b',' && **byte != b' ').count();
        }
        // A quote, a comma and a space are no part of a longer character.
        let (value, rest) = self.rest.split_at(at);
        self.rest = rest;
        let is_at_an_end = rest.is_empty() || rest.starts_with([',', ' ']);
        if is_at_an_end { Ok(value) } else { Err(PointError::Syntax("there is something behind a text")) }
    }
}

fn unescaped(text: &str, escapable: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match characters.peek() {
            Some(next) if character == '\\' && escapable.contains(*next) => {
                plain.push(*next);
                characters.next();
            }
            _ => plain.push(character),
        }
    }
    plain
}

/// The number that a field's value is; `None` if it is a text.
fn number(value: &str) -> Result<Option<Number>, PointError> {
    const NO_VALUE: PointError = PointError::Syntax("a field's value is no number, boolean or text");
    let first = *value.as_bytes().first().ok_or(NO_VALUE)?;
    match (first, value) {
        (b'"', _) => Ok(None),
        (_, "t" | "T" | "true" | "True" | "TRUE") => Ok(Some(Number::Float(1.0))),
        (_, "f" | "F" | "false" | "False" | "FALSE") => Ok(Some(Number::Float(0.0))),
        (b'0'..=b'9' | b'+' | b'-' | b'.', _) => {
            let read = match value.as_bytes().last() {
                Some(b'i') => value[..value.len() - 1].parse::<i64>().ok().map(Number::from),
                Some(b'u') => value[..value.len() - 1].parse::<u64>().ok().map(Number::from),
                _ => value.parse().ok().map(Number::Float),
            };
            read.map(Some).ok_or(NO_VALUE)
        }
        _ => Err(NO_VALUE),
    }
}

#[cfg(test)]
mod tests;
