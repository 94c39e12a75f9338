//! Compressed segments: any tool reads them, and a crash in the middle leaves one whole form.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_log::{Durability, Entry, Files, Growing, Readable, RealFiles, Settings, verify};

use crate::support::{Numbered, all, append, files, line, open, open_on, small, until};

#[test]
fn sealed_segments_are_compressed_and_read_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(small(folder.path()));
    for batch in 0..20 {
        append(&log, batch * 50..batch * 50 + 50, Durability::Fsync).unwrap();
    }
    until("all but the active segment are compressed", || files(folder.path(), ".jsonl").len() == 1);
    let expected: Vec<(u64, u64)> = (0..1_000).map(|id| (id, id)).collect();
    assert_eq!(all(&log), expected);
    let statistics = &log.statistics().partitions[0];
    assert!(statistics.disk_bytes < statistics.bytes / 2, "{statistics:?}");
    drop(log);

    let (log, recovery) = open(small(folder.path()));
    assert_eq!((all(&log), recovery.segments_read), (expected, 0));
    drop(log);
    let mut text = Vec::new();
    for name in files(folder.path(), "") {
        let path = folder.path().join("0").join(&name);
        match name.rsplit('.').next() {
            Some("zst") => text.extend(Command::new("zstdcat").arg(path).output().unwrap().stdout),
            Some("jsonl") => text.extend(fs::read(path).unwrap()),
            _ => {}
        }
    }
    assert_eq!(String::from_utf8(text).unwrap(), (0..1_000).map(line).collect::<String>());
}

/// A state's name, and the endings and contents of its files.
type State<'a> = (&'a str, &'a [(&'a str, &'a [u8])]);

/// The states that a crash of the sealer can leave, one after the other.
#[test]
fn a_crash_while_compressing_leaves_a_whole_form() {
    let plain = tempfile::tempdir().unwrap();
    let (log, _) = open(Settings { compress: false, ..small(plain.path()) });
    for batch in 0..3 {
        append(&log, batch * 100..batch * 100 + 100, Durability::Fsync).unwrap();
    }
    drop(log);
    let name = |ending| format!("0/00000000000000000000{ending}");
    let plain_form = fs::read(plain.path().join(name(".jsonl"))).unwrap();
    let plain_index = fs::read(plain.path().join(name(".index"))).unwrap();
    let (log, _) = open(small(plain.path()));
    until("the first segment is compressed", || !plain.path().join(name(".jsonl")).exists());
    drop(log);
    let packed_form = fs::read(plain.path().join(name(".jsonl.zst"))).unwrap();
    let packed_index = fs::read(plain.path().join(name(".index"))).unwrap();

    let half = &packed_form[..packed_form.len() / 2];
    let states: [State<'_>; 4] = [
        ("unfinished", &[(".jsonl", &plain_form), (".index", &plain_index), (".jsonl.zst.unfinished", half)]),
        ("renamed", &[(".jsonl", &plain_form), (".index", &plain_index), (".jsonl.zst", &packed_form)]),
        ("indexed", &[(".jsonl", &plain_form), (".index", &packed_index), (".jsonl.zst", &packed_form)]),
        ("finished", &[(".index", &packed_index), (".jsonl.zst", &packed_form)]),
    ];
    for (state, forms) in states {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("0")).unwrap();
        for (ending, content) in forms {
            fs::write(folder.path().join(name(ending)), content).unwrap();
        }
        let (log, recovery) = open(Settings { compress: false, ..small(folder.path()) });
        assert_eq!(all(&log), (0..100).map(|id| (id, id)).collect::<Vec<_>>(), "{state}");
        assert_eq!(recovery.quarantined_files, 0, "{state}");
        assert_eq!(files(folder.path(), "unfinished").len(), 0, "{state}");
        assert_eq!(files(folder.path(), ".jsonl").len() + files(folder.path(), ".zst").len(), 1, "{state}");
    }
}

/// The operating system's files; each time a second index of a segment is in place, it waits until the test has
/// looked.
struct Stopping {
    placed: SyncSender<()>,
    looked: Mutex<Receiver<()>>,
}

