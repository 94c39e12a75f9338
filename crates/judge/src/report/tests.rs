//! The three forms of one report, from a simulated run; the HTML is looked at in a real browser.

use std::process::Command;

use super::*;
use crate::discover::discover;
use crate::simulated::Service;

fn context() -> Context {
    Context {
        target: "http://127.0.0.1:4000/<script>alert(1)</script>|`x`".to_owned(),
        engine: "HTTP/1.1 by tidegate's own reader".to_owned(),
        scenario: "discover".to_owned(),
        started: "2026-11-20T12:00:00Z".to_owned(),
        version: "0.1.0".to_owned(),
        machine: Machine {
            system: "linux 6.12".to_owned(),
            processor: "Example CPU".to_owned(),
            cores: 2,
            memory_bytes: 24 << 30,
            descriptor_limit: 20_000,
            port_range: "32768-60999".to_owned(),
        },
        requests: "GET /".to_owned(),
        requests_digest: "0".repeat(64),
        pinned: None,
        extra_worker_gain: None,
        first_reply: None,
    }
}

/// A small pool whose client runs out of ports above 96 connections: all parts of a report have
/// something in them.
fn sample() -> Report {
    let mut service = Service::new(24, 10_000.0);
    (service.spread, service.ports) = (0.2, 96);
    let settings = Settings { ceiling: 256.0, max_steps: 24, ..Settings::default() };
    let discovery = discover(&mut service, settings).unwrap();
    let thresholds = ["p99 < 100ms".parse().unwrap(), "throughput > 5000".parse().unwrap()];
    Report::build(context(), &discovery, &[], &thresholds)
}

#[test]
fn json_is_read_back_and_keeps_its_names() {
    let report = sample();
    let text = report.to_json().unwrap();
    assert_eq!(Report::from_json(&text).unwrap(), report);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(value["capacity"]["throughput"].as_f64().unwrap() > 2_300.0);
    assert!(value["capacity"]["interval"]["low"].as_f64().is_some());
    assert!(value["knee"]["concurrency"].as_f64().is_some());
    assert!(value["cause"]["name"].is_string() && value["cause"]["evidence"].is_array());
    assert!(value["steps"].as_array().unwrap().len() > 5);
}

/// The shape without the figures: what a reader of the JSON may rely on.
#[test]
fn json_schema_shape() {
    let value = serde_json::to_value(sample()).unwrap();
    let mut lines = Vec::new();
    shape(&value, "", &mut lines);
    lines.sort();
    lines.dedup();
    insta::assert_snapshot!(lines.join("\n"));
}

fn shape(value: &serde_json::Value, path: &str, lines: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            // Maps whose keys are data: by status, by class, by the cause's own figures.
            let data = ["statuses", "errors", "numbers"].iter().any(|k| path.ends_with(k));
            for (key, inner) in map {
                let key = if data { "*" } else { key.as_str() };
                shape(inner, &format!("{path}.{key}"), lines);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|i| shape(i, &format!("{path}[]"), lines)),
        serde_json::Value::Null => lines.push(format!("{path}: null")),
        serde_json::Value::Bool(_) => lines.push(format!("{path}: boolean")),
        serde_json::Value::Number(_) => lines.push(format!("{path}: number")),
        serde_json::Value::String(_) => lines.push(format!("{path}: string")),
    }
}

#[test]
fn another_version_is_refused_by_name() {
    let mut report = sample();
    report.schema = "tidegate-report/9".to_owned();
    let text = serde_json::to_string(&report).unwrap();
    let error = Report::from_json(&text).unwrap_err().to_string();
    assert!(error.contains("tidegate-report/9") && error.contains(SCHEMA), "{error}");
    assert!(Report::from_json("{}").is_err() && Report::from_json("nonsense").is_err());
}

#[test]
fn markdown_of_a_run() {
    insta::assert_snapshot!(markdown(&sample()));
}

