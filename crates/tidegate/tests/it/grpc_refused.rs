//! A client of gRPC that others wrote, and what it makes of the gateway's own answers: it must not ask again what is
//! denied, and all that counts requests counts the refusal.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tidegate_net::clock::monotonic;
use tidegate_testkit::free_port;

use crate::support::{Tidegate, agent};

const PATIENCE: Duration = Duration::from_secs(60);

const SAID: &str = "Few OK hello
Few OK hello
Few | RESOURCE_EXHAUSTED | the quota of a policy is used up | ratelimit-policy=\"few\";q=2;w=3600 | retry-after=_
Few | RESOURCE_EXHAUSTED | the quota of a policy is used up | ratelimit-policy=\"few\";q=2;w=3600 | retry-after=_
Keyed | UNAUTHENTICATED | _ | www-authenticate=_
Away | UNAVAILABLE | no server of the upstream could be reached
Closed | UNAVAILABLE | back at noon | retry-after=_
Late | DEADLINE_EXCEEDED | the upstream did not answer in time
Small | RESOURCE_EXHAUSTED | the request body is larger than 100 bytes
Open | FAILED_PRECONDITION | as asked
Nowhere | UNIMPLEMENTED | no route is for this host, path and method
";

fn file(server: u16, away: u16) -> String {
    format!(
        "gateway = {{ listener = [{{ listen = \"127.0.0.1:0\" }}] }}\n\
         access_log = {{ to = \"access.log\" }}\n\
         policy = [{{ name = \"few\", limit = 2, window_seconds = 3600 }}]\n\
         upstream = [{{ name = \"app\", servers = [\"http://127.0.0.1:{server}\"], protocol = \"http2\" }}, \
         {{ name = \"away\", servers = [\"http://127.0.0.1:{away}\"], protocol = \"http2\" }}]\n\
         route = [{{ name = \"few\", path = \"/shop.Few/*\", upstream = \"app\", policies = [\"few\"] }}, \
         {{ name = \"keyed\", path = \"/shop.Keyed/*\", upstream = \"app\", auth = \"key\" }}, \
         {{ name = \"away\", path = \"/shop.Away/*\", upstream = \"away\" }}, \
         {{ name = \"closed\", path = \"/shop.Closed/*\", upstream = \"app\", maintenance = {{ body = \"back at noon\" }} }}, \
         {{ name = \"late\", path = \"/shop.Late/*\", upstream = \"app\", timeout_seconds = 0.5 }}, \
         {{ name = \"small\", path = \"/shop.Small/*\", upstream = \"app\", max_body_bytes = 100 }}, \
         {{ name = \"open\", path = \"/shop.Open/*\", upstream = \"app\" }}]\n"
    )
}

/// What the client printed, without the values that differ.
fn said_by_a_client(gateway: u16, server: u16) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../.venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let client = Command::new(python)
        .arg(root.join("tests/it/examples/grpc_refused.py"))
        .args([gateway.to_string(), server.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&client.stdout).into_owned();
    assert!(client.status.success(), "{said}{}", String::from_utf8_lossy(&client.stderr));
    let blank = |part: &str| match part.split_once('=') {
        Some((name @ ("retry-after" | "www-authenticate"), value)) if !value.is_empty() => {
            format!("{name}=_")
        }
        _ if part.contains("www-authenticate says") => "_".to_owned(),
        _ => part.to_owned(),
    };
    let line = |line: &str| line.split(" | ").map(blank).collect::<Vec<_>>().join(" | ") + "\n";
    said.lines().map(line).collect()
}

#[test]
fn a_client_of_grpc_is_told_why_in_grpc_and_asks_again_only_what_may_come_back() {
    let (server, away) = (free_port(), free_port());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tidegate.toml"), file(server, away)).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    assert_eq!(said_by_a_client(service.gateway[0].port(), server), SAID);

    // Three of each that is UNAVAILABLE, one of all others: the client went by the code.
    let expected = [
        ("/shop.Away/Ask 502", 3),
        ("/shop.Closed/Ask 503", 3),
        ("/shop.Few/Ask 200", 2),
        ("/shop.Few/Ask 429", 1),
        ("/shop.Few/Total 429", 1),
        ("/shop.Keyed/Ask 401", 1),
        ("/shop.Late/Ask 504", 1),
        ("/shop.Nowhere/Ask 404", 1),
        ("/shop.Open/Ask 200", 1),
        ("/shop.Small/Ask 413", 1),
    ];
    let log = service.path().join("access.log");
    let (begun, lines) = (monotonic(), expected.iter().map(|(_, count)| *count).sum::<usize>());
    let logged = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.lines().count() >= lines && text.ends_with('\n') {
            break text;
        }
        assert!(begun.elapsed() < PATIENCE, "there are not {lines} lines: {text}");
        std::thread::yield_now();
    };
    let mut counts = BTreeMap::new();
    for line in logged.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (target, status) = (line["target"].as_str().unwrap(), &line["status"]);
        *counts.entry(format!("{target} {status}")).or_insert(0) += 1;
        if line["because"] == "quota" {
            assert_eq!(line["bytes"], 0, "{line}");
        }
    }
    let counts: Vec<(&str, usize)> = counts.iter().map(|(what, count)| (&**what, *count)).collect();
    assert_eq!(counts, expected);

    let ask =
        |path: &str| agent().get(service.url(path)).call().unwrap().body_mut().read_to_string().unwrap();
    let page = ask("/metrics");
    for (route, class, count) in
        [("routed", "2xx", 3), ("routed", "4xx", 4), ("routed", "5xx", 7), ("other", "4xx", 1)]
    {
        let line = format!(
            "tidegate_http_requests_total{{server=\"gateway\",route=\"{route}\",status=\"{class}\"}} {count}\n"
        );
        assert!(page.contains(&line), "{line} is not in\n{page}");
    }
    let few: Value = serde_json::from_str(&ask("/v1/analytics?by=route&route=few")).unwrap();
    assert_eq!((&few["rows"][0]["succeeded"], &few["rows"][0]["rate_limited"]), (&2.into(), &2.into()));
}
