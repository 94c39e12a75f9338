//! The disk fails under an fsync, on a real file system: ext4 on a loop device whose image lies in a tmpfs that is full.
//!
//! ```text
//!   log ── ext4, which has room ── loop device ── sparse image ── tmpfs without room: the device's writes fail
//! ```
//!
//! The write of the lines succeeds, for it only reaches memory; the fsync says EIO, and ext4 lets nobody write any more. Then
//! the tmpfs gets room, the file system is mounted again, and the log is opened: what was acknowledged must be there.
//!
//! As in `power.rs`, only root may mount a device, and where nobody can it says that it is not tested.

use std::env;
use std::fs;
use std::io::Write;
use std::path::Path;

use tidegate_log::{AppendError, Durability, Settings};

use crate::power::{run, with_mounts_of_its_own};
use crate::support::{all, append, files, open, small};

const TEST: &str = "fsync::fault_27_the_device_fails_under_a_real_file_system";
/// Set for the process that mounts.
const MANAGER: &str = "TIDEGATE_TEST_FSYNC_MANAGER";
/// Bytes that the tmpfs has left when the log begins.
const LEFT: u64 = 2 << 20;

fn settings(mount: &str) -> Settings {
    Settings { compress: false, segment_bytes: 256 << 10, ..small(&Path::new(mount).join("log")) }
}

/// Takes all but `left` bytes of a file system.
fn fill(folder: &Path, left: u64) {
    let available =
        std::process::Command::new("df").args(["-B1", "--output=avail"]).arg(folder).output().unwrap();
    let text = String::from_utf8(available.stdout).unwrap();
    let free: u64 = text.lines().last().unwrap().trim().parse().unwrap();
    fs::write(folder.join("ballast"), vec![1; usize::try_from(free - left).unwrap()]).unwrap();
}

fn manage(folder: &Path) {
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

    let (log, _) = open(settings(mount));
    let (mut acknowledged, mut next) = (Vec::new(), 0);
    let refused = loop {
        let ids = next..next + 500;
        next += 500;
        match append(&log, ids.clone(), Durability::Fsync) {
            Ok(appended) => acknowledged.extend((appended.first_offset.unwrap()..).zip(ids)),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Refused(_)), "{refused:?}");
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
    let mut out = std::io::stdout();
    writeln!(out, "{case}; {segments} segments; refused with: {refused}").unwrap();
}

#[test]
fn fault_27_the_device_fails_under_a_real_file_system() {
    if let Some(folder) = env::var_os(MANAGER) {
        return manage(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    println!("{}", with_mounts_of_its_own(TEST, &[format!("{MANAGER}={}", folder.path().display())]));
}
