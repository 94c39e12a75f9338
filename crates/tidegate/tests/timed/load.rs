//! `tidegate load` and `tidegate stub` as they are run: the built binary, several processes.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Tidegate, agent, binary};

/// A running `tidegate stub`, one process.
struct Stub {
    child: Child,
    address: SocketAddr,
}

impl Stub {
    fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", arguments)
    }

    fn start_at(address: &str, arguments: &[&str]) -> Self {
        let mut command = binary();
        command.args(["stub", address, "--until-eof"]).args(arguments).stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, address }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Its own account, at its end.
    fn stop(mut self) -> serde_json::Value {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.child.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Ended above, or ends now.
        let _ended = self.child.wait().is_ok();
    }
}

fn load(arguments: &[&str]) -> Output {
    binary().arg("load").args(arguments).output().unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn several_processes_measure_as_one() {
    // Long enough for all to be in flight at once, whichever process is late.
    let stub = Stub::start(&["--delay-ms", "2000"]);
    let url = stub.url();
    let output =
        load(&[&url, "--json", "-p", "3", "-t", "1", "-c", "60", "-n", "120", "-w", "0", "-d", "60"]);
    let record = json(&output);
    assert!(output.status.success());
    assert_eq!((&record["good"], &record["established"]), (&120.into(), &60.into()), "{record}");
    assert_eq!(record["generator"]["threads"], 3);
    assert_eq!(record["errors"], serde_json::json!({}));
    let truth = stub.stop();
    assert_eq!(
        (&truth["requests"], &truth["in_flight_max"]),
        (&120.into(), &60.into()),
        "all at the same time"
    );
}

#[test]
fn a_stub_of_several_processes_shares_its_port() {
    let port = tidegate_testkit::free_port();
    let address = format!("127.0.0.1:{port}");
    let mut command = binary();
    command.args(["stub", &address, "--processes", "2", "--until-eof"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        assert_eq!(lines.next().unwrap().unwrap(), format!("listening on {address}"));
    }
    let record = json(&load(&[&format!("http://{address}/"), "--json", "-c", "40", "-n", "400", "-w", "0"]));
    drop(child.stdin.take());
    let accounts: Vec<serde_json::Value> =
        lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(child.wait().unwrap().success());
    let served: u64 = accounts.iter().map(|account| account["requests"].as_u64().unwrap()).sum();
    assert_eq!((accounts.len(), &record["good"], served), (2, &400.into(), 400));
}

#[test]
fn an_open_loop_is_shared_by_processes() {
    let stub = Stub::start(&[]);
    let output =
        load(&[&stub.url(), "--json", "-p", "2", "-t", "1", "-c", "8", "-r", "300", "-w", "0", "-d", "1"]);
    assert_eq!(json(&output)["good"], 300);
    // One more was sent before the run.
    assert_eq!(stub.stop()["requests"], 301);
}

#[test]
fn a_built_in_scenario_is_one_command_and_its_thresholds_set_the_status() {
    let stub = Stub::start(&[]);
    let output = load(&[&stub.url(), "-s", "baseline"]);
    let text = String::from_utf8_lossy(&output.stdout);
    // The stub's body says nothing of an admitted request: no reply is good.
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("FailedCheck 1000") && text.contains("errors < 1%: MISSED"), "{text}");
}

/// The rows of the metrics intake's report: 20 clients, and the 500 of which every third request failed there.
#[test]
fn the_intake_takes_the_batches_of_the_reports_rows_and_every_reply_is_checked() {
    let service = Tidegate::start(&[], &[]);
    let url = format!("http://{}", service.intake.unwrap());
    for (row, requests) in [("light", 1_000), ("stress", 10_000)] {
        let output = load(&[&url, "-s", &format!("intake-{row}"), "--json", "--force"]);
        let record = json(&output);
        let counts = (&record["good"], &record["denied"], &record["errors"]);
        assert_eq!(counts, (&requests.into(), &0.into(), &serde_json::json!({})), "{record}");
        assert!(output.status.success());
    }
    let mut page = agent().get(format!("{url}/metrics")).call().unwrap();
    let kept: serde_json::Value = page.body_mut().read_json().unwrap();
    let counts = (&kept["batches_processed"], &kept["metrics_received"], &kept["validation_errors"]);
    assert_eq!(counts, (&11_000.into(), &22_000.into(), &0.into()), "{kept}");
    // The other rows differ in their steps alone.
    let request = |row: &str| {
        let file = format!("{}/../../scenarios/intake-{row}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(file).unwrap();
        let (_, rest) = text.split_once("[[request]]").unwrap();
        rest.split_once("[[step]]").unwrap().0.to_owned()
    };
    for row in ["medium", "high", "max", "stress"] {
        assert_eq!(request(row), request("light"), "{row}");
    }
}

/// A server that accepts and never replies: no threshold is met, and without one it is no success either.
#[test]
fn a_server_that_never_replies_is_no_success() {
    let stub = Stub::start(&["--fault", "1:hang"]);
    let flags = ["-c", "4", "-d", "0.3", "-w", "0", "--timeout-seconds", "30"];
    let output = load(&[&[stub.url().as_str()], &flags[..]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("0 good, 0 denied, 0 errors; 4 sent"), "{said}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no reply was good"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("strict.toml");
    let strict = "name = \"strict\"\nthresholds = [\"errors < 1%\"]\n[[request]]\npath = \"/\"\n\
                  [[step]]\nconnections = 4\nduration_s = 0.3\n";
    std::fs::write(&file, strict).unwrap();
    let output = load(&[&stub.url(), "-s", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn an_interrupted_load_says_that_not_everything_was_measured() {
    let stub = Stub::start(&["--delay-ms", "5"]);
    let mut child = binary()
        .args(["load", &stub.url(), "-c", "2", "-d", "60", "-w", "0", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The step runs once the stub has replied to it.
    let served = || {
        let mut stream = TcpStream::connect(stub.address).unwrap();
        stream.write_all(b"GET /__stub/stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<serde_json::Value>(body).unwrap()["requests"].as_u64().unwrap()
    };
    while served() < 10 {
        assert!(child.try_wait().unwrap().is_none(), "it runs for a minute");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
}

#[test]
fn what_the_machine_does_not_allow_is_refused_before_the_run_with_the_command_that_would() {
    // TEST-NET-1: nobody is asked anything.
    let output = load(&["http://192.0.2.1/", "-c", "1000000"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("BLOCKED") && said.contains("sysctl -w net.ipv4.ip_local_port_range"), "{said}");
}

#[test]
fn a_scenario_with_mistakes_names_them_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.toml");
    std::fs::write(&file, "name = ''\n[[request]]\npath = 'x'\n[[step]]\nconnections = 0\nduration_s = 1\n")
        .unwrap();
    let output = load(&["http://127.0.0.1:1/", "-s", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    for part in ["name: 1 to 100 bytes", "request[0]: path", "step[0].connections: 0 is outside"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

/// What a scenario says itself is not taken from flags, so that none of them is without effect unsaid.
#[test]
fn flags_that_a_scenario_would_ignore_are_refused_beside_it() {
    for (command, flag) in [
        ("load", "--connections=2"),
        ("load", "--rate=5"),
        ("load", "--step-seconds=1"),
        ("load", "--warmup-seconds=1"),
        ("load", "--requests=9"),
        ("load", "--connection-per-request"),
        ("load", "--timeout-seconds=1"),
        ("saturate", "--connection-per-request"),
        ("saturate", "--timeout-seconds=1"),
    ] {
        let output =
            binary().args([command, "http://127.0.0.1:1/", "--scenario", "baseline", flag]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command} {flag}: {said}");
        let name = flag.split('=').next().unwrap_or_default();
        let parts = ["cannot be used with", "--scenario", name];
        assert!(parts.iter().all(|part| said.contains(part)), "{command} {flag}: {said}");
    }
}

/// A data file without an end is read to its bound.
#[test]
fn an_endless_data_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data.toml");
    let text = "name = \"data\"\ndata = \"/dev/zero\"\n[[request]]\npath = \"/{{row.id}}\"\n\
                [[step]]\nconnections = 1\nduration_s = 1\n";
    std::fs::write(&file, text).unwrap();
    for command in ["load", "saturate"] {
        let flag = if command == "load" { "-s" } else { "--scenario" };
        let output =
            binary().args([command, "http://127.0.0.1:1/", flag, file.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("/dev/zero: larger than 67108864 bytes"), "{said}");
    }
}

#[test]
fn replies_that_are_most_likely_not_what_was_meant_are_said() {
    for (status, advice) in
        [("301", "redirects are not followed"), ("404", "see whether method and path"), ("200", "")]
    {
        let stub = Stub::start(&["--fault", &format!("1:{status}")]);
        let output = load(&[&stub.url(), "--json", "-c", "1", "-n", "3", "-w", "0"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(json(&output)["statuses"][status], 3);
        let note = format!("most replies were {status}: {advice}");
        assert_eq!(said.contains(&note), !advice.is_empty(), "{said}");
    }
}

/// Whoever gave the address that only redirects reads so before the run, and not when it is over.
#[test]
fn a_redirect_is_said_before_the_run_and_in_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    for (status, advice) in [("301", "redirects are not followed"), ("404", "see whether method and path")] {
        let stub = Stub::start(&["--fault", &format!("1:{status}")]);
        let said = format!("the first request was answered {status}");
        let output = load(&[&stub.url(), "-c", "1", "-d", "0.2", "-w", "0"]);
        let text = String::from_utf8_lossy(&output.stderr);
        let (first, most) = (text.find(&format!("{said}: {advice}")), text.find("most replies were"));
        assert!(first.is_some() && first < most, "{text}");
        let json = folder.path().join("report.json");
        let flags = ["--levels", "1", "-d", "0.3", "-w", "0", "--repeats", "1", "--json"];
        let output = binary().arg("saturate").arg(stub.url()).args(flags).arg(&json).output().unwrap();
        let verdict = String::from_utf8_lossy(&output.stdout);
        assert!(verdict.lines().next().unwrap().contains(&said), "{verdict}");
        let report: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(report["first_reply"]["status"].to_string(), status);
    }
}

/// A server on the other loopback address is found, and whoever reads the figures sees which one they are of.
#[test]
fn a_name_is_said_with_the_address_that_was_taken() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let stub = Stub::start_at(address, &[]);
        let url = format!("http://localhost:{}/", stub.address.port());
        let output = load(&[&url, "--json", "-c", "1", "-n", "1", "-w", "0"]);
        assert_eq!(json(&output)["good"], 1);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("localhost is taken to be {}", stub.address)), "{said}");
    }
}

#[test]
fn a_target_where_nothing_listens_is_said_in_a_sentence() {
    let port = tidegate_testkit::free_port();
    for command in ["load", "saturate"] {
        let url = format!("http://127.0.0.1:{port}/");
        let output = binary().args([command, &url]).env("RUST_BACKTRACE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(!said.contains("backtrace"), "{said}");
        let sentence =
            format!("nothing listens at 127.0.0.1:{port}: start the server, or correct the address");
        assert!(said.contains(&sentence), "{said}");
    }
}

/// Without the flag each side waits ten seconds for a reply, longer than its turn.
#[test]
fn a_comparison_waits_for_a_reply_as_long_as_it_is_told() {
    let stub = Stub::start(&["--fault", "1:hang"]);
    let flags = "--interleave --connections 1 --repeats 1 --step-seconds 1 --warmup-seconds 0";
    let compare = |more: &[&str]| {
        let mut command = binary();
        command.args(["compare", &stub.url(), &stub.url()]).args(flags.split(' ')).args(more);
        String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned()
    };
    let said = compare(&["--timeout-seconds", "0.1"]);
    assert_eq!(
        said.lines().filter(|line| line.contains(" step 1:") && line.contains("errors")).count(),
        2,
        "{said}"
    );
    let said = compare(&[]);
    assert!(said.contains(" step 1:") && !said.contains("errors"), "{said}");
}

/// 100 a second against 50 a second, turn by turn; and one against itself.
#[test]
fn two_targets_are_compared_turn_by_turn() {
    let (quick, slow) = (Stub::start(&["--delay-ms", "20"]), Stub::start(&["--delay-ms", "40"]));
    let compare = |a: &Stub, b: &Stub| {
        let flags =
            "--interleave --connections 2 --repeats 3 --step-seconds 1 --warmup-seconds 0.1 --fail-if-worse";
        let output = binary().args(["compare", &a.url(), &b.url()]).args(flags.split(' ')).output().unwrap();
        let said =
            [&output.stderr[..], &output.stdout[..]].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        (output.status.code(), said)
    };
    // A machine that stands still spoils a turn, which is then not compared: one run of five must say it.
    let says = |a: &Stub, b: &Stub, verdict: &str| {
        (0..5).any(|_| {
            let (code, [turns, said]) = compare(a, b);
            let order: String =
                turns.lines().filter(|line| line.contains(" step ")).map(|line| &line[..1]).collect();
            assert_eq!(order, "ABBAAB", "{turns}");
            assert_eq!(code == Some(3), said.starts_with("slower by "), "{code:?}: {said}");
            said.starts_with(verdict) && said.contains("3 repeats")
        })
    };
    assert!(says(&quick, &slow, "slower by "));
    assert!(says(&quick, &quick, "throughput unchanged"));
}
