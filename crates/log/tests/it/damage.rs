//! Files cut at any byte, changed or removed: the log starts, says what is wrong, and serves the rest.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tidegate_log::{Durability, Finding, Log, RealFiles, Recovery, Settings, verify};

use crate::disk::Dice;
use crate::support::{Numbered, all, append, files, line, open, small};

/// A log of several segments, some compressed; how many lines.
fn sample(folder: &Path, compress: bool) -> u64 {
    let (log, _) = open(Settings { compress, ..small(folder) });
    for batch in 0..20 {
        append(&log, batch * 20..batch * 20 + 20, Durability::Fsync).unwrap();
    }
    if compress {
        let packed = || files(folder, ".zst").len() > 2 && files(folder, ".unfinished").is_empty();
        crate::support::until("segments are compressed", packed);
    }
    400
}

fn reopened(folder: &Path) -> (Log, Recovery) {
    open(Settings { compress: false, ..small(folder) })
}

/// Every line found is one that was written, at its offset.
fn assert_true(log: &Log, case: &str) {
    for (offset, id) in all(log) {
        assert_eq!(offset, id, "{case}");
    }
}

fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn fault_26_a_torn_tail_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    append(&log, 0..3, Durability::Fsync).unwrap();
    drop(log);
    fs::remove_file(folder.path().join("0/00000000000000000000.index")).unwrap();
    let segment = folder.path().join("0/00000000000000000000.jsonl");
    let packed = folder.path().join("0/00000000000000000000.jsonl.zst");
    fs::remove_file(packed).ok();
    let whole: String = (0..3).map(line).collect();
    let torn = &line(3)[..20];
    fs::write(&segment, format!("{whole}{torn}")).unwrap();

    let before = verify(folder.path(), &Numbered, &RealFiles).unwrap();
    assert!(matches!(&before.findings[..], [Finding::Torn { bytes: 20, line_ends: 0, kept_in: None, .. }]));
    let (log, recovery) = reopened(folder.path());
    assert_eq!(all(&log), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!((recovery.quarantined_files, recovery.quarantined_bytes), (1, 20));
    let [Finding::Torn { from, kept_in: Some(kept), .. }] = &recovery.findings[..] else {
        panic!("{:?}", recovery.findings);
    };
    assert_eq!(*from, whole.len() as u64);
    assert_eq!(fs::read_to_string(kept).unwrap(), torn);
    assert_eq!(fs::read_to_string(&segment).unwrap(), whole);
    assert_eq!(append(&log, [3], Durability::Fsync).unwrap().first_offset, Some(3));
    assert_eq!(log.statistics().partitions[0].quarantined_files, 1);
    drop(log);
    assert_eq!(verify(folder.path(), &Numbered, &RealFiles).unwrap().findings, []);
}

/// Cut between two lines, a segment is whole lines only, and nothing but its index knows of the others.
#[test]
fn fault_72_a_segment_that_is_shorter_than_its_index_is_named_with_what_is_missing() {
    for (compress, kept) in [(false, 3), (false, 0), (true, 0)] {
        let folder = tempfile::tempdir().unwrap();
        sample(folder.path(), compress);
        let names = files(folder.path(), if compress { ".zst" } else { ".jsonl" });
        let first = |place: usize| names[place][..20].parse::<u64>().unwrap();
        let (name, indexed) = (&names[1], first(2) - first(1));
        let path = folder.path().join("0").join(name);
        let content = fs::read(&path).unwrap();
        let cut: usize = content.split_inclusive(|byte| *byte == b'\n').take(kept).map(<[u8]>::len).sum();
        fs::write(&path, &content[..cut]).unwrap();
        let expected = Finding::Shorter { file: path.clone(), lines: kept as u64, indexed };
        let verified = verify(folder.path(), &Numbered, &RealFiles).unwrap().findings;
        assert!(verified.contains(&expected), "{name}: {verified:?}");
        assert!(!verified.iter().any(|it| matches!(it, Finding::StaleIndex { .. })), "{verified:?}");
        let (log, recovery) = reopened(folder.path());
        assert!(recovery.findings.contains(&expected), "{name}: {:?}", recovery.findings);
        let said = expected.to_string();
        assert!(said.contains(&format!("{} are missing", indexed - kept as u64)), "{said}");
        assert_true(&log, name);
    }
}

