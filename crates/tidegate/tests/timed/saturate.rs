//! The built binary against `tidegate stub`, whose behaviour is planted: the cause that was planted is
//! the cause that is named, with its figures. The causes that lie at the client, in a quota or in the
//! distance are planted in `laboratory.rs`.
//!
//! Steps are short (about a second), so gate (c) fails in these reports, as it should.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::planted::{
    BINARY, Stub, alone, attempts_of, ensure, nothing_more, planted, saturate, tidegate, within,
};
use serde_json::Value;

/// 8 workers with 10 ms each: 800 a second, from 8 in flight on.
#[test]
fn a_pool_is_found_with_its_capacity_knee_size_and_service_time() {
    let flags = "--max-connections 32 --step-seconds 1 --warmup-seconds 0.2 --repeats 2";
    planted("fixed-concurrency", "--delay-ms 10 --workers 8", flags, |report| {
        within("the capacity", &report["capacity"]["throughput"], 800.0, 0.03)?;
        let between = &report["knee"]["between"];
        let (low, high) = (between["low"].as_f64(), between["high"].as_f64());
        let around = low.is_some_and(|low| low <= 8.0) && high.is_some_and(|high| high >= 8.0);
        ensure(around && report["knee"]["concurrency"].is_f64(), "the knee is not within a step of 8")?;
        within("the pool", &report["cause"]["numbers"]["pool_size"], 8.0, 0.10)?;
        within("the service time", &report["cause"]["numbers"]["service_time_ms"], 10.0, 0.10)?;
        let interval = &report["capacity"]["interval"];
        ensure(interval["low"].as_f64() < interval["high"].as_f64(), "the capacity has no interval")?;
        ensure(!report["cause"]["evidence"].as_array().unwrap().is_empty(), "no evidence")?;
        ensure(report["stop"] == "found", "the search did not end by finding")
    });
}

#[test]
fn admission_is_named() {
    let flags = "--levels 1,2,4,8,16 --step-seconds 1 --warmup-seconds 0.2 --repeats 1";
    planted("admission", "--delay-ms 10 --refuse-above-rate 500 --refuse-status 503", flags, |report| {
        ensure(report["cause"]["numbers"]["denied_share"].as_f64() > Some(0.02), "hardly anything is denied")
    });
}

#[test]
fn the_servers_descriptors_are_named() {
    let flags = "--levels 8,32,128 --step-seconds 1.5 --warmup-seconds 0.2 --repeats 1 --timeout-seconds 1";
    planted("server-descriptors", "--delay-ms 10 --max-descriptors 60", flags, |report| {
        within("the limit", &report["cause"]["numbers"]["descriptor_limit"], 60.0, 0.0)
    });
}

#[test]
fn a_full_accept_queue_is_named() {
    let flags = "--levels 2,24 --step-seconds 4 --warmup-seconds 0.2 --repeats 1 --connection-per-request";
    planted("accept-queue", "--backlog 1 --accept-gap-ms 20", flags, nothing_more);
}

/// 300 connections at once for a queue of one: most are dropped and come again. That is how the step
/// begins, and never why its throughput is what it is.
#[test]
fn connections_dropped_while_they_are_opened_are_a_finding_and_no_cause() {
    let flags = "--levels 8,300 --step-seconds 2 --warmup-seconds 0.2 --repeats 1 --timeout-seconds 15";
    planted("unknown", "--backlog 1 --delay-ms 100", flags, |report| {
        let findings = report["findings"].as_array().unwrap();
        let drops = findings.iter().find(|it| it["name"] == "opening-drops");
        ensure(drops.is_some_and(|it| it["numbers"]["dropped"].as_f64() > Some(0.0)), "no drops are found")
    });
}

#[test]
fn a_periodic_stall_is_named_with_its_period() {
    let flags = "--levels 1,2,4,8 --step-seconds 4 --warmup-seconds 0.2 --repeats 1";
    planted("periodic-stall", "--delay-ms 2 --stall-ms 500:120", flags, |report| {
        within("the period", &report["cause"]["numbers"]["period_ms"], 500.0, 0.15)
    });
}

#[test]
fn drift_is_named() {
    let flags = "--levels 16 --step-seconds 3 --warmup-seconds 0.2 --repeats 3";
    planted("drift", "--delay-ms 5 --workers 8 --drift-ms-per-s 0.5", flags, nothing_more);
}

#[test]
fn a_servers_cores_that_are_used_up_are_named() {
    let cores = std::thread::available_parallelism().unwrap();
    // The kernel spreads connections over the threads by chance: of 16, each has some all the time.
    let flags = "--levels 1,16,64 --step-seconds 2 --warmup-seconds 0.3 --repeats 1";
    planted("server-cpu", &format!("--threads {cores} --burn-ms 2"), flags, nothing_more);
}

#[test]
fn a_hot_thread_is_named() {
    let flags = "--levels 1,4,16 --step-seconds 2 --warmup-seconds 0.3 --repeats 1";
    planted("hot-thread", "--threads 1 --burn-ms 1", flags, nothing_more);
}

