//! A log of several partitions: what is together in one, and batches that are split over them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Setup, TestIntake};
use serde_json::{Value, json};
use tidegate_intake::PartitionBy;
use tidegate_log::{Durability, Fact, Lines, NameDigest};

const PARTITIONS: u16 = 4;

fn setup(by: PartitionBy) -> Setup {
    let mut setup = Setup { log: Box::new(|settings| settings.partitions = PARTITIONS), ..Setup::default() };
    setup.settings.partition_by = by;
    setup.settings.client_field = Some(http::HeaderName::from_static("x-client"));
    setup
}

/// A batch of the series `cpu{host}`, two lines of each, whose values are `value` and the next one.
fn batch_of(hosts: u64, value: u64) -> Vec<u8> {
    let metric = |host: u64, value: u64| json!({"name": "cpu", "value": value, "tags": {"host": host.to_string(), "zone": "a"}});
    let metrics: Vec<Value> =
        (value..value + 2).flat_map(|value| (0..hosts).map(move |host| metric(host, value))).collect();
    json!({ "metrics": metrics }).to_string().into_bytes()
}

/// The partition and the values, in order, of each series.
fn series(intake: &TestIntake) -> HashMap<String, Vec<(u16, u64)>> {
    let mut found: HashMap<String, Vec<(u16, u64)>> = HashMap::new();
    let log = intake.intake.log();
    for partition in 0..log.partitions() {
        let mut at = 0;
        while at < log.offsets(partition).unwrap().end {
            let read = log.read(partition, at, u64::MAX, usize::MAX).unwrap();
            for line in read.lines.split_inclusive(|byte| *byte == b'\n') {
                let line: Value = serde_json::from_slice(line).unwrap();
                let value = line["value"].as_f64().unwrap() as u64;
                found.entry(line["tags"].to_string()).or_default().push((partition, value));
            }
            at = read.next_offset;
        }
    }
    found
}

#[test]
fn a_series_stays_in_one_partition_and_in_order_whoever_sends_it_and_after_a_restart() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    for life in 0..2 {
        let intake = TestIntake::start_in(Arc::clone(&folder), setup(PartitionBy::Series));
        for batch in 0..5 {
            let value = (life * 5 + batch) * 2;
            let client = ["web", "shop"][batch as usize % 2];
            let reply = intake.send("/metrics", &[("x-client", client)], &batch_of(40, value));
            assert_eq!((reply.status, reply.field("tidegate-ack")), (200, Some("fsync")), "{}", reply.text());
            assert_eq!(intake.kept().len() as u64, 40 * (value + 2), "acknowledged when all parts are there");
        }
        let found = series(&intake);
        assert_eq!(found.len(), 40);
        let mut used = [false; PARTITIONS as usize];
        for (tags, lines) in found {
            let partition = lines[0].0;
            used[usize::from(partition)] = true;
            let expected: Vec<(u16, u64)> = (0..(life + 1) * 10).map(|value| (partition, value)).collect();
            assert_eq!(lines, expected, "{tags}");
        }
        assert_eq!(used, [true; PARTITIONS as usize], "one client's batch is in all partitions");
    }
}

#[test]
fn a_client_stays_in_one_partition_and_its_batch_in_one_piece() {
    let intake = TestIntake::start(setup(PartitionBy::Client));
    let mut partitions = HashMap::new();
    for client in (0..20).map(|number| format!("client-{number}")) {
        assert_eq!(intake.send("/metrics", &[("x-client", &client)], &batch_of(10, 0)).status, 200);
    }
    let log = intake.intake.log();
    for partition in 0..PARTITIONS {
        let read = log.read(partition, 0, u64::MAX, usize::MAX).unwrap();
        let lines = read.lines.split_inclusive(|byte| *byte == b'\n');
        let clients: Vec<Value> =
            lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()["client"].clone()).collect();
        for batch in clients.chunks(20) {
            assert!(batch.iter().all(|client| *client == batch[0]), "{batch:?}");
            assert_eq!(partitions.insert(batch[0].to_string(), partition), None, "{batch:?}");
        }
    }
    assert_eq!(partitions.len(), 20);
}

#[test]
fn fault_28_a_batch_that_is_split_is_kept_once_under_its_key() {
    let intake = TestIntake::start(setup(PartitionBy::Series));
    for _ in 0..3 {
        let reply = intake.send("/metrics", &[("idempotency-key", "a")], &batch_of(40, 0));
        assert_eq!((reply.status, reply.json()), (200, json!({"success": true, "metrics_processed": 80})));
    }
    assert_eq!(intake.lines().len(), 80);
}

#[test]
fn fault_30_a_batch_is_kept_in_no_partition_if_one_has_no_room_for_its_part() {
    // After the first flush the next one is an hour away: the queue fills on any disk.
    let queue = |settings: &mut tidegate_log::Settings| {
        settings.partitions = PARTITIONS;
        (settings.queue_bytes, settings.flush_gap) = (64 << 10, Duration::from_secs(3_600));
    };
    let intake = TestIntake::start(Setup { log: Box::new(queue), ..setup(PartitionBy::Series) });
    let log = intake.intake.log();
    fill(log, 2);
    for _ in 0..3 {
        let refused = intake.send("/metrics", &[("idempotency-key", "a")], &batch_of(40, 0));
        assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")), "{}", refused.text());
    }
    let queued = log.statistics().partitions;
    for partition in [0, 1, 3] {
        assert_eq!(queued[partition].queue_bytes, 0, "partition {partition}");
    }
    log.close();
    assert_eq!(series(&intake).len(), 1, "only what filled the queue");
}

/// Fills the queue of a partition, by several clients, so that hardly a line fits.
fn fill(log: &tidegate_log::Log, partition: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let append = |client, durability| {
        let line = b"{\"value\":0.0}\n";
        let fact = Fact { name: NameDigest::of("filler"), bytes: line.len() as u32, ms: 0 };
        let lines = Lines { bytes: line.to_vec().into(), facts: vec![fact], client };
        runtime.block_on(log.append(partition, lines, durability))
    };
    append(0, Durability::Fsync).unwrap();
    for client in 0..20 {
        while append(client, Durability::Memory).is_ok() {}
    }
}
