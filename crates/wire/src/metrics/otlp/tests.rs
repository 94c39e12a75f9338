//! Requests of OpenTelemetry: what becomes of good, bad and hostile ones. JSON is turned into protobuf on the way, so
//! both are tested.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(request: &Value) -> Result<(Vec<Value>, ExportCounts), ExportError> {
    read_protobuf(&from_json(request.to_string().as_bytes()).unwrap())
}

fn read_protobuf(body: &[u8]) -> Result<(Vec<Value>, ExportCounts), ExportError> {
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
        "scopeMetrics": [{"scope": {"name": "lib", "version": "2",
            "attributes": [attribute("short", json!({"boolValue": true}))]}, "metrics": metrics}],
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
    assert_eq!(counts, ExportCounts { points: 3, exemplars: 2, ..ExportCounts::default() });
    let tags = json!({"service.name": "shop", "list": "[1,\"\\\"\"]", "bytes": "AA==", "host": "a",
        "otel.scope.name": "lib", "otel.scope.version": "2", "otel.scope.short": "true"});
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
    assert_eq!(lines.len(), 3, "a histogram is kept whole or not at all");
    assert_eq!((counts.points, counts.not_finite, counts.no_value), (3, 2, 1));
    assert_eq!((counts.histograms, counts.rejected, counts.left_out()), (2, 2, 4));
    let reason = "values must be finite; the buckets of exponential histograms are not kept; the name has 0 bytes; 1 to 255 are accepted";
    assert_eq!(counts.reason(), reason);
    let told: Value = serde_json::from_slice(&exported_json(&counts)).unwrap();
    assert_eq!(told, json!({"partialSuccess": {"rejectedDataPoints": "4", "errorMessage": reason}}));
}

/// As a summary of Prometheus is that saw nothing in its window, scraped by a collector.
#[test]
fn a_summary_without_recent_observations_keeps_its_count_and_its_sum() {
    let quantiles = json!([{"quantile": 0.5, "value": "NaN"}, {"quantile": 0.99, "value": "NaN"}]);
    let point = json!({"count": "16", "sum": 10.5, "quantileValues": quantiles});
    let (lines, counts) =
        read(&request(json!([{"name": "wait", "summary": {"dataPoints": [point]}}]))).unwrap();
    let found: Vec<_> =
        lines.iter().map(|line| (line["name"].as_str().unwrap(), line["value"].as_f64().unwrap())).collect();
    assert_eq!(found, [("wait_count", 16.0), ("wait_sum", 10.5)]);
    assert_eq!(counts, ExportCounts { points: 1, empty_quantiles: 2, ..ExportCounts::default() });
    assert!(!counts.is_partial(), "it is no error of the sender's");
}