#[test]
fn what_stands_behind_the_server_is_named() {
    let behind = Stub::start("--delay-ms 10 --workers 4");
    let behaviour = format!("--upstream {} --upstream-connections 4", behind.address());
    let flags = "--levels 1,2,4,8,16 --step-seconds 1.2 --warmup-seconds 0.2 --repeats 1";
    planted("upstream", &behaviour, flags, nothing_more);
}

#[test]
fn the_generator_is_named_and_its_steps_are_not_the_servers() {
    let flags = "--levels 64 --step-seconds 2 --warmup-seconds 0.3 --repeats 1 --threads 1 \
                 --scenario {scenario}";
    let folder = tempfile::tempdir().unwrap();
    // The generator searches each body for what is not there, and again; the server only copies it.
    let path = folder.path().join("heavy.toml");
    fs::write(
        &path,
        format!(
            "name = \"heavy\"\n[[request]]\npath = \"/\"\n[good]\nbody_lacks = [{}]\n\
             [[step]]\nconnections = 1\nduration_s = 1.0\n",
            "\"nothing like this\", ".repeat(16)
        ),
    )
    .unwrap();
    let flags = flags.replace("{scenario}", path.to_str().unwrap());
    planted("generator-cpu", "--threads 2 --body-bytes 65536", &flags, |report| {
        ensure(report["capacity"].is_null(), "a capacity is given")?;
        ensure(report["steps"][0]["refusals"][0]["reason"] == "generator-bound", "the step is not refused")
    });
}

/// A healthy service whose ladder ended by its bounds: no cause is invented.
#[test]
fn a_healthy_service_gets_no_cause() {
    let flags = "--levels 1,2,4,8,16 --step-seconds 1 --warmup-seconds 0.2 --repeats 1";
    planted("unknown", "--delay-ms 20", flags, |report| {
        ensure(report["capacity"]["bound"] == "at-least" && report["knee"].is_null(), "a knee is made up")
    });
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
    // On a machine that stands still four connections may get no more than one.
    let (output, report) = (0..10)
        .map(|_| saturate(folder.path(), &stub.url, &flags))
        .find(|(_, report)| report["capacity"]["bound"] == "at-least")
        .expect("one run of ten has its machine");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("Threshold p50 < 1ms: MISSED") && said.contains("Capacity: at least"), "{said}");
    assert!(said.starts_with("The server does at least ") && said.contains("\nWhat to do: "), "{said}");
    let steps = String::from_utf8(output.stderr).unwrap();
    assert!(steps.contains("the server is process") && steps.contains("step 2: 4 connections: "), "{steps}");
    assert_eq!(
        (&report["schema"], report["steps"].as_array().unwrap().len()),
        (&"tidegate-report/2".into(), 2)
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
    let flags = ["--step-seconds", "3", "--warmup-seconds", "0.1", "--json", json.to_str().unwrap()];
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
    assert_eq!(child.wait().unwrap().code(), Some(1), "not everything was measured");
    let report: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(report["stop"], "interrupted");
    assert!((2..=3).contains(&report["steps"].as_array().unwrap().len()));
}

/// Everybody stops for 80 ms now and then; that limits at every load, and a pool limits beside it.
#[test]
fn a_stall_beside_a_pool_is_reported_too() {
    let flags = "--levels 1,4,8,16,32 --step-seconds 4 --warmup-seconds 0.2 --repeats 1";
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let stub = Stub::start("--delay-ms 5 --workers 8 --stall-ms 600:80");
        saturate(folder.path(), &stub.url, flags).1
    };
    attempts_of(&["fixed-concurrency", "periodic-stall"], run, |report| {
        let findings = report["findings"].as_array().unwrap();
        ensure(findings.iter().any(|found| found["name"] == "periodic-stall"), "the stall is not told")
    });
}

