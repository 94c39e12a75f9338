//! Lines, and what tells them from torn ones.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn metric<'a>(
    name: &'a str,
    value: f64,
    tags: &'a [(&'a str, &'a str)],
) -> Metric<'a, impl Iterator<Item = (&'a str, &'a str)> + Clone> {
    Metric { name, value: value.into(), kind: Kind::Gauge, millis: Some(0), tags: tags.iter().copied() }
}

#[test]
fn a_line_is_what_the_header_shows() {
    let mut writer = LineWriter::new("web", 1_795_420_800_000, usize::MAX);
    let tags = [("host", "a")].into_iter();
    writer
        .write(&Metric { name: "cpu.usage", value: 81.5.into(), kind: Kind::Gauge, millis: None, tags })
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
fn a_series_has_a_digest_for_any_order_of_its_tags_where_it_is_asked_for() {
    let digests = |tags: &[(&str, &str)]| {
        let mut writer = LineWriter::new("c", 0, usize::MAX).with_series(true);
        let mark = writer.mark();
        writer.write(&metric("other", 1.0, &[])).unwrap();
        writer.cut(mark);
        writer.write(&metric("cpu.usage", 1.0, tags)).unwrap();
        writer.finish().series
    };
    // SipHash-1-3 by another implementation; lines that are kept are found by it, so it never changes.
    assert_eq!(digests(&[("host", "a")]), [0xe8e1_5eb6_9736_fea8]);
    let two = digests(&[("host", "a"), ("zone", "b")]);
    assert_eq!(two, digests(&[("zone", "b"), ("host", "a")]));
    for other in [&[("host", "b"), ("zone", "a")][..], &[("host", "a")], &[("hosta", ""), ("zone", "b")]] {
        assert_ne!(two, digests(other), "{other:?}");
    }
    let mut writer = LineWriter::new("c", 0, usize::MAX);
    writer.write(&metric("cpu.usage", 1.0, &[])).unwrap();
    assert!(writer.finish().series.is_empty());
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
            writer.write(&Metric { name: &name, value: value.into(), kind, millis: Some(millis), tags }).unwrap();
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