#[test]
fn thresholds_are_asked_of_the_capacity_or_of_every_level() {
    let report = sample();
    assert!(report.verdicts[0].met && !report.verdicts[1].met, "{:?}", report.verdicts);
    let mut listed = report;
    listed.settings.levels = vec![1.0];
    let errors = evaluate(&["errors < 1%".parse().unwrap()], &listed);
    assert!(!errors[0].met, "the level with errors counts: {errors:?}");
    listed.steps.clear();
    let nothing = evaluate(&["p99 < 1s".parse().unwrap()], &listed);
    assert_eq!((nothing[0].figure, nothing[0].met), (None, false));
}

/// A report of a service of 24 workers, as `with` made its observations and steps.
fn seen(mut service: Service, ceiling: f64, seen: impl Fn(f64) -> Observation) -> Report {
    service.seed = 3;
    let discovery = discover(&mut service, Settings { ceiling, ..Settings::default() }).unwrap();
    let observations: Vec<Observation> = discovery.steps().iter().map(|step| seen(step.load())).collect();
    Report::build(context(), &discovery, &observations, &[])
}

/// Each form begins with the same sentence, and says what to do.
#[test]
fn the_verdict_is_one_sentence_in_every_form() {
    let report = sample();
    let said = &report.conclusion;
    assert!(said.sentence.starts_with("The server does 2,4") && said.sentence.ends_with('.'), "{said:?}");
    assert!(!said.sentence.trim_end_matches('.').contains(". "), "{said:?}");
    let (markdown, page) = (markdown(&report), html::html(&report));
    for form in [&markdown, &page] {
        assert!(form.contains(&said.sentence) && form.contains(&said.advice), "{form}");
    }
    assert!(markdown.find(&said.sentence) < markdown.find("- Capacity:"));
    assert!(page.find(&said.sentence) < page.find("id=\"capacity\""));
    let summary = summary(&report);
    assert!(summary.starts_with(&said.sentence) && summary.contains(&said.advice), "{summary}");
}

/// Where the client was the limit, nothing in the report gives its figure as the server's.
#[test]
fn a_capacity_that_the_client_limited_is_at_least() {
    let mut service = Service::new(2_000, 90_000.0);
    service.ports = 300;
    let ports = Observation {
        kernel: Some(crate::diagnose::evidence::KernelDelta {
            sockets_in_use: 28_000,
            port_range: Some(28_232),
            sources: Some(1),
            ..Default::default()
        }),
        ..Observation::default()
    };
    let report = seen(service, 2_000.0, |_| ports.clone());
    assert_eq!(report.cause.name, CauseName::ClientPorts, "{:?}", report.cause);
    assert_eq!((report.capacity.unwrap().bound, report.knee), (Bound::AtLeast, None));
    assert!(report.conclusion.sentence.starts_with("The server does at least "), "{:?}", report.conclusion);
    assert!(report.conclusion.advice.contains("--sources"), "{:?}", report.conclusion);

    let mut slow = Service::new(4_000, 2_000.0);
    (slow.generator_threads, slow.generator_us) = (1, 200.0);
    let report = seen(slow, 2_000.0, |_| Observation::default());
    assert_eq!(report.cause.name, CauseName::GeneratorCpu);
    assert_eq!((report.capacity.unwrap().bound, report.knee), (Bound::AtLeast, None));
    let said = report.conclusion.sentence;
    assert!(said.starts_with("The server does at least ") && said.contains("generator-cpu"), "{said}");
}

#[test]
fn what_is_found_beside_the_cause_is_in_every_form() {
    let mut report = sample();
    let stall = Cause {
        name: CauseName::PeriodicStall,
        confidence: 0.95,
        summary: "the server stops for about 80 ms every 700 ms".to_owned(),
        evidence: vec!["9 of 10 steps show the period".to_owned()],
        numbers: Default::default(),
    };
    report.findings.push(stall);
    for form in [markdown(&report), html::html(&report), summary(&report)] {
        for part in ["Found beside it", "periodic-stall", "every 700 ms", "9 of 10 steps"] {
            assert!(form.contains(part), "{part}: {form}");
        }
    }
    assert_eq!(Report::from_json(&report.to_json().unwrap()).unwrap().findings, report.findings);
}

