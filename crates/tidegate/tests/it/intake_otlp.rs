//! The intake's lines at an OpenTelemetry collector, by the built binary: names, values, times and tags are what was sent, and
//! an outage of the collector loses none. `cargo xtask collector` runs this with OpenTelemetry's own collector; without it the
//! messages are read by OpenTelemetry's classes (`telemetry/collector.py`).

use std::fs;

use crate::support::{Tidegate, agent};
use crate::telemetry::collector::{Collector, PATIENCE};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;

/// An intake that forwards to the collector.
fn intake(collector: &Collector) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("{}/v1/metrics", collector.url());
    let text = format!("[[intake.forward]]\nname = \"collector\"\nto = \"otlp\"\nurl = \"{url}\"\n");
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

fn post(service: &Tidegate, metrics: &[Value]) {
    let url = format!("http://{}/metrics", service.intake.unwrap());
    let body = json!({ "metrics": metrics }).to_string();
    assert_eq!(agent().post(url).send(body).unwrap().status(), 200);
}

/// A number of the forward on the operator's page.
fn number(service: &Tidegate, what: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let series = match what {
        "waiting" => "tidegate_intake_forward_waiting_lines{forward=\"collector\"} ".to_owned(),
        what => format!("tidegate_intake_forward_total{{forward=\"collector\",what=\"{what}\"}} "),
    };
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().unwrap()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = monotonic();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}

/// The points that a collector has read, in the order in which they came.
fn points(lines: &[Value]) -> Vec<Value> {
    lines.iter().filter(|line| line.get("metric").is_some()).cloned().collect()
}

#[test]
fn a_collector_has_the_names_values_times_and_tags_that_were_sent() {
    let collector = Collector::start(0, None);
    let service = intake(&collector);
    let delta = json!({"temporality": "delta", "route": "/a b"});
    let sent = [
        json!({"name": "cpu.usage", "value": 81.5, "tags": {"host": "a \"b\"", "zone": "\u{e9}"}, "timestamp": 1_795_420_800_123_i64}),
        json!({"name": "least", "value": -0.1, "type": "gauge", "timestamp": "2026-11-23T08:00:00.5Z"}),
        json!({"name": "requests_total", "value": 9_007_199_254_740_991_i64, "type": "counter", "timestamp": 1}),
        json!({"name": "bytes", "value": 1e300, "type": "counter", "tags": delta, "timestamp": 1_795_420_800_000_i64}),
        json!({"name": "took", "value": 5e-324, "type": "histogram", "tags": {"client": "of the tag"}, "timestamp": 1_795_420_800_000_i64}),
    ];
    let before = wall_nanos();
    post(&service, &sent);
    post(&service, &[json!({"name": "without.time", "value": 0})]);
    let found = collector.until("six points", |lines| Some(points(lines)).filter(|points| points.len() >= 6));
    let (last, found) = found.split_last().unwrap();
    let gauge = |name: &str, attributes: Value, at: u64, value: f64| {
        json!({"metric": name, "description": "", "kind": "gauge", "attributes": attributes, "resource": {}, "since": 0,
            "at": at, "value": value})
    };
    let sum = |name: &str, attributes: Value, at: u64, value: f64, temporality: u64| {
        let mut point = gauge(name, attributes, at, value);
        point["kind"] = json!("sum");
        point["temporality"] = json!(temporality);
        point["monotonic"] = json!(true);
        point
    };
    let client = json!({"client": "127.0.0.1"});
    let usage = json!({"host": "a \"b\"", "zone": "\u{e9}", "client": "127.0.0.1"});
    let (delta, cumulative) = (1, 2);
    let bytes = json!({"route": "/a b", "client": "127.0.0.1"});
    let expected = [
        gauge("cpu.usage", usage, 1_795_420_800_123_000_000, 81.5),
        gauge("least", client.clone(), 1_795_420_800_500_000_000, -0.1),
        sum("requests_total", client.clone(), 1_000_000, 9_007_199_254_740_991.0, cumulative),
        sum("bytes", bytes, 1_795_420_800_000_000_000, 1e300, delta),
        gauge("took", json!({"client": "of the tag"}), 1_795_420_800_000_000_000, 5e-324),
    ];
    assert_eq!(found, expected);
    let at = last["at"].as_u64().unwrap();
    assert!((before..=wall_nanos()).contains(&at), "{before} {last}");
    assert_eq!(*last, gauge("without.time", client, at, 0.0));
    until("they are delivered", || number(&service, "delivered") == 6);
    assert_eq!(points(&collector.lines()).len(), 6, "each came once");
}

/// Now, in whole milliseconds.
fn wall_nanos() -> u64 {
    tidegate_net::clock::wall().0 / 1_000_000 * 1_000_000
}

#[test]
fn fault_71_a_collector_that_is_killed_has_every_line_in_order_when_it_comes_back() {
    let collector = Collector::start(0, None);
    let (port, service) = (collector.port, intake(&collector));
    let send = |numbers: std::ops::Range<u64>| {
        numbers.for_each(|number| post(&service, &[json!({"name": "n", "value": number})]));
    };
    send(0..20);
    let first =
        collector.until("twenty points", |lines| Some(points(lines)).filter(|points| points.len() >= 20));
    drop(collector);
    send(20..120);
    until("the outage is noticed", || number(&service, "failed_tries") > 0);
    let collector = Collector::start(port, None);
    send(120..140);
    let is_last = |point: &Value| point["value"] == json!(139.0);
    let then = collector
        .until("the last point", |lines| Some(points(lines)).filter(|it| it.last().is_some_and(is_last)));
    let mut values: Vec<u64> =
        [first, then].concat().iter().map(|it| it["value"].as_f64().unwrap() as u64).collect();
    // At least once, in order: what comes again is what came last.
    values.dedup();
    let mut seen = Vec::new();
    for value in values {
        if seen.last().is_none_or(|last| *last < value) {
            assert_eq!(value, seen.len() as u64, "a hole");
            seen.push(value);
        }
    }
    assert_eq!(seen.len(), 140);
    until("nothing waits", || number(&service, "waiting") == 0);
}
