//! Batches of JSON: what becomes of good, bad and hostile ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const WHOLE: BatchLimits = BatchLimits { metrics: 1_000, partial: false };
const PARTIAL: BatchLimits = BatchLimits { partial: true, ..WHOLE };

fn read(body: &[u8], limits: BatchLimits) -> Result<(Vec<Value>, Vec<Rejected>), BatchError> {
    let mut writer = LineWriter::new("c", 7, usize::MAX);
    let rejected = read_batch(body, limits, &mut writer)?;
    let text = String::from_utf8(writer.finish().bytes).unwrap();
    Ok((text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), rejected))
}

fn error(metric: &str) -> MetricError {
    let body = format!("{{\"metrics\":[{{\"name\":\"a\",\"value\":1}},{metric}]}}");
    match read(body.as_bytes(), WHOLE) {
        Err(BatchError::Metric(Rejected { index: 1, error })) => error,
        other => panic!("{metric}: {other:?}"),
    }
}

#[test]
fn a_batch_becomes_lines() {
    let body = br#"{"more":[[{}]],"metrics":[
        {"name":"cpu.usage","value":81.5,"type":"gauge","tags":{"host":"a\u0062","\"":""},"timestamp":1795420800000},
        {"v\u0061lue":-3,"n\u0061me":"tab\there","unknown":{"deep":[1,{}]},"timestamp":"1970-01-01T00:00:01.5+00:00"},
        {"name":"requests","type":"counter","value":1e2,"tags":null,"timestamp":null}
    ]}"#;
    let (lines, rejected) = read(body, WHOLE).unwrap();
    assert_eq!(rejected, []);
    assert_eq!(
        Value::Array(lines),
        json!([
            {"timestamp": "2026-11-23T08:00:00.000Z", "name": "cpu.usage", "value": 81.5, "type": "gauge",
                "tags": {"host": "ab", "\"": ""}, "client": "c"},
            {"timestamp": "1970-01-01T00:00:01.500Z", "name": "tab\there", "value": -3.0, "type": "gauge",
                "tags": {}, "client": "c"},
            {"timestamp": "1970-01-01T00:00:00.007Z", "name": "requests", "value": 100.0, "type": "counter",
                "tags": {}, "client": "c"},
        ])
    );
}

#[test]
fn an_integer_of_64_bits_keeps_its_digits() {
    let body =
        br#"{"metrics":[{"name":"a","value":9007199254740993},{"name":"a","value":-9007199254740993}]}"#;
    let (lines, _) = read(body, WHOLE).unwrap();
    assert_eq!(lines[0]["value"], json!(9_007_199_254_740_993_u64));
    assert_eq!(lines[1]["value"], json!(-9_007_199_254_740_993_i64));
}

