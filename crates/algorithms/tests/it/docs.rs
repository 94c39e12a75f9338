//! The worked examples of `docs/algorithms.md` are run: each fenced `example` block is a policy's
//! numbers, then requests in order with the verdict that they get.

use jiff::Timestamp;
use tidegate_algorithms::limit::{PermitId, State, Verdict, Wait};
use tidegate_algorithms::policy::{
    MAX_LEASE_SECONDS, MAX_SPAN, MAX_UNITS, MAX_UNITS_PER_SECOND, MAX_WINDOW_SECONDS, parse,
};
use tidegate_algorithms::time::{Now, SECOND};

/// Windows of examples begin here: a whole day.
const START: u64 = 1_700_006_400 * SECOND;

fn docs() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms.md")).unwrap()
}

/// A time of an example: seconds from the start, or a civil instant.
fn instant(text: &str) -> u64 {
    match text.parse::<Timestamp>() {
        Ok(civil) => u64::try_from(civil.as_nanosecond()).unwrap(),
        Err(_) => START + (text.parse::<f64>().unwrap() * SECOND as f64).round() as u64,
    }
}

fn row(at: &str, cost: u64, verdict: &Verdict) -> String {
    let seconds = |nanos: u64| format!("{}", nanos as f64 / SECOND as f64);
    let wait = match verdict.wait {
        Wait::None => "-".to_owned(),
        Wait::For(nanos) => seconds(nanos),
        Wait::Never => "never".to_owned(),
    };
    let allowed = if verdict.allowed { "yes" } else { "no" };
    format!("{at} {cost} {allowed} {} {wait} {}", verdict.remaining, seconds(verdict.reset))
}

#[test]
fn the_worked_examples_come_out_as_written() {
    let docs = docs();
    let mut algorithms = std::collections::BTreeSet::new();
    for example in docs.split("```example\n").skip(1) {
        let (example, _) = example.split_once("```").unwrap();
        let mut lines = example.lines();
        let mut document: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        document["name"] = "example".into();
        let limit = parse(&document, "").unwrap().quota.limit;
        algorithms.insert(document["algorithm"].to_string());
        assert_eq!(lines.next().unwrap().split_whitespace().next(), Some("at"), "a heading");
        let mut state = State::Fresh;
        for (number, line) in lines.enumerate() {
            let written: Vec<&str> = line.split_whitespace().collect();
            let (at, cost) = (written[0], written[1].parse().unwrap());
            let now = Now::at(instant(at));
            let verdict = limit.check(&mut state, now, cost);
            if verdict.allowed {
                limit.charge(&mut state, now, cost, PermitId(number as u64));
            }
            assert_eq!(written.join(" "), row(at, cost, &verdict), "{document}");
        }
    }
    assert_eq!(algorithms.len(), 7, "an example for each algorithm: {algorithms:?}");
}

#[test]
fn the_bounds_are_published_with_their_values() {
    use tidegate_algorithms::limit::{calendar, concurrency, sliding_log};
    let docs = docs();
    for (name, value) in [
        ("MAX_UNITS", MAX_UNITS),
        ("MAX_UNITS_PER_SECOND", MAX_UNITS_PER_SECOND),
        ("MAX_WINDOW_SECONDS", MAX_WINDOW_SECONDS),
        ("MAX_SPAN", MAX_SPAN),
        ("MAX_LEASE_SECONDS", MAX_LEASE_SECONDS),
        ("MAX_ENTRIES", sliding_log::MAX_ENTRIES),
        ("MAX_PERMITS", concurrency::MAX_PERMITS),
        ("CLOCK_SLACK", calendar::CLOCK_SLACK),
    ] {
        let row = format!("| `{name}` | {value} |");
        assert!(docs.contains(&row), "docs/algorithms.md lacks {row}");
    }
}

#[test]
fn a_keys_bytes_are_as_published() {
    let docs = docs();
    assert!(docs.contains("| 72 + 16 per entry reserved, at most `limit` entries |"));
    assert!(docs.contains("| 64 + 24 per permit reserved |"));
    let bytes = |document: serde_json::Value| {
        let limit = parse(&document, "").unwrap().quota.limit;
        let mut state = State::Fresh;
        for step in 0..4 {
            let now = Now::at(START + step);
            assert!(limit.check(&mut state, now, 1).allowed);
            limit.charge(&mut state, now, 1, PermitId(step));
        }
        size_of::<State>() + state.heap_bytes()
    };
    let windowed = |algorithm: &str| serde_json::json!({"name": "p", "algorithm": algorithm, "limit": 4, "window_seconds": 1});
    for algorithm in ["token_bucket", "leaky_bucket", "fixed_window", "sliding_counter"] {
        let mut document = windowed(algorithm);
        if algorithm == "leaky_bucket" {
            document["burst"] = 4.into();
        }
        assert_eq!(bytes(document), 24, "{algorithm}");
    }
    assert_eq!(bytes(windowed("sliding_log")), 72 + 16 * 4);
    assert_eq!(bytes(serde_json::json!({"name": "p", "algorithm": "concurrency", "limit": 4})), 64 + 24 * 4);
}
