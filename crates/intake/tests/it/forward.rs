//! Lines sent on to other systems: to real ones, and to one that fails as the test says.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support;
use crate::support::disk::FailingDisk;
use crate::support::forwarding::{count, forward, forward_to, forwards};
use crate::support::receiver::Receiver;
use crate::support::{Setup, TestIntake, batch, eventually};
use serde_json::{Value, json};
use tidegate_intake::EndpointUrl;
use tidegate_intake::forward::HttpProtocol;
use tidegate_wire::metrics::remote_write::{Version, read_request};
use tidegate_wire::metrics::{LineWriter, read_line};

fn url(text: &str) -> EndpointUrl {
    EndpointUrl::parse(text).unwrap()
}

/// Names of the samples of a request of remote write, in their order.
fn names(body: &[u8]) -> Vec<String> {
    let body = snap::raw::Decoder::new().decompress_vec(body).unwrap();
    let mut writer = LineWriter::new("receiver", 0, usize::MAX);
    assert_eq!(read_request(Version::V1, &body, &mut writer).unwrap().rejected, 0);
    let lines = writer.finish().bytes;
    lines
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| read_line(line).unwrap().name.into_owned())
        .collect()
}

fn named(name: &str) -> Vec<u8> {
    json!({"metrics": [{"name": name, "value": 1, "tags": {"host": "a"}}]}).to_string().into_bytes()
}

#[test]
fn another_intake_has_by_otlp_the_lines_that_were_forwarded() {
    let (first, second) = (support::start(), support::start());
    let line = json!({"name": "cpu.usage", "value": 81.5, "type": "counter", "tags": {"host": "a"}, "timestamp": 1_795_420_800_000_i64});
    assert_eq!(first.post("/metrics", json!({"metrics": [line]}).to_string().as_bytes()).status, 200);
    let state = forward(&first, HttpProtocol::Otlp, url(&second.url("/v1/metrics")));
    eventually("it is delivered", || (count(&state, "delivered") == 1).then_some(()));
    let [sent, came] = [&first, &second].map(|intake| intake.kept().remove(0));
    for field in ["timestamp", "name", "value", "type"] {
        assert_eq!(sent[field], came[field], "{field}");
    }
    assert_eq!(came["tags"], json!({"host": "a", "client": "127.0.0.1"}));
}

/// A receiver whose messages are OpenTelemetry's own.
struct OtlpReceiver {
    child: Child,
    printed: BufReader<ChildStdout>,
    port: String,
}