#[test]
fn an_interval_that_says_nothing_is_not_printed() {
    let mut report = sample();
    (report.levels[1].interval, report.levels[1].unsteady) = (None, true);
    let wide = Interval { low: 0.0, high: 476_153.0 };
    report.capacity = report.capacity.map(|c| Capacity { throughput: 74_296.0, interval: wide, ..c });
    for form in [markdown(&report), html::html(&report)] {
        assert!(form.contains("too wide: repeats differ") && form.contains("differ too much"), "{form}");
        assert!(!form.contains("476,153"), "{form}");
    }
}

#[test]
fn a_service_that_never_replies_has_no_figure_and_meets_nothing() {
    let mut report = sample();
    for step in &mut report.steps {
        (step.sent, step.good, step.denied) = (4, 0, 0);
        step.errors.clear();
        step.statuses.clear();
    }
    let errors = evaluate(&["errors < 1%".parse().unwrap(), "denied < 1%".parse().unwrap()], &report);
    assert!(errors.iter().all(|v| v.figure.is_none() && !v.met), "{errors:?}");
    let said = conclusion::conclude(&report);
    assert!(said.sentence.starts_with("Nothing was answered"), "{said:?}");
    report.steps[0].statuses.insert(500, 4);
    assert!(conclusion::conclude(&report).sentence.starts_with("No reply was good"));
}

#[test]
fn facts_that_could_not_be_read_are_not_zero() {
    let mut report = sample();
    report.context.machine = Machine { cores: 2, ..Machine::default() };
    for form in [markdown(&report), html::html(&report)] {
        assert!(form.contains("memory unknown") && form.contains("unknown descriptors"), "{form}");
    }
}

