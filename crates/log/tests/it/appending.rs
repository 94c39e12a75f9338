//! What is acknowledged is there, in order, for readers and after a restart.

use std::ops::ControlFlow;
use std::time::Duration;

use tidegate_log::{AppendError, Durability, Fact, Lines, Log, NameDigest, OpenError, ReadError, Scan};

use crate::support::{all, append, clock, files, line, lines, now, open, small, until};

const DURABILITIES: [Durability; 3] = [Durability::Memory, Durability::Written, Durability::Fsync];

#[test]
fn lines_come_back_in_order_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (log, recovery) = open(small(folder.path()));
    assert_eq!(recovery, tidegate_log::Recovery::default());
    let mut expected = Vec::new();
    for batch in 0..60 {
        let durability = DURABILITIES[batch as usize % 3];
        let ids = batch * 10..batch * 10 + 10;
        let appended = append(&log, ids.clone(), durability).unwrap();
        assert!(appended.durability >= durability);
        assert_eq!(appended.first_offset.is_none(), durability == Durability::Memory);
        expected.extend(ids.map(|id| (id, id)));
    }
    assert_eq!(all(&log), expected);
    let before = log.statistics().partitions.remove(0);
    assert_eq!((before.lines, before.next_offset, before.oldest_offset), (600, 600, 0));
    assert!(before.segments > 3, "{before:?}");
    drop(log);

    let (log, recovery) = open(small(folder.path()));
    assert_eq!(all(&log), expected);
    assert_eq!((recovery.lines, recovery.segments_read), (600, 0), "a log that was closed has its indexes");
    assert_eq!(recovery.findings, []);
    assert_eq!(append(&log, [600], Durability::Fsync).unwrap().first_offset, Some(600));
}

#[test]
fn one_flush_serves_all_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(tidegate_log::Settings::new(folder.path()));
    let waiting: Vec<_> = (0..200).map(|id| log.append(0, lines([id]), Durability::Fsync)).collect();
    for (id, answer) in waiting.into_iter().enumerate() {
        assert_eq!(now(answer).unwrap().first_offset, Some(id as u64));
    }
    let flushes: u64 = log.statistics().partitions[0].flushes.iter().sum();
    assert!(flushes < 200, "{flushes} flushes for 200 batches that waited together");
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    let refused = |lines: Lines| now(log.append(0, lines, Durability::Fsync)).unwrap_err();
    let whole = lines([1, 2]);
    let mut facts = whole.facts.clone();
    facts.pop();
    assert_eq!(refused(Lines { facts, ..whole.clone() }), AppendError::Misdescribed);
    let cut = whole.bytes.slice(..whole.bytes.len() - 1);
    assert_eq!(refused(Lines { bytes: cut, ..whole.clone() }), AppendError::Misdescribed);
    let empty = Lines { bytes: bytes::Bytes::new(), facts: Vec::new(), client: 1 };
    assert_eq!(refused(empty), AppendError::Misdescribed);
    let long = vec![b'\n'; (1 << 20) + 1];
    let fact = Fact { name: NameDigest::of("x"), bytes: (1 << 20) + 1, ms: 0 };
    let long = Lines { bytes: long.into(), facts: vec![fact], client: 1 };
    assert!(matches!(refused(long), AppendError::TooLarge { limit: 1_048_576, .. }));
    assert_eq!(now(log.append(1, whole, Durability::Fsync)), Err(AppendError::NoPartition(1)));
    assert_eq!(all(&log), []);
}

