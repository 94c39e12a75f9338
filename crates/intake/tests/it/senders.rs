//! What people already send, sent by their own software.

use std::path::{Path, PathBuf};
use std::process::Command;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::support::{PATIENCE, Setup, TestIntake, agent, eventually, start};
use serde_json::{Value, json};
use tidegate_intake::counters::{Leftover, Reason};
use tidegate_intake::limits::{Denial, LimitedBatch, Limits, LimitsAnswer, Ruling};
use tidegate_net::clock::{monotonic, wall};
use tidegate_testkit::{Server, free_port};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Runs a script of the folder `senders` with the packages of `xtask/requirements.txt`.
fn python(script: &str, arguments: &[&str]) {
    let python = root().join("../../.venv/bin/python");
    let ran = Command::new(python).arg(root().join("tests/it/senders").join(script)).args(arguments).output();
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
    let (prometheus, port) = prometheus(&intake);
    let begun = monotonic();
    let lines = loop {
        let lines = intake.lines();
        // What it scrapes of itself has summaries without observations, whose values are NaN. They may come in another request.
        if lines.iter().any(|line| line["name"] == "up") && left_out(&intake, Leftover::NotFinite) > 0 {
            break lines;
        }
        assert!(begun.elapsed() < PATIENCE, "nothing comes");
    };
    drop(prometheus);
    let up = line(&lines, "up");
    assert_eq!((&up["value"], &up["tags"]["job"]), (&json!(1.0), &json!("itself")));
    assert_eq!(up["tags"]["instance"], format!("127.0.0.1:{port}"));
    assert!(lines.iter().all(|line| line["value"].is_number()));
}

/// A Prometheus that scrapes itself and writes to an intake, with its folder, and its port.
fn prometheus(intake: &TestIntake) -> ((Server, tempfile::TempDir), u16) {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    // The page's lines, and something to scrape.
    let page = std::fs::read_to_string(root().join("../../docs/intake.md")).unwrap();
    let (_, block) = page.split_once("senders.rs: prometheus -->\n```yaml\n").unwrap();
    let (shown, _) = block.split_once("```").unwrap();
    let here = intake.url("/api/v1/write");
    assert!(shown.contains("http://127.0.0.1:4002/api/v1/write"), "{shown}");
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: itself\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n{}",
        shown.replace("http://127.0.0.1:4002/api/v1/write", &here)
    );
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec prometheus \"$@\" 2>&1", "sh"]);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let prometheus = Server::start(&mut command, "Server is ready");
    ((prometheus, folder), port)
}

/// A limit that denies so many batches, and then none.
#[derive(Debug)]
struct Denies(Arc<AtomicU64>);

impl<'b> Limits<LimitedBatch<'b>> for Denies {
    fn charge<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        _batch: &'a LimitedBatch<'b>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let left = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            Ruling { denial: left.ok().map(|_| Denial::Quota { policies: Vec::new() }), ..Ruling::default() }
        })
    }
}

fn denying(batches: u64) -> (TestIntake, Arc<AtomicU64>) {
    let left = Arc::new(AtomicU64::new(batches));
    (TestIntake::start(Setup::limited(Denies(Arc::clone(&left)))), left)
}

