//! Plans from simulated reports.

use super::*;
use crate::diagnose::evidence::{KernelDelta, Observation, ServerDelta};
use crate::discover::{Settings, discover};
use crate::report::Context;
use crate::simulated::Service;

fn report(service: Service, ceiling: f64) -> Report {
    let mut service = service;
    let rtt = service.rtt_us;
    let settings = Settings { ceiling, ..Settings::default() };
    let discovery = discover(&mut service, settings).unwrap();
    let seen = Observation {
        kernel: Some(KernelDelta { idle: Some(0.9), ..KernelDelta::default() }),
        server: Some(ServerDelta { cores: 4.0, cpu: 0.3, ..ServerDelta::default() }),
        min_rtt_us: Some(rtt),
    };
    let observations = vec![seen; discovery.steps().len()];
    let context = Context {
        target: "http://127.0.0.1:9".to_owned(),
        started: "2026-11-20T12:00:00Z".to_owned(),
        ..Context::default()
    };
    Report::build(context, &discovery, &observations, &[])
}

fn target(rate: f64, p99_ms: Option<f64>) -> Target {
    Target { rate, p99_us: p99_ms.map(|ms| ms * 1e3), headroom: HEADROOM }
}

#[test]
fn a_plan_for_a_pool_of_fifty() {
    let plan = plan(&report(Service::new(50, 10_000.0), 512.0), target(50_000.0, Some(50.0))).unwrap();
    // 5,000/s each, 70 % of it planned: 14.3, so 15 and one spare.
    assert_eq!(plan.instances, 16);
    assert_eq!(plan.confidence, Confidence::Good);
    let vertical = plan.options.iter().find(|o| o.name == "vertical").unwrap();
    assert!(vertical.supported, "a larger pool is possible: {vertical:?}");
    let geographic = plan.options.iter().find(|o| o.name == "geographic").unwrap();
    assert!(!geographic.supported, "{geographic:?}");
    assert!(
        plan.figures.iter().chain(plan.options.iter().flat_map(|o| &o.figures)).all(|f| f.value.is_finite())
    );
    insta::assert_snapshot!(plan.text());
}

/// The text is read by the same code that reads a server's policies.
#[test]
fn limits_are_valid_policies_left_of_the_knee() {
    let report = report(Service::new(50, 10_000.0), 512.0);
    let plan = plan(&report, target(20_000.0, None)).unwrap();
    let file: toml::Table = plan.limits.parse().unwrap();
    let policies = file["policy"].as_array().unwrap();
    assert_eq!(policies.len(), 2);
    for policy in policies {
        let text = serde_json::to_string(policy).unwrap();
        assert!(policy["limit"].as_integer().unwrap() > 0, "{text}");
    }
    let knee = report.knee.unwrap();
    assert!(policies[0]["limit"].as_integer().unwrap() as f64 <= knee.concurrency);
    assert!((policies[1]["limit"].as_integer().unwrap() as f64) < knee.throughput);
}

#[test]
fn a_tighter_percentile_plans_more_instances() {
    let mut service = Service::new(500, 10_000.0);
    service.coherency = 1e-4;
    let report = report(service, 256.0);
    let loose = plan(&report, target(20_000.0, Some(40.0))).unwrap();
    let tight = plan(&report, target(20_000.0, Some(11.0))).unwrap();
    assert!(tight.instances > loose.instances, "{} and {}", tight.instances, loose.instances);
    let error = plan(&report, target(20_000.0, Some(5.0))).unwrap_err();
    assert!(matches!(error, PlanError::Percentile { .. }), "{error}");
}

#[test]
fn what_was_not_reached_is_planned_with_caution() {
    let plan = plan(&report(Service::new(1_000, 10_000.0), 64.0), target(10_000.0, None)).unwrap();
    assert_eq!(plan.confidence, Confidence::Cautious);
    assert!(plan.doubts.iter().any(|d| d.contains("lower bound")));
}

#[test]
fn distance_is_an_option_only_when_it_was_measured() {
    let mut far = Service::new(1_000, 2_000.0);
    far.rtt_us = 200_000.0;
    let plan = plan(&report(far, 100.0), target(1_000.0, None)).unwrap();
    let geographic = plan.options.iter().find(|o| o.name == "geographic").unwrap();
    assert!(geographic.supported && geographic.advice.contains("200 ms"), "{geographic:?}");
}

#[test]
fn nonsense_is_refused() {
    let report = report(Service::new(4, 10_000.0), 32.0);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(plan(&report, target(rate, None)), Err(PlanError::Rate(_))));
    }
    let refused = |target| plan(&report, target).unwrap_err().to_string();
    assert_eq!(refused(target(100.0, Some(0.0))), "p99 has to stay below a time above 0, not 0 us");
    let all = Target { headroom: 1.0, ..target(100.0, None) };
    assert_eq!(refused(all), "a headroom is 0 to 90 %, not 100 %");
    assert_eq!(refused(target(0.0, Some(0.0))), "a plan needs a rate above 0 per second, not 0");
    assert!(matches!(plan(&report, target(1e9, None)), Err(PlanError::TooMany(_))));
    let mut empty = report;
    empty.capacity = None;
    assert_eq!(plan(&empty, target(1.0, None)).unwrap_err(), PlanError::NoCapacity);
}
