//! Requests of remote write: what becomes of good, bad and hostile ones.

use proptest::prelude::*;
use prost::Message;
use serde_json::Value;

use super::*;

/// The messages as their authors' schema has them, for writing requests.
#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct SeriesV1 {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    exemplars: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    histograms: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestV1 {
    #[prost(message, repeated, tag = "1")]
    series: Vec<SeriesV1>,
}

#[derive(Clone, PartialEq, Message)]
struct MetadataV2 {
    #[prost(uint32, tag = "1")]
    kind: u32,
}

#[derive(Clone, PartialEq, Message)]
struct SeriesV2 {
    #[prost(uint32, repeated, tag = "1")]
    labels: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    histograms: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "4")]
    exemplars: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<MetadataV2>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestV2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    series: Vec<SeriesV2>,
}

fn label(name: &str, value: &str) -> Label {
    Label { name: name.to_owned(), value: value.to_owned() }
}

fn read(version: Version, body: &[u8]) -> Result<(Vec<Value>, SampleCounts), RequestError> {
    let mut writer = LineWriter::new("c", 0, 1 << 20);
    let counts = read_request(version, body, &mut writer)?;
    let text = String::from_utf8(writer.finish().bytes).unwrap();
    Ok((text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), counts))
}

fn samples() -> Vec<Sample> {
    let values = [1.5, f64::from_bits(STALE), f64::NAN, f64::INFINITY, -2.0];
    (0..).zip(values).map(|(timestamp, value)| Sample { value, timestamp }).collect()
}

fn expected() -> SampleCounts {
    SampleCounts {
        samples: 2,
        stale: 1,
        not_finite: 2,
        histograms: 1,
        exemplars: 2,
        ..SampleCounts::default()
    }
}

#[test]
fn a_request_of_1_0_becomes_lines_and_what_no_line_holds_is_counted() {
    let labels = vec![label("job", "node"), label(NAME, "up"), label("instance", "a:1")];
    let series =
        SeriesV1 { labels, samples: samples(), exemplars: vec![vec![]; 2], histograms: vec![vec![]] };
    let (lines, counts) = read(Version::V1, &RequestV1 { series: vec![series] }.encode_to_vec()).unwrap();
    assert_eq!(counts, expected());
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[2]["name"], &lines[3]["name"]), (&"up_count".into(), &"up_sum".into()));
    assert_eq!(lines[0]["name"], "up");
    assert_eq!(lines[0]["tags"], serde_json::json!({"job": "node", "instance": "a:1"}));
    assert_eq!(lines[1]["timestamp"], "1970-01-01T00:00:00.004Z");
}

#[test]
fn a_request_of_2_0_becomes_lines_with_their_types() {
    let symbols = ["", NAME, "requests_total", "job", "node"].map(str::to_owned).to_vec();
    let series = SeriesV2 {
        labels: vec![1, 2, 3, 4],
        samples: samples(),
        histograms: vec![vec![]],
        exemplars: vec![vec![]; 2],
        metadata: Some(MetadataV2 { kind: 1 }),
    };
    let (lines, counts) =
        read(Version::V2, &RequestV2 { symbols, series: vec![series] }.encode_to_vec()).unwrap();
    assert_eq!(counts, expected());
    assert_eq!((&lines[0]["name"], &lines[0]["type"]), (&"requests_total".into(), &"counter".into()));
    assert_eq!(lines[0]["tags"], serde_json::json!({"job": "node"}));
}

/// As its authors' schema has it, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    count_int: Option<u64>,
    #[prost(double, optional, tag = "2")]
    count_float: Option<f64>,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(int64, tag = "15")]
    timestamp: i64,
}

#[test]
fn a_native_histogram_keeps_its_count_and_its_sum() {
    let whole = Histogram {
        count_int: Some(9_007_199_254_740_993),
        sum: 4.5,
        schema: 3,
        timestamp: 7,
        ..Histogram::default()
    };
    let float = Histogram { count_float: Some(2.5), ..whole.clone() };
    let infinite = Histogram { sum: f64::INFINITY, ..whole.clone() };
    let stale = Histogram { sum: f64::from_bits(STALE), ..whole.clone() };
    let histograms = [whole, float, infinite, stale].map(|histogram| histogram.encode_to_vec()).to_vec();
    let labels = vec![label(NAME, "latency"), label("job", "node")];
    let series = SeriesV1 { labels, histograms, ..SeriesV1::default() };
    let (lines, counts) = read(Version::V1, &RequestV1 { series: vec![series] }.encode_to_vec()).unwrap();
    let found: Vec<_> =
        lines.iter().map(|line| (line["name"].as_str().unwrap(), line["value"].to_string())).collect();
    let expected = [
        ("latency_count", "9007199254740993"),
        ("latency_sum", "4.5"),
        ("latency_count", "2.5"),
        ("latency_sum", "4.5"),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())));
    assert_eq!(
        (&lines[0]["type"], &lines[0]["timestamp"]),
        (&"histogram".into(), &"1970-01-01T00:00:00.007Z".into())
    );
    assert_eq!((counts.histograms, counts.not_finite, counts.stale, counts.samples), (4, 1, 1, 0));
}

