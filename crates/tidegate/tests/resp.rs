//! Clients that others wrote, speaking RESP to the built binary: redis-cli, redis-benchmark, redis-py.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::Path;
use std::process::Command;

use support::Tidegate;

/// What a client says, with `TIDEGATE_PORT` set.
fn ask(service: &Tidegate, program: &str, arguments: &[&str]) -> String {
    let port = service.resp.port().to_string();
    let place = ["-p", port.as_str()];
    let ran = Command::new(program)
        .args(if program.starts_with("redis-") { &place[..] } else { &[] })
        .args(arguments)
        .env("TIDEGATE_PORT", &port)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn redis_cli_is_limited() {
    let service = Tidegate::start(&[], &[]);
    let throttle = ["CL.THROTTLE", "user123", "15", "30", "60"];
    assert_eq!(ask(&service, "redis-cli", &throttle), "0\n16\n15\n-1\n2\n");
    assert_eq!(ask(&service, "redis-cli", &["-3", "PING"]), "PONG\n");
    assert_eq!(
        ask(&service, "redis-cli", &["-r", "3", "THROTTLE", "k", "2", "1", "3600"]).lines().count(),
        15
    );
    assert!(ask(&service, "redis-cli", &["INFO"]).contains("role:master"));
    assert!(ask(&service, "redis-cli", &["COMMAND"]).contains("cl.throttle"));
}

#[test]
fn a_password_is_asked_for() {
    let password = "sixteen-letters-and-more";
    let service = Tidegate::start(&[], &[("TIDEGATE_RESP_PASSWORD", password)]);
    assert_eq!(ask(&service, "redis-cli", &["PING"]), "NOAUTH Authentication required.\n\n");
    assert_eq!(ask(&service, "redis-cli", &["--no-auth-warning", "-a", password, "PING"]), "PONG\n");
    service.signal("TERM");
    assert!(service.wait().output.contains("drained"));
}

#[test]
fn redis_benchmark_pipelines_and_every_reply_is_counted() {
    let service = Tidegate::start(&[], &[]);
    let load = [
        "-n",
        "20000",
        "-c",
        "20",
        "-P",
        "16",
        "-r",
        "100",
        "-q",
        "CL.THROTTLE",
        "__rand_int__",
        "9",
        "1",
        "60",
    ];
    assert!(ask(&service, "redis-benchmark", &load).contains("requests per second"));
}

#[test]
fn the_python_client_works_in_both_versions_of_the_protocol() {
    let service = Tidegate::start(&[], &[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../.venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let script = root.join("tests/examples/resp.py");
    let said = ask(&service, python.to_str().unwrap(), &[script.to_str().unwrap()]);
    assert_eq!(
        said,
        "[0, 3, 2, -1, 60] [0, 3, 1, -1, 120] [[0, 3, 0, -1, 180], [1, 3, 0, 60, 180]]\n".repeat(2)
    );
}
