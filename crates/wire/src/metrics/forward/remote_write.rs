//! Requests of Prometheus remote write 1.0, without their snappy.
//!
//! The name is the label `__name__`; tags are labels, and so is the client unless a tag is called so. What names of
//! Prometheus cannot have becomes `_`, as in its own translation of OpenTelemetry; of two tags that become one label the
//! first stays. Labels are sorted by name, as the specification asks for, and empty ones are left out.
//!
//! A series has its samples in the order of their times, whatever the order of its lines, and one for a time: the last that came. Of a
//! request with others Prometheus takes the first of a time and the newest one, drops the rest, and answers that all is well.
//!
//! Prometheus' counters are sums, and a delta as it is would be the value of a counter that jumps about, of which all but one in a
//! millisecond are dropped. So deltas (`temporality="delta"`) are summed up ([`Sums`]), and their series has no such label. The
//! least and the greatest of a delta histogram are no sums, and go as they are.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::super::{KeptLine, Kind, read_line};
use super::Sums;
use super::sums::Added;
use crate::protobuf::Message;

/// A request, and what it has of the lines that it was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The request.
    pub bytes: Vec<u8>,
    /// Its samples.
    pub samples: u64,
    /// Lines that are not in it: a later one of their series has their time and another value.
    pub superseded: u64,
}

/// The request for some lines, whose deltas are added to `sums`. [`Sums::keep`] is for when it was taken.
#[must_use]
pub fn encode<'a>(lines: impl Iterator<Item = &'a [u8]>, sums: &mut Sums) -> Encoded {
    sums.begin();
    let mut all = AllSeries::default();
    let mut superseded = 0;
    for line in lines.filter_map(read_line) {
        let (is_delta, value) = (is_delta(&line), line.value.float());
        let labels = labels(&line, is_delta);
        let number = sums.series(&labels.0);
        let samples = all.samples(number, is_delta, labels);
        if is_delta {
            let (added, sum) = sums.add(number, line.millis, value);
            add_sum(samples, added, sum);
        } else {
            let before = samples.insert(line.millis, value);
            superseded += u64::from(before.is_some_and(|before| before.to_bits() != value.to_bits()));
        }
    }
    let mut request = Message::default();
    let mut count = 0;
    for (mut series, samples) in all.list {
        count += samples.len() as u64;
        for (millis, value) in samples {
            add_sample(&mut series, millis, value);
        }
        request.bytes(1, &series.0);
    }
    Encoded { bytes: request.0, samples: count, superseded }
}

/// The samples of a series, by their times.
type SeriesSamples = BTreeMap<i64, f64>;

/// The series of a request in the order in which they came, each without its samples and with them.
#[derive(Default)]
struct AllSeries {
    list: Vec<(Message, SeriesSamples)>,
    /// Where a series is in the list, by its number and whether it is of deltas.
    places: HashMap<(u64, bool), usize>,
}

impl AllSeries {
    fn samples(&mut self, number: u64, is_delta: bool, labels: Message) -> &mut SeriesSamples {
        let place = match self.places.entry((number, is_delta)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.list.push((labels, SeriesSamples::new()));
                *new.insert(self.list.len() - 1)
            }
        };
        &mut self.list[place].1
    }
}

fn add_sum(samples: &mut SeriesSamples, added: Added, sum: f64) {
    match added {
        Added::First([zero, at]) => samples.extend([(zero, 0.0), (at, sum)]),
        Added::Sample(at) => samples.extend([(at, sum)]),
        Added::Same => {
            if let Some(mut last) = samples.last_entry() {
                *last.get_mut() = sum;
            }
        }
    }
}

const TEMPORALITY: &str = "temporality";

/// Whether a line's value is what was added since the last one.
fn is_delta(line: &KeptLine<'_>) -> bool {
    let is_extreme =
        line.kind == Kind::Histogram && ["_min", "_max"].iter().any(|it| line.name.ends_with(it));
    line.tag(TEMPORALITY) == Some("delta") && !is_extreme
}

fn add_sample(series: &mut Message, millis: i64, value: f64) {
    let mut sample = Message::default();
    sample.double(1, value);
    sample.unsigned(2, millis.cast_unsigned());
    series.bytes(2, &sample.0);
}