#[test]
fn fault_72_a_segment_cut_at_any_byte() {
    for compress in [false, true] {
        let original = tempfile::tempdir().unwrap();
        sample(original.path(), compress);
        let ending = if compress { ".zst" } else { ".jsonl" };
        let name = files(original.path(), ending).remove(1);
        let first: u64 = name[..20].parse().unwrap();
        let content = fs::read(original.path().join("0").join(&name)).unwrap();
        for cut in (0..content.len()).step_by(content.len() / 60 + 1) {
            let case = format!("{name} cut at {cut}");
            let folder = tempfile::tempdir().unwrap();
            copy(original.path(), folder.path());
            fs::write(folder.path().join("0").join(&name), &content[..cut]).unwrap();
            let (log, recovery) = reopened(folder.path());
            assert_true(&log, &case);
            let found = all(&log);
            assert!(
                (0..first).all(|id| found.contains(&(id, id))),
                "{case}: lines before the damage are lost"
            );
            assert_eq!(found.last(), Some(&(399, 399)), "{case}: lines after the damage are lost");
            assert!(!recovery.findings.is_empty(), "{case}: nothing was said");
            if !compress {
                let whole = content[..cut].iter().filter(|byte| **byte == b'\n').count() as u64;
                assert!((0..first + whole).all(|id| found.contains(&(id, id))), "{case}");
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in everything(from) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

/// Whatever combination of files is gone or damaged.
#[test]
fn fault_72_files_removed_and_damaged_at_random() {
    let originals = [true, false].map(|compress| {
        let folder = tempfile::tempdir().unwrap();
        sample(folder.path(), compress);
        folder
    });
    for seed in 0..120 {
        let mut dice = Dice(seed);
        let folder = tempfile::tempdir().unwrap();
        copy(originals[dice.below(2)].path(), folder.path());
        for _ in 0..=dice.below(6) {
            let mut paths = everything(&folder.path().join("0"));
            paths.extend(everything(folder.path()).into_iter().filter(|path| path.is_file()));
            let path = &paths[dice.below(paths.len())];
            let mut content = fs::read(path).unwrap();
            match dice.below(4) {
                0 => fs::remove_file(path).unwrap(),
                1 => {
                    content.truncate(dice.below(content.len() + 1));
                    fs::write(path, content).unwrap();
                }
                2 => {
                    // Zeros, as a file system leaves them where blocks were not written.
                    let from = dice.below(content.len() + 1);
                    let to = (from + dice.below(600)).min(content.len());
                    content[from..to].fill(0);
                    fs::write(path, content).unwrap();
                }
                _ => {
                    content.extend((0..dice.below(300)).map(|byte| u8::try_from(byte % 251).unwrap()));
                    fs::write(path, content).unwrap();
                }
            }
        }
        let case = format!("seed {seed}");
        verify(folder.path(), &Numbered, &RealFiles).unwrap();
        let (log, recovery) = reopened(folder.path());
        let next = log.offsets(0).unwrap().end;
        for finding in &recovery.findings {
            assert!(!finding.to_string().is_empty());
        }
        // A zeroed block inside a segment whose index fits is met by the reader, who is told what is missing.
        assert_true(&log, &case);
        let appended = append(&log, [next], Durability::Fsync).unwrap();
        assert_eq!(appended.first_offset, Some(next), "{case}");
        drop(log);
        let (log, _) = reopened(folder.path());
        assert_eq!(all(&log).last(), Some(&(next, next)), "{case}");
    }
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(small(folder.path())));
    let foreign = ["notes.txt", "1.jsonl", "99999999999999999999.jsonl", "00000000000000000000.jsonl.bak"];
    for name in foreign {
        fs::write(folder.path().join("0").join(name), "not ours").unwrap();
    }
    fs::create_dir(folder.path().join("0/00000000000000000000.jsonl")).unwrap();
    let (log, recovery) = reopened(folder.path());
    assert_eq!(recovery.findings.len(), 5, "{:?}", recovery.findings);
    assert!(recovery.findings.iter().all(|finding| matches!(finding, Finding::Foreign { .. })));
    drop(log);
    assert!(foreign.iter().all(|name| folder.path().join("0").join(name).exists()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Bytes of any kind as segments and index.
    #[test]
    fn any_bytes_are_opened(
        plain in prop::collection::vec(any::<u8>(), 0..400),
        packed in prop::collection::vec(any::<u8>(), 0..400),
        index in prop::collection::vec(any::<u8>(), 0..200),
        lines in 0..5_u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("0")).unwrap();
        let mut content: Vec<u8> = (0..lines).map(line).collect::<String>().into_bytes();
        content.extend(plain);
        fs::write(folder.path().join("0/00000000000000000000.jsonl"), content).unwrap();
        fs::write(folder.path().join("0/00000000000000000100.jsonl.zst"), packed).unwrap();
        fs::write(folder.path().join("0/00000000000000000000.index"), index).unwrap();
        fs::write(folder.path().join("log.json"), "{").unwrap();
        let (log, _) = reopened(folder.path());
        let found = all(&log);
        prop_assert!((0..lines).all(|id| found.contains(&(id, id))), "whole lines before the damage");
        append(&log, [1_000], Durability::Fsync).unwrap();
    }
}
