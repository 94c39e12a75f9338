//! h2spec, which tries every rule of HTTP/2 and HPACK, against a listener of the gateway.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::json;
use support::{Backend, TestGateway, config, reply};
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;

/// Without HTTP/2's preface a connection is one of HTTP/1.1: what is no request of that is answered 400 in it, where
/// h2spec expects the end at once.
const NO_PREFACE: &str = "Sends invalid connection preface";

#[test]
fn a_listener_follows_http2() {
    let backend = Backend::start(|_| reply(200, &[], &"x".repeat(1_000)));
    let config = config(
        json!([{"name": "app", "servers": [backend.url()]}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/h2spec");
    assert!(program.exists(), "{} is missing: run `make setup`", program.display());
    let port = gateway.address.port().to_string();
    let output = Command::new(program).args(["-h", "127.0.0.1", "-p", &port, "-o", "10"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let count = |what: &str| -> u32 {
        let summary = said.lines().rev().find(|line| line.contains(" tests, ")).expect("a summary");
        summary.split(", ").find_map(|part| part.strip_suffix(what)).unwrap().trim().parse().unwrap()
    };
    let failures = said.split("Failures:").nth(1).unwrap_or_default();
    assert!(count(" passed") >= 144 && count(" skipped") == 0, "{failures}");
    assert!(count(" failed") == 1 && failures.contains(NO_PREFACE), "{failures}");
}