/// A series without samples.
fn labels(line: &KeptLine<'_>, is_delta: bool) -> Message {
    let name = plain(&line.name, b"_:");
    let mut labels: Vec<(String, &str)> = vec![("__name__".to_owned(), &name)];
    let tags = line.tags.iter().filter(|(name, _)| !(is_delta && name == TEMPORALITY));
    let tags = tags.map(|(name, value)| (plain(name, b"_"), &**value));
    let client = [("client".to_owned(), &*line.client)];
    for (name, value) in tags.chain(client) {
        if !value.is_empty() && labels.iter().all(|(other, _)| *other != name) {
            labels.push((name, value));
        }
    }
    labels.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut series = Message::default();
    for (name, value) in &labels {
        let mut label = Message::default();
        label.bytes(1, name.as_bytes());
        label.bytes(2, value.as_bytes());
        series.bytes(1, &label.0);
    }
    series
}

/// A name of letters, digits and `more`, not beginning with a digit.
fn plain(name: &str, more: &[u8]) -> String {
    let digit = name.starts_with(|first: char| first.is_ascii_digit()).then_some('_');
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it.is_ascii() && more.contains(&(it as u8));
    digit.into_iter().chain(name.chars().map(|it| if is_plain(it) { it } else { '_' })).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::metrics::remote_write::{Version, read_request};
    use crate::metrics::{Kind, LineWriter, Metric};

    /// What comes back when a line is sent to an intake.
    fn round(name: &str, value: f64, millis: i64, tags: &[(&str, &str)]) -> Value {
        let mut writer = LineWriter::new("web", 0, usize::MAX);
        let tags = tags.iter().copied();
        writer
            .write(&Metric { name, value: value.into(), kind: Kind::Gauge, millis: Some(millis), tags })
            .unwrap();
        let request = encode([&*writer.finish().bytes].into_iter(), &mut sums()).bytes;
        let mut writer = LineWriter::new("again", 0, usize::MAX);
        let counts = read_request(Version::V1, &request, &mut writer).unwrap();
        assert_eq!((counts.samples, counts.rejected), (1, 0));
        serde_json::from_slice(&writer.finish().bytes).unwrap()
    }

    #[test]
    fn names_and_labels_are_those_of_prometheus() {
        let line = round(
            "cpu.usage",
            81.5,
            1_795_420_800_000,
            &[("host.name", "a"), ("zone", ""), ("9", "x"), ("host_name", "b")],
        );
        assert_eq!(
            line,
            json!({"timestamp": "2026-11-23T08:00:00.000Z", "name": "cpu_usage", "value": 81.5, "type": "gauge",
                   "tags": {"_9": "x", "client": "web", "host_name": "a"}, "client": "again"})
        );
        assert_eq!(
            round("a:b", -0.0, -1, &[("client", "own"), ("__name__", "no")])["tags"],
            json!({"client": "own"})
        );
    }

    #[test]
    fn what_is_no_line_is_left_out() {
        let none = encode([b"{}".as_slice(), b"", b"torn"].into_iter(), &mut sums());
        assert_eq!(none, Encoded::default());
    }

    fn sums() -> Sums {
        Sums::new(std::hash::RandomState::new())
    }

    /// The lines that another intake makes of some lines, and how many of these are not in the request.
    fn sent(lines: &[(&str, f64, i64)]) -> (Vec<(String, f64, i64)>, u64) {
        let mut writer = LineWriter::new("web", 0, usize::MAX);
        for &(name, value, millis) in lines {
            let (value, millis, tags) = (value.into(), Some(millis), std::iter::empty());
            writer.write(&Metric { name, value, kind: Kind::Gauge, millis, tags }).unwrap();
        }
        let lines = writer.finish().bytes;
        let encoded = encode(lines.split_inclusive(|byte| *byte == b'\n'), &mut sums());
        let mut writer = LineWriter::new("again", 0, usize::MAX);
        let read = read_request(Version::V1, &encoded.bytes, &mut writer).unwrap();
        assert_eq!(read.samples as u64, encoded.samples);
        let came = writer.finish().bytes;
        let read = |line| {
            let line = read_line(line).unwrap();
            (line.name.to_string(), line.value.float(), line.millis)
        };
        (came.split_inclusive(|byte| *byte == b'\n').map(read).collect(), encoded.superseded)
    }

    #[test]
    fn a_series_has_its_samples_in_the_order_of_their_times_and_one_for_a_time() {
        let lines = [("a", 1.0, 30), ("b", 2.0, 10), ("a", 3.0, 20), ("a", 4.0, 30), ("a", 3.0, 20)];
        let expected = [("a", 3.0, 20), ("a", 4.0, 30), ("b", 2.0, 10)];
        let expected = expected.map(|(name, value, millis)| (name.to_owned(), value, millis));
        assert_eq!(sent(&lines), (expected.to_vec(), 1), "that of 20 came again as it was");
    }

    #[test]
    fn deltas_become_sums_that_begin_at_zero() {
        let delta = [("temporality", "delta"), ("host", "a")];
        let mut writer = LineWriter::new("web", 0, usize::MAX);
        for (name, kind, value, millis) in [
            ("hits", Kind::Counter, 3.0, 100),
            ("wait_max", Kind::Histogram, 9.0, 100),
            ("hits", Kind::Counter, 2.0, 100),
            ("wait_count", Kind::Histogram, 7.0, 100),
            ("hits", Kind::Counter, 4.0, 200),
        ] {
            let (value, millis, tags) = (value.into(), Some(millis), delta.into_iter());
            writer.write(&Metric { name, value, kind, millis, tags }).unwrap();
        }
        let sent = writer.finish().bytes;
        let mut sums = sums();
        for (is_taken, hits) in [(false, [0.0, 5.0, 9.0]), (true, [0.0, 5.0, 9.0])] {
            let request = encode(sent.split_inclusive(|byte| *byte == b'\n'), &mut sums).bytes;
            let mut writer = LineWriter::new("again", 0, usize::MAX);
            assert_eq!(read_request(Version::V1, &request, &mut writer).unwrap().rejected, 0);
            let came = writer.finish().bytes;
            let came: Vec<Value> = came
                .split_inclusive(|byte| *byte == b'\n')
                .map(|line| serde_json::from_slice(line).unwrap())
                .collect();
            let of = |name: &str| -> Vec<f64> {
                came.iter()
                    .filter(|line| line["name"] == name)
                    .map(|line| line["value"].as_f64().unwrap())
                    .collect()
            };
            assert_eq!(of("hits"), hits);
            assert_eq!((of("wait_count"), of("wait_max")), (vec![0.0, 7.0], vec![9.0]));
            let tags = |name: &str| came.iter().find(|line| line["name"] == name).unwrap()["tags"].clone();
            assert_eq!(tags("hits"), json!({"client": "web", "host": "a"}));
            assert_eq!(tags("wait_max")["temporality"], "delta");
            if is_taken {
                sums.keep();
            }
        }
        let line = sent.split_inclusive(|byte| *byte == b'\n').next();
        let request = encode(line.into_iter(), &mut sums).bytes;
        let mut writer = LineWriter::new("again", 0, usize::MAX);
        read_request(Version::V1, &request, &mut writer).unwrap();
        let late: Value = serde_json::from_slice(&writer.finish().bytes).unwrap();
        assert_eq!((&late["value"], &late["timestamp"]), (&json!(12.0), &json!("1970-01-01T00:00:00.201Z")));
    }

    proptest! {
        #[test]
        fn an_intake_takes_what_is_sent(
            name in "\\PC{1,30}",
            value in any::<f64>().prop_filter("lines have none", |value| value.is_finite()),
            millis in 0i64..4_000_000_000_000,
            tags in proptest::collection::btree_map("\\PC{1,9}", ".{0,9}", 0..5),
        ) {
            let tags: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (&**name, &**value)).collect();
            let line = round(&name, value, millis, &tags);
            prop_assert_eq!(line["value"].as_f64().unwrap().to_bits(), value.to_bits());
        }
    }
}
