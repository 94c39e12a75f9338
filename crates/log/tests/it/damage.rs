//! Files cut at any byte, changed or removed: the log starts, says what is wrong, and serves the rest.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_log::{Durability, Finding, Log, RealFiles, Recovery, Settings, verify};

use crate::disk::{Dice, Disk};
use crate::support::{Numbered, all, append, files, line, open, open_on, small, until};

/// A log of several segments, some compressed; how many lines.
fn sample(folder: &Path, compress: bool) -> u64 {
    let (log, _) = open(Settings { compress, ..small(folder) });
    for batch in 0..20 {
        append(&log, batch * 20..batch * 20 + 20, Durability::Fsync).unwrap();
    }
    log.commit("reader", 0, 10).unwrap();
    if compress {
        let packed = || files(folder, ".zst").len() > 2 && files(folder, ".unfinished").is_empty();
        until("segments are compressed", packed);
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

/// Lines of a tiny log, and how many of these are in a segment.
const LINES: u64 = 20;
const BATCH: u64 = 4;

fn tiny_settings(compress: bool) -> Settings {
    Settings { compress, segment_bytes: 100, ..small(Path::new("log")) }
}

/// Some segments of a few lines, each with its index, and a group that has read some of them; nobody has it open.
fn tiny(compress: bool) -> Disk {
    let disk = Disk::default();
    let (log, _) = open_on(tiny_settings(compress), Arc::new(disk.clone()));
    for first in (0..LINES).step_by(4) {
        append(&log, first..first + BATCH, Durability::Fsync).unwrap();
    }
    log.commit("reader", 0, 3).unwrap();
    let ends = |disk: &Disk, ending: &str| {
        disk.paths().iter().filter(|path| path.to_string_lossy().ends_with(ending)).count()
    };
    if compress {
        until("all but the newest are compressed", || ends(&disk, ".zst") >= 4);
    }
    drop(log);
    let mut left = disk.after_kill();
    until("nothing is under way", || {
        left = disk.after_kill();
        ends(&left, ".unfinished") == 0
            && verify(Path::new("log"), &Numbered, &left).unwrap().findings.is_empty()
    });
    assert_eq!(ends(&left, ".index"), 5, "{:?}", left.paths());
    left
}

/// The offsets of a segment's lines; `None` for another file.
fn offsets_of(path: &Path) -> Option<Range<u64>> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let first = name.strip_suffix(".zst").unwrap_or(name).strip_suffix(".jsonl")?.parse().ok()?;
    Some(first..first + BATCH)
}

/// The segments before and behind the cut are whole, of the one that is cut each whole line is there, the rest is in quarantine,
/// and what is missing is said, by the start as by `verify`.
#[test]
fn fault_72_any_file_cut_at_any_byte() {
    for compress in [false, true] {
        let original = tiny(compress);
        for path in original.paths() {
            for cut in 0..original.content(&path).len() {
                check_cut(&original, &path, cut);
            }
        }
    }
}

fn check_cut(original: &Disk, path: &Path, cut: usize) {
    let (case, disk) = (format!("{} cut at {cut}", path.display()), original.after_kill());
    disk.cut(path, cut);
    let left = disk.content(path);
    let verified = verify(Path::new("log"), &Numbered, &disk).unwrap().findings;
    assert_eq!(disk.content(path), left, "{case}: a look changes nothing");
    let (log, recovery) = open_on(tiny_settings(false), Arc::new(disk.clone()));
    let is_packed = path.extension().is_some_and(|ending| ending == "zst");
    // A compressed segment of a few lines is one frame.
    let whole =
        if is_packed { 0 } else { left.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) };
    let kept = left[..whole].iter().filter(|byte| **byte == b'\n').count() as u64;
    let segment = offsets_of(path);
    let is_lost =
        |id: &u64| segment.as_ref().is_some_and(|lines| (lines.start + kept..lines.end).contains(id));
    let mut expected: Vec<(u64, u64)> = (0..LINES).filter(|id| !is_lost(id)).map(|id| (id, id)).collect();
    assert_eq!(all(&log), expected, "{case}");
    if segment.is_some() {
        let shorter = Finding::Shorter { file: path.to_owned(), lines: kept, indexed: BATCH };
        assert!(verified.contains(&shorter), "{case}: {verified:?}");
        assert!(recovery.findings.contains(&shorter), "{case}: {:?}", recovery.findings);
        let tails = recovery.findings.iter().filter_map(|finding| match finding {
            Finding::Torn { kept_in, .. } => Some(disk.content(kept_in.as_ref().expect("it is moved"))),
            _ => None,
        });
        let tails: Vec<Vec<u8>> = tails.collect();
        let torn = (whole < left.len()).then(|| left[whole..].to_vec());
        assert_eq!(tails, Vec::from_iter(torn), "{case}");
    } else if !left.ends_with(b"}") {
        assert!(!verified.is_empty() && !recovery.findings.is_empty(), "{case}: nothing is said");
    }
    assert_eq!(append(&log, [LINES], Durability::Fsync).unwrap().first_offset, Some(LINES), "{case}");
    drop(log);
    let (log, again) = open_on(tiny_settings(false), Arc::new(disk));
    expected.push((LINES, LINES));
    assert_eq!((all(&log), again.quarantined_files), (expected, 0), "{case}");
}

#[test]
fn fault_72_a_segment_of_many_lines_cut_in_many_places() {
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
            paths.extend(everything(&folder.path().join("groups")));
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
        let verified = verify(folder.path(), &Numbered, &RealFiles).unwrap();
        let (log, recovery) = reopened(folder.path());
        let next = log.offsets(0).unwrap().end;
        for finding in &recovery.findings {
            assert!(!finding.to_string().is_empty());
        }
        // A zeroed block inside a segment whose index fits is met by the reader, who is told what is missing.
        assert_true(&log, &case);
        // Lines that are gone with their index at either end leave nothing that could say so, as after retention.
        let found: Vec<u64> = all(&log).into_iter().map(|(_, id)| id).collect();
        let has_hole = found.windows(2).any(|pair| pair[0] + 1 != pair[1]);
        assert!(!has_hole || !verified.findings.is_empty(), "{case}: nothing is said of what is missing");
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
