//! The built binary against `tidegate stub`, whose behaviour is planted: the cause that was planted is
//! the cause that is named, with its figures.
//!
//! Steps are short (about a second), so gate (c) fails in these reports, as it should. The cases run
//! one at a time, and in a real-time class where that is allowed: what is tested is the judgement, and
//! a service whose cores are taken by a neighbour is another service. A case that the machine disturbed
//! all the same is tried again, at most [`ATTEMPTS`] times in all.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;

/// Tries of one case.
const ATTEMPTS: usize = 4;
const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A case that failed has poisoned nothing.
fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The binary, before other programs where that is allowed: the generator before the server.
fn tidegate(arguments: &[&str]) -> Command {
    static ALLOWED: OnceLock<bool> = OnceLock::new();
    let allowed = ALLOWED.get_or_init(|| {
        let tried = Command::new("chrt").args(["-f", "1", "true"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    });
    let mut command = if *allowed {
        let priority = if arguments.first() == Some(&"stub") { "1" } else { "2" };
        let mut command = Command::new("chrt");
        command.args(["-f", priority, BINARY]);
        command
    } else {
        Command::new(BINARY)
    };
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running stub; dropping it kills it.
struct Stub {
    child: Child,
    url: String,
}

impl Stub {
    fn start(behaviour: &str) -> Self {
        let arguments: Vec<&str> =
            ["stub", "127.0.0.1:0"].into_iter().chain(behaviour.split_whitespace()).collect();
        let mut child = tidegate(&arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("the stub says where it listens");
        Self { url: format!("http://{address}/"), child }
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs `tidegate saturate` on a URL, with the JSON report in `folder`.
fn saturate(folder: &Path, url: &str, flags: &str) -> (Output, Value) {
    let json = folder.join("report.json");
    let arguments: Vec<&str> = ["saturate", url, "--json", json.to_str().unwrap()]
        .into_iter()
        .chain(flags.split_whitespace())
        .collect();
    let output = tidegate(&arguments).output().unwrap();
    let text = fs::read_to_string(&json).unwrap_or_else(|_| panic!("no report: {output:?}"));
    (output, serde_json::from_str(&text).unwrap())
}

/// The report of a fresh stub with this behaviour, once it passes `check`; what it lacks if none does.
fn planted(behaviour: &str, flags: &str, check: impl Fn(&Value) -> Result<(), String>) -> Value {
    attempts(
        || {
            let folder = tempfile::tempdir().unwrap();
            let stub = Stub::start(behaviour);
            saturate(folder.path(), &stub.url, flags).1
        },
        check,
    )
}

fn attempts(run: impl Fn() -> Value, check: impl Fn(&Value) -> Result<(), String>) -> Value {
    let _alone = alone();
    let mut lacks = String::new();
    for _ in 0..ATTEMPTS {
        let report = run();
        match check(&report) {
            Ok(()) => return report,
            Err(why) => lacks = format!("{why}\n{}", outline(&report)),
        }
    }
    panic!("in {ATTEMPTS} attempts: {lacks}");
}

/// What a report says in a few lines.
fn outline(report: &Value) -> String {
    let steps: Vec<String> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            format!("{} {} {}", step["plan"]["connections"], step["throughput"]["mean"], step["refusals"])
        })
        .collect();
    format!("{}\n{}\n{}\n{}", report["capacity"], report["knee"], report["cause"], steps.join("\n"))
}

fn named(cause: &str) -> impl Fn(&Value) -> Result<(), String> {
    move |report| match report["cause"]["name"].as_str() {
        Some(found) if found == cause => Ok(()),
        other => Err(format!("{cause} was planted, {other:?} was named")),
    }
}

fn within(what: &str, found: &Value, expected: f64, share: f64) -> Result<(), String> {
    match found.as_f64() {
        Some(value) if (value / expected - 1.0).abs() <= share => Ok(()),
        other => Err(format!("{what} is {other:?}, not {expected} within {share}")),
    }
}

/// 8 workers with 10 ms each: 800 a second, from 8 in flight on.
#[test]
fn a_pool_is_found_with_its_capacity_knee_size_and_service_time() {
    let flags = "--max-connections 32 --step-seconds 1 --warmup-seconds 0.2 --repeats 2";
    let report = planted("--delay-ms 10 --workers 8", flags, |report| {
        within("the capacity", &report["capacity"]["throughput"], 800.0, 0.03)?;
        let between = &report["knee"]["between"];
        let (low, high) = (between["low"].as_f64(), between["high"].as_f64());
        if !(low.is_some_and(|low| low <= 8.0) && high.is_some_and(|high| high >= 8.0)) {
            return Err("the knee is not within a step of 8".to_owned());
        }
        named("fixed-concurrency")(report)?;
        within("the pool", &report["cause"]["numbers"]["pool_size"], 8.0, 0.10)?;
        within("the service time", &report["cause"]["numbers"]["service_time_ms"], 10.0, 0.10)
    });
    assert!(report["knee"]["concurrency"].is_f64());
    let interval = &report["capacity"]["interval"];
    assert!(interval["low"].as_f64() < interval["high"].as_f64());
    assert!(!report["cause"]["evidence"].as_array().unwrap().is_empty());
    assert_eq!(report["stop"], "found");
}

#[test]
fn admission_is_named() {
    let flags = "--levels 1,2,4,8,16 --step-seconds 1 --warmup-seconds 0.2 --repeats 1";
    let report =
        planted("--delay-ms 10 --refuse-above-rate 500 --refuse-status 503", flags, named("admission"));
    assert!(report["cause"]["numbers"]["denied_share"].as_f64() > Some(0.02));
}

#[test]
fn the_servers_descriptors_are_named() {
    let flags = "--levels 8,32,128 --step-seconds 1.5 --warmup-seconds 0.2 --repeats 1 --timeout-seconds 1";
    let report = planted("--delay-ms 10 --max-descriptors 60", flags, named("server-descriptors"));
    assert_eq!(report["cause"]["numbers"]["descriptor_limit"], 60.0);
}

#[test]
fn a_full_accept_queue_is_named() {
    let flags = "--levels 2,24 --step-seconds 4 --warmup-seconds 0.2 --repeats 1 --connection-per-request";
    planted("--backlog 1 --accept-gap-ms 20", flags, named("accept-queue"));
}

#[test]
fn a_periodic_stall_is_named_with_its_period() {
    let flags = "--levels 1,2,4,8 --step-seconds 4 --warmup-seconds 0.2 --repeats 1";
    planted("--delay-ms 2 --stall-ms 500:120", flags, |report| {
        named("periodic-stall")(report)?;
        within("the period", &report["cause"]["numbers"]["period_ms"], 500.0, 0.15)
    });
}

#[test]
fn drift_is_named() {
    let flags = "--levels 16 --step-seconds 3 --warmup-seconds 0.2 --repeats 3";
    planted("--delay-ms 5 --workers 8 --drift-ms-per-s 0.5", flags, named("drift"));
}

#[test]
fn a_servers_cores_that_are_used_up_are_named() {
    let cores = std::thread::available_parallelism().unwrap();
    let flags = "--levels 1,8,32 --step-seconds 2 --warmup-seconds 0.3 --repeats 1";
    planted(&format!("--threads {cores} --burn-ms 2"), flags, named("server-cpu"));
}

#[test]
fn a_hot_thread_is_named() {
    let flags = "--levels 1,4,16 --step-seconds 2 --warmup-seconds 0.3 --repeats 1";
    planted("--threads 1 --burn-ms 1", flags, named("hot-thread"));
}

#[test]
fn what_stands_behind_the_server_is_named() {
    let behind = Stub::start("--delay-ms 10 --workers 4");
    let behaviour = format!("--upstream {} --upstream-connections 4", behind.address());
    let flags = "--levels 1,2,4,8,16 --step-seconds 1.2 --warmup-seconds 0.2 --repeats 1";
    planted(&behaviour, flags, named("upstream"));
}

#[test]
fn the_generator_is_named_and_its_steps_are_not_the_servers() {
    let flags = "--levels 64 --step-seconds 2 --warmup-seconds 0.3 --repeats 1 --threads 1 \
                 --scenario {scenario}";
    let folder = tempfile::tempdir().unwrap();
    // The generator searches each body for what is not there; the server only copies it.
    let path = folder.path().join("heavy.toml");
    fs::write(
        &path,
        "name = \"heavy\"\n[[request]]\npath = \"/\"\n[good]\nbody_lacks = [\"nothing like this\"]\n\
         [[step]]\nconnections = 1\nduration_s = 1.0\n",
    )
    .unwrap();
    let flags = flags.replace("{scenario}", path.to_str().unwrap());
    let report = planted("--threads 2 --body-bytes 65536", &flags, named("generator-cpu"));
    assert!(report["capacity"].is_null(), "{}", report["capacity"]);
    assert_eq!(report["steps"][0]["refusals"][0]["reason"], "generator-bound");
}

/// A healthy service whose ladder ended by its bounds: no cause is invented.
#[test]
fn a_healthy_service_gets_no_cause() {
    let flags = "--levels 1,2,4,8,16 --step-seconds 1 --warmup-seconds 0.2 --repeats 1";
    let report = planted("--delay-ms 20", flags, named("unknown"));
    assert_eq!((&report["capacity"]["bound"], &report["knee"]), (&Value::from("at-least"), &Value::Null));
}

#[test]
fn the_clients_descriptors_are_named() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let stub = Stub::start("--delay-ms 20");
        let json = folder.path().join("report.json");
        let flags =
            "--levels 16,128 --step-seconds 1.5 --warmup-seconds 0.2 --repeats 1 --processes 1 --force";
        let output = Command::new("prlimit")
            .args(["--nofile=80:80", BINARY, "saturate", &stub.url, "--json", json.to_str().unwrap()])
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        let text = fs::read_to_string(&json).unwrap_or_else(|_| panic!("no report: {output:?}"));
        serde_json::from_str(&text).unwrap()
    };
    attempts(run, named("client-descriptors"));
}

/// In a network of its own whose port range is a hundred long.
#[test]
fn the_clients_ports_are_named() {
    let script = r#"
        ip link set lo up && echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range || exit 9
        mkfifo ready
        "$0" stub 127.0.0.1:4100 --delay-ms 20 > ready & stub=$!
        read line < ready
        "$0" saturate http://127.0.0.1:4100/ "$@"; code=$?
        kill $stub; exit $code"#;
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let flags =
            "--levels 16,256 --step-seconds 1.5 --warmup-seconds 0.2 --repeats 1 --json report.json --force";
        let output = Command::new("unshare")
            .args(["--map-root-user", "--net", "sh", "-c", script, BINARY])
            .args(flags.split_whitespace())
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = fs::read_to_string(folder.path().join("report.json"));
        serde_json::from_str(&text.unwrap_or_else(|_| panic!("no report: {output:?}"))).unwrap()
    };
    attempts(run, named("client-ports"));
}

#[test]
fn files_exit_status_and_words_agree() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::start("--delay-ms 20");
    let (html, markdown) = (folder.path().join("r.html"), folder.path().join("r.md"));
    let flags = format!(
        "--levels 1,4 --step-seconds 0.6 --warmup-seconds 0.1 --repeats 1 --threshold p50<1ms --html {} --markdown {}",
        html.display(),
        markdown.display()
    );
    let (output, report) = saturate(folder.path(), &stub.url, &flags);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("Threshold p50 < 1ms: MISSED") && said.contains("Capacity: at least"), "{said}");
    let steps = String::from_utf8(output.stderr).unwrap();
    assert!(steps.contains("the server is process") && steps.contains("step 2: 4 connections: "), "{steps}");
    assert_eq!(
        (&report["schema"], report["steps"].as_array().unwrap().len()),
        (&"tidegate-report/1".into(), 2)
    );
    let page = fs::read_to_string(html).unwrap();
    assert!(
        page.to_ascii_lowercase().starts_with("<!doctype html>") && page.contains("Content-Security-Policy")
    );
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("@import"));
    assert!(fs::read_to_string(markdown).unwrap().contains("## Why: "));
}

#[test]
fn what_the_machine_does_not_allow_is_said_before_the_run() {
    let output = tidegate(&["saturate", "http://192.0.2.1/", "--levels", "60000", "--sources", "127.0.0.1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("BLOCKED") && said.contains("lift it with: "), "{said}");
}

#[test]
fn an_interrupt_ends_with_the_report_of_what_was_measured() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::start("--delay-ms 20");
    let json = folder.path().join("report.json");
    let flags = ["--step-seconds", "1", "--warmup-seconds", "0.1", "--json", json.to_str().unwrap()];
    let mut child = Command::new(BINARY)
        .args(["saturate", &stub.url])
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("step 2: ") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before its second step");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    said.read_to_string(&mut line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["stop"], "interrupted");
    assert!((2..=3).contains(&report["steps"].as_array().unwrap().len()));
}
