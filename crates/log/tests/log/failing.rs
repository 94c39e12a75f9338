//! A disk that refuses: nothing of what it refused is acknowledged, and the log goes on by itself.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_log::{AppendError, Clock, Durability, Log, Settings};
use tokio::time::timeout;

use crate::disk::{Disk, Faults};
use crate::support::{Numbered, all, append, clock, line, lines, now, open, open_on, small, until};

/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_failed_write_is_cut_off_and_not_acknowledged() {
    let disk = Disk::default();
    let (log, _) = open_on(small(Path::new("/log")), Arc::new(disk.clone()));
    append(&log, 0..3, Durability::Fsync).unwrap();
    disk.fail(Faults { next_write: true, ..Faults::default() });
    let refused = append(&log, 3..9, Durability::Fsync).unwrap_err();
    assert_eq!(refused, AppendError::Refused("the disk failed".to_owned()));
    append(&log, 9..11, Durability::Fsync).unwrap();
    assert_eq!(all(&log), [(0, 0), (1, 1), (2, 2), (3, 9), (4, 10)]);
    let content = disk.content(Path::new("/log/0/00000000000000000000.jsonl"));
    let lines: String = [0, 1, 2, 9, 10].map(line).concat();
    assert_eq!(String::from_utf8(content).unwrap(), lines);
    let statistics = &log.statistics().partitions[0];
    assert_eq!((statistics.failed_writes, statistics.refused_failed, statistics.troubled), (1, 1, false));
}

#[test]
fn fault_27_a_failed_sync_ends_the_file() {
    let disk = Disk::default();
    let (log, _) = open_on(small(Path::new("/log")), Arc::new(disk.clone()));
    append(&log, 0..3, Durability::Fsync).unwrap();
    disk.fail(Faults { next_sync: true, ..Faults::default() });
    assert!(matches!(append(&log, 3..9, Durability::Fsync), Err(AppendError::Refused(_))));
    append(&log, 9..11, Durability::Fsync).unwrap();
    assert_eq!(all(&log), [(0, 0), (1, 1), (2, 2), (3, 9), (4, 10)]);
    let first = disk.content(Path::new("/log/0/00000000000000000000.jsonl"));
    assert_eq!(String::from_utf8(first).unwrap(), [0, 1, 2].map(line).concat());
    let second = disk.content(Path::new("/log/0/00000000000000000003.jsonl"));
    assert_eq!(String::from_utf8(second).unwrap(), [9, 10].map(line).concat());
    assert_eq!(log.statistics().partitions[0].suspect_files, 1);
}

#[test]
fn a_file_that_cannot_even_be_cut_back_hides_what_was_refused() {
    let disk = Disk::default();
    let (log, _) = open_on(small(Path::new("/log")), Arc::new(disk.clone()));
    append(&log, 0..3, Durability::Fsync).unwrap();
    disk.fail(Faults { next_sync: true, cuts: true, ..Faults::default() });
    append(&log, 3..9, Durability::Fsync).unwrap_err();
    append(&log, 9..11, Durability::Fsync).unwrap();
    let expected = [(0, 0), (1, 1), (2, 2), (3, 9), (4, 10)];
    assert_eq!(all(&log), expected);
    drop(log);
    let (log, recovery) = open_on(small(Path::new("/log")), Arc::new(disk.after_kill()));
    assert_eq!(all(&log), expected);
    assert!(recovery.findings.iter().any(|finding| finding.to_string().contains("the same offsets")));
}

#[test]
fn lines_in_memory_that_the_disk_refuses_are_counted() {
    let disk = Disk::default();
    let (log, _) = open_on(small(Path::new("/log")), Arc::new(disk.clone()));
    disk.fail(Faults { space: Some(0), ..Faults::default() });
    append(&log, 0..7, Durability::Memory).unwrap();
    until("the lines are lost", || log.statistics().partitions[0].lost_lines == 7);
    until("the log knows that the disk is full", || log.statistics().partitions[0].troubled);
    assert_eq!(append(&log, 7..9, Durability::Memory), Err(AppendError::DiskFull), "no more is promised");
    disk.fail(Faults::default());
    append(&log, 9..10, Durability::Memory).unwrap();
    assert_eq!(all(&log), [(0, 9)]);
    assert_eq!(log.statistics().partitions[0].lost_lines, 7);
}

static IS_BROKEN: AtomicBool = AtomicBool::new(false);

fn breaking() -> Instant {
    let is_writer = thread::current().name().is_some_and(|name| name.starts_with("log-writer"));
    assert!(!is_writer || !IS_BROKEN.load(SeqCst), "a bug");
    (clock().monotonic)()
}

#[test]
fn a_writer_that_a_bug_has_ended_keeps_nobody_waiting() {
    let settings = Settings { flush_gap: Duration::ZERO, ..Settings::new("/log") };
    let clock = Clock { monotonic: breaking, ..clock() };
    let (log, _) = Log::open(settings, Arc::new(Numbered), Arc::new(Disk::default()), clock).unwrap();
    append(&log, 0..3, Durability::Fsync).unwrap();
    IS_BROKEN.store(true, SeqCst);
    for _ in 0..3 {
        let answer = log.append(0, lines(3..9), Durability::Fsync);
        let answer = now(async { timeout(PATIENCE, answer).await.expect("there is an answer") });
        assert_eq!(answer, Err(AppendError::Closing));
    }
    assert_eq!(all(&log), [(0, 0), (1, 1), (2, 2)]);
}

const CHILD: &str = "TIDEGATE_TEST_FULL_DISK";

/// On a real file system of 4 MiB, in a mount namespace of its own.
#[test]
fn fault_25_a_full_disk() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return fill_and_free(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=4m none \"$1\" && exec \"$0\" --exact failing::fault_25_a_full_disk";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(folder.path())
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

fn fill_and_free(mount: &Path) {
    let ballast = mount.join("ballast");
    std::fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let settings = Settings { compress: false, segment_bytes: 1 << 20, ..small(&mount.join("log")) };
    let (log, _) = open(settings.clone());
    let mut acknowledged = Vec::new();
    let mut next = 0;
    let refused = loop {
        let ids = next..next + 500;
        next += 500;
        match append(&log, ids.clone(), Durability::Fsync) {
            Ok(appended) => acknowledged.extend((appended.first_offset.unwrap()..).zip(ids)),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, AppendError::DiskFull);
    assert_eq!(append(&log, next..next + 500, Durability::Memory), Err(AppendError::DiskFull));
    assert_eq!(all(&log), acknowledged, "what was refused is not there");
    for name in crate::support::files(&mount.join("log"), ".jsonl") {
        let content = std::fs::read(mount.join("log/0").join(name)).unwrap();
        assert!(content.is_empty() || content.ends_with(b"\n"), "cut back to the last whole line");
    }
    std::fs::remove_file(&ballast).unwrap();
    let offset = now(log.append(0, lines([next]), Durability::Fsync)).unwrap().first_offset;
    acknowledged.push((offset.unwrap(), next));
    assert_eq!(all(&log), acknowledged, "it goes on by itself");
    drop(log);
    let (log, recovery) = open(settings);
    assert_eq!((all(&log), recovery.quarantined_files), (acknowledged, 0));
}