#[test]
fn a_reader_is_told_where_lines_are() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    append(&log, 0..100, Durability::Written).unwrap();
    let read = log.read(0, 40, 3, 10_000).unwrap();
    assert_eq!((read.first_offset, read.count, read.next_offset), (40, 3, 43));
    assert_eq!(read.lines, format!("{}{}{}", line(40), line(41), line(42)));
    assert_eq!(log.read(0, 40, 3, 1).unwrap().count, 1, "one line at least");
    let at_the_end = log.read(0, 100, 3, 10_000).unwrap();
    assert_eq!((at_the_end.count, at_the_end.next_offset), (0, 100));
    assert!(matches!(log.read(0, 101, 3, 10_000), Err(ReadError::Beyond { next: 100 })));
    assert!(matches!(log.read(1, 0, 3, 10_000), Err(ReadError::NoPartition(1))));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_waits_for_a_line_is_woken_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    let waiting = tokio::spawn(log.wait_past(0, 5));
    log.append(0, lines(0..5), Durability::Written).await.unwrap();
    assert!(!waiting.is_finished(), "five lines have the offsets 0 to 4");
    log.append(0, lines([5]), Durability::Written).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
}

#[test]
fn a_scan_reads_the_blocks_that_can_have_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    for batch in 0..100 {
        append(&log, batch * 20..batch * 20 + 20, Durability::Written).unwrap();
    }
    let scan = |name, start_ms, end_ms, max_bytes| {
        let deadline = (clock().monotonic)() + Duration::from_secs(30);
        let wanted = Scan { name, start_ms, end_ms, max_bytes, deadline };
        let mut ids = Vec::new();
        let scanned = log.scan(&wanted, |line, _| {
            ids.push(crate::support::id(line));
            ControlFlow::Continue(())
        });
        (ids, scanned.unwrap())
    };
    let (ids, scanned) = scan("cpu.usage", 400_000, 440_000, u64::MAX);
    assert_eq!(ids, (400..440).step_by(4).collect::<Vec<_>>());
    assert!(scanned.complete && scanned.blocks_read <= 2, "{scanned:?}");
    let (ids, _) = scan("a \"quoted\" name", 0, 9_000, u64::MAX);
    assert_eq!(ids, [3, 7], "a name that is escaped in the line");
    let (ids, scanned) = scan("absent", 0, i64::MAX, u64::MAX);
    assert!(ids.is_empty() && scanned.complete, "{scanned:?}");
    assert!(scanned.blocks_read <= 1, "only the block under way has no list of names: {scanned:?}");
    let late = Scan {
        name: "cpu.usage",
        start_ms: 0,
        end_ms: i64::MAX,
        max_bytes: u64::MAX,
        deadline: (clock().monotonic)(),
    };
    let scanned = log.scan(&late, |_, _| ControlFlow::Continue(())).unwrap();
    assert!(!scanned.complete, "its time has passed: {scanned:?}");
    let (ids, scanned) = scan("cpu.usage", 0, i64::MAX, 10_000);
    assert!(!ids.is_empty() && !scanned.complete && scanned.bytes <= 10_000, "{scanned:?}");
}

#[test]
fn a_folder_has_one_writer_and_one_number_of_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    append(&log, 0..5, Durability::Fsync).unwrap();
    let again = |partitions| {
        let settings = tidegate_log::Settings { partitions, ..small(folder.path()) };
        let describe = std::sync::Arc::new(crate::support::Numbered);
        Log::open(settings, describe, std::sync::Arc::new(tidegate_log::RealFiles), clock())
    };
    assert!(matches!(again(1), Err(OpenError::InUse(_))));
    drop(log);
    assert!(matches!(again(2), Err(OpenError::Partitions { found: 1, configured: 2 })));
    assert_eq!(all(&open(small(folder.path())).0).len(), 5);
}

#[test]
fn a_segment_that_is_old_is_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = tidegate_log::Settings {
        segment_age: Duration::from_millis(20),
        sync_gap: Duration::from_millis(5),
        compress: false,
        ..small(folder.path())
    };
    let (log, _) = open(settings);
    append(&log, 0..5, Durability::Written).unwrap();
    until("the segment is sealed", || {
        append(&log, [9], Durability::Written).unwrap();
        !files(folder.path(), ".index").is_empty()
    });
}