impl OtlpReceiver {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(root.join("../../.venv/bin/python"));
        command.arg(root.join("tests/it/receivers/otlp.py")).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the Python packages are there: run `make setup`");
        let printed = BufReader::new(child.stdout.take().unwrap());
        let mut receiver = Self { child, printed, port: String::new() };
        receiver.port = receiver.line();
        receiver
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.printed.read_line(&mut line).unwrap() > 0, "the receiver has ended");
        line.trim_end().to_owned()
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn opentelemetrys_own_messages_have_what_was_forwarded() {
    let mut receiver = OtlpReceiver::start();
    let intake = support::start();
    let metric = |name: &str, kind: &str, tags: Value| json!({"name": name, "value": 81.5, "type": kind, "tags": tags, "timestamp": 1_795_420_800_123_i64});
    let metrics = [
        metric("cpu.usage", "gauge", json!({"host": "a \"b\"", "zone": "\u{e9}"})),
        metric("requests", "counter", json!({})),
        metric("bytes", "counter", json!({"temporality": "delta"})),
    ];
    assert_eq!(intake.post("/metrics", json!({ "metrics": metrics }).to_string().as_bytes()).status, 200);
    let endpoint = url(&format!("http://127.0.0.1:{}/v1/metrics", receiver.port));
    let state = forward(&intake, HttpProtocol::Otlp, endpoint);
    let printed = receiver.line();
    let request: Value = serde_json::from_str(&printed).expect(&printed);
    let point = |tags: &[(&str, &str)]| {
        let tags = [tags, &[("client", "127.0.0.1")]].concat();
        let attribute = |(name, value): &(&str, &str)| json!({"key": name, "value": {"stringValue": value}});
        let attributes: Vec<Value> = tags.iter().map(attribute).collect();
        json!({"timeUnixNano": "1795420800123000000", "asDouble": 81.5, "attributes": attributes})
    };
    let sum = |temporality: &str| json!({"dataPoints": [point(&[])], "aggregationTemporality": format!("AGGREGATION_TEMPORALITY_{temporality}"), "isMonotonic": true});
    let gauge = json!({"dataPoints": [point(&[("host", "a \"b\""), ("zone", "\u{e9}")])]});
    let expected = json!([
        {"name": "cpu.usage", "gauge": gauge},
        {"name": "requests", "sum": sum("CUMULATIVE")},
        {"name": "bytes", "sum": sum("DELTA")},
    ]);
    assert_eq!(request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"], expected, "{printed}");
    eventually("they are delivered", || (count(&state, "delivered") == 3).then_some(()));
}

#[test]
fn fault_71_an_outage_from_the_first_line_on_leaves_no_hole_and_no_disorder() {
    let is_up = Arc::new(AtomicBool::new(false));
    let answer = Arc::clone(&is_up);
    let receiver = Receiver::start(move |_| if answer.load(Ordering::Relaxed) { 200 } else { 503 });
    let intake = support::start();
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    let expected: Vec<String> = (0..200).map(|number| format!("line_{number}")).collect();
    for name in &expected[..100] {
        assert_eq!(intake.post("/metrics", &named(name)).status, 200);
    }
    eventually("tries fail", || (count(&state, "failed_tries") > 2).then_some(()));
    assert_eq!((count(&state, "delivered"), state.waiting()), (0, 100));
    let mut old = json!({"metrics": [{"name": expected[100], "value": 1, "timestamp": 1_000}]});
    old["metrics"][0]["tags"] = json!({});
    assert_eq!(intake.post("/metrics", old.to_string().as_bytes()).status, 200);
    is_up.store(true, Ordering::Relaxed);
    for name in &expected[101..] {
        assert_eq!(intake.post("/metrics", &named(name)).status, 200);
    }
    eventually("all are delivered", || {
        (count(&state, "delivered") == 200 && state.waiting() == 0).then_some(())
    });
    assert_eq!((count(&state, "skipped"), count(&state, "missing")), (0, 0));
    // What was answered 503 came, too: the last 200 lines are those that were taken.
    let mut came = Vec::new();
    let mut seen = HashSet::new();
    while seen.len() < 200 {
        let these = names(&receiver.next().body);
        seen.extend(these.iter().cloned());
        came.push(these);
    }
    let mut taken: Vec<String> = came.into_iter().flatten().collect();
    let mut first_seen = HashSet::new();
    taken.retain(|name| first_seen.insert(name.clone()));
    assert_eq!(taken, expected, "in the order of the log");
}

#[test]
fn fault_71_a_line_that_is_refused_for_good_is_skipped_alone() {
    let receiver = Receiver::start(|request| {
        let body = snap::raw::Decoder::new().decompress_vec(&request.body).unwrap();
        if body.windows(8).any(|part| part == b"metric_7") { 400 } else { 200 }
    });
    let intake = support::start();
    assert_eq!(intake.post("/metrics", &batch(10)).status, 200);
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    eventually("the others are delivered", || (count(&state, "delivered") == 9).then_some(()));
    eventually("it is skipped", || (count(&state, "skipped") == 1).then_some(()));
    assert_eq!(intake.post("/metrics", &batch(3)).status, 200);
    eventually("it goes on", || (count(&state, "delivered") == 12).then_some(()));
}

/// Remote write 1.0 has no word for that, but a receiver may have those of 2.0.
#[test]
fn what_a_receiver_says_that_it_has_not_written_is_not_delivered() {
    let fields = "x-prometheus-remote-write-samples-written: 7\r\n";
    let receiver = Receiver::telling(fields, "127.0.0.1:0".parse().unwrap(), |_| 200);
    let intake = support::start();
    assert_eq!(intake.post("/metrics", &batch(10)).status, 200);
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    eventually("the rest is counted by name", || (count(&state, "skipped") == 3).then_some(()));
    assert_eq!((count(&state, "delivered"), count(&state, "superseded")), (7, 0));
}

/// As Prometheus 3.8 answers a request of 1.0 that it has written whole, and others with its library of that time.
#[test]
fn a_receiver_that_says_it_has_written_nothing_and_answers_2xx_has_the_lines() {
    let fields =
        "x-prometheus-remote-write-samples-written: 0\r\nx-prometheus-remote-write-histograms-written: 0\r\n";
    let receiver = Receiver::telling(fields, "127.0.0.1:0".parse().unwrap(), |_| 200);
    let intake = support::start();
    assert_eq!(intake.post("/metrics", &batch(10)).status, 200);
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    eventually("all are delivered", || (count(&state, "delivered") == 10).then_some(()));
    assert_eq!(count(&state, "skipped"), 0);
}

#[test]
fn a_forward_that_another_takes_the_place_of_goes_on_where_it_was_and_waits_for_no_outage() {
    let came = Arc::new(Mutex::new(Vec::new()));
    let receiver = |status: u16| {
        let came = Arc::clone(&came);
        Receiver::start(move |request| {
            if status == 200 {
                came.lock().unwrap().extend(names(&request.body));
            }
            status
        })
    };
    let (good, away, other) = (receiver(200), receiver(503), receiver(200));
    let to = |receiver: &Receiver| vec![forward_to(HttpProtocol::RemoteWrite, receiver.url("/"))];
    let intake = support::start();
    let running = forwards(&intake, to(&good).remove(0));
    let state = running.states().remove(0);
    let mut sent = Vec::new();
    let mut send = || {
        sent.push(format!("line_{}", sent.len()));
        assert_eq!(intake.post("/metrics", &named(&sent[sent.len() - 1])).status, 200);
    };
    send();
    eventually("it is delivered", || (count(&state, "delivered") == 1).then_some(()));
    assert!(!running.replace(to(&good)), "it is the same");
    assert!(running.replace(to(&away)));
    eventually("the one that is away is tried", || {
        send();
        (count(&state, "failed_tries") > 1).then_some(())
    });
    assert!(running.replace(to(&other)));
    eventually("nothing waits", || (state.waiting() == 0).then_some(()));
    assert!(running.replace(Vec::new()));
    eventually("it has ended", || running.states().is_empty().then_some(()));
    send();
    assert!(running.replace(to(&good)));
    eventually("it goes on", || {
        running.states().first().is_some_and(|state| state.waiting() == 0).then_some(())
    });
    // What was under way when one ended may have come twice.
    let mut taken = came.lock().unwrap().clone();
    let mut seen = HashSet::new();
    taken.retain(|name| seen.insert(name.clone()));
    assert_eq!(taken, sent, "in the order of the log, and none is missing");
}

#[test]
fn fault_71_lines_that_are_all_refused_cost_a_try_each_and_are_set_aside() {
    let tries = Arc::new(AtomicUsize::new(0));
    let count_tries = Arc::clone(&tries);
    let receiver = Receiver::start(move |request| {
        count_tries.fetch_add(1, Ordering::Relaxed);
        if names(&request.body).iter().any(|name| name.starts_with("metric_")) { 400 } else { 200 }
    });
    let intake = support::start();
    assert_eq!(intake.post("/metrics", &named("first")).status, 200);
    assert_eq!(intake.post("/metrics", &batch(500)).status, 200);
    assert_eq!(intake.post("/metrics", &named("last")).status, 200);
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    eventually("the others are delivered", || (count(&state, "delivered") == 2).then_some(()));
    assert_eq!(count(&state, "skipped"), 500);
    let tries = tries.load(Ordering::Relaxed);
    assert!(tries < 530, "{tries} tries for 500 lines that are refused");
    let refused = std::fs::read_to_string(intake.folder.path().join("refused/test.jsonl")).unwrap();
    let expected = intake.kept();
    let refused: Vec<Value> = refused.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(refused, expected[1..501]);
}

#[test]
fn queries_that_the_disk_holds_up_hold_up_no_forward() {
    let disk = FailingDisk::default();
    let setup = || Setup {
        files: Arc::new(disk.clone()),
        log: Box::new(|settings| settings.compress = false),
        ..Setup::default()
    };
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let first = TestIntake::start_in(Arc::clone(&folder), setup());
    assert_eq!(first.post("/metrics", &named("queried")).status, 200);
    drop(first);
    let receiver = Receiver::start(|_| 200);
    let intake = TestIntake::start_in(folder, setup());
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    eventually("the first line is delivered", || (count(&state, "delivered") == 1).then_some(()));
    let held = disk.hold("00000000000000000000.");
    let queries: Vec<_> = (0..16)
        .map(|_| {
            let mut stream = intake.connect();
            let head =
                "GET /v1/intake/query?name=queried HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    eventually("some queries wait for the disk", || (disk.waiting() >= 4).then_some(()));
    assert_eq!(intake.post("/metrics", &named("later")).status, 200);
    eventually("the next line is delivered", || (count(&state, "delivered") == 2).then_some(()));
    let read = intake.get("/v1/intake/read?from=1", &[]);
    assert!(read.text().contains("later"), "readers go on, too: {}", read.text());
    drop(held);
    for mut query in queries {
        let mut reply = String::new();
        query.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("\"lines\":1"), "{reply}");
    }
}

#[test]
fn the_age_of_what_waits_is_counted_from_when_it_came() {
    let receiver = Receiver::start(|_| 503);
    let intake = support::start();
    for timestamp in ["2001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let line = json!({"name": "a", "value": 1, "timestamp": timestamp});
        assert_eq!(intake.post("/metrics", json!({"metrics": [line]}).to_string().as_bytes()).status, 200);
    }
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    let begun = tidegate_net::clock::monotonic();
    eventually("it is tried", || (count(&state, "failed_tries") > 1).then_some(()));
    let age = state.oldest_age();
    assert!(!age.is_zero() && age <= begun.elapsed() + support::PATIENCE, "{age:?}");
    assert_eq!(state.waiting(), 2);
}

#[test]
fn fault_70_what_was_sent_and_not_committed_is_sent_again() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let tries = Arc::new(AtomicUsize::new(0));
    let count_tries = Arc::clone(&tries);
    // The first process is told nothing, as by a receiver that dies after it has taken a batch.
    let receiver =
        Receiver::start(move |_| if count_tries.fetch_add(1, Ordering::Relaxed) == 0 { 503 } else { 200 });
    let first = TestIntake::start_in(Arc::clone(&folder), Setup::default());
    assert_eq!(first.post("/metrics", &batch(10)).status, 200);
    drop(forward(&first, HttpProtocol::RemoteWrite, receiver.url("/")));
    let sent = names(&receiver.next().body);
    drop(first);
    let second = TestIntake::start_in(folder, Setup::default());
    let state = forward(&second, HttpProtocol::RemoteWrite, receiver.url("/"));
    eventually("all are delivered", || (count(&state, "delivered") == 10).then_some(()));
    assert_eq!(names(&receiver.next().body), sent);
    let log = second.intake.log();
    eventually("it is committed", || (log.committed("forward.test", 0) == Some(10)).then_some(()));
    assert_eq!(second.post("/v1/intake/commit?group=forward.test&offset=0", b"").status, 400);
}

#[test]
fn fault_71_lines_that_retention_takes_before_they_are_delivered_are_counted() {
    let setup = Setup {
        log: Box::new(|settings| (settings.retain_bytes, settings.segment_bytes) = (Some(2 << 20), 64 << 10)),
        ..Setup::default()
    };
    let intake = TestIntake::start(setup);
    let is_up = Arc::new(AtomicBool::new(false));
    let answer = Arc::clone(&is_up);
    let receiver = Receiver::start(move |_| if answer.load(Ordering::Relaxed) { 200 } else { 503 });
    let state = forward(&intake, HttpProtocol::RemoteWrite, receiver.url("/"));
    let body = batch(1_000);
    let mut sent = 0;
    eventually("retention takes lines", || {
        assert_eq!(intake.post("/metrics", &body).status, 200);
        sent += 1_000;
        (count(&state, "missing") > 0).then_some(())
    });
    is_up.store(true, Ordering::Relaxed);
    eventually("every line is delivered or counted", || {
        (state.waiting() == 0 && count(&state, "delivered") + count(&state, "missing") == sent).then_some(())
    });
}
