//! Planted causes, named by the built binary: `tidegate stub` behaves, `tidegate saturate` says why.
//!
//! Real sockets, real `/proc`. A machine that runs other things has hiccups of its own, so each case
//! may be tried three times; in none of them may it be named wrongly with the figures the case knows.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

const ATTEMPTS: usize = 3;

/// A stub that ends with its test.
struct Stub {
    child: Child,
    port: u16,
}

impl Stub {
    fn start(flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["stub", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().unwrap_or_else(|_| panic!("{line:?}"));
        Self { child, port }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Runs the levels against a stub and reads the report.
fn saturate(stub: &Stub, flags: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["saturate", &format!("http://127.0.0.1:{}/", stub.port), "--plain", "--warmup-s", "0.3"])
        .args(flags)
        .args(["--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

/// The report in which the planted cause is named first.
fn named(cause: &str, stub_flags: &[&str], flags: &[&str]) -> Value {
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let stub = Stub::start(stub_flags);
        let report = saturate(&stub, flags);
        if report["cause"]["name"] == cause {
            return report;
        }
        seen.push(report["cause"].clone());
    }
    panic!("{cause} was planted, named was {seen:#?}");
}

fn number(report: &Value, name: &str) -> f64 {
    report["cause"]["numbers"][name].as_f64().unwrap()
}

#[test]
fn fixed_concurrency_with_its_pool_and_service_time() {
    let levels = ["--levels", "1,4,8,16,32", "--duration-s", "1.5", "--repeats", "1"];
    let report = named("fixed-concurrency", &["--workers", "8", "--delay-ms", "10"], &levels);
    assert!((number(&report, "pool_size") - 8.0).abs() < 1.6, "{:#}", report["cause"]);
    assert!((number(&report, "service_time_ms") - 10.0).abs() < 2.0, "{:#}", report["cause"]);
}

#[test]
fn admission_by_status_503() {
    let stub = ["--workers", "8", "--delay-ms", "10", "--refuse-above-in-flight", "12"];
    named("admission", &stub, &["--levels", "4,8,16", "--duration-s", "1.5", "--repeats", "1"]);
}

#[test]
fn accept_queue_of_one() {
    let stub = ["--delay-ms", "20", "--backlog", "1", "--accept-gap-ms", "30"];
    named("accept-queue", &stub, &["--levels", "8,96", "--duration-s", "4", "--repeats", "1"]);
}

#[test]
fn server_descriptors_at_their_limit() {
    let stub = ["--delay-ms", "20", "--max-descriptors", "100"];
    named("server-descriptors", &stub, &["--levels", "32,200", "--duration-s", "2", "--repeats", "1"]);
}

#[test]
fn periodic_stall_with_its_period() {
    let stub = ["--workers", "16", "--delay-ms", "4", "--stall-ms", "700:90"];
    let report =
        named("periodic-stall", &stub, &["--levels", "2,8", "--duration-s", "4.5", "--repeats", "1"]);
    assert!((number(&report, "period_ms") - 700.0).abs() < 70.0, "{:#}", report["cause"]);
}

#[test]
fn drift_at_constant_load() {
    let stub = ["--workers", "8", "--delay-ms", "5", "--drift-ms-per-s", "0.3"];
    named("drift", &stub, &["--levels", "2,8", "--duration-s", "2.5", "--repeats", "2"]);
}

#[test]
fn upstream_behind_a_small_pool() {
    let backend = Stub::start(&["--workers", "6", "--delay-ms", "5"]);
    let upstream = format!("127.0.0.1:{}", backend.port);
    let stub = ["--upstream", &upstream, "--upstream-connections", "6"];
    named("upstream", &stub, &["--levels", "1,4,8,16", "--duration-s", "1.5", "--repeats", "1"]);
}

/// Nothing is planted, and nothing is found.
#[test]
fn a_service_with_room_has_no_cause() {
    let levels = ["--levels", "1,4,16", "--duration-s", "1.5", "--repeats", "1"];
    let report = named("unknown", &["--delay-ms", "20"], &levels);
    assert_eq!(report["capacity"]["bound"], "at-least", "{:#}", report["capacity"]);
}
