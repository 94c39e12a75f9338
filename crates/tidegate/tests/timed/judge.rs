//! The built binary: `audit`, and what `compare` and `plan` say to files that are no reports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tidegate_judge::discover::{Settings, discover};
use tidegate_judge::measurement::{Bench, Bucket, GeneratorLoad, Measurement, StepPlan, latency};
use tidegate_judge::report::{Context, Report};

/// A pool of `workers` at `service_ms` each, by its law instead of by its requests; every second
/// bucket is one good reply off, so that there is some noise.
struct Pool {
    workers: f64,
    service_ms: f64,
}

impl Bench for Pool {
    type Error = std::convert::Infallible;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, Self::Error> {
        let connections = f64::from(plan.connections);
        let rate = connections.min(self.workers) * 1e3 / self.service_ms;
        let reply_us = (connections / rate * 1e6) as u64;
        let buckets = plan.measure_ms / 100;
        let timeline: Vec<Bucket> = (0..buckets)
            .map(|i| (rate / 10.0) as u64 + i % 2)
            .map(|good| Bucket { good, max_us: reply_us, sum_us: good * reply_us, ..Bucket::default() })
            .collect();
        let good = timeline.iter().map(|b| b.good).sum();
        let mut times = latency();
        times.record_n(reply_us, good).unwrap();
        Ok(Measurement {
            plan: plan.clone(),
            opening_seconds: 0.0,
            seconds: plan.measure_ms as f64 / 1e3,
            established: plan.connections,
            sent: good,
            good,
            denied: 0,
            errors: Default::default(),
            closes: Default::default(),
            statuses: [(200, good)].into(),
            response: times.clone(),
            service: times.clone(),
            connect: latency(),
            handshake: latency(),
            first_byte: times,
            denied_response: latency(),
            mean_in_flight: connections,
            bytes_read: 0,
            bytes_written: 0,
            bucket_ms: 100,
            timeline,
            generator: GeneratorLoad { threads: 2, ..GeneratorLoad::default() },
            agents: Vec::new(),
        })
    }
}

/// A report's JSON in a file.
fn report(dir: &Path, name: &str, service_ms: f64) -> String {
    let found = discover(&mut Pool { workers: 50.0, service_ms }, Settings::default()).unwrap();
    let context = Context { target: name.to_owned(), ..Context::default() };
    let path = dir.join(format!("{name}.json"));
    fs::write(&path, Report::build(context, &found, &[], &[]).to_json().unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn compare_words_the_difference_and_can_fail() {
    let dir = tempfile::tempdir().unwrap();
    let (slow, fast) = (report(dir.path(), "slow", 11.2), report(dir.path(), "fast", 10.0));
    let better = tidegate(&["compare", &slow, &fast]);
    assert!(stdout(&better).starts_with("faster by 1"), "{}", stdout(&better));
    let worse = tidegate(&["compare", "--fail-if-worse", &fast, &slow]);
    assert_eq!(worse.status.code(), Some(3), "{}", stdout(&worse));
    let same = tidegate(&["compare", "--fail-if-worse", &fast, &fast]);
    assert_eq!(same.status.code(), Some(0));
    assert!(stdout(&same).starts_with("throughput unchanged"), "{}", stdout(&same));
}

/// The limits that a plan writes are policies that the server itself accepts.
#[test]
fn plan_writes_limits_that_check_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let from = report(dir.path(), "pool", 10.0);
    let limits = dir.path().join("limits.toml");
    let limits = limits.to_str().unwrap();
    let never = tidegate(&["plan", &from, "--target", "50000/s", "--p99", "0ms"]);
    assert_eq!(stdout(&never), "p99 has to stay below a time above 0, not 0 us\n");
    let plan = tidegate(&["plan", &from, "--target", "50000/s", "--p99", "50ms", "--limits", limits]);
    assert!(stdout(&plan).starts_with("16 instances for 50,000/s"), "{}", stdout(&plan));
    assert!(fs::read_to_string(limits).unwrap().contains("algorithm = \"concurrency\""));
    let checked = tidegate(&["check", limits]);
    assert_eq!(checked.status.code(), Some(0), "{}", stdout(&checked));
}

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn claims(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/audit").join(name)
}

#[test]
fn audit_prints_verdicts_and_sets_the_status_when_asked() {
    let edge = claims("edge.toml");
    let edge = edge.to_str().unwrap();
    let plain = tidegate(&["audit", edge]);
    assert_eq!(plain.status.code(), Some(0));
    assert!(stdout(&plain).contains("is about 597 in flight, not 1,000"), "{}", stdout(&plain));
    assert_eq!(tidegate(&["audit", "--strict", edge]).status.code(), Some(3));
    let json = tidegate(&["audit", "--json", edge]);
    let verdicts: serde_json::Value = serde_json::from_str(stdout(&json)).unwrap();
    assert!(verdicts.as_array().unwrap().len() > 10);
}

/// A claim's words come from elsewhere: they say nothing to the terminal.
#[test]
fn audit_prints_no_escape_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("claims.toml");
    let claims = "title = \"\\u001b[2Jtitle\"\n[[claim]]\nname = \"\\u001b]0;x\\u0007a\"\ntable = \"t\\u009b1m\"\n\
                  requests = 5\nerrors = 10\nbypasses = \"\\u001b[31mred\"\n";
    fs::write(&path, claims).unwrap();
    let output = tidegate(&["audit", path.to_str().unwrap()]);
    let said = stdout(&output);
    assert!(said.contains("10 errors of 5 requests") && said.contains("red"), "{said}");
    assert!(!said.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{said:?}");
    let wrong = dir.path().join("wrong.toml");
    fs::write(&wrong, "title = 1 \u{1b}[2J").unwrap();
    assert!(!stdout(&tidegate(&["audit", wrong.to_str().unwrap()])).contains('\u{1b}'));
}

#[test]
fn a_file_that_is_no_report_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    let name = path.to_str().unwrap();
    for (content, expected) in [
        ("nonsense", "not a tidegate report"),
        ("{\"schema\":\"tidegate-report/9\"}", "schema `tidegate-report/9`"),
    ] {
        fs::write(&path, content).unwrap();
        for arguments in
            [vec!["compare", name, name], vec!["plan", name, "--target", "50000/s", "--p99", "50ms"]]
        {
            let refused = tidegate(&arguments);
            assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
            let said = stdout(&refused);
            assert!(said.contains(expected) && said.contains(name), "{said}");
        }
    }
    let missing = tidegate(&["audit", "/no/such/file"]);
    assert!(missing.status.code() == Some(1) && stdout(&missing).contains("/no/such/file"));
    assert_eq!(
        tidegate(&["plan", name, "--target", "fast"]).status.code(),
        Some(2),
        "a flag's value is usage"
    );
}
