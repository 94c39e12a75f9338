//! Never more disk than stated, and the oldest lines go first.

use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidegate_log::{Durability, ReadError, Settings};

use crate::support::{all, append, open, open_at, small, until};

fn bytes_in(folder: &Path) -> u64 {
    let mut total = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        // The sealer removes files meanwhile.
        let Ok(about) = entry.metadata() else { continue };
        total += if about.is_dir() { bytes_in(&entry.path()) } else { about.len() };
    }
    total
}

#[test]
fn the_log_takes_no_more_disk_than_stated() {
    for compress in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let limit = 1 << 20;
        let settings =
            Settings { retain_bytes: Some(limit), segment_bytes: 1 << 30, compress, ..small(folder.path()) };
        let (log, _) = open(settings);
        let mut next = 0;
        while log.offsets(0).unwrap().start == 0 || next < 60_000 {
            append(&log, next..next + 500, Durability::Written).unwrap();
            next += 500;
            let taken = bytes_in(folder.path());
            assert!(taken <= limit, "{taken} bytes after {next} lines, compress {compress}");
            assert!(next < 10_000_000, "nothing was ever removed");
        }
        let range = log.offsets(0).unwrap();
        assert_eq!(range.end, next);
        assert!(matches!(log.read(0, 0, 1, 1_000), Err(ReadError::Gone { oldest }) if oldest == range.start));
        let kept = all(&log);
        assert_eq!(kept.last(), Some(&(next - 1, next - 1)));
        assert!(log.statistics().partitions[0].removed_segments > 0);
    }
}

#[test]
fn old_segments_are_removed_but_for_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    append(&log, 0..200, Durability::Fsync).unwrap();
    append(&log, 200..201, Durability::Fsync).unwrap();
    drop(log);
    let settings = Settings { retain_age: Some(Duration::from_millis(1)), ..small(folder.path()) };
    until("the segments are a millisecond old", || {
        let (log, _) = open(settings.clone());
        log.offsets(0).unwrap() == (200..201)
    });
    let (log, _) = open(settings);
    assert_eq!(append(&log, [201], Durability::Fsync).unwrap().first_offset, Some(201));
}

const DAY_MS: i64 = 86_400_000;

#[test]
fn fault_56_a_civil_clock_that_jumps_removes_nothing_and_time_that_passes_does() {
    let (clock, jumps) = crate::jumping!(RETENTION);
    let folder = tempfile::tempdir().unwrap();
    let settings = || Settings { retain_age: Some(Duration::from_secs(7 * 86_400)), ..small(folder.path()) };
    let open = || open_at(settings(), std::sync::Arc::new(tidegate_log::RealFiles), clock).0;
    let log = open();
    append(&log, 0..400, Durability::Fsync).unwrap();
    drop(log);
    let log = open();
    append(&log, 400..600, Durability::Fsync).unwrap();
    for days in [8, -8] {
        jumps.0.store(days * DAY_MS, SeqCst);
        append(&log, 0..100, Durability::Fsync).unwrap();
        assert_eq!(log.offsets(0).unwrap().start, 0, "the clock was set by {days} days");
    }
    jumps.0.store(0, SeqCst);
    jumps.1.store(8 * 86_400_000, SeqCst);
    append(&log, 0..100, Durability::Fsync).unwrap();
    assert!(log.offsets(0).unwrap().start >= 500, "eight days have passed: {:?}", log.offsets(0));
}

#[test]
fn a_line_is_as_old_as_it_has_been_there_whatever_time_it_states() {
    let (clock, jumps) = crate::jumping!(AGES);
    let folder = tempfile::tempdir().unwrap();
    let open = || open_at(small(folder.path()), std::sync::Arc::new(tidegate_log::RealFiles), clock).0;
    let log = open();
    let age = |log: &tidegate_log::Log, offset| log.age(0, offset).map(|age| age.as_secs() / 60);
    assert_eq!(age(&log, 0), None);
    // The lines state times of 1970.
    append(&log, 0..10, Durability::Fsync).unwrap();
    assert_eq!((age(&log, 0), age(&log, 10)), (Some(0), None));
    jumps.1.store(3_600_000, SeqCst);
    append(&log, 10..20, Durability::Fsync).unwrap();
    assert_eq!((age(&log, 9), age(&log, 10), age(&log, 20), log.age(1, 0)), (Some(60), Some(0), None, None));
    drop(log);
    // The next process knows when the file was written to.
    jumps.0.store(2 * 3_600_000, SeqCst);
    let log = open();
    append(&log, 20..30, Durability::Fsync).unwrap();
    assert_eq!((age(&log, 0), age(&log, 20)), (Some(120), Some(0)));
}

#[test]
fn bounds_that_cannot_be_kept_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |settings| {
        let describe = std::sync::Arc::new(crate::support::Numbered);
        let files = std::sync::Arc::new(tidegate_log::RealFiles);
        tidegate_log::Log::open(settings, describe, files, crate::support::clock()).map(drop)
    };
    for settings in [
        Settings { partitions: 0, ..small(folder.path()) },
        Settings { queue_bytes: 1_000, ..small(folder.path()) },
        Settings { retain_bytes: Some(1_000_000), ..small(folder.path()) },
        Settings { retain_bytes: Some(3 << 20), partitions: 4, ..small(folder.path()) },
    ] {
        assert!(matches!(open(settings), Err(tidegate_log::OpenError::Settings(_))));
    }
}
