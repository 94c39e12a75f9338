//! Alert rules on what comes in, told to a receiver of Alertmanager's API.

use std::io::Read;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support;
use crate::support::receiver::Receiver;
use crate::support::{Setup, TestIntake, agent, eventually};
use serde_json::{Value, json};
use tidegate_intake::EndpointUrl;
use tidegate_intake::alerts::AlertRule;
use tidegate_testkit::{Server, free_port};

fn rule(value: &Value) -> AlertRule {
    AlertRule::read(value, "/intake/alert/0").unwrap()
}

fn send(intake: &TestIntake, value: f64) {
    let batch = json!({"metrics": [{"name": "cpu.usage", "value": value, "tags": {"host": "a"}}]});
    assert_eq!(intake.post("/metrics", batch.to_string().as_bytes()).status, 200);
}

#[test]
fn a_receiver_that_is_away_is_told_when_it_is_back_that_cpu_is_high_and_then_that_it_is_not() {
    let tries = AtomicUsize::new(0);
    let receiver =
        Receiver::start(move |_| if tries.fetch_add(1, Ordering::Relaxed) < 2 { 503 } else { 200 });
    let cpu = json!({"name": "cpu-high", "metric": "cpu.usage", "above": 80, "for_seconds": 1, "labels": {"severity": "page"}});
    let setup =
        Setup { alerts: vec![rule(&cpu)], webhook: Some(receiver.url("/api/v2/alerts")), ..Setup::default() };
    let intake = TestIntake::start(setup);
    send(&intake, 79.0);
    send(&intake, 85.0);
    let first = receiver.next();
    assert_eq!(first.path, "/api/v2/alerts");
    assert!(first.head.contains("content-type: application/json"), "{}", first.head);
    let fired: Value = serde_json::from_slice(&first.body).unwrap();
    assert_eq!(
        fired[0]["labels"],
        json!({"alertname": "cpu-high", "metric": "cpu.usage", "client": "127.0.0.1", "host": "a", "severity": "page"})
    );
    let shown = intake.get("/v1/intake/alerts", &[]).json();
    assert_eq!((&shown["alerts"][0]["state"], &shown["rules"][0]["firing"]), (&json!("firing"), &json!(1)));
    for _ in 0..2 {
        assert_eq!(receiver.next().body, first.body, "the same notice is sent until it is taken");
    }
    send(&intake, 70.0);
    let resolved = loop {
        let notices: Value = serde_json::from_slice(&receiver.next().body).unwrap();
        // A machine that pauses may be told again meanwhile that it fires.
        let last = notices.as_array().unwrap().last().unwrap().clone();
        let ends = |notice: &Value| notice["endsAt"].as_str().unwrap().to_owned();
        if ends(&last) < ends(&fired[0]) {
            break last;
        }
    };
    assert_eq!((&resolved["labels"], &resolved["startsAt"]), (&fired[0]["labels"], &fired[0]["startsAt"]));
    assert_eq!(intake.get("/v1/intake/alerts", &[]).json()["alerts"], json!([]));
    let alerts = intake.intake.alerts().unwrap();
    let count = |what| alerts.notices().into_iter().find(|(name, _)| *name == what).unwrap().1;
    eventually("both are counted", || (count("delivered") >= 2).then_some(()));
    assert_eq!((count("failed_tries"), count("refused"), count("dropped")), (2, 0, 0));
}