impl Files for Stopping {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)?;
        let second = to.extension().is_some_and(|ending| ending == "index")
            && to.with_extension("jsonl.zst").exists()
            && to.with_extension("jsonl").exists();
        // The test is gone when it has failed.
        if second && self.placed.send(()).is_ok() {
            let (Ok(()) | Err(RecvError)) = self.looked.lock().unwrap().recv();
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        RealFiles.lock(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_folder(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        RealFiles.list(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealFiles.sync_folder(folder)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        RealFiles.create(path)
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        RealFiles.reopen(path)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>> {
        RealFiles.open(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove(path)
    }
}

#[test]
fn readers_find_a_segment_while_its_index_is_exchanged() {
    let folder = tempfile::tempdir().unwrap();
    let (log, _) = open(Settings { compress: false, ..small(folder.path()) });
    // More segments than have their index in memory.
    for batch in 0..8 {
        append(&log, batch * 100..batch * 100 + 100, Durability::Fsync).unwrap();
    }
    drop(log);
    let (placed, wait) = sync_channel(0);
    let (look, looked) = sync_channel(0);
    let files = Arc::new(Stopping { placed, looked: Mutex::new(looked) });
    let (log, _) = open_on(small(folder.path()), files);
    // Dropped before the log, which waits for the sealer.
    let (wait, look) = (wait, look);
    for _ in 0..2 {
        wait.recv_timeout(Duration::from_secs(30)).unwrap();
        for _ in 0..2 {
            assert_eq!(all(&log), (0..800).map(|id| (id, id)).collect::<Vec<_>>());
        }
        look.send(()).unwrap();
    }
}

#[test]
fn an_index_that_goes_away_is_made_again_from_the_lines() {
    for compress in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { compress, ..small(folder.path()) };
        let (log, _) = open(settings.clone());
        for batch in 0..3 {
            append(&log, batch * 100..batch * 100 + 100, Durability::Fsync).unwrap();
        }
        drop(log);
        let (log, recovery) = open(settings);
        assert_eq!(recovery.segments_read, 0);
        let indexes = files(folder.path(), ".index");
        assert_eq!(indexes.len(), 3);
        let at = |name: &String| folder.path().join("0").join(name);
        fs::remove_file(at(&indexes[0])).unwrap();
        fs::write(at(&indexes[1]), "not an index").unwrap();
        assert_eq!(all(&log), (0..300).map(|id| (id, id)).collect::<Vec<_>>(), "compressed: {compress}");
        assert_eq!(all(&log).len(), 300);
    }
}

/// A bit that changed on the disk costs its block, says so, and holds back nothing else.
#[test]
fn a_damaged_segment_stays_as_it_is_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let plain = Settings { compress: false, ..small(folder.path()) };
    let (log, _) = open(plain);
    for batch in 0..3 {
        append(&log, batch * 100..batch * 100 + 100, Durability::Fsync).unwrap();
    }
    drop(log);
    let segment = folder.path().join("0/00000000000000000000.jsonl");
    let mut content = fs::read(&segment).unwrap();
    content[300] ^= 1;
    fs::write(&segment, content).unwrap();
    let (log, _) = open(small(folder.path()));
    until("the others are compressed", || files(folder.path(), ".jsonl").len() == 1);
    assert_eq!(files(folder.path(), ".jsonl"), ["00000000000000000000.jsonl"]);
    assert_eq!(files(folder.path(), ".zst").len(), 2);
    let read = log.read(0, 10, 5, 10_000).unwrap();
    assert_eq!((read.count, read.next_offset, read.missing), (0, 100, Some(10..100)));
    assert_eq!(all(&log), (100..300).map(|id| (id, id)).collect::<Vec<_>>());
    assert!(log.statistics().partitions[0].damaged_blocks > 0);
    drop(log);
    let found = verify(folder.path(), &Numbered, &RealFiles).unwrap().findings;
    let said = found.iter().any(|finding| finding.to_string().starts_with(segment.to_str().unwrap()));
    assert!(said, "{found:?}");
}
