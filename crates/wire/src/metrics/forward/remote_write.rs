//! Requests of Prometheus remote write 1.0, without their snappy.
//!
//! The name is the label `__name__`; tags are labels, and so is the client unless a tag is called so. What names of
//! Prometheus cannot have becomes `_`, as in its own translation of OpenTelemetry; of two tags that become one label the
//! first stays. Labels are sorted by name, as the specification asks for, and empty ones are left out.

use super::super::{KeptLine, read_line};
use crate::protobuf::Message;

/// The request for some lines.
#[must_use]
pub fn encode<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut request = Message::default();
    for line in lines.filter_map(read_line) {
        request.bytes(1, &series(&line).0);
    }
    request.0
}

fn series(line: &KeptLine<'_>) -> Message {
    let name = plain(&line.name, b"_:");
    let mut labels: Vec<(String, &str)> = vec![("__name__".to_owned(), &name)];
    let tags = line.tags.iter().map(|(name, value)| (plain(name, b"_"), &**value));
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
    let mut sample = Message::default();
    sample.double(1, line.value);
    sample.unsigned(2, line.millis.cast_unsigned());
    series.bytes(2, &sample.0);
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
        writer.write(&Metric { name, value, kind: Kind::Gauge, millis: Some(millis), tags }).unwrap();
        let request = encode([&*writer.finish().bytes].into_iter());
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
        assert_eq!(encode([b"{}".as_slice(), b"", b"torn"].into_iter()), b"");
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