#[test]
fn a_bad_metric_is_named_and_nothing_is_kept() {
    let type_error = |field, expected| MetricError::Type { field, expected };
    for (metric, expected) in [
        (r#"{"value":1}"#, MetricError::Missing("name")),
        (r#"{"name":"a"}"#, MetricError::Missing("value")),
        (r#"{"name":"a","value":null}"#, type_error("value", "a number")),
        (r#"{"name":"a","value":"1"}"#, type_error("value", "a number")),
        (r#"{"name":"a","value":true}"#, type_error("value", "a number")),
        (r#"{"name":"a","value":[1]}"#, type_error("value", "a number")),
        (r#"{"name":1,"value":1}"#, type_error("name", "a string")),
        (r#"{"name":"","value":1}"#, MetricError::NameLength(0)),
        (r#"{"name":"a","value":1e400}"#, MetricError::NotFinite),
        (r#"{"name":"a","value":-1e400}"#, MetricError::NotFinite),
        (r#"{"name":"a","value":1,"type":"meter"}"#, MetricError::UnknownKind),
        (r#"{"name":"a","value":1,"type":"Gauge"}"#, MetricError::UnknownKind),
        (r#"{"name":"a","value":1,"type":7}"#, MetricError::UnknownKind),
        (r#"{"name":"a","value":1,"timestamp":1.5}"#, MetricError::Timestamp),
        (r#"{"name":"a","value":1,"timestamp":"yesterday"}"#, MetricError::Timestamp),
        (r#"{"name":"a","value":1,"timestamp":"1795420800000"}"#, MetricError::Timestamp),
        (r#"{"name":"a","value":1,"timestamp":999999999999999}"#, MetricError::TimestampRange),
        (r#"{"name":"a","value":1,"tags":{"a":1}}"#, type_error("each tag", "a string")),
        (r#"{"name":"a","value":1,"tags":{"a":"","\u0061":""}}"#, MetricError::TagTwice),
        (r#"{"name":"a","value":1,"value":1}"#, MetricError::Twice("value")),
        (r#"{"name":"a","value":1,"n\u0061me":"a"}"#, MetricError::Twice("name")),
    ] {
        assert_eq!(error(metric), expected, "{metric}");
    }
}

#[test]
fn a_part_of_a_batch_is_kept_where_that_is_asked_for() {
    let body = br#"{"metrics":[{"name":"a","value":"1"},{"name":"b","value":2},{"value":3}]}"#;
    let (lines, rejected) = read(body, PARTIAL).unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["name"], "b");
    let indices: Vec<usize> = rejected.iter().map(|rejected| rejected.index).collect();
    assert_eq!(indices, [0, 2]);
}

#[test]
fn the_number_of_metrics_is_bounded() {
    let batch = |count: usize| {
        json!({"metrics": vec![json!({"name": "a", "value": 1}); count]}).to_string().into_bytes()
    };
    assert_eq!(read(&batch(0), WHOLE), Err(BatchError::Empty));
    assert_eq!(read(&batch(1_000), WHOLE).unwrap().0.len(), 1_000);
    assert_eq!(read(&batch(1_001), PARTIAL), Err(BatchError::TooMany(1_000)));
}

#[test]
fn fault_29_what_is_no_batch_is_refused_whole() {
    let deep = format!("{{\"metrics\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let deeper = format!("{{\"metrics\":[{{\"name\":{}1{}}}]}}", "[".repeat(10_000), "]".repeat(10_000));
    let tags = format!("{{\"metrics\":[{{\"tags\":{}", "{\"a\":".repeat(10_000));
    for body in [deep.as_str(), &deeper, &tags] {
        assert!(read(body.as_bytes(), PARTIAL).is_err() || body == deeper, "{}", &body[..40]);
    }
    assert!(matches!(read(deeper.as_bytes(), WHOLE), Err(BatchError::Metric(_))));
    let good = br#"{"metrics":[{"name":"a","value":1},{"name":"b","value":2}]}"#;
    for end in 0..good.len() {
        assert!(matches!(read(&good[..end], PARTIAL), Err(BatchError::Syntax { .. })), "cut after {end}");
    }
    for body in [
        &b"[]"[..],
        b"null",
        br#"{"metrics":{}}"#,
        br#"{"metrics":[1]}"#,
        br#"{"metrics":[{"name":"a","value":1}],"metrics":[{"name":"a","value":1}]}"#,
        br#"{"metrics":[{"name":"a","value":NaN}]}"#,
        br#"{"metrics":[{"name":"a","value":01}]}"#,
        br#"{"metrics":[{"name":"a","value":1}]} {}"#,
        b"{\"metrics\":[{\"name\":\"a\xff\",\"value\":1}]}",
        b"{\"metrics\":[{\"name\":\"a\n\",\"value\":1}]}",
    ] {
        let refused = read(body, PARTIAL);
        assert!(matches!(refused, Err(BatchError::Syntax { .. })), "{}: {refused:?}", body.escape_ascii());
    }
    assert_eq!(read(b"{}", WHOLE), Err(BatchError::NoMetrics));
    let second = read(br#"{"metrics":[{"name":"a","value":1},{]}"#, WHOLE).unwrap_err().to_string();
    assert!(second.starts_with("metrics[1]: "), "{second}");
}

proptest! {
    #[test]
    fn every_value_is_kept_to_the_last_digit(value in any::<f64>().prop_filter("JSON has no others", |it| it.is_finite())) {
        let body = format!("{{\"metrics\":[{{\"name\":\"a\",\"value\":{value:?}}}]}}");
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        read_batch(body.as_bytes(), WHOLE, &mut writer).unwrap();
        let line = String::from_utf8(writer.finish().bytes).unwrap();
        let digits = line.split_once("\"value\":").unwrap().1.split_once(',').unwrap().0;
        prop_assert_eq!(digits.parse::<f64>().unwrap().to_bits(), value.to_bits());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100), at in 0_usize..60, limits in any::<bool>()) {
        let mut body = br#"{"metrics":[{"name":"a","value":1,"type":"gauge","tags":{"a":"b"},"timestamp":1}]}"#.to_vec();
        body.splice(at..(at + 3).min(body.len()), bytes);
        let limits = if limits { WHOLE } else { PARTIAL };
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        if read_batch(&body, limits, &mut writer).is_ok() {
            for line in writer.finish().bytes.split_inclusive(|byte| *byte == b'\n') {
                prop_assert!(serde_json::from_slice::<Value>(line).is_ok());
            }
        }
    }
}
