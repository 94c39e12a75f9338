//! A client of gRPC that others wrote: health and its watch, reflection, and a call with messages that
//! reflection described.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Tidegate, agent};

const BEFORE_THE_DRAIN: &str = "health SERVING
watch SERVING
other NOT_FOUND no such service
services envoy.service.ratelimit.v3.RateLimitService grpc.health.v1.Health grpc.reflection.v1.ServerReflection
method envoy.service.ratelimit.v3.RateLimitService.ShouldRateLimit RateLimitRequest RateLimitResponse
method grpc.health.v1.Health.Check HealthCheckRequest HealthCheckResponse
method grpc.health.v1.Health.Watch HealthCheckRequest HealthCheckResponse
method grpc.reflection.v1.ServerReflection.ServerReflectionInfo ServerReflectionRequest ServerReflectionResponse
{'overall_code': 'OK', 'statuses': [{'code': 'OK', 'current_limit': {'requests_per_unit': 5, 'unit': 'DAY', 'name': 'RLS'}, 'limit_remaining': 3}]}
{'overall_code': 'OK', 'statuses': [{'code': 'OK', 'current_limit': {'requests_per_unit': 5, 'unit': 'DAY', 'name': 'RLS'}, 'limit_remaining': 1}]}
{'overall_code': 'OVER_LIMIT', 'statuses': [{'code': 'OVER_LIMIT', 'current_limit': {'requests_per_unit': 5, 'unit': 'DAY', 'name': 'RLS'}, 'limit_remaining': 1}]}
empty INVALID_ARGUMENT the domain is empty
conversation 3
ready
";

#[test]
fn a_client_finds_out_by_itself_what_it_may_ask() {
    let service = Tidegate::start(&[], &[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../.venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let mut client = Command::new(python)
        .arg(root.join("tests/it/examples/grpc_client.py"))
        .env("TIDEGATE_PORT", service.grpc.port().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap());
    let mut said = String::new();
    while !said.ends_with("ready\n") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    // The database of the client names services in any order.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[4..8].sort();
        lines
    };
    assert_eq!(sorted(&said), sorted(BEFORE_THE_DRAIN));

    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let call = r#"tidegate_http_requests_total{server="grpc",route="/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit""#;
    for line in [
        format!(r#"{call},status="2xx"}} 3"#),
        format!(r#"{call},status="4xx"}} 1"#),
        r#"tidegate_http_requests_total{server="grpc",route="/grpc.health.v1.Health/Check",status="4xx"} 1"#
            .to_owned(),
        r#"tidegate_connections_open{server="grpc"} 1"#.to_owned(),
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line} is not in\n{page}");
    }

    service.signal("TERM");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "changes NOT_SERVING UNAVAILABLE\nconversation UNAVAILABLE\n");
    assert!(client.wait().unwrap().success());
    assert!(service.wait().output.contains("drained"));
}
