//! Forwarding to Kafka, a real one, by a server that is killed: what it has acknowledged is in the topic, in order.
//! Kafka's own consumer reads it back.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "it/support/mod.rs"]
mod support;

use std::fs;
use std::time::Duration;

use support::{Tidegate, agent};
use tidegate_net::clock::monotonic;
use tidegate_testkit::kafka::Kafka;
use tidegate_testkit::series::{BATCH_LINES, batch, check};

/// A forward waits up to half a minute between two tries.
const PATIENCE: Duration = Duration::from_secs(180);
const ON_FREE_PORTS: [(&str, &str); 1] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];

/// A folder with the file of an intake that forwards to a topic.
fn folder(kafka: &Kafka, topic: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[intake]\npartitions = 2\npartition_by = 'series'\n\
         [[intake.forward]]\nname = 'kafka'\nto = 'kafka'\nservers = ['{}']\ntopic = '{topic}'\n",
        kafka.address()
    );
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    folder
}

fn start(folder: tempfile::TempDir) -> Tidegate {
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &ON_FREE_PORTS)
}

/// Sends the batch with this number; all of it is on the disk then.
fn post(service: &Tidegate, number: u64) {
    let url = format!("http://{}/metrics", service.intake.unwrap());
    assert_eq!(agent().post(url).send(batch(number)).unwrap().status(), 200);
}

/// A number on the operator's page.
fn number(service: &Tidegate, series: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse::<f64>().unwrap() as u64
}

fn waiting(service: &Tidegate) -> u64 {
    number(service, "tidegate_intake_forward_waiting_lines{forward=\"kafka\"}")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = monotonic();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}

#[test]
fn fault_70_a_server_killed_between_reading_and_committing_delivers_every_line_to_kafka_in_order() {
    let kafka = Kafka::start();
    kafka.create_topic("lines", 2, &[]);
    let mut folder = folder(&kafka, "lines");
    let mut batches = 0;
    for _ in 0..3 {
        let service = start(folder);
        let mut send = |count: u64| {
            (batches..batches + count).for_each(|number| post(&service, number));
            batches += count;
        };
        send(5);
        until("nothing waits", || waiting(&service) == 0);
        // The broker takes no more, so what is read now is under way and not committed.
        kafka.broker().freeze();
        send(20);
        let age = "tidegate_intake_forward_oldest_age_seconds{forward=\"kafka\"}";
        until("lines are under way", || waiting(&service) > 0 && number(&service, age) > 0);
        service.signal("KILL");
        // What it was sent before, it takes now.
        kafka.broker().thaw();
        (folder, _) = service.wait_keeping_data();
    }
    let service = start(folder);
    let again = check(kafka.read("lines"), batches);
    until("nothing waits", || waiting(&service) == 0);
    println!("{batches} batches of {BATCH_LINES} lines; {again} lines came again");
}
