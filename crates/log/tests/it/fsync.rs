//! The disk fails under an fsync, on a real file system: ext4 on a loop device whose image lies in a tmpfs that is full.
//!
//! ```text
//!   log ── ext4, which has room ── loop device ── sparse image ── tmpfs without room: the device's writes fail
//! ```
//!
//! The write of the lines succeeds, for it only reaches memory; the fsync says EIO, and ext4 lets nobody write any more. Then
//! the tmpfs gets room, the file system is mounted again, and the log is opened: what was acknowledged must be there.
//!
//! In the second test somebody else commits the transaction before the log's fsync, as another process or the kernel's own
//! timer may. Then ext4 tells the fsync nothing.
//!
//! As in `power.rs`, only root may mount a device, and where nobody can it says that it is not tested.

use std::env;
use std::fs;
use std::io::{self, IoSlice, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tidegate_log::{AppendError, Durability, Entry, Files, Growing, Readable, RealFiles, Settings};

use crate::power::{run, with_mounts_of_its_own};
use crate::support::{all, append, files, open, open_on, small};

/// Set for the process that mounts.
const MANAGER: &str = "TIDEGATE_TEST_FSYNC_MANAGER";
/// Bytes that the tmpfs has left when the log begins.
const LEFT: u64 = 2 << 20;

fn settings(mount: &str) -> Settings {
    Settings { compress: false, segment_bytes: 256 << 10, ..small(&Path::new(mount).join("log")) }
}

/// Takes all but `left` bytes of a file system.
fn fill(folder: &Path, left: u64) {
    let available = Command::new("df").args(["-B1", "--output=avail"]).arg(folder).output().unwrap();
    let text = String::from_utf8(available.stdout).unwrap();
    let free: u64 = text.lines().last().unwrap().trim().parse().unwrap();
    fs::write(folder.join("ballast"), vec![1; usize::try_from(free - left).unwrap()]).unwrap();
}

/// The real files, and somebody who commits what was written just before each sync.
struct CommittedByOthers;

impl Files for CommittedByOthers {
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
        RealFiles.create(path).map(|file| Box::new(SyncedByOthers(file, path.to_owned())) as _)
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        RealFiles.reopen(path).map(|file| Box::new(SyncedByOthers(file, path.to_owned())) as _)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>> {
        RealFiles.open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove(path)
    }
}

struct SyncedByOthers(Box<dyn Growing>, PathBuf);

impl Growing for SyncedByOthers {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(parts)
    }

    fn sync(&mut self) -> io::Result<()> {
        // It syncs the file system and not the file, and may be told of the failure.
        let told = Command::new("sync").arg("--file-system").arg(&self.1).output();
        assert!(told.unwrap().status.code().is_some());
        self.0.sync()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.0.cut(bytes)
    }
}

fn manage(folder: &Path, its_files: Arc<dyn Files>) {
    let (below, mount) = (folder.join("below"), folder.join("mount"));
    for place in [&below, &mount] {
        fs::create_dir(place).unwrap();
    }
    let mount = mount.to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=24m", "none", below.to_str().unwrap()]);
    let image = below.join("image");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let image = image.to_str().unwrap();
    run("mkfs.ext4", &["-q", "-F", image]);
    run("mount", &["-o", "loop", image, mount]);
    fill(&below, LEFT);

    let (log, _) = open_on(settings(mount), its_files);
    let (mut acknowledged, mut next) = (Vec::new(), 0);
    let refused = loop {
        let ids = next..next + 500;
        next += 500;
        match append(&log, ids.clone(), Durability::Fsync) {
            Ok(appended) => acknowledged.extend((appended.first_offset.unwrap()..).zip(ids)),
            Err(error) => break error,
        }
    };
    // The device says that it has no room, and ext4 passes that on or makes EIO of it.
    assert!(matches!(refused, AppendError::Refused(_) | AppendError::DiskFull), "{refused:?}");
    assert!(!acknowledged.is_empty());
    assert_eq!(all(&log), acknowledged, "readers see nothing that was refused");
    let statistics = log.statistics().partitions[0].clone();
    assert_eq!(statistics.suspect_files, 1, "{statistics:?}");
    append(&log, next..next + 500, Durability::Fsync).unwrap_err();
    drop(log);

    run("umount", &[mount]);
    fs::remove_file(below.join("ballast")).unwrap();
    run("mount", &["-o", "loop", image, mount]);
    let (log, recovery) = open(settings(mount));
    let found = all(&log);
    let case = format!("{} lines acknowledged, {} there, {recovery:?}", acknowledged.len(), found.len());
    assert!(found.starts_with(&acknowledged), "{case}");
    let appended = append(&log, [next], Durability::Fsync).unwrap();
    assert_eq!(appended.first_offset, Some(found.len() as u64), "{case}");
    let segments = files(&Path::new(mount).join("log"), ".jsonl").len();
    drop(log);
    run("umount", &[mount]);
    run("umount", &[below.to_str().unwrap()]);
    let mut out = io::stdout();
    writeln!(out, "{case}; {segments} segments; refused with: {refused}").unwrap();
}

/// What the process said that mounted.
fn in_mounts_of_its_own(test: &str, its_files: Arc<dyn Files>) -> String {
    if let Some(folder) = env::var_os(MANAGER) {
        manage(Path::new(&folder), its_files);
        return String::new();
    }
    let folder = tempfile::tempdir().unwrap();
    with_mounts_of_its_own(test, &[format!("{MANAGER}={}", folder.path().display())])
}

#[test]
fn fault_27_the_device_fails_under_a_real_file_system() {
    let test = "fsync::fault_27_the_device_fails_under_a_real_file_system";
    println!("{}", in_mounts_of_its_own(test, Arc::new(RealFiles)));
}

#[test]
fn fault_27_the_device_fails_while_others_commit() {
    let test = "fsync::fault_27_the_device_fails_while_others_commit";
    println!("{}", in_mounts_of_its_own(test, Arc::new(CommittedByOthers)));
}
