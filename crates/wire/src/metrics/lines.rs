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
use std::ops::Range;

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

/// Writes the lines of one client's metrics.
#[derive(Debug)]
pub struct LineWriter {
    lines: Lines,
    limit: usize,
    arrival: i64,
    /// From the end of the tags to the end of the line.
    ending: Vec<u8>,
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
        Self { lines: Lines::default(), limit, arrival, ending }
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
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn metric<'a>(
        name: &'a str,
        value: f64,
        tags: &'a [(&'a str, &'a str)],
    ) -> Metric<'a, impl Iterator<Item = (&'a str, &'a str)> + Clone> {
        Metric { name, value, kind: Kind::Gauge, millis: Some(0), tags: tags.iter().copied() }
    }

    #[test]
    fn a_line_is_what_the_header_shows() {
        let mut writer = LineWriter::new("web", 1_795_420_800_000, usize::MAX);
        let tags = [("host", "a")].into_iter();
        writer
            .write(&Metric { name: "cpu.usage", value: 81.5, kind: Kind::Gauge, millis: None, tags })
            .unwrap();
        let lines = writer.finish();
        assert_eq!(
            String::from_utf8(lines.bytes.clone()).unwrap(),
            "{\"timestamp\":\"2026-11-23T08:00:00.000Z\",\"name\":\"cpu.usage\",\"value\":81.5,\"type\":\"gauge\",\
             \"tags\":{\"host\":\"a\"},\"client\":\"web\"}\n"
        );
        assert_eq!(lines.name(&lines.facts[0]), "cpu.usage");
    }

    #[test]
    fn what_is_not_acceptable_leaves_no_byte() {
        let (long, many) = ("n".repeat(MAX_NAME_BYTES + 1), vec![("a", "b"); MAX_TAGS + 1]);
        let distinct: Vec<String> = (0..=MAX_TAGS).map(|number| number.to_string()).collect();
        let distinct: Vec<(&str, &str)> = distinct.iter().map(|name| (name.as_str(), "")).collect();
        let heavy = "v".repeat(MAX_TAG_BYTES);
        let heavy = [("tag", heavy.as_str())];
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        for (metric, error) in [
            (metric("", 1.0, &[]), MetricError::NameLength(0)),
            (metric(&long, 1.0, &[]), MetricError::NameLength(256)),
            (metric("n", f64::NAN, &[]), MetricError::NotFinite),
            (metric("n", f64::NEG_INFINITY, &[]), MetricError::NotFinite),
            (metric("n", 1.0, &many), MetricError::TagTwice),
            (metric("n", 1.0, &distinct), MetricError::TooManyTags),
            (metric("n", 1.0, &[("", "v")]), MetricError::TagNameLength(0)),
            (metric("n", 1.0, &heavy), MetricError::TagBytes),
        ] {
            assert_eq!(writer.write(&metric), Err(error));
        }
        let early = Metric { millis: Some(i64::MIN), ..metric("n", 1.0, &[]) };
        assert_eq!(writer.write(&early), Err(MetricError::TimestampRange));
        assert_eq!(writer.finish(), Lines::default());
    }

    #[test]
    fn a_writer_has_a_bound() {
        let mut writer = LineWriter::new("c", 0, 250);
        for _ in 0..3 {
            writer.write(&metric("n", 1.0, &[])).unwrap();
        }
        assert_eq!(writer.write(&metric("n", 1.0, &[])), Err(MetricError::NoRoom(250)));
    }

    #[test]
    fn fault_26_a_torn_line_is_not_taken_for_a_whole_one() {
        let mut writer = LineWriter::new("}\"}", 0, usize::MAX);
        writer.write(&metric("a\"}b", 1e-300, &[("c}", "d}"), ("e", "\"}")])).unwrap();
        let line = writer.finish().bytes;
        assert_eq!(describe(&line), Some(Described { name: "a\"}b".into(), millis: 0 }));
        for end in 0..line.len() - 1 {
            assert_eq!(describe(&line[..end]), None, "cut after {end} bytes");
        }
        for hole in 0..line.len() - 1 {
            let mut torn = line.clone();
            torn[hole] = 0;
            assert_eq!(describe(&torn), None, "a zero at {hole}");
        }
        for other in [&b"{}\n"[..], b"", b"}", b"{\"timestamp\":\"\",\"name\":\"x\"}"] {
            assert_eq!(describe(other), None);
        }
    }

    proptest! {
        #[test]
        fn every_line_is_json_that_says_what_was_sent(
            name in "\\PC{1,60}|[\\x00-\\x1f\"\\\\]{1,9}",
            value in any::<f64>().prop_filter("JSON has no others", |value| value.is_finite()),
            millis in rfc3339::FIRST..=rfc3339::LAST,
            tags in proptest::collection::btree_map("[\\x00-\\x7f]{1,9}", "\\PC{0,20}", 0..5),
            client in "\\PC{0,20}",
        ) {
            let pairs: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let mut writer = LineWriter::new(&client, 0, usize::MAX);
            for kind in Kind::ALL {
                let tags = pairs.iter().copied();
                writer.write(&Metric { name: &name, value, kind, millis: Some(millis), tags }).unwrap();
            }
            let lines = writer.finish();
            let text = String::from_utf8(lines.bytes.clone()).unwrap();
            prop_assert_eq!(text.lines().count(), 4);
            for ((line, fact), kind) in text.split_inclusive('\n').zip(&lines.facts).zip(Kind::ALL) {
                let read: Value = serde_json::from_str(line).unwrap();
                prop_assert_eq!(&read["name"], &name);
                let digits = line.split_once("\"value\":").unwrap().1.split_once(",\"type\"").unwrap().0;
                prop_assert_eq!(digits.parse::<f64>().unwrap(), value);
                prop_assert_eq!(&read["type"], kind.word());
                prop_assert_eq!(&read["client"], &client);
                prop_assert_eq!(read["tags"].as_object().unwrap().len(), tags.len());
                for (name, value) in &tags {
                    prop_assert_eq!(&read["tags"][name], value);
                }
                let described = describe(line.as_bytes()).unwrap();
                prop_assert_eq!(&described.name, &name);
                prop_assert_eq!(&lines.name(fact), &name);
                prop_assert_eq!((described.millis, fact.millis, fact.length), (millis, millis, line.len()));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let begun = [BEFORE_TIME, b"2026-11-23T08:00:00.000Z".as_slice(), BEFORE_NAME, &bytes].concat();
            let _described = (describe(&bytes), describe(&begun));
        }
    }
}
