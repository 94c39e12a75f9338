//! A batch in parts, each in a partition of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_log::{AppendError, Durability, Settings};

use crate::disk::{Disk, Faults};
use crate::support::{lines, now, of_partition, open, open_on, small};

fn in_two(folder: &Path) -> Settings {
    Settings { partitions: 2, ..small(folder) }
}

#[test]
fn parts_are_in_their_partitions_in_order_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(in_two(folder.path()));
    let mut expected = [Vec::new(), Vec::new()];
    for batch in 0..30_u64 {
        let durability = [Durability::Memory, Durability::Written, Durability::Fsync][batch as usize % 3];
        let parts = vec![(0, lines([batch])), (1, lines([100 + batch, 200 + batch]))];
        assert!(now(log.append_parts(parts, durability)).unwrap() >= durability);
        expected[0].push(batch);
        expected[1].extend([100 + batch, 200 + batch]);
    }
    let expected = expected.map(|ids| (0..).zip(ids).collect::<Vec<_>>());
    drop(log);
    let (log, _) = open(in_two(folder.path()));
    assert_eq!([0, 1].map(|partition| of_partition(&log, partition)), expected);
}

#[test]
fn parts_that_are_not_in_the_order_of_their_partitions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(in_two(folder.path()));
    let refused = |parts: &[u16]| {
        let parts = parts.iter().map(|partition| (*partition, lines([1]))).collect();
        now(log.append_parts(parts, Durability::Fsync)).unwrap_err()
    };
    assert_eq!(refused(&[]), AppendError::Misdescribed);
    assert_eq!(refused(&[1, 0]), AppendError::Misdescribed);
    assert_eq!(refused(&[1, 1]), AppendError::Misdescribed);
    assert_eq!(refused(&[0, 2]), AppendError::NoPartition(2));
    assert_eq!([0, 1].map(|partition| of_partition(&log, partition)), [[], []]);
}

#[test]
fn fault_30_parts_for_one_of_which_there_is_no_room_are_not_queued_at_all() {
    let folder = tempfile::tempdir().unwrap();
    // After the first flush the next one is an hour away: the queue fills on any disk.
    let settings =
        Settings { queue_bytes: 64 << 10, flush_gap: Duration::from_secs(3_600), ..in_two(folder.path()) };
    let (log, _) = open(settings);
    now(log.append(1, lines([0]), Durability::Fsync)).unwrap();
    let mut queued = 1;
    let error = loop {
        match now(log.append(1, lines(queued..queued + 50), Durability::Memory)) {
            Ok(_) => queued += 50,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AppendError::Full { .. }), "{error}");
    let parts = vec![(0, lines([1])), (1, lines(0..50))];
    assert_eq!(now(log.append_parts(parts, Durability::Fsync)), Err(error));
    assert_eq!(log.statistics().partitions[0].queue_bytes, 0);
    log.close();
    assert_eq!(of_partition(&log, 0), []);
    assert_eq!(of_partition(&log, 1).len() as u64, queued);
}

#[test]
fn a_part_that_the_disk_refuses_refuses_the_batch_when_all_parts_are_done() {
    let disk = Disk::default();
    let (log, _) = open_on(in_two(Path::new("/log")), Arc::new(disk.clone()));
    disk.fail(Faults { next_write: true, ..Faults::default() });
    let parts = vec![(0, lines([1, 2])), (1, lines([3, 4]))];
    let refused = now(log.append_parts(parts, Durability::Fsync)).unwrap_err();
    assert_eq!(refused, AppendError::Refused("the disk failed".to_owned()));
    // Whichever came first was refused.
    let kept = [0, 1].map(|partition| of_partition(&log, partition).len());
    assert!(kept == [0, 2] || kept == [2, 0], "{kept:?}");
}
