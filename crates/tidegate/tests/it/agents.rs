//! Load from several processes that stand for machines: `load --agent`, and `--agents` of `load` and `saturate`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use tidegate_testkit::certificates::Certificates;

use crate::support::{agent, binary};

const TOKEN: &str = "shared-by-agents";

/// A process that says where it listens. Dropping it kills it.
struct Listening {
    child: Child,
    address: SocketAddr,
}

impl Listening {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, address }
    }

    /// An agent with a token.
    fn agent(arguments: &[&str]) -> Self {
        let mut command = binary();
        command.args(["load", "--agent", "127.0.0.1:0"]).args(arguments).env("TIDEGATE_AGENT_TOKEN", TOKEN);
        Self::start(command)
    }

    /// A target whose requests take 5 ms.
    fn stub() -> Self {
        let mut command = binary();
        command.args(["stub", "127.0.0.1:0", "--until-eof", "--delay-ms", "5"]);
        Self::start(command)
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Requests that a stub has answered so far.
    fn served(&self) -> u64 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(b"GET /__stub/stats HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()["requests"].as_u64().unwrap()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A coordinator, ready to be started.
fn coordinator(arguments: &[&str], agents: &[&Listening]) -> Command {
    let addresses: Vec<String> = agents.iter().map(|agent| agent.address.to_string()).collect();
    let mut command = binary();
    command.args(arguments).args(["--agents", &addresses.join(",")]).env("TIDEGATE_AGENT_TOKEN", TOKEN);
    command
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

fn record(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(output)))
}

#[test]
fn two_agents_give_the_counts_that_one_gives() {
    let (a, b) = (Listening::agent(&[]), Listening::agent(&[]));
    for agents in [vec![&a], vec![&a, &b]] {
        let stub = Listening::stub();
        let flags = ["load", &stub.url(), "--json", "-c", "6", "-n", "301", "-w", "0", "-d", "60"];
        let output = coordinator(&flags, &agents).output().unwrap();
        let record = record(&output);
        assert!(output.status.success(), "{}", said(&output));
        let counts = (&record["good"], &record["sent"], &record["established"], &record["response"]["count"]);
        assert_eq!(counts, (&json!(301), &json!(301), &json!(6), &json!(301)), "{record}");
        assert_eq!(record["errors"], json!({}));
        let shares = record["agents"].as_array().unwrap();
        let good: u64 = shares.iter().map(|share| share["good"].as_u64().unwrap()).sum();
        assert_eq!((shares.len(), good, stub.served()), (agents.len(), 301, 301));
        for share in shares {
            assert_eq!(share["lost"], Value::Null);
            // Both read one machine's clock, so that the comparison is no more wrong than it says.
            let ahead = share["clock_ahead_us"].as_i64().unwrap().unsigned_abs();
            assert!(ahead <= share["clock_error_us"].as_u64().unwrap() + 1_000, "{share}");
        }
    }
}

#[test]
fn an_open_loop_is_one_schedule_for_all_agents() {
    let (a, b, stub) = (Listening::agent(&[]), Listening::agent(&[]), Listening::stub());
    let flags = ["load", &stub.url(), "--json", "-c", "8", "-r", "200", "-w", "0", "-d", "1"];
    let output = coordinator(&flags, &[&a, &b]).output().unwrap();
    assert_eq!((&record(&output)["good"], stub.served()), (&json!(200), 200), "{}", said(&output));
}

#[test]
fn an_agent_that_is_killed_in_the_middle_is_named_and_its_share_left_out() {
    let (a, mut b, stub) = (Listening::agent(&[]), Listening::agent(&[]), Listening::stub());
    let flags = ["load", &stub.url(), "--json", "-c", "4", "-w", "0", "-d", "4"];
    let mut running = coordinator(&flags, &[&a, &b]).spawn().unwrap();
    while stub.served() < 10 {
        assert!(running.try_wait().unwrap().is_none(), "it runs for four seconds");
    }
    b.child.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    let record = record(&output);
    assert_eq!(output.status.code(), Some(1), "not everything was measured: {}", said(&output));
    assert_eq!((&record["plan"]["connections"], &record["established"]), (&json!(2), &json!(2)), "{record}");
    let lost: Vec<bool> =
        record["agents"].as_array().unwrap().iter().map(|share| share["lost"].is_string()).collect();
    assert_eq!(lost, [false, true], "{record}");
    let note = format!("agent {} was lost, and its share of this step is left out", b.address);
    assert!(said(&output).contains(&note), "{}", said(&output));
    // Its half would have been as much again: 2 connections of 5 ms do 400 a second at most.
    assert!(record["throughput"]["mean"].as_f64().unwrap() <= 400.0, "{record}");
}

#[test]
fn whoever_has_not_the_token_makes_no_load() {
    let (a, stub) = (Listening::agent(&[]), Listening::stub());
    for token in [Some("another"), None] {
        let mut command = coordinator(&["load", &stub.url(), "-d", "1"], &[&a]);
        match token {
            Some(token) => command.env("TIDEGATE_AGENT_TOKEN", token),
            None => command.env_remove("TIDEGATE_AGENT_TOKEN"),
        };
        let output = command.output().unwrap();
        let expected = format!("agent {}: 401 Unauthorized: this agent needs its token", a.address);
        assert!(said(&output).contains(&expected), "{}", said(&output));
        assert_eq!(output.status.code(), Some(1));
    }
    assert_eq!(stub.served(), 0);
    let output =
        binary().args(["load", "--agent", "0.0.0.0:0"]).env("TIDEGATE_AGENT_TOKEN", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("set TIDEGATE_AGENT_TOKEN or --agent-token-file"), "{}", said(&output));
}

#[test]
fn a_second_coordinator_waits_its_turn_and_an_interrupted_run_frees_its_agents() {
    let (a, stub) = (Listening::agent(&[]), Listening::stub());
    let mut first = coordinator(&["load", &stub.url(), "-c", "2", "-d", "60"], &[&a]).spawn().unwrap();
    while stub.served() < 10 {
        assert!(first.try_wait().unwrap().is_none(), "it runs for a minute");
    }
    let short = ["load", &stub.url(), "--json", "-c", "1", "-n", "3", "-w", "0", "-d", "60"];
    let output = coordinator(&short, &[&a]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("agent {}: 409 Conflict: this agent works for another run", a.address);
    assert!(said(&output).contains(&expected), "{}", said(&output));
    let interrupted = Command::new("kill").args(["-INT", &first.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let output = first.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("interrupted: this is what was measured until then"), "{}", said(&output));
    let output = coordinator(&short, &[&a]).output().unwrap();
    assert_eq!(record(&output)["good"], 3, "{}", said(&output));
}

/// A listener that answers one question as an agent of another version.
fn old_agent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut question = Vec::new();
        // To the end of its body: what is not read would cut the answer off.
        while !question.ends_with(b"{}") {
            let mut bytes = [0; 4_096];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0);
            question.extend_from_slice(&bytes[..count]);
        }
        let body = r#"{"version":"0.0.1","computer":{}}"#;
        let length = body.len();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .unwrap();
    });
    address
}