#[test]
fn alertmanager_is_told_that_cpu_is_high_and_then_that_it_is_not() {
    let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
    let file = folder.path().join("alertmanager.yml");
    std::fs::write(&file, "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n").unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec prometheus-alertmanager \"$@\" 2>&1", "sh", "--cluster.listen-address="]);
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.path={}", folder.path().join("data").display()));
    command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _alertmanager = Server::start(&mut command, "Listening on");
    let url = format!("http://127.0.0.1:{port}/api/v2/alerts");
    let listed = || agent().get(&url).call().unwrap().body_mut().read_json::<Value>().unwrap();
    let cpu = json!({"name": "cpu-high", "metric": "cpu.usage", "above": 80, "for_seconds": 1, "labels": {"severity": "page"}});
    let webhook = EndpointUrl::parse(&url).unwrap();
    let setup = Setup { alerts: vec![rule(&cpu)], webhook: Some(webhook), ..Setup::default() };
    let intake = TestIntake::start(setup);
    send(&intake, 85.0);
    let fired = eventually("it is told", || listed().as_array().unwrap().first().cloned());
    assert_eq!(
        fired["labels"],
        json!({"alertname": "cpu-high", "metric": "cpu.usage", "client": "127.0.0.1", "host": "a", "severity": "page"})
    );
    assert_eq!(fired["status"]["state"], "active");
    send(&intake, 70.0);
    // It lists those that are not resolved.
    eventually("it is told that it ends", || (listed() == json!([])).then_some(()));
    let shown = intake.get("/v1/intake/alerts", &[]).json();
    let resolved = &shown["resolved"][0];
    assert_eq!(
        (&shown["alerts"], &resolved["name"], &resolved["state"]),
        (&json!([]), &json!("cpu-high"), &json!("resolved"))
    );
    assert!(
        resolved["fired"].is_string() && resolved["resolved"].as_str() > resolved["fired"].as_str(),
        "{shown}"
    );
}

#[test]
fn a_receiver_that_is_put_in_the_place_of_one_that_is_away_is_told_at_once() {
    let (away, other) = (Receiver::start(|_| 503), Receiver::start(|_| 200));
    let cpu = rule(&json!({"name": "cpu-high", "metric": "cpu.usage", "above": 80}));
    let intake = TestIntake::start(Setup { webhook: Some(away.url("/")), ..Setup::default() });
    let alerts = intake.intake.alerts().unwrap();
    assert!(alerts.replace(vec![cpu], intake.intake.clock().tick()), "there was no rule");
    send(&intake, 85.0);
    for _ in 0..3 {
        away.next();
    }
    assert!(alerts.tell_at(Some(other.url("/"))));
    let told: Value = serde_json::from_slice(&other.next().body).unwrap();
    assert_eq!(told[0]["labels"]["alertname"], "cpu-high");
}

#[test]
fn a_receiver_that_is_put_in_the_place_of_one_that_hangs_does_not_wait_for_it() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", hanging.local_addr().unwrap());
    let other = Receiver::start(|_| 200);
    let cpu = rule(&json!({"name": "cpu-high", "metric": "cpu.usage", "above": 80}));
    let setup = Setup { alerts: vec![cpu], webhook: EndpointUrl::parse(&url), ..Setup::default() };
    let intake = TestIntake::start(setup);
    let alerts = intake.intake.alerts().unwrap();
    send(&intake, 85.0);
    let (mut stream, _) = hanging.accept().unwrap();
    assert_eq!(stream.read(&mut [0; 4]).unwrap(), 4, "a request is under way");
    assert!(alerts.tell_at(Some(other.url("/"))));
    let told: Value = serde_json::from_slice(&other.next().body).unwrap();
    assert_eq!(told[0]["labels"]["alertname"], "cpu-high");
    assert_eq!(alerts.notices()[1], ("failed_tries", 0), "the time of the first one was not up");
}

#[test]
fn what_the_receiver_will_never_take_is_counted_and_does_not_hold_up_the_next() {
    let receiver = Receiver::start(|request| {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        if text.contains("first") { 400 } else { 200 }
    });
    let rules = ["first", "second"].map(|name| rule(&json!({"name": name, "metric": name, "below": 1})));
    let setup = Setup { alerts: rules.to_vec(), webhook: Some(receiver.url("/")), ..Setup::default() };
    let intake = TestIntake::start(setup);
    for (name, what) in [("first", "refused"), ("second", "delivered")] {
        let batch = json!({"metrics": [{"name": name, "value": 0}]}).to_string();
        assert_eq!(intake.post("/metrics", batch.as_bytes()).status, 200);
        let alerts = intake.intake.alerts().unwrap();
        eventually(what, || alerts.notices().contains(&(what, 1)).then_some(()));
    }
}

#[test]
fn alerts_are_shown_to_readers_only() {
    let intake = support::start();
    assert_eq!(
        intake.get("/v1/intake/alerts", &[]).json(),
        json!({"rules": [], "alerts": [], "resolved": []})
    );
    assert_eq!(intake.get("/v1/intake/alerts", &[("origin", "https://evil.example")]).status, 403);
    assert_eq!(intake.post("/v1/intake/alerts", b"").status, 405);
}
