//! The five reports' claims, and the rules' edges.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn shipped(name: &str) -> (ClaimFile, Vec<Audited>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/audit").join(name);
    let file = read(&std::fs::read_to_string(path).unwrap()).unwrap();
    let verdicts = audit(&file);
    (file, verdicts)
}

fn found<'a>(verdicts: &'a [Audited], name: &str) -> &'a Audited {
    verdicts.iter().find(|v| v.name == name).unwrap_or_else(|| panic!("no claim {name}"))
}

fn objects(verdict: &Audited, objection: Objection) -> bool {
    verdict.findings.iter().any(|f| f.objection == objection)
}

#[test]
fn every_published_claim_has_its_verdict() {
    for name in ["rate-limiter-report", "rate-limiter-readme", "gateway", "edge", "intake"] {
        let (file, verdicts) = shipped(&format!("{name}.toml"));
        insta::assert_snapshot!(name, text(&file, &verdicts));
    }
}

/// The findings that were made by hand, reproduced from the typed figures.
#[test]
fn the_known_findings_are_reproduced() {
    let close = |v: &Audited, n: f64| (v.in_flight.unwrap() / n - 1.0).abs() < 0.02;
    let (_, readme) = shipped("rate-limiter-readme.toml");
    let extreme = found(&readme, "200,000 simultaneous");
    assert!(close(extreme, 948.0) && objects(extreme, Objection::ContradictsLittlesLaw));
    assert!(objects(extreme, Objection::SurvivorsOnly));
    let sustained = found(&readme, "sustained, 500 connections");
    let denials =
        sustained.findings.iter().find(|f| f.objection == Objection::DenialsCountedAsSuccess).unwrap();
    assert!(denials.says.contains("94.4 %"), "{}", denials.says);

    let (_, intake) = shipped("intake.toml");
    let most = found(&intake, "max throughput");
    assert!(close(most, 1.06) && objects(most, Objection::OfferedRateAsCapacity));

    let (_, edge) = shipped("edge.toml");
    let users = found(&edge, "1,000 users");
    assert!(close(users, 597.0) && objects(users, Objection::RampAverage));
    let two = found(&edge, "hey, 2,000 connections");
    let left_out = two.findings.iter().find(|f| f.objection == Objection::SurvivorsOnly).unwrap();
    assert!(left_out.says.contains("2,306 timeouts"), "{}", left_out.says);
    assert!(edge.iter().any(|v| objects(v, Objection::WrongTarget)));

    let (_, gateway) = shipped("gateway.toml");
    assert!(gateway.iter().any(|v| objects(v, Objection::WrongTarget)));

    let (_, report) = shipped("rate-limiter-report.toml");
    let short = report.iter().filter(|v| v.name == "10 connections" && objects(v, Objection::StepTooShort));
    assert_eq!(short.count(), 4, "four configurations were compared on steps that short");
}

#[test]
fn honest_claims_pass() {
    let text = "title = 't'\n[[claim]]\nname = 'a'\nconcurrency = 50\nrate_per_second = 5305.05\nmean_ms = 9.42\n\
                duration_seconds = 30.015\nrequests = 159231\n";
    let verdict = audit(&read(text).unwrap()).remove(0);
    assert!(verdict.findings.is_empty() && verdict.checkable, "{verdict:?}");
}

#[test]
fn a_part_that_is_more_than_its_whole_is_an_objection() {
    let five = Claim { requests: Some(5.0), ..Claim::default() };
    let said = |c: Claim| rules::judge(&c, &[]).findings.into_iter().map(|f| f.says).collect::<Vec<_>>();
    assert_eq!(said(Claim { errors: Some(10.0), ..five.clone() }), ["10 errors of 5 requests"]);
    assert_eq!(said(Claim { timeouts: Some(6.0), ..five.clone() }), ["6 timeouts of 5 requests"]);
    let both = Claim { errors: Some(1.0), timeouts: Some(2.0), ..five.clone() };
    assert_eq!(said(both), ["2 timeouts of 1 errors"]);
    assert_eq!(said(Claim { errors: Some(5.0), ..five }), Vec::<String>::new());
    let denied = Claim { denied_share: Some(1.5), ..Claim::default() };
    assert!(rules::judge(&denied, &[]).findings.iter().any(|f| f.objection == Objection::Arithmetic));
}

#[test]
fn a_limit_that_admits_everything_is_no_objection() {
    let claim = |requests: f64| Claim {
        requests: Some(requests),
        clients: Some(10.0),
        limit_per_window: Some(100.0),
        window_seconds: Some(60.0),
        duration_seconds: Some(30.0),
        ..Claim::default()
    };
    let objection = |c: Claim| !rules::judge(&c, &[]).findings.is_empty();
    assert!(!objection(claim(1_000.0)));
    assert!(objection(claim(2_000.0)));
    // A second window has begun after 60 s.
    assert!(!objection(Claim { duration_seconds: Some(60.0), ..claim(2_000.0) }));
}

#[test]
fn mistakes_are_named() {
    let wrong = |text: &str| read(text).unwrap_err().to_string();
    assert!(wrong("title = 't'").contains("1 to 1000 claims"));
    assert!(wrong("title = 't'\n[[claim]]\nname = 'a'\nconcurency = 5").contains("concurency"));
    assert!(wrong("title = 't'\n[[claim]]\nname = 'a'\nmean_ms = -1").contains("mean_ms is -1"));
    assert!(wrong("title = 't'\n[[claim]]\nname = 'a'\n[[claim]]\nname = 'a'").contains("twice"));
}

proptest! {
    #[test]
    fn any_figures_are_judged(figures in prop::collection::vec(prop::option::of(0.0_f64..1e9), 12)) {
        let claim = Claim {
            concurrency: figures[0], rate_per_second: figures[1], requests: figures[2], duration_seconds: figures[3],
            mean_ms: figures[4], p50_ms: figures[5], errors: figures[6], timeouts: figures[7], timeout_ms: figures[8],
            clients: figures[9], limit_per_window: figures[10], window_seconds: figures[11],
            latency_of: Some(LatencyOf::Successes), ..Claim::default()
        };
        let verdict = rules::judge(&claim, std::slice::from_ref(&claim));
        prop_assert!(verdict.findings.iter().all(|f| !f.says.is_empty()));
    }
}