/// A server that accepts and never replies: nothing was measured, and no threshold is met.
#[test]
fn a_server_that_never_replies_is_no_success() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::start("--fault 1:hang");
    let flags = "--levels 4 --step-seconds 0.5 --warmup-seconds 0.1 --repeats 1 --timeout-seconds 30";
    let (output, report) = saturate(folder.path(), &stub.url, flags);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("Nothing was answered: ") && report["capacity"].is_null(), "{said}");
    let (output, report) = saturate(folder.path(), &stub.url, &format!("{flags} --threshold errors<1%"));
    assert_eq!((output.status.code(), &report["verdicts"][0]["met"]), (Some(3), &false.into()));
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_run() {
    let _alone = alone();
    let stub = Stub::start("--delay-ms 1");
    for flag in ["--json", "--markdown", "--html"] {
        let output = tidegate(&["saturate", &stub.url, "--levels", "1", flag, "/no/such/folder/report"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("/no/such/folder/report cannot be written") && !said.contains("step 1"),
            "{said}"
        );
    }
}

#[test]
fn json_without_a_file_is_printed_as_other_commands_do() {
    let _alone = alone();
    let stub = Stub::start("--delay-ms 5");
    let flags = "--levels 2 --step-seconds 0.5 --warmup-seconds 0.1 --repeats 1 --json";
    let arguments: Vec<&str> = ["saturate", &stub.url].into_iter().chain(flags.split(' ')).collect();
    let output = tidegate(&arguments).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((report["schema"].as_str(), output.status.code()), (Some("tidegate-report/2"), Some(0)));
}

/// `GET /` and `POST /other` have the same scenario's name and are not the same work.
#[test]
fn reports_of_other_requests_are_not_compared() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::start("--delay-ms 5");
    let measure = |name: &str, path: &str, more: &str| {
        let json = folder.path().join(name);
        let url = format!("{}{path}", stub.url);
        let mut arguments = vec!["saturate", &url, "--json", json.to_str().unwrap()];
        arguments.extend("--levels 2 --step-seconds 1 --warmup-seconds 0.1 --repeats 1".split(' '));
        arguments.extend(more.split_whitespace());
        assert!(tidegate(&arguments).status().unwrap().success());
        json.to_str().unwrap().to_owned()
    };
    let (get, again, post) =
        (measure("a", "", ""), measure("b", "", ""), measure("c", "other", "--method POST"));
    let compare = |b: &str| tidegate(&["compare", &get, b]).output().unwrap();
    let refused = compare(&post);
    let said = String::from_utf8(refused.stdout).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("A sent `GET /`, B `POST /other`"), "{said}");
    assert_eq!(compare(&again).status.code(), Some(0));
}

/// On a terminal the ladder stays when the run is over: after it was drawn for the last time nothing is
/// taken away again.
#[test]
fn the_ladder_stays_on_the_terminal() {
    let _alone = alone();
    let stub = Stub::start("--delay-ms 5");
    let command = format!(
        "{BINARY} saturate {} --levels 1,2,4 --step-seconds 0.6 --warmup-seconds 0.1 --repeats 1",
        stub.url
    );
    let output =
        Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, stays) = said.rsplit_once("\u{1b}[J").unwrap();
    let ladder: Vec<&str> = stays.lines().map(str::trim).collect();
    let at = ladder.iter().position(|line| line.starts_with("conns")).unwrap_or_else(|| panic!("{stays}"));
    for (line, load) in ladder[at + 1..].iter().zip(["1", "2", "4"]) {
        assert_eq!(line.split(' ').next(), Some(load), "{stays}");
    }
    assert!(stays.contains("The server does "), "{stays}");
}

/// A server's cores as the kernel has them.
fn cores_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[test]
fn pinned_sides_have_their_own_cores_for_the_time_of_the_run() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let stub = Stub::start("--delay-ms 5");
    let before = cores_of(stub.pid());
    let flags = "--levels 2 --step-seconds 1 --warmup-seconds 0.1 --repeats 1 --pin";
    if std::thread::available_parallelism().unwrap().get() < 2 {
        let output = tidegate(&["saturate", &stub.url, "--levels", "2", "--pin"]).output().unwrap();
        assert!(String::from_utf8(output.stderr).unwrap().contains("one core"));
        return tidegate_testkit::not_tested("sides that are pinned to cores", "this machine has one core");
    }
    let (output, report) = saturate(folder.path(), &stub.url, flags);
    let pinned = &report["pinned"];
    let cores = |side: &str| pinned[side].as_array().unwrap().clone();
    assert!(cores("server").iter().all(|core| !cores("generator").contains(core)), "{pinned}");
    let counted = report["observations"][0]["kernel"]["cores"].as_f64().unwrap();
    assert_eq!(counted as usize, cores("server").len(), "the server's own cores are looked at");
    assert_eq!(report["observations"][0]["server"]["cores"].as_f64(), Some(counted));
    assert_eq!(cores_of(stub.pid()), before, "given back");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("the server ran on cores 0"), "{said}");
    let (_, shared) = saturate(folder.path(), &stub.url, &flags.replace("--pin", "--no-pin"));
    assert!(shared["pinned"].is_null());
}

/// In a mount namespace without `/proc`: no figure is invented from what cannot be read.
#[test]
fn without_proc_nothing_is_made_up() {
    let _alone = alone();
    let stub = Stub::start("--delay-ms 5");
    let script = "mount -t tmpfs none /proc && exec \"$0\" saturate \"$@\"";
    let flags = "--levels 2 --step-seconds 0.5 --warmup-seconds 0.1 --repeats 1";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script, BINARY, &stub.url])
        .args(flags.split(' '))
        .output()
        .unwrap();
    let said = [&output.stderr[..], &output.stdout[..]].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("how much is available cannot be read"), "{said}");
    assert!(said.contains("no cause will be named") && said.contains("Cause: unknown"), "{said}");
    assert!(!said.contains("18446744073709"), "{said}");
}