#[test]
fn references_to_nothing_refuse_the_request() {
    for labels in [vec![0], vec![0, 9], vec![9, 0]] {
        let series = SeriesV2 { labels, ..SeriesV2::default() };
        let request = RequestV2 { symbols: vec![String::new()], series: vec![series] };
        assert_eq!(read(Version::V2, &request.encode_to_vec()), Err(RequestError::Malformed(Malformed)));
    }
}

#[test]
fn a_bad_sample_does_not_lose_the_good_ones() {
    let sample = |timestamp| Sample { value: 1.0, timestamp };
    let nameless =
        SeriesV1 { labels: vec![label("job", "node")], samples: vec![sample(1)], ..SeriesV1::default() };
    let early = SeriesV1 {
        labels: vec![label(NAME, "a")],
        samples: vec![sample(i64::MIN), sample(2)],
        ..SeriesV1::default()
    };
    let (lines, counts) =
        read(Version::V1, &RequestV1 { series: vec![nameless, early] }.encode_to_vec()).unwrap();
    assert_eq!((lines.len(), counts.rejected), (1, 2));
    assert_eq!(counts.error, Some(MetricError::NameLength(0)));
}

/// Go's library of Prometheus writes what bytes it is given, and so do collectors.
#[test]
fn a_label_that_is_not_utf8_does_not_lose_the_other_series() {
    let replaced = |mut body: Vec<u8>| {
        let at = body.windows(3).position(|bytes| bytes == b"BAD").unwrap();
        body[at] = 0xff;
        body
    };
    let sample = vec![Sample { value: 1.0, timestamp: 1 }; 2];
    let series = |value: &str| SeriesV1 {
        labels: vec![label(NAME, "up"), label("job", value)],
        samples: sample.clone(),
        histograms: vec![vec![]],
        ..SeriesV1::default()
    };
    let first = RequestV1 { series: vec![series("BAD"), series("good")] }.encode_to_vec();
    let symbols = ["", NAME, "up", "job", "BAD", "good"].map(str::to_owned).to_vec();
    let series = |value| SeriesV2 {
        labels: vec![1, 2, 3, value],
        samples: sample.clone(),
        histograms: vec![vec![]],
        ..SeriesV2::default()
    };
    let second = RequestV2 { symbols, series: vec![series(4), series(5)] }.encode_to_vec();
    for (version, body) in [(Version::V1, first), (Version::V2, second)] {
        let (lines, counts) = read(version, &replaced(body)).unwrap();
        assert_eq!((lines.len(), counts.samples, counts.rejected), (4, 2, 3), "{version:?}");
        assert_eq!(counts.error, Some(MetricError::NotText), "{version:?}");
        assert!(lines.iter().all(|line| line["tags"]["job"] == "good"), "{version:?}");
    }
}

#[test]
fn fault_76_many_samples_of_one_long_series_are_bounded() {
    let long = "x".repeat(16_000);
    let labels = vec![label(NAME, "a"), label("long", &long)];
    let samples = vec![Sample { value: 1.0, timestamp: 1 }; 10_000];
    let body =
        RequestV1 { series: vec![SeriesV1 { labels, samples, ..SeriesV1::default() }] }.encode_to_vec();
    assert_eq!(read(Version::V1, &body), Err(RequestError::TooLong(1 << 20)));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0_usize..60) {
        let labels = vec![label(NAME, "up"), label("instance", "a:1")];
        let series = SeriesV1 { labels, samples: samples(), ..SeriesV1::default() };
        let mut body = RequestV1 { series: vec![series] }.encode_to_vec();
        body.splice(at..(at + 2).min(body.len()), bytes.iter().copied());
        for version in [Version::V1, Version::V2] {
            for body in [&body, &bytes] {
                if let Ok((lines, counts)) = read(version, body) {
                    let of_histograms = lines.len() - counts.samples;
                    prop_assert!(of_histograms % 2 == 0 && of_histograms <= 2 * counts.histograms);
                }
            }
        }
    }
}