/// By default Prometheus drops what is answered 429, and a limit is over after a while.
#[test]
fn prometheus_sends_again_what_a_limit_denied_and_loses_no_sample() {
    let (intake, left) = denying(u64::MAX);
    let (_prometheus, port) = prometheus(&intake);
    let denied = || intake.intake.counters().refused(Reason::Limited);
    eventually("two batches are denied", || (denied() >= 2).then_some(()));
    let opened = i64::try_from(wall().0 / 1_000_000).unwrap();
    left.store(0, SeqCst);
    // What was scraped while nothing passed comes after all.
    eventually("the first samples come", || {
        let lines = intake.lines();
        let mut times = lines
            .iter()
            .filter(|line| line["name"] == "up")
            .map(|line| tidegate_wire::metrics::rfc3339::parse(line["timestamp"].as_str().unwrap()).unwrap());
        times.any(|at| at < opened).then_some(())
    });
    let page = agent().get(format!("http://127.0.0.1:{port}/metrics")).call().unwrap();
    let page = page.into_body().read_to_string().unwrap();
    let value = |name: &str| -> f64 {
        let lines = page.lines().filter(|line| line.starts_with(name) && line.contains("remote_name"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert!(value("prometheus_remote_storage_samples_retried_total") > 0.0, "{page}");
    assert!(value("prometheus_remote_storage_samples_failed_total").abs() < 0.5, "{page}");
}

/// Exporters send again what a limit denied, each by its own list of answers.
#[test]
fn the_sdks_of_opentelemetry_send_again_what_a_limit_denied() {
    for protocol in ["http", "grpc"] {
        for sends in [python_sdk, go_sdk] {
            let (intake, _) = denying(1);
            sends(protocol, &intake.url(""));
            check_sdk(&intake.lines());
            assert_eq!(intake.intake.counters().refused(Reason::Limited), 1, "{protocol}");
        }
    }
}

/// Exporters act on the code: one that has spans to send gives up where only metrics are taken.
#[test]
fn a_call_over_grpc_is_refused_in_grpc_whatever_it_is_for() {
    let (intake, _) = denying(1);
    python("otlp_refused.py", &[&intake.address.to_string()]);
    let fields = [("content-type", "application/grpc+proto")];
    let elsewhere = intake.send("/opentelemetry.proto.collector.logs.v1.LogsService/Export", &fields, b"");
    assert_eq!((elsewhere.status, elsewhere.field("grpc-status")), (200, Some("12")));
    assert_eq!(elsewhere.field("content-type"), Some("application/grpc+proto"));
    assert_eq!(intake.send("/nowhere", &[("content-type", "text/plain")], b"").status, 404);
}

fn python_sdk(protocol: &str, endpoint: &str) {
    python("otlp.py", &[protocol, endpoint]);
}

#[test]
fn influxdbs_client_sends_again_what_a_limit_denied() {
    let (intake, _) = denying(1);
    python("influx.py", &[&intake.url(""), "again"]);
    assert_eq!(intake.lines().len(), 5);
    assert_eq!(intake.intake.counters().refused(Reason::Limited), 1);
}

/// Telegraf asks for a ping, and makes its database by a form, before it writes; so do clients of version 1.
#[test]
fn what_clients_of_influxdb_ask_before_they_write_is_answered() {
    let intake = start();
    for path in ["/ping", "/api/v2/ping"] {
        let pong = intake.get(path, &[]);
        assert_eq!((pong.status, pong.text()), (204, String::new()), "{path}");
        assert!(pong.field("x-influxdb-version").unwrap().starts_with("tidegate-"), "{path}");
        assert_eq!(agent().head(intake.url(path)).call().unwrap().status(), 204, "{path}");
        assert_eq!(intake.post(path, b"").status, 405, "{path}");
    }
    let created = json!({"results": [{"statement_id": 0}]});
    let in_the_address = intake.send("/query?q=CREATE+DATABASE+%22x%22", &[], b"");
    assert_eq!((in_the_address.status, in_the_address.json()), (200, created.clone()));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let in_a_form = intake.send("/query?db=x", &form, b"q=CREATE+DATABASE+%22telegraf%22");
    assert_eq!((in_a_form.status, in_a_form.json()), (200, created));
    for (other, reason) in [
        ("/query?q=SHOW+DATABASES", "of InfluxQL"),
        ("/query?q=CREATE+DATABASE+x;+DROP+DATABASE+y", "of InfluxQL"),
        ("/query", "the parameter q"),
    ] {
        let refused = intake.send(other, &[], b"");
        assert_eq!(refused.status, 400, "{other}");
        assert!(refused.json()["error"].as_str().unwrap().starts_with(reason), "{other}");
    }
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

fn left_out(intake: &TestIntake, what: Leftover) -> u64 {
    intake.intake.counters().leftovers(what)
}

/// A point that is not a number, an exponential histogram and a gauge: what no line can hold is counted, and told as a
/// partial success; count and sum of the histogram are kept.
fn check_left_out(protocol: &str) {
    let intake = start();
    python("otlp_left_out.py", &[protocol, &intake.url("")]);
    let lines = intake.lines();
    assert_eq!((lines.len(), &line(&lines, "jobs")["value"]), (3, &json!(2.0)));
    let kept = ["latency_count", "latency_sum"].map(|name| line(&lines, name)["value"].clone());
    assert_eq!(kept, [json!(1.0), json!(5.0)]);
    let found = [Leftover::NotFinite, Leftover::Histogram].map(|leftover| left_out(&intake, leftover));
    assert_eq!(found, [1, 1]);
}

#[test]
fn what_no_line_can_hold_is_told_to_opentelemetry_over_http() {
    check_left_out("http");
}

#[test]
fn what_no_line_can_hold_is_told_to_opentelemetry_over_grpc() {
    check_left_out("grpc");
}

/// Runs `xtask/otlpsender`, which `cargo xtask setup` has built.
fn go_sdk(protocol: &str, endpoint: &str) {
    let ran = Command::new(root().join("../../.tools/bin/otlpsender")).args([protocol, endpoint]).output();
    let ran = ran.expect("the sender is built: run `cargo xtask setup`");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("sent"), "{said}");
}

#[test]
fn the_go_sdk_of_opentelemetry_sends_over_http() {
    let intake = start();
    go_sdk("http", &intake.url(""));
    check_sdk(&intake.lines());
}

#[test]
fn the_go_sdk_of_opentelemetry_sends_over_grpc() {
    let intake = start();
    go_sdk("grpc", &intake.url(""));
    check_sdk(&intake.lines());
}

#[test]
fn prometheus_own_library_sends_remote_write_2_0_and_is_told_what_was_written() {
    let intake = start();
    let ran = Command::new(root().join("../../.tools/bin/promsender")).arg(intake.url("")).output();
    let ran = ran.expect("the sender is built: run `cargo xtask setup`");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(
        ran.status.success() && said.contains("sent: 2 samples, 0 histograms, 0 exemplars written"),
        "{said}"
    );
    let lines = intake.lines();
    let (orders, jobs) = (line(&lines, "orders_total"), line(&lines, "jobs"));
    assert_eq!(
        (&orders["value"], &orders["type"], &orders["tags"]),
        (&json!(3.0), &json!("counter"), &json!({"kind": "book"}))
    );
    assert_eq!(
        (&jobs["value"], &jobs["type"], &jobs["timestamp"]),
        (&json!(-2.0), &json!("gauge"), &json!("2026-11-23T08:00:00.000Z"))
    );
    let kept = ["latency_count", "latency_sum"].map(|name| line(&lines, name)["value"].clone());
    assert_eq!(kept, [json!(1.0), json!(5.0)], "of a native histogram");
    assert_eq!(lines.len(), 4);
    let found = [Leftover::Histogram, Leftover::Exemplar].map(|leftover| left_out(&intake, leftover));
    assert_eq!(found, [1, 1]);
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

const REMOTE_WRITE_2_0: [(&str, &str); 2] = [
    ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
    ("content-encoding", "snappy"),
];

/// One sample of `up`, a histogram, and the series' type.
fn remote_write_2_0() -> Vec<u8> {
    // Written by hand: symbols "", "__name__", "up", "job", "a"; one series of one sample.
    let symbols = b"\x22\x00\x22\x08__name__\x22\x02up\x22\x03job\x22\x01a";
    let sample = b"\x12\x0b\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\x01";
    let histogram = b"\x1a\x00";
    let series = [b"\x0a\x04\x01\x02\x03\x04".as_slice(), sample, histogram, b"\x2a\x02\x08\x01"].concat();
    let body = [symbols.as_slice(), &[0x2a, u8::try_from(series.len()).unwrap()], &series].concat();
    snap::raw::Encoder::new().compress_vec(&body).unwrap()
}

#[test]
fn fault_28_a_remote_write_that_is_sent_again_is_acknowledged_as_safely_as_it_asks_for() {
    let (intake, body) = (start(), remote_write_2_0());
    for (asked, given) in [("memory", "memory"), ("fsync", "fsync"), ("memory", "fsync")] {
        let kept = intake.send(&format!("/api/v1/write?ack={asked}"), &REMOTE_WRITE_2_0, &body);
        assert_eq!((kept.status, kept.field("tidegate-ack")), (204, Some(given)), "{}", kept.text());
    }
    assert_eq!(intake.lines().len(), 3, "a sample, and count and sum of a histogram");
}

#[test]
fn remote_write_2_0_is_told_how_much_was_written() {
    let (intake, body, fields) = (start(), remote_write_2_0(), REMOTE_WRITE_2_0);
    let kept = intake.send("/api/v1/write", &fields, &body);
    assert_eq!(kept.status, 204, "{}", kept.text());
    let written = |what: &str| kept.field(&format!("x-prometheus-remote-write-{what}-written"));
    assert_eq!(
        [written("samples"), written("histograms"), written("exemplars")],
        [Some("1"), Some("0"), Some("0")]
    );
    assert_eq!(intake.send("/api/v1/write", &fields, &body).status, 204);
    let lines = intake.lines();
    assert_eq!(lines.len(), 3, "the same bytes are the same samples");
    assert_eq!(left_out(&intake, Leftover::Histogram), 2, "counted each time that it comes");
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
