//! Requests of OpenTelemetry: what becomes of good, bad and hostile ones. JSON is turned into protobuf on the way, so
//! both are tested.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(request: &Value) -> Result<(Vec<Value>, Counts), ExportError> {
    read_protobuf(&from_json(request.to_string().as_bytes()).unwrap())
}

fn read_protobuf(body: &[u8]) -> Result<(Vec<Value>, Counts), ExportError> {
    let mut writer = LineWriter::new("c", 7, 1 << 20);
    let counts = read_request(body, &mut writer)?;
    let text = String::from_utf8(writer.finish().bytes).unwrap();
    Ok((text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), counts))
}

fn request(metrics: Value) -> Value {
    let attribute = |key: &str, value: Value| json!({"key": key, "value": value});
    json!({"resourceMetrics": [{
        "resource": {"attributes": [
            attribute("service.name", json!({"stringValue": "shop"})),
            attribute("host", json!({"stringValue": "hidden by the point's"})),
            attribute("list", json!({"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "\""}]}})),
            attribute("bytes", json!({"bytesValue": "AA=="})),
        ]},
        "scopeMetrics": [{"scope": {"name": "ignored"}, "metrics": metrics}],
    }]})
}

fn number(value: Value) -> Value {
    let mut point = json!({"timeUnixNano": "1795420800000000000",
        "attributes": [{"key": "host", "value": {"stringValue": "a"}}]});
    point.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
    point
}

#[test]
fn numbers_become_lines_with_the_attributes_of_both() {
    let (lines, counts) = read(&request(json!([
        {"name": "temperature", "unit": "C", "gauge": {"dataPoints": [number(json!({"asDouble": 21.5}))]}},
        {"name": "requests", "sum": {"isMonotonic": true, "aggregationTemporality": 2,
            "dataPoints": [number(json!({"asInt": "123456789", "exemplars": [{}, {}]}))]}},
        {"name": "jobs", "sum": {"aggregationTemporality": 1, "dataPoints": [{"asInt": -3}]}},
    ])))
    .unwrap();
    assert_eq!(counts, Counts { points: 3, exemplars: 2, ..Counts::default() });
    let tags = json!({"service.name": "shop", "list": "[1,\"\\\"\"]", "host": "a"});
    for (line, (name, value, kind)) in
        lines.iter().zip([("temperature", 21.5, "gauge"), ("requests", 123_456_789.0, "counter")])
    {
        assert_eq!((&line["name"], &line["type"]), (&json!(name), &json!(kind)));
        assert_eq!((&line["value"], &line["tags"]), (&json!(value), &tags));
        assert_eq!(line["timestamp"], "2026-11-23T08:00:00.000Z");
    }
    assert_eq!((&lines[2]["type"], &lines[2]["tags"]["temporality"]), (&json!("gauge"), &json!("delta")));
    assert_eq!(lines[2]["timestamp"], "1970-01-01T00:00:00.007Z");
}

#[test]
fn a_histogram_becomes_cumulative_buckets_and_a_summary_quantiles() {
    let (lines, counts) = read(&request(json!([
        {"name": "latency", "histogram": {"aggregationTemporality": 2, "dataPoints": [
            {"count": "6", "sum": 3.5, "min": 0.1, "max": 2, "bucketCounts": ["1", 2, "3"], "explicitBounds": [0.5, 1]}
        ]}},
        {"name": "size", "summary": {"dataPoints": [
            {"count": 2, "sum": 10, "quantileValues": [{"quantile": 0.5, "value": 4}, {"quantile": 1, "value": 6}]}
        ]}},
    ])))
    .unwrap();
    assert_eq!(counts.points, 2);
    let found: Vec<(String, f64, Value)> = lines
        .iter()
        .map(|line| {
            let part = [&line["tags"]["le"], &line["tags"]["quantile"]].into_iter().find(|it| !it.is_null());
            let name = line["name"].as_str().unwrap().to_owned();
            (name, line["value"].as_f64().unwrap(), part.cloned().unwrap_or_default())
        })
        .collect();
    let expected = [
        ("latency_count", 6.0, json!(null)),
        ("latency_sum", 3.5, json!(null)),
        ("latency_min", 0.1, json!(null)),
        ("latency_max", 2.0, json!(null)),
        ("latency_bucket", 1.0, json!("0.5")),
        ("latency_bucket", 3.0, json!("1")),
        ("latency_bucket", 6.0, json!("+Inf")),
        ("size_count", 2.0, json!(null)),
        ("size_sum", 10.0, json!(null)),
        ("size", 4.0, json!("0.5")),
        ("size", 6.0, json!("1")),
    ];
    assert_eq!(found, expected.map(|(name, value, part)| (name.to_owned(), value, part)));
}

