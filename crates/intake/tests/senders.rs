//! What people already send, sent by their own software.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::{PATIENCE, Setup, TestIntake, start};
use tidegate_net::clock::monotonic;
use tidegate_testkit::{Server, free_port};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Runs a script of the folder `senders` with the packages of `xtask/requirements.txt`.
fn python(script: &str, arguments: &[&str]) {
    let python = root().join("../../.venv/bin/python");
    let ran = Command::new(python).arg(root().join("tests/senders").join(script)).args(arguments).output();
    let ran = ran.expect("the Python packages are there: run `make setup`");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("sent"), "{said}");
}

fn line<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("no {name} in {lines:?}"))
}

#[test]
fn prometheus_fills_it_by_remote_write() {
    let intake = start();
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: itself\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n\
         remote_write:\n- url: {}\n",
        intake.url("/api/v1/write")
    );
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec prometheus \"$@\" 2>&1", "sh"]);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let prometheus = Server::start(&mut command, "Server is ready");
    let begun = monotonic();
    let lines = loop {
        let lines = intake.lines();
        if lines.iter().any(|line| line["name"] == "up") {
            break lines;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing comes");
    };
    drop(prometheus);
    let up = line(&lines, "up");
    assert_eq!((&up["value"], &up["tags"]["job"]), (&json!(1.0), &json!("itself")));
    assert_eq!(up["tags"]["instance"], format!("127.0.0.1:{port}"));
    // What it scrapes of itself has summaries without observations, whose values are NaN.
    assert!(lines.iter().all(|line| line["value"].is_number()));
}

fn check_sdk(lines: &[Value]) {
    let orders = line(lines, "orders");
    assert_eq!((&orders["value"], &orders["type"]), (&json!(3.0), &json!("counter")));
    assert_eq!((&orders["tags"]["kind"], &orders["tags"]["service.name"]), (&json!("book"), &json!("shop")));
    assert_eq!(
        (&line(lines, "jobs")["value"], &line(lines, "jobs")["type"]),
        (&json!(-2.0), &json!("gauge"))
    );
    assert_eq!(line(lines, "latency_count")["value"], 1.0);
    assert_eq!(line(lines, "latency_sum")["value"], 5.0);
    let bucket = |le: &str| {
        let found = lines.iter().find(|line| line["name"] == "latency_bucket" && line["tags"]["le"] == le);
        found.unwrap_or_else(|| panic!("no bucket {le} in {lines:?}"))["value"].clone()
    };
    assert_eq!([bucket("1"), bucket("10"), bucket("+Inf")], [json!(0.0), json!(1.0), json!(1.0)]);
}

#[test]
fn the_python_sdk_of_opentelemetry_sends_over_http() {
    let intake = start();
    python("otlp.py", &["http", &intake.url("")]);
    check_sdk(&intake.lines());
}

#[test]
fn the_python_sdk_of_opentelemetry_sends_over_grpc() {
    let intake = start();
    python("otlp.py", &["grpc", &intake.url("")]);
    check_sdk(&intake.lines());
}

#[test]
fn the_python_client_of_influxdb_sends_its_lines() {
    let intake = start();
    python("influx.py", &[&intake.url("")]);
    let lines = intake.lines();
    let usage = line(&lines, "cpu.usage");
    assert_eq!((&usage["value"], &usage["tags"]), (&json!(81.5), &json!({"host": "a b,c=d"})));
    assert_eq!(usage["timestamp"], "2026-11-23T08:00:00.000Z");
    assert_eq!(line(&lines, "cpu.cores")["value"], 4.0);
    let loads: Vec<&Value> =
        lines.iter().filter(|line| line["name"] == "load").map(|line| &line["value"]).collect();
    assert_eq!(loads, [-0.5, 2.0]);
    assert_eq!(line(&lines, "up")["value"], 1.0);
    assert_eq!(lines.len(), 5, "a text has no line");
}

#[test]
fn a_refusal_is_told_in_each_protocols_own_way() {
    let intake = start();
    let protobuf = [("content-type", "application/x-protobuf")];
    let refused = intake.send("/api/v1/write", &protobuf, b"\xff");
    assert_eq!((refused.status, refused.field("content-type")), (400, Some("text/plain; charset=utf-8")));
    let refused = intake.send("/api/v1/write", &[("content-type", "application/json")], b"{}");
    assert_eq!(refused.status, 415);
    let refused = intake.send("/v1/metrics", &protobuf, b"\xff");
    assert_eq!((refused.status, refused.field("content-type")), (400, Some("application/x-protobuf")));
    let refused = intake.send("/v1/metrics", &[("content-type", "application/json")], b"{");
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!(3)));
    let kept = intake.send("/v1/metrics", &[("content-type", "application/json")], b"{}");
    assert_eq!((kept.status, kept.json()), (200, json!({})));
    assert_eq!(intake.lines(), Vec::<Value>::new());
}

#[test]
fn remote_write_2_0_is_told_how_much_was_written() {
    let intake = start();
    // Written by hand: symbols "", "__name__", "up", "job", "a"; one series of one sample.
    let symbols = b"\x22\x00\x22\x08__name__\x22\x02up\x22\x03job\x22\x01a";
    let sample = b"\x12\x0b\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x01";
    let histogram = b"\x1a\x00";
    let series = [b"\x0a\x04\x01\x02\x03\x04".as_slice(), sample, histogram, b"\x2a\x02\x08\x01"].concat();
    let body = [symbols.as_slice(), &[0x2a, u8::try_from(series.len()).unwrap()], &series].concat();
    let body = snap::raw::Encoder::new().compress_vec(&body).unwrap();
    let fields = [
        ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        ("content-encoding", "snappy"),
    ];
    let kept = intake.send("/api/v1/write", &fields, &body);
    assert_eq!(kept.status, 204, "{}", kept.text());
    let written = |what: &str| kept.field(&format!("x-prometheus-remote-write-{what}-written"));
    assert_eq!(
        [written("samples"), written("histograms"), written("exemplars")],
        [Some("1"), Some("0"), Some("0")]
    );
    assert_eq!(intake.send("/api/v1/write", &fields, &body).status, 204);
    let lines = intake.lines();
    assert_eq!(lines.len(), 1, "the same bytes are the same samples");
    assert_eq!(
        (&lines[0]["name"], &lines[0]["type"], &lines[0]["tags"]),
        (&json!("up"), &json!("counter"), &json!({"job": "a"}))
    );
}

#[test]
fn fault_76_a_bomb_of_snappy_is_refused_by_the_length_that_it_states() {
    let intake = TestIntake::start(Setup::default());
    let bomb = snap::raw::Encoder::new().compress_vec(&vec![0; 16 << 20]).unwrap();
    assert!(bomb.len() < 1 << 20);
    let fields = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
    assert_eq!(intake.send("/api/v1/write", &fields, &bomb).status, 413);
}
