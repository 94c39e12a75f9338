//! What a reply promises when a batch is sent again, and what a batch costs that the disk refused.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::support::disk::FailingDisk;
use crate::support::{Answer, Setup, TestIntake, batch, eventually, start};
use http::HeaderName;
use tidegate_intake::counters::Reason;
use tidegate_intake::limits::{Denial, LimitedBatch, Limits, LimitsAnswer, Ruling};

/// An intake that syncs only when somebody waits for it, on a disk that may fail.
fn on_a_failing_disk() -> (TestIntake, FailingDisk) {
    let disk = FailingDisk::default();
    let log = |settings: &mut tidegate_log::Settings| {
        (settings.sync_gap, settings.retry_gap) = (Duration::from_secs(3_600), Duration::ZERO);
    };
    let setup = Setup { log: Box::new(log), files: Arc::new(disk.clone()), ..Setup::default() };
    (TestIntake::start(setup), disk)
}

fn send(intake: &TestIntake, ack: &str) -> Answer {
    intake.send(&format!("/metrics?ack={ack}"), &[("idempotency-key", "a")], &batch(3))
}

fn given(intake: &TestIntake, ack: &str) -> String {
    let reply = send(intake, ack);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.field("tidegate-ack").unwrap().to_owned()
}

#[test]
fn fault_28_a_repeat_that_asks_for_more_gets_more_and_is_kept_once() {
    let intake = start();
    assert_eq!([given(&intake, "memory"), given(&intake, "memory")], ["memory", "memory"]);
    assert_eq!([given(&intake, "written"), given(&intake, "fsync")], ["fsync", "fsync"]);
    assert_eq!(given(&intake, "memory"), "fsync", "what it has");
    assert_eq!(intake.lines().len(), 3);
}

#[test]
fn fault_27_a_repeat_is_not_called_safe_whose_lines_the_disk_has_lost() {
    let (intake, disk) = on_a_failing_disk();
    assert_eq!(given(&intake, "memory"), "memory");
    let log = intake.intake.log();
    eventually("it is written", || (log.statistics().partitions[0].lines == 3).then_some(()));
    disk.fail_next_sync();
    let refused = send(&intake, "fsync");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("1")), "{}", refused.text());
    assert!(!disk.will_fail());
    assert_eq!(given(&intake, "fsync"), "fsync");
    assert_eq!(
        intake.kept().len(),
        6,
        "nobody knows what of the first file is on the disk: they are kept again"
    );
    assert_eq!(given(&intake, "fsync"), "fsync");
    assert_eq!(intake.kept().len(), 6);
}

#[test]
fn fault_25_a_batch_in_memory_that_the_disk_refused_is_kept_when_it_comes_again() {
    let (intake, disk) = on_a_failing_disk();
    disk.fill(true);
    assert_eq!(given(&intake, "memory"), "memory");
    let log = intake.intake.log();
    eventually("it is lost", || (log.statistics().partitions[0].lost_lines == 3).then_some(()));
    let refused = send(&intake, "fsync");
    assert_eq!(refused.status, 507, "{}", refused.text());
    disk.fill(false);
    assert_eq!(given(&intake, "fsync"), "fsync");
    assert_eq!(intake.kept().len(), 3);
}

#[test]
fn fault_30_who_has_its_share_of_a_filling_queue_is_told_429_and_who_begins_is_taken() {
    const QUEUE: usize = 1 << 20;
    let disk = FailingDisk::default();
    // After the first refusal the disk is left alone for so long that what comes then waits in the queue.
    let log = |settings: &mut tidegate_log::Settings| {
        (settings.queue_bytes, settings.retry_gap) = (QUEUE, Duration::from_secs(3_600));
    };
    let mut setup = Setup { log: Box::new(log), files: Arc::new(disk.clone()), ..Setup::default() };
    setup.settings.client_field = Some(HeaderName::from_static("x-client"));
    let intake = TestIntake::start(setup);
    disk.fill(true);
    assert_eq!(intake.post("/metrics", &batch(1)).status, 507);
    let queued = || usize::try_from(intake.intake.log().statistics().partitions[0].queue_bytes).unwrap();
    let (body, mut waiting) = (batch(1_000), Vec::new());
    let mut wait = |client: &str| {
        let (before, mut stream) = (queued(), intake.connect());
        let head = format!(
            "POST /metrics HTTP/1.1\r\nhost: a\r\nx-client: {client}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        eventually("it waits in the queue", || (queued() > before).then_some(()));
        waiting.push(stream);
    };
    wait("a");
    let weight = queued();
    for _ in 1..4 * QUEUE / (5 * weight) {
        wait("a");
    }
    let send = |client| {
        let reply = intake.send("/metrics", &[("x-client", client)], &body);
        (reply.status, reply.field("retry-after").map(str::to_owned))
    };
    let later = || Some("1".to_owned());
    assert_eq!(send("a"), (503, later()), "alone, it is told that the queue is full");
    wait("b");
    assert_eq!(send("a"), (429, later()));
    let refused = |reason| intake.intake.counters().refused(reason);
    assert_eq!((refused(Reason::Full), refused(Reason::Share)), (1, 1));
    assert!(queued() <= QUEUE);
}

/// Allows so many metrics.
#[derive(Debug)]
struct Quota(Arc<AtomicU64>);

impl<'b> Limits<LimitedBatch<'b>> for Quota {
    fn charge<'a>(
        &'a self,
        _policies: &'a [Arc<str>],
        batch: &'a LimitedBatch<'b>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let taken = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(batch.metrics));
            Ruling {
                denial: taken.is_err().then_some(Denial::Quota { policies: Vec::new() }),
                ..Ruling::default()
            }
        })
    }

    fn refund<'a>(&'a self, _policies: &'a [Arc<str>], batch: &'a LimitedBatch<'b>) -> LimitsAnswer<'a, ()> {
        Box::pin(async move {
            self.0.fetch_add(batch.metrics, SeqCst);
        })
    }
}

#[test]
fn fault_25_a_batch_that_the_disk_refused_costs_its_client_nothing() {
    let (left, disk) = (Arc::new(AtomicU64::new(10)), FailingDisk::default());
    let setup = Setup::limited(Quota(Arc::clone(&left)));
    let intake = TestIntake::start(Setup { files: Arc::new(disk.clone()), ..setup });
    disk.fill(true);
    for _ in 0..5 {
        assert_eq!(intake.post("/metrics", &batch(6)).status, 507);
        assert_eq!(left.load(SeqCst), 10);
    }
    disk.fill(false);
    assert_eq!(intake.post("/metrics", &batch(6)).status, 200);
    assert_eq!(intake.post("/metrics", &batch(6)).status, 429, "what is kept is charged");
    assert_eq!(left.load(SeqCst), 4);
}