#[test]
fn html_stands_alone() {
    let page = html::html(&sample());
    for banned in ["<script", "http://127", "src=", "@import", "url(", "javascript:"] {
        let found = page.replace("http://127.0.0.1:4000/&lt;script", "").contains(banned);
        assert!(!found, "{banned}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("default-src 'none'"));
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

/// What Chromium makes of a page: its DOM after layout.
fn dom(page: &str, width: u32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--window-size={width},2000"))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium is installed (Debian: apt-get install chromium)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The report inside a frame of the given width; a script outside of it measures the overflow,
/// for the report itself allows none.
fn framed(page: &str, width: u32) -> String {
    format!(
        r##"<!doctype html><body><iframe id="f" width="{width}" height="900" style="border:0" srcdoc="{}"></iframe>
<script>const f=document.getElementById("f");f.onload=()=>{{const d=f.contentDocument.documentElement;
document.body.dataset.scroll=d.scrollWidth;document.body.dataset.client=d.clientWidth;
document.body.dataset.charts=f.contentDocument.querySelectorAll("figure svg").length;
document.body.dataset.capacity=f.contentDocument.querySelector("#capacity b").textContent;
const out=e=>{{const a=e.getBoundingClientRect(),b=e.closest("svg").getBoundingClientRect();
return a.left<b.left-1||a.right>b.right+1||a.top<b.top-1||a.bottom>b.bottom+1}};
document.body.dataset.clipped=[...f.contentDocument.querySelectorAll("svg *")].filter(e=>e.tagName!="title"&&out(e))
.map(e=>e.tagName+" "+e.textContent).join("; ");
document.body.dataset.scripts=f.contentDocument.scripts.length;}}</script></body>"##,
        html::escape(page),
    )
}

fn data(dom: &str, name: &str) -> String {
    let key = format!("data-{name}=\"");
    let from = dom.find(&key).unwrap_or_else(|| panic!("no {name} in {dom:.300}")) + key.len();
    dom[from..from + dom[from..].find('"').unwrap()].to_owned()
}

/// Seven digits a second, minutes, and every class of error: no label and no mark leaves its chart.
#[test]
fn a_verdict_says_that_the_first_reply_was_a_redirect() {
    let settings = Settings { ceiling: 64.0, max_steps: 12, ..Settings::default() };
    let discovery = discover(&mut Service::new(24, 10_000.0), settings).unwrap();
    let first_reply = FirstReply::in_doubt(301, Some(b"https://h/new"), true);
    let report = Report::build(Context { first_reply, ..context() }, &discovery, &[], &[]);
    let said = "; the first request was answered 301 with Location https://h/new.";
    assert!(report.conclusion.sentence.ends_with(said), "{}", report.conclusion.sentence);
    let advice = "Redirects are not followed: give the URL that it names; then ";
    assert!(report.conclusion.advice.starts_with(advice), "{}", report.conclusion.advice);
    assert_eq!(Report::from_json(&report.to_json().unwrap()).unwrap(), report);
}

#[test]
fn closes_of_the_server_are_told_apart_from_errors_in_every_form() {
    use crate::measurement::ServerCloses;
    let mut report = sample();
    let said = "Between two requests the server ended";
    assert!(!summary(&report).contains(said) && !html::html(&report).contains(said));
    assert!(!report.to_json().unwrap().contains("\"closes\""), "absent where there was none");
    let errors: u64 = report.steps.iter().map(StepRecord::error_count).sum();
    report.steps[0].closes = ServerCloses { goaway: 1, idle: 20, repeated: 3 };
    report.steps[1].closes = ServerCloses { goaway: 0, idle: 2, repeated: 2 };
    let whole = format!(
        "{said} 22 kept connections by closing them, 1 by GOAWAY; 5 requests were sent again: no errors."
    );
    for text in [summary(&report), markdown(&report), html::html(&report)] {
        assert!(text.contains(&whole), "{text}");
    }
    assert_eq!(report.steps.iter().map(StepRecord::error_count).sum::<u64>(), errors);
    let text = report.to_json().unwrap();
    assert_eq!(Report::from_json(&text).unwrap(), report);
}

#[test]
fn charts_of_large_figures_are_not_clipped() {
    use crate::measurement::ErrorClass as E;
    let mut report = sample();
    for row in &mut report.levels {
        (row.load, row.p99_us) = (row.load * 7_812.0, row.p99_us.map(|us| us * 9e3));
        row.throughput = row.throughput.map(|rate| rate * 777.0);
        row.interval = row.interval.map(|i| Interval { low: i.low * 600.0, high: i.high * 900.0 });
    }
    let all = [E::Refused, E::Reset, E::Timeout, E::TooManyFiles, E::Protocol, E::BadStatus, E::FailedCheck];
    report.steps[0].errors.extend(all.map(|class| (class, 123_456)));
    for width in [320, 1_280] {
        let shown = dom(&framed(&html::html(&report), width), width + 120);
        assert_eq!(
            (data(&shown, "charts").as_str(), data(&shown, "clipped").as_str()),
            ("6", ""),
            "{width} px"
        );
    }
}

#[test]
fn a_real_browser_shows_every_part_without_overflow_at_320_px() {
    let report = sample();
    let page = html::html(&report);
    let narrow = dom(&framed(&page, 320), 800);
    let number = |name: &str| data(&narrow, name).parse::<u32>().unwrap();
    // The frame's own scroll bar takes some of the 320.
    assert!((300..=320).contains(&number("client")));
    assert!(number("scroll") <= number("client"), "{} px wide", number("scroll"));
    assert_eq!(number("charts"), 6);
    assert_eq!(number("scripts"), 0, "the target's <script> stayed text");
    let throughput = format::count(report.capacity.unwrap().throughput);
    assert!(data(&narrow, "capacity").contains(&throughput));

    assert_eq!(data(&narrow, "clipped"), "");
    let wide = dom(&framed(&page, 1_280), 1_400);
    assert_eq!((data(&wide, "charts").as_str(), data(&wide, "clipped").as_str()), ("6", ""));

    let whole = dom(&page, 1_280);
    for id in [
        "conclusion",
        "capacity",
        "knee",
        "cause",
        "zones",
        "evidence",
        "levels",
        "steps",
        "errors",
        "usl",
        "gates",
        "machine",
    ] {
        assert!(whole.contains(&format!("id=\"{id}\"")), "{id}");
    }
}