#[test]
fn versions_that_differ_are_told_on_both_sides() {
    let stub = Listening::stub();
    let address = old_agent().to_string();
    let output = binary().args(["load", &stub.url(), "--agents", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected =
        format!("agent {address}: it is tidegate 0.0.1, and this is {}", env!("CARGO_PKG_VERSION"));
    assert!(said(&output).contains(&expected), "{}", said(&output));

    let a = Listening::agent(&[]);
    let ask = |path: &str, fields: &[(&str, &str)], body: &str| {
        let mut request = agent().post(format!("http://{}{path}", a.address));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.send(body).unwrap().status().as_u16()
    };
    let shown = format!("Bearer {TOKEN}");
    let good = [("authorization", shown.as_str()), ("content-type", "application/json")];
    let old = r#"{"version":"0.0.1","step":{}}"#;
    assert_eq!(ask("/v1/agent/step", &good, old), 409);
    assert_eq!(ask("/v1/agent/step", &good, "{}"), 400);
    assert_eq!(ask("/v1/agent/start", &good, r#"{"run":"x","step":1,"at_ns":1}"#), 404);
    assert_eq!(ask("/v1/agent/other", &good, "{}"), 404);
    assert_eq!(ask("/v1/agent/clock", &good, "{}"), 200);
    // A page of a browser can send these, with whatever its user may reach.
    let page = [&good[..], &[("origin", "http://evil.example")]].concat();
    assert_eq!(ask("/v1/agent/clock", &page, "{}"), 403);
    let form = [("authorization", shown.as_str()), ("content-type", "text/plain")];
    assert_eq!(ask("/v1/agent/clock", &form, "{}"), 415);
}

#[test]
fn an_agent_speaks_tls_and_sends_what_it_is_told_to_trust() {
    let certificates = Certificates::make();
    let pair = certificates.self_signed("own");
    let (certificate, key) = (pair.certificate.to_str().unwrap(), pair.key.to_str().unwrap());
    let a = Listening::agent(&["--agent-tls-certificate", certificate, "--agent-tls-key", key]);
    let stub = Listening::stub();
    let url = format!("https://localhost:{}", a.address.port());
    let run = |further: &[&str]| {
        let flags = ["load", &stub.url(), "--json", "-c", "1", "-n", "3", "-w", "0", "--agents", &url];
        binary().args(flags).args(further).env("TIDEGATE_AGENT_TOKEN", TOKEN).output().unwrap()
    };
    let output = run(&["--agents-ca", certificate]);
    assert_eq!(record(&output)["good"], 3, "{}", said(&output));
    let output = run(&[]);
    assert!(said(&output).contains("invalid peer certificate"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_search_is_made_by_agents_and_its_report_says_so() {
    let (a, b, stub) = (Listening::agent(&[]), Listening::agent(&[]), Listening::stub());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let search =
        ["--levels", "2,4", "--repeats", "1", "-d", "1", "-w", "0.1", "--json", file.to_str().unwrap()];
    let url = stub.url();
    let flags = [&["saturate", url.as_str()][..], &search[..]].concat();
    let output = coordinator(&flags, &[&a, &b]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(report["engine"].as_str().unwrap().ends_with(", by 2 agents"), "{}", report["engine"]);
    let steps = report["steps"].as_array().unwrap();
    assert!(steps.len() >= 2, "there are two levels: {report}");
    for step in steps {
        let shares: Vec<u64> = step["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|share| share["connections"].as_u64().unwrap())
            .collect();
        assert_eq!((shares.len(), shares.iter().sum::<u64>()), (2, step["established"].as_u64().unwrap()));
    }
}

#[test]
fn what_an_agent_cannot_do_is_said_before_the_run() {
    let (a, stub) = (Listening::agent(&[]), Listening::stub());
    let port = tidegate_testkit::free_port();
    let nobody = format!("http://127.0.0.1:{port}/");
    for (arguments, expected) in [
        // The agent, and not its coordinator, looks whether the target is there.
        (vec!["load", &nobody], format!("agent {}: nothing listens at 127.0.0.1:{port}", a.address)),
        (vec!["load", &stub.url(), "--sources", "127.0.0.2"], "each agent chooses its own".to_owned()),
        (vec!["load"], "required".to_owned()),
    ] {
        let output = coordinator(&arguments, &[&a]).output().unwrap();
        assert!(!output.status.success());
        assert!(said(&output).contains(&expected), "{}", said(&output));
    }
    let address = a.address.to_string();
    let twice = format!("{address},{address}");
    let output = binary().args(["load", &stub.url(), "--agents", &twice]).output().unwrap();
    assert!(said(&output).contains("listed twice"), "{}", said(&output));
}
