//! Readers that die, and what their groups remember.

use tidegate_log::{Durability, Finding, GroupError, Settings};

use crate::support::{Numbered, append, line, open, small};

/// A reader that dies between reading and committing is followed by one that reads the same lines.
#[test]
fn fault_70_a_reader_that_dies_before_it_commits() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    append(&log, 0..10, Durability::Fsync).unwrap();
    let read = |log: &tidegate_log::Log| {
        let from = log.committed("alerts", 0).unwrap_or(0);
        log.read(0, from, 4, 10_000).unwrap()
    };
    assert_eq!(read(&log).next_offset, 4);
    log.commit("alerts", 0, 4).unwrap();
    assert_eq!(read(&log).lines, (4..8).map(line).collect::<String>());
    drop(log);
    let (log, _) = open(small(folder.path()));
    assert_eq!(read(&log).lines, (4..8).map(line).collect::<String>(), "not committed, so read again");
    log.commit("alerts", 0, 8).unwrap();
    assert_eq!(read(&log).lines, (8..10).map(line).collect::<String>());
}

#[test]
fn groups_are_bounded_and_forgotten_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(Settings { max_groups: 2, ..small(folder.path()) });
    append(&log, 0..10, Durability::Fsync).unwrap();
    log.commit("a", 0, 1).unwrap();
    log.commit("b", 0, 2).unwrap();
    log.commit("a", 0, 3).unwrap();
    assert!(matches!(log.commit("c", 0, 1), Err(GroupError::TooMany(2))));
    assert!(matches!(log.commit("../a", 0, 1), Err(GroupError::Name)));
    assert!(matches!(log.commit("a", 0, 11), Err(GroupError::Beyond { next: 10 })));
    assert!(matches!(log.commit("a", 1, 1), Err(GroupError::NoPartition(1))));
    let before = log.groups()["b"].clone();
    log.commit("b", 0, 4).unwrap();
    assert!(!log.remove_group("b", &before).unwrap());
    assert_eq!(log.committed("b", 0), Some(4), "it has come further, and is still there");
    let now = log.groups()["b"].clone();
    assert!(log.remove_group("b", &now).unwrap());
    assert!(!log.remove_group("b", &now).unwrap());
    log.commit("c", 0, 1).unwrap();
    drop(log);
    let (log, recovery) = open(small(folder.path()));
    assert_eq!((log.committed("a", 0), log.committed("b", 0)), (Some(3), None));
    assert_eq!(log.groups().len(), 2);
    assert_eq!(recovery.findings, []);
}

#[test]
fn readers_do_not_use_up_the_room_of_the_logs_own_groups() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { max_groups: 2, own_groups: Some("forward."), ..small(folder.path()) };
    for _ in 0..2 {
        let (log, recovery) = open(settings.clone());
        assert_eq!(recovery.findings, []);
        append(&log, 0..10, Durability::Fsync).unwrap();
        for name in ["a", "b", "forward.a", "forward.b"] {
            log.commit(name, 0, log.offsets(0).unwrap().end).unwrap();
        }
        for name in ["c", "forward.c"] {
            assert!(matches!(log.commit(name, 0, 1), Err(GroupError::TooMany(2))), "{name}");
        }
        assert_eq!(log.groups().len(), 4);
    }
}

/// A forward's name may have 64 bytes, as other names do, and its group has a prefix besides. What could not commit was sent again from
/// the oldest line after each restart.
#[test]
fn a_group_of_the_logs_own_has_room_for_its_prefix_and_the_longest_name() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { own_groups: Some("forward."), ..small(folder.path()) };
    let name = format!("forward.{}", "n".repeat(64));
    let (log, _) = open(settings.clone());
    append(&log, 0..10, Durability::Fsync).unwrap();
    log.commit(&name, 0, 7).unwrap();
    drop(log);
    let (log, recovery) = open(settings);
    assert_eq!((log.committed(&name, 0), recovery.findings), (Some(7), vec![]));
    let so_far = log.groups()[&name].clone();
    assert!(log.remove_group(&name, &so_far).unwrap());
}

/// Lines that a group has read are lost; others do not get their offsets, or the group would not see them.
#[test]
fn offsets_that_a_group_committed_are_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(Settings { compress: false, ..small(folder.path()) });
    append(&log, 0..10, Durability::Fsync).unwrap();
    log.commit("alerts", 0, 10).unwrap();
    drop(log);
    for ending in ["jsonl", "index"] {
        std::fs::remove_file(folder.path().join(format!("0/00000000000000000000.{ending}"))).unwrap();
    }
    let (log, _) = open(small(folder.path()));
    let appended = append(&log, [10], Durability::Fsync).unwrap();
    assert_eq!(appended.first_offset, Some(10));
    assert_eq!(log.read(0, 10, 10, 10_000).unwrap().lines, line(10));
}

/// A damaged file must not lead to offsets that there are not.
#[test]
fn fault_72_a_group_that_is_further_than_any_line_can_be_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    append(&log, 0..10, Durability::Fsync).unwrap();
    log.commit("alerts", 0, 3).unwrap();
    drop(log);
    let file = folder.path().join("groups/alerts.json");
    std::fs::write(&file, format!("{{\"0\":{}}}\n", u64::MAX)).unwrap();
    let verified = tidegate_log::verify(folder.path(), &Numbered, &tidegate_log::RealFiles).unwrap();
    assert_eq!(verified.findings, [Finding::Group { file: file.clone() }], "it is known before the start");
    let (log, recovery) = open(small(folder.path()));
    assert_eq!(recovery.findings, [Finding::Group { file }]);
    assert_eq!(log.committed("alerts", 0), None);
    append(&log, 10..20, Durability::Fsync).unwrap();
    assert_eq!(log.offsets(0), Some(0..20));
}
