//! Comparisons of simulated services whose difference is known.

use super::*;
use crate::discover::{Mode, Settings, discover};
use crate::report::Context;
use crate::simulated::Service;

fn report(service_us: f64, seed: u64, repeats: usize) -> Report {
    let mut service = Service::new(16, service_us).seeded(seed);
    service.spread = 0.3;
    let settings = Settings { levels: vec![8.0, 32.0], repeats, ..Settings::default() };
    let discovery = discover(&mut service, settings).unwrap();
    Report::build(Context { target: format!("{service_us} us"), ..Context::default() }, &discovery, &[], &[])
}

#[test]
fn a_known_difference_lies_in_its_interval_and_is_worded() {
    // 5,000 us against 4,400 us: 13.6 % more throughput.
    let found = compare(&report(5_000.0, 1, 3), &report(4_400.0, 2, 3), 7).unwrap();
    let capacity = found.capacity.unwrap();
    assert!(capacity.interval.contains(0.136) && capacity.change == Change::Better, "{capacity:?}");
    assert!(found.headline().starts_with("faster by 13-1"), "{}", found.headline());
    assert!(found.headline().contains("p99 shorter by"), "{}", found.headline());
    let back = compare(&report(4_400.0, 2, 3), &report(5_000.0, 1, 3), 7).unwrap();
    assert!(back.headline().starts_with("slower by 1"), "{}", back.headline());
}

#[test]
fn noise_is_not_called_a_difference() {
    for seed in 0..20 {
        let found = compare(&report(5_000.0, seed, 3), &report(5_000.0, seed + 100, 3), seed).unwrap();
        for load in &found.loads {
            for delta in [load.throughput, load.p50, load.p99] {
                assert_eq!(delta.change, Change::Unchanged, "seed {seed}: {load:?}");
            }
        }
        assert!(found.headline().starts_with("throughput unchanged"), "{}", found.headline());
    }
}

#[test]
fn a_single_run_cannot_show_a_small_difference() {
    let small = |repeats| compare(&report(5_000.0, 1, repeats), &report(4_850.0, 2, repeats), 1).unwrap();
    assert_eq!(small(1).capacity.unwrap().change, Change::Unchanged, "3 % from one run each");
    assert_eq!(small(3).capacity.unwrap().change, Change::Better, "3 % from three runs each");
}

#[test]
fn other_work_is_refused() {
    let a = report(5_000.0, 1, 1);
    let mut other = a.clone();
    other.context.scenario = "burst".to_owned();
    assert!(matches!(compare(&a, &other, 1), Err(Incomparable::Scenario { .. })));
    // The scenario of a run without one is always called the same.
    let sent = |requests: &str, digest: &str| {
        let mut report = a.clone();
        (report.context.requests, report.context.requests_digest) = (requests.to_owned(), digest.to_owned());
        report
    };
    let refused = compare(&sent("GET /", "a"), &sent("POST /other", "b"), 1).unwrap_err().to_string();
    assert!(refused.contains("A sent `GET /`, B `POST /other`"), "{refused}");
    assert!(compare(&sent("GET /", "a"), &sent("GET /", "a"), 1).is_ok());
    let named = compare(&sent("GET /", ""), &sent("GET /other", ""), 1).unwrap();
    assert!(named.notes.iter().any(|note| note.contains("B `GET /other`")), "{:?}", named.notes);
    let mut other = a.clone();
    other.settings.mode = Mode::Closed { think_us: 5 };
    assert!(matches!(compare(&a, &other, 1), Err(Incomparable::Loop { .. })));
    let mut other = a.clone();
    other.steps.clear();
    assert_eq!(compare(&a, &other, 1), Err(Incomparable::NothingShared));
    let mut other = a.clone();
    other.steps.iter_mut().for_each(|s| s.denied = s.good);
    let error = compare(&a, &other, 1).unwrap_err();
    assert_eq!(error.to_string(), "not the same work: at 8 A denied or failed 0 %, B 50.0 %");
}

#[test]
fn the_same_report_is_unchanged_and_says_its_failed_gates() {
    let a = report(5_000.0, 1, 1);
    let found = compare(&a, &a, 1).unwrap();
    assert!(found.notes.iter().any(|n| n.contains("gate (c)")), "{:?}", found.notes);
    assert!(found.text("connections").contains("at 8 connections"), "{}", found.text("connections"));
}