#[test]
fn what_no_line_holds_is_counted_and_named() {
    let (lines, counts) = read(&request(json!([
        {"name": "a", "gauge": {"dataPoints": [{"asDouble": "NaN"}, {"flags": 1}, {"asDouble": 1}]}},
        {"name": "b", "exponentialHistogram": {"dataPoints": [{}, {}]}},
        {"name": "c", "histogram": {"dataPoints": [{"count": 1, "sum": "Infinity", "bucketCounts": [1]}]}},
        {"name": "", "gauge": {"dataPoints": [{"asDouble": 1}]}},
        {"name": "d", "gauge": {"dataPoints": [{}]}},
    ])))
    .unwrap();
    assert_eq!(lines.len(), 1, "a histogram is kept whole or not at all");
    assert_eq!((counts.points, counts.not_finite, counts.no_value), (1, 2, 1));
    assert_eq!((counts.histograms, counts.rejected, counts.left_out()), (2, 2, 6));
    let reason = "values must be finite; exponential histograms are not kept; the name has 0 bytes; 1 to 255 are accepted";
    assert_eq!(counts.reason(), reason);
    let told: Value = serde_json::from_slice(&exported_json(&counts)).unwrap();
    assert_eq!(told, json!({"partialSuccess": {"rejectedDataPoints": "6", "errorMessage": reason}}));
}

#[test]
fn fault_76_small_requests_that_would_be_large_are_refused() {
    assert!(matches!(from_json("{}".repeat(200_001).as_bytes()), Err(JsonError::TooMany)));
    let long = json!({"key": "long", "value": {"stringValue": "x".repeat(16_000)}});
    let points = vec![json!({"asInt": 1}); 1_000];
    let mut request = request(json!([{"name": "a", "gauge": {"dataPoints": points}}]));
    request["resourceMetrics"][0]["resource"]["attributes"] = json!([long]);
    assert_eq!(read(&request), Err(ExportError::TooLong(1 << 20)));
    let deep = format!("{}1{}", "{\"arrayValue\":{\"values\":[".repeat(100), "]}}".repeat(100));
    assert!(
        from_json(
            format!("{{\"resourceMetrics\":[{{\"resource\":{{\"attributes\":[{{\"value\":{deep}}}]}}}}]}}")
                .as_bytes()
        )
        .is_err()
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), at in 0_usize..200) {
        let good = request(json!([
            {"name": "a", "gauge": {"dataPoints": [number(json!({"asInt": 3}))]}},
            {"name": "b", "histogram": {"dataPoints": [{"count": 1, "bucketCounts": [1], "explicitBounds": [1]}]}},
            {"name": "c", "summary": {"dataPoints": [{"count": 1, "quantileValues": [{}]}]}},
        ]));
        let mut body = from_json(good.to_string().as_bytes()).unwrap();
        let at = at.min(body.len());
        body.splice(at..(at + 2).min(body.len()), bytes.iter().copied());
        for body in [&body, &bytes] {
            if let Ok((lines, counts)) = read_protobuf(body) {
                prop_assert!(lines.len() >= counts.points.min(1) || counts.points == 0);
            }
            drop(from_json(body));
        }
    }
}
