//! h2spec, which tries every rule of HTTP/2 and HPACK, against a listener of the gateway, and as its servers.

use std::path::Path;
use std::process::Command;

use crate::support::{Backend, TestGateway, config, reply};
use serde_json::json;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_ports;

/// Without HTTP/2's preface a connection is one of HTTP/1.1: what is no request of that is answered 400 in it, where
/// h2spec expects the end at once.
const NO_PREFACE: &str = "Sends invalid connection preface";

/// What h2spec has for clients: a server each.
const CASES: u16 = 57;

/// Where a server's mistake ends its stream and not the connection; and a window that grows too wide for a stream on which
/// the request has ended, so that nothing is left to be sent in it.
const MILDER: [&str; 3] = [
    "failed: 5.1. Stream States: closed: Sends a DATA frame",
    "failed: 5.1. Stream States: closed: Sends a HEADERS frame",
    "failed: 6.9.1. The Flow-Control Window: Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream",
];

fn program(name: &str) -> Command {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin").join(name);
    assert!(program.exists(), "{} is missing: run `make setup`", program.display());
    Command::new(program)
}

#[test]
fn a_listener_follows_http2() {
    let backend = Backend::start(|_| reply(200, &[], &"x".repeat(1_000)));
    let config = config(
        json!([{"name": "app", "servers": [backend.url()]}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let (counts, failures) = judged(&gateway, &[]);
    assert!(counts == [144, 0, 1] && failures.contains(NO_PREFACE), "{counts:?} {failures}");
    // Where ALPN has agreed on HTTP/2, nothing else is spoken.
    let secure = TestGateway::start_tls(Unlimited, &config, &Certificates::make());
    let (counts, failures) = judged(&secure, &["-t", "-k"]);
    assert_eq!(counts, [145, 0, 0], "{failures}");
}

/// How many cases a listener passed, how many were skipped and failed, and which failed.
fn judged(gateway: &TestGateway, more: &[&str]) -> ([u32; 3], String) {
    let port = gateway.address.port().to_string();
    let arguments = ["-h", "127.0.0.1", "-p", &port, "-o", "10"];
    let output = program("h2spec").args(arguments).args(more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let count = |what: &str| -> u32 {
        let summary = said.lines().rev().find(|line| line.contains(" tests, ")).expect("a summary");
        summary.split(", ").find_map(|part| part.strip_suffix(what)).unwrap().trim().parse().unwrap()
    };
    let failures = said.split("Failures:").nth(1).unwrap_or_default();
    ([" passed", " skipped", " failed"].map(count), failures.to_owned())
}

#[test]
fn requests_to_servers_follow_http2_whatever_those_do() {
    let ports = free_ports(CASES);
    let first = ports.start.to_string();
    let upstreams = ports.clone().map(|port| {
        json!({"name": format!("u{port}"), "servers": [format!("http://127.0.0.1:{port}")], "protocol": "http2",
            "retries": {"attempts": 1}, "breaker": {"enabled": false}, "eject_after": 0})
    });
    let routes = ports.map(|port| {
        json!({"name": format!("r{port}"), "path": format!("/{port}"), "upstream": format!("u{port}")})
    });
    let config = config(upstreams.collect(), routes.collect());
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let mut command = program("h2spec-upstream");
    let output = command.args([gateway.address.to_string(), first]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("failed: ")).collect();
    assert_eq!(failed, MILDER);
    assert!(said.ends_with("57 tests, 54 passed, 0 skipped, 3 failed\n"), "{said}");
}
