//! Requests of Prometheus remote write 1.0, without their snappy.
//!
//! The name is the label `__name__`; tags are labels, and so is the client unless a tag is called so. What names of
//! Prometheus cannot have becomes `_`, as in its own translation of OpenTelemetry; of two tags that become one label the
//! first stays. Labels are sorted by name, as the specification asks for, and empty ones are left out.
//!
//! Prometheus' counters are sums, and a delta as it is would be the value of a counter that jumps about, of which all but one in a
//! millisecond are dropped. So deltas (`temporality="delta"`) are summed up ([`Sums`]), and their series has no such label. The
//! least and the greatest of a delta histogram are no sums, and go as they are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::{KeptLine, Kind, read_line};
use super::Sums;
use super::sums::Added;
use crate::protobuf::Message;

/// The request for some lines, whose deltas are added to `sums`. [`Sums::keep`] is for when it was taken.
#[must_use]
pub fn encode<'a>(lines: impl Iterator<Item = &'a [u8]>, sums: &mut Sums) -> Vec<u8> {
    sums.begin();
    let mut request = Message::default();
    let mut summed = Summed::default();
    for line in lines.filter_map(read_line) {
        let is_delta = is_delta(&line);
        let mut series = labels(&line, is_delta);
        if is_delta {
            let number = sums.series(&series.0);
            let (added, sum) = sums.add(number, line.millis, line.value.float());
            summed.add(number, series, added, sum);
        } else {
            add_sample(&mut series, line.millis, line.value.float());
            request.bytes(1, &series.0);
        }
    }
    for (mut series, samples) in summed.series {
        for (millis, sum) in samples {
            add_sample(&mut series, millis, sum);
        }
        request.bytes(1, &series.0);
    }
    request.0
}

/// The series of a request that are summed up, each with its samples in the order of their times.
#[derive(Default)]
struct Summed {
    series: Vec<(Message, Vec<(i64, f64)>)>,
    places: HashMap<u64, usize>,
}

impl Summed {
    fn add(&mut self, number: u64, labels: Message, added: Added, sum: f64) {
        let place = match self.places.entry(number) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.series.push((labels, Vec::new()));
                *new.insert(self.series.len() - 1)
            }
        };
        let Some((_, samples)) = self.series.get_mut(place) else { return };
        match added {
            Added::First([zero, at]) => samples.extend([(zero, 0.0), (at, sum)]),
            Added::Sample(at) => samples.push((at, sum)),
            Added::Same => {
                if let Some((_, last)) = samples.last_mut() {
                    *last = sum;
                }
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
        let request = encode([&*writer.finish().bytes].into_iter(), &mut sums());
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
        assert_eq!(encode([b"{}".as_slice(), b"", b"torn"].into_iter(), &mut sums()), b"");
    }

    fn sums() -> Sums {
        Sums::new(std::hash::RandomState::new())
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
            let request = encode(sent.split_inclusive(|byte| *byte == b'\n'), &mut sums);
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
        let request = encode(line.into_iter(), &mut sums);
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
