//! Lines sent on to Prometheus and VictoriaMetrics, which go and come back meanwhile.

use std::path::Path;
use std::process::Command;

use crate::support;
use crate::support::forwarding::{count, forward};
use crate::support::{Setup, TestIntake, agent, eventually};
use serde_json::{Value, json};
use tidegate_intake::EndpointUrl;
use tidegate_intake::forward::HttpProtocol;
use tidegate_net::clock::wall;
use tidegate_testkit::{Server, free_port};

/// Asks a server that has Prometheus' API; its first series.
fn asked(port: u16, query: &str) -> Option<Value> {
    let url = format!("http://127.0.0.1:{port}/api/v1/query?nocache=1&query={query}");
    let mut reply = agent().get(url).call().ok()?;
    let answer: Value = reply.body_mut().read_json().ok()?;
    answer["data"]["result"].get(0).cloned()
}

/// Sends these lines, each of a series of its own.
fn send(intake: &TestIntake, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let metric = json!({"name": "cpu.usage", "value": 1, "tags": {"host": format!("h{number}")}});
        assert_eq!(
            intake.post("/metrics", json!({ "metrics": [metric] }).to_string().as_bytes()).status,
            200
        );
    }
}

/// Lines before, in and after an outage of `server`, which `end` brings about and `start` ends.
fn check(port: u16, start: impl Fn() -> Server, end: impl Fn(Server)) {
    let (intake, server) = (support::start(), start());
    send(&intake, 0..1);
    let url = EndpointUrl::parse(&format!("http://127.0.0.1:{port}/api/v1/write")).unwrap();
    let state = forward(&intake, HttpProtocol::RemoteWrite, url);
    let found = eventually("the line is there", || asked(port, "cpu_usage"));
    assert_eq!(found["metric"], json!({"__name__": "cpu_usage", "host": "h0", "client": "127.0.0.1"}));
    assert_eq!(found["value"][1], "1");
    send(&intake, 1..50);
    eventually("they are delivered", || (count(&state, "delivered") == 50).then_some(()));
    end(server);
    send(&intake, 50..150);
    eventually("the outage is noticed", || (count(&state, "failed_tries") > 0).then_some(()));
    assert!(state.waiting() >= 100 && !state.oldest_age().is_zero());
    let _server = start();
    send(&intake, 150..200);
    eventually("nothing waits", || (state.waiting() == 0 && state.oldest_age().is_zero()).then_some(()));
    let all = "count(last_over_time(cpu_usage[1h]))";
    eventually("all lines are there", || (asked(port, all)?["value"][1] == "200").then_some(()));
    assert_eq!((count(&state, "skipped"), count(&state, "missing")), (0, 0));
}

/// Sends so many deltas of 1, ten in a batch, of which all have one time.
fn send_deltas(intake: &TestIntake, batches: u32) {
    for _ in 0..batches {
        let metric = json!({"name": "hits", "value": 1, "type": "counter", "tags": {"temporality": "delta"}});
        let metrics = vec![metric; 10];
        assert_eq!(intake.post("/metrics", json!({ "metrics": metrics }).to_string().as_bytes()).status, 200);
    }
}

/// The growth of the counter by its samples, from its beginnings at 0.
fn growth(port: u16) -> Option<f64> {
    let found = asked(port, "hits%5B1h%5D")?;
    assert_eq!(found["metric"], json!({"__name__": "hits", "client": "127.0.0.1"}));
    let samples = found["values"].as_array()?.iter();
    let values = samples.map(|sample| sample[1].as_str().unwrap().parse::<f64>().unwrap());
    let add =
        |(sum, last): (f64, f64), value: f64| (sum + if value < last { value } else { value - last }, value);
    Some(values.fold((0.0, 0.0), add).0)
}