/// Collectors pass on what bytes they are given.
#[test]
fn a_text_that_is_not_utf8_does_not_lose_the_other_points() {
    let attribute = |value: Value| json!([{"key": "k", "value": value}]);
    let point =
        |value: Value| json!({"gauge": {"dataPoints": [{"asInt": 1, "attributes": attribute(value)}]}});
    let named = |name: &str, mut metric: Value| {
        metric["name"] = json!(name);
        metric
    };
    let good = json!({"stringValue": "good"});
    for (name, value, kept) in [
        ("a", json!({"stringValue": "BAD"}), 1),
        ("a", json!({"arrayValue": {"values": [{"stringValue": "BAD"}]}}), 1),
        ("BAD", good.clone(), 1),
        ("a", good.clone(), 2),
    ] {
        let metrics = json!([named(name, point(value.clone())), named("b", point(good.clone()))]);
        let mut body = from_json(request(metrics).to_string().as_bytes()).unwrap();
        if let Some(at) = body.windows(3).position(|bytes| bytes == b"BAD") {
            body[at] = 0xff;
        }
        let (lines, counts) = read_protobuf(&body).unwrap();
        assert_eq!((lines.len(), counts.points, counts.rejected), (kept, kept, 2 - kept), "{name} {value}");
        assert_eq!(lines[kept - 1]["name"], "b");
        assert_eq!(counts.error, (kept == 1).then_some(MetricError::NotText), "{name} {value}");
    }
    let mut around = request(json!([named("a", point(good))]));
    around["resourceMetrics"][0]["scopeMetrics"][0]["scope"]["name"] = json!("BAD");
    let mut body = from_json(around.to_string().as_bytes()).unwrap();
    let at = body.windows(3).position(|bytes| bytes == b"BAD").unwrap();
    body[at] = 0xff;
    let (lines, counts) = read_protobuf(&body).unwrap();
    assert_eq!((lines.len(), counts.rejected), (0, 1), "its series is not known");
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

#[test]
fn an_exponential_histogram_keeps_all_but_its_buckets() {
    let point = json!({"count": "3", "sum": 4.5, "min": 0.5, "max": 2, "scale": 1, "zeroCount": "0",
        "positive": {"offset": 0, "bucketCounts": ["3"]}, "attributes": [{"key": "k", "value": {"intValue": 1}}]});
    let data = json!({"aggregationTemporality": 1, "dataPoints": [point]});
    let (lines, counts) = read(&request(json!([{"name": "latency", "exponentialHistogram": data}]))).unwrap();
    let found: Vec<_> =
        lines.iter().map(|line| (line["name"].as_str().unwrap(), line["value"].as_f64().unwrap())).collect();
    let expected = [("latency_count", 3.0), ("latency_sum", 4.5), ("latency_min", 0.5), ("latency_max", 2.0)];
    assert_eq!(found, expected);
    let tags = &lines[0]["tags"];
    assert_eq!((&tags["temporality"], &tags["k"]), (&json!("delta"), &json!("1")));
    assert_eq!((counts.points, counts.histograms, counts.left_out()), (1, 1, 0));
    let told: Value = serde_json::from_slice(&exported_json(&counts)).unwrap();
    let reason = "the buckets of exponential histograms are not kept";
    assert_eq!(
        told,
        json!({"partialSuccess": {"rejectedDataPoints": "0", "errorMessage": reason}}),
        "a warning"
    );
}

#[test]
fn integers_beyond_two_to_the_53_keep_their_digits() {
    let data = json!({"isMonotonic": true, "aggregationTemporality": 2, "dataPoints": [{"asInt": "9007199254740993"}]});
    let histogram = json!({"dataPoints": [{"count": "18446744073709551615"}]});
    let metrics = json!([{"name": "a", "sum": data}, {"name": "b", "histogram": histogram}]);
    let (lines, _) = read(&request(metrics)).unwrap();
    assert_eq!(lines[0]["value"], json!(9_007_199_254_740_993_u64));
    assert_eq!(lines[1]["value"], json!(u64::MAX));
}

#[test]
fn series_of_two_scopes_are_two() {
    let scope = |scope: Value| json!({"scope": scope, "metrics": [{"name": "calls", "gauge": {"dataPoints": [{"asInt": 1}]}}]});
    let scopes =
        [json!({"name": "a"}), json!({"name": "b", "version": null, "attributes": null}), Value::Null];
    let request = json!({"resourceMetrics": [{"scopeMetrics": scopes.map(scope)}]});
    let (lines, _) = read(&request).unwrap();
    let tags: Vec<_> = lines.iter().map(|line| line["tags"].clone()).collect();
    assert_eq!(tags, [json!({"otel.scope.name": "a"}), json!({"otel.scope.name": "b"}), json!({})]);
}

#[test]
fn attributes_called_as_our_own_tags_are_kept_under_another_name() {
    let attributes = |key: &str| json!([{"key": key, "value": {"stringValue": "x"}}]);
    let (lines, counts) = read(&json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "a", "sum": {"aggregationTemporality": 1, "dataPoints": [{"asInt": 1, "attributes": attributes("temporality")}]}},
        {"name": "b", "histogram": {"dataPoints": [{"count": 1, "bucketCounts": [1], "attributes": attributes("le")}]}},
    ]}]}]}))
    .unwrap();
    assert_eq!(counts.points, 2);
    assert_eq!(lines[0]["tags"], json!({"exported_temporality": "x", "temporality": "delta"}));
    assert_eq!(lines[1]["tags"], json!({"le": "x"}));
    assert_eq!(lines[2]["tags"], json!({"exported_le": "x", "le": "+Inf"}));
}

