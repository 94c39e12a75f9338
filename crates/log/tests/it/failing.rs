//! A disk that refuses: nothing of what it refused is acknowledged, and the log goes on by itself.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_log::{AppendError, Clock, Durability, Finding, Log, Settings};
use tokio::time::timeout;

use crate::disk::{Dice, Disk, Faults};
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

/// A crash has left half a line, and there is no room for a copy of it: each start says so, and serves.
fn start_without_space(settings: &Settings, acknowledged: &[(u64, u64)]) {
    let folder = settings.folder.join("0");
    let newest = crate::support::files(&settings.folder, ".jsonl").pop().unwrap();
    fs::remove_file(folder.join(newest.replace(".jsonl", ".index"))).ok();
    let whole = fs::metadata(folder.join(&newest)).unwrap().len();
    // The last page of the file has room for it.
    fs::OpenOptions::new()
        .append(true)
        .open(folder.join(&newest))
        .unwrap()
        .write_all(b"{\"name\":\"")
        .unwrap();
    let filler = settings.folder.parent().unwrap().join("filler");
    let mut filler = fs::File::create(filler).unwrap();
    while filler.write_all(&[1; 4_096]).is_ok() {}
    for _ in 0..2 {
        let (log, recovery) = open(settings.clone());
        assert_eq!(all(&log), acknowledged);
        let findings = &recovery.findings;
        assert!(findings.iter().any(|it| matches!(it, Finding::NotMended { .. })), "{findings:?}");
        assert_eq!(append(&log, [0], Durability::Fsync), Err(AppendError::DiskFull));
        assert_eq!(
            fs::metadata(folder.join(&newest)).unwrap().len(),
            whole + 9,
            "nothing is cut that was not copied"
        );
        let quarantine = fs::read_dir(settings.folder.join("quarantine"));
        assert_eq!(quarantine.map_or(0, Iterator::count), 0, "a copy that is not whole is left nowhere");
    }
    fs::remove_file(settings.folder.parent().unwrap().join("filler")).unwrap();
    fs::OpenOptions::new().write(true).open(folder.join(&newest)).unwrap().set_len(whole).unwrap();
}

/// A log that syncs nothing unless somebody waits for it.
fn lazy(disk: &Disk) -> Log {
    let settings = Settings { sync_gap: Duration::from_secs(3_600), ..small(Path::new("/log")) };
    open_on(settings, Arc::new(disk.clone())).0
}

#[test]
fn fault_26_what_was_appended_before_a_sync_is_there_after_a_loss_of_power() {
    for seed in 0..20 {
        let disk = Disk::default();
        let log = lazy(&disk);
        append(&log, 0..3, Durability::Memory).unwrap();
        append(&log, 3..5, Durability::Written).unwrap();
        append(&log, 5..9, Durability::Memory).unwrap();
        now(log.sync(1)).unwrap();
        now(log.sync(2)).unwrap();
        assert_eq!(log.losses(), 0);
        let after = disk.after_power_loss(&mut Dice(seed));
        let (log, _) = open_on(small(Path::new("/log")), Arc::new(after));
        assert_eq!(all(&log), (0..9).map(|id| (id, id)).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn fault_26_what_nobody_waits_for_is_on_the_disk_after_the_sync_gap() {
    let segment = Path::new("/log/0/00000000000000000000.jsonl");
    for durability in [Durability::Memory, Durability::Written] {
        let disk = Disk::default();
        let settings = Settings { sync_gap: Duration::from_millis(20), ..small(Path::new("/log")) };
        let (log, _) = open_on(settings, Arc::new(disk.clone()));
        append(&log, 0..9, durability).unwrap();
        until("it is written", || log.offsets(0).unwrap().end == 9);
        until("it is synced", || disk.is_synced(segment));
        for seed in 0..20 {
            let after = disk.after_power_loss(&mut Dice(seed));
            let (log, _) = open_on(small(Path::new("/log")), Arc::new(after));
            assert_eq!(
                all(&log),
                (0..9).map(|id| (id, id)).collect::<Vec<_>>(),
                "{durability:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn fault_27_a_sync_that_fails_is_told_and_counts_as_a_loss() {
    let disk = Disk::default();
    let log = lazy(&disk);
    append(&log, 0..3, Durability::Written).unwrap();
    disk.fail(Faults { next_sync: true, ..Faults::default() });
    assert!(matches!(now(log.sync(1)), Err(AppendError::Refused(_))));
    assert_eq!(log.losses(), 1);
    now(log.sync(1)).unwrap();
    assert_eq!(log.losses(), 1, "what is lost stays lost");
    append(&log, 3..4, Durability::Fsync).unwrap();
    disk.fail(Faults { space: Some(0), ..Faults::default() });
    append(&log, 4..6, Durability::Memory).unwrap();
    until("the lines are lost", || log.losses() == 3);
    until("the log knows that the disk is full", || log.statistics().partitions[0].troubled);
    now(log.sync(1)).unwrap();
    assert!(log.statistics().partitions[0].troubled, "a sync without lines says nothing of the disk's space");
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
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
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
        let content = fs::read(mount.join("log/0").join(name)).unwrap();
        assert!(content.is_empty() || content.ends_with(b"\n"), "cut back to the last whole line");
    }
    fs::remove_file(&ballast).unwrap();
    let offset = now(log.append(0, lines([next]), Durability::Fsync)).unwrap().first_offset;
    acknowledged.push((offset.unwrap(), next));
    assert_eq!(all(&log), acknowledged, "it goes on by itself");
    drop(log);
    start_without_space(&settings, &acknowledged);
    let (log, recovery) = open(settings);
    assert_eq!((all(&log), recovery.quarantined_files), (acknowledged, 0));
}