/// As they are, deltas would be a counter that jumps about, and all but one of a millisecond are dropped.
#[test]
fn deltas_are_a_counter_in_prometheus_that_misses_none_of_them_also_after_a_restart() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    std::fs::write(folder.path().join("prometheus.yml"), "").unwrap();
    let _server = prometheus(folder.path(), port);
    let url = || EndpointUrl::parse(&format!("http://127.0.0.1:{port}/api/v1/write")).unwrap();
    let data = std::sync::Arc::new(tempfile::tempdir().unwrap());
    for run in 1..=2 {
        let intake = TestIntake::start_in(std::sync::Arc::clone(&data), Setup::default());
        let state = forward(&intake, HttpProtocol::RemoteWrite, url());
        send_deltas(&intake, 100);
        let expected = 1_000.0 * f64::from(run);
        eventually("every delta is in the counter", || growth(port).filter(|growth| *growth >= expected));
        assert!((growth(port).unwrap() - expected).abs() < 0.5);
        eventually("they are delivered", || (count(&state, "delivered") == 1_000).then_some(()));
        assert_eq!((count(&state, "skipped"), count(&state, "missing")), (0, 0));
        let log = intake.intake.log();
        let end = log.offsets(0).unwrap().end;
        eventually("it is known how far they came", || {
            (log.committed("forward.test", 0) == Some(end)).then_some(())
        });
        intake.drain();
    }
}

/// As they come, Prometheus would take the first of them, answer that all is well, and drop the others.
#[test]
fn what_counts_as_delivered_prometheus_has_also_of_late_lines_and_of_several_of_one_millisecond() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    std::fs::write(folder.path().join("prometheus.yml"), "").unwrap();
    let _server = prometheus(folder.path(), port);
    let intake = support::start();
    let now = i64::try_from(wall().0 / 1_000_000).unwrap();
    // Times go backwards, and each has three values.
    let metric = |number: i64| json!({"name": "load", "value": number % 3, "timestamp": now - number / 3});
    let metrics: Vec<Value> = (0..300).map(metric).collect();
    assert_eq!(intake.post("/metrics", json!({ "metrics": metrics }).to_string().as_bytes()).status, 200);
    let url = EndpointUrl::parse(&format!("http://127.0.0.1:{port}/api/v1/write")).unwrap();
    let state = forward(&intake, HttpProtocol::RemoteWrite, url);
    eventually("nothing waits", || (state.waiting() == 0).then_some(()));
    let counts = ["delivered", "superseded", "skipped", "missing"].map(|what| count(&state, what));
    assert_eq!(counts, [100, 200, 0, 0]);
    let found = eventually("they are there", || asked(port, "load%5B1h%5D"));
    let samples = found["values"].as_array().unwrap();
    assert_eq!(samples.len(), 100);
    assert!(samples.iter().all(|sample| sample[1] == "2"), "the last one of each time: {found}");
}

/// A command for a shell that has both outputs in one.
fn shell(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {program} \"$@\" 2>&1"), "sh"]);
    command
}

fn prometheus(folder: &Path, port: u16) -> Server {
    let mut command = shell("prometheus");
    command.arg("--web.enable-remote-write-receiver");
    command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    Server::start(&mut command, "Server is ready")
}

#[test]
fn fault_71_prometheus_is_killed_and_has_every_line_when_it_comes_back() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    // As the page has it, so that what is sent twice is not refused.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/intake.md")).unwrap();
    let (_, block) = page.split_once("```yaml\nstorage:").expect("the page says how late samples are taken");
    let (block, _) = block.split_once("```").unwrap();
    std::fs::write(folder.path().join("prometheus.yml"), format!("storage:{block}")).unwrap();
    check(port, || prometheus(folder.path(), port), |mut server| server.kill());
}

#[test]
fn fault_71_victoria_metrics_ends_and_has_every_line_when_it_comes_back() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let start = || {
        let mut command = shell("victoria-metrics");
        command.arg("-search.latencyOffset=0s");
        command.arg(format!("-storageDataPath={}", folder.path().join("data").display()));
        command.arg(format!("-httpListenAddr=127.0.0.1:{port}"));
        Server::start(&mut command, "starting http server at")
    };
    // Not killed: what it has acknowledged is in its memory for a second, and would be lost there.
    check(port, start, |server| {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        // Nobody has waited for it, so its entry stays.
        let ended = || std::fs::read(format!("/proc/{pid}/cmdline")).unwrap().is_empty();
        eventually("it has ended", || ended().then_some(()));
    });
}