/// What protobuf's mapping of JSON allows is read, whatever the sender's library prefers.
#[test]
fn null_is_a_field_that_is_not_there_and_numbers_may_be_texts() {
    let fields = ["attributes", "timeUnixNano", "startTimeUnixNano", "asDouble", "exemplars", "flags"];
    let mut point = json!({"asInt": 7.0});
    point.as_object_mut().unwrap().extend(fields.map(|field| (field.to_owned(), Value::Null)));
    let sum = json!({"isMonotonic": null, "aggregationTemporality": null, "dataPoints": [point, {"asDouble": "2.5"}, {"asInt": "1e3"}]});
    let bounds = json!({"count": 3.0, "sum": null, "min": null, "max": "4", "bucketCounts": ["1", 2.0], "explicitBounds": ["1.5"],
        "exemplars": null, "flags": "0"});
    let empty = json!({"count": "1", "bucketCounts": null, "explicitBounds": null, "attributes": [{"key": "k", "value": null}]});
    let metric = json!({"name": "a", "unit": null, "description": null, "metadata": null, "sum": sum, "gauge": null,
        "histogram": null, "exponentialHistogram": null, "summary": null});
    let request = json!({"resourceMetrics": [{"resource": null, "schemaUrl": null, "scopeMetrics": [{"scope": null, "metrics": [
        metric, {"name": "b", "histogram": {"dataPoints": [bounds, empty]}}, {"name": null, "gauge": {"dataPoints": null}},
    ]}]}]});
    let (lines, counts) = read(&request).unwrap();
    assert_eq!((counts.points, counts.left_out()), (5, 0), "{counts:?}");
    let found: Vec<_> =
        lines.iter().map(|line| (line["name"].as_str().unwrap(), line["value"].as_f64().unwrap())).collect();
    let numbers = [("a", 7.0), ("a", 2.5), ("a", 1000.0)];
    let buckets = [("b_count", 3.0), ("b_max", 4.0), ("b_bucket", 1.0), ("b_bucket", 3.0), ("b_count", 1.0)];
    assert_eq!(found, [&numbers[..], &buckets].concat());
    for nothing in
        [json!({}), json!({"resourceMetrics": null}), json!({"resourceMetrics": [{"scopeMetrics": null}]})]
    {
        assert_eq!(read(&nothing).unwrap().0, Vec::<Value>::new());
    }
    for wrong in ["1.5", "\"x\"", "[]", "true", "1e300", "\"NaN\""] {
        let text = format!(
            "{{\"resourceMetrics\":[{{\"scopeMetrics\":[{{\"metrics\":[{{\"sum\":{{\"dataPoints\":[{{\"asInt\":{wrong}}}]}}}}]}}]}}]}}"
        );
        assert!(from_json(text.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn a_bound_that_is_not_finite_is_named() {
    let point = json!({"count": 1, "bucketCounts": [1, 0], "explicitBounds": ["Infinity"]});
    let (lines, counts) =
        read(&request(json!([{"name": "a", "histogram": {"dataPoints": [point]}}]))).unwrap();
    assert_eq!((lines.len(), counts.not_finite), (0, 1));
}

proptest! {
    #[test]
    fn bytes_go_through_base64(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
        let key_value = |value: &[u8]| {
            let mut any = crate::protobuf::Message::default();
            any.bytes(7, value);
            let mut pair = crate::protobuf::Message::default();
            pair.bytes(1, b"k");
            pair.bytes(2, &any.0);
            pair.0
        };
        let pair = key_value(&bytes);
        let mut attributes = Attributes::default();
        attributes.add(&pair).unwrap();
        let (_, text) = attributes.iter().next().unwrap();
        prop_assert_eq!(text.len() % 4, 0);
        prop_assert_eq!(attributes::from_base64(text), Some(bytes.clone()));
        let others = text.trim_end_matches('=').replace('+', "-").replace('/', "_");
        prop_assert_eq!(attributes::from_base64(&others), Some(bytes));
    }

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
