//! The data directory: whether the server can keep its state there, and has room for it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use tidegate_control::{Control, Error, LOCK_FILE};

use super::Finding;
use super::processes::{Process, Processes};
use crate::config::{Bytes, Settings};
use crate::serve::INTAKE_FOLDER;

const AREA: &str = "data directory";
/// Free space below which changes of the configuration and snapshots of counters may soon fail.
const LEAST_FREE: u64 = 64 << 20;
/// Files and folders that are looked at, at most.
const MAX_FILES: usize = 100_000;
/// Folders within folders that are looked at, at most: the deepest is a partition of the intake's log.
const MAX_DEPTH: usize = 4;

/// What was seen of the directory.
#[derive(Clone, Debug)]
pub(super) struct SeenDataDir {
    pub(super) path: PathBuf,
    /// Its mode and its owner; `None` if it is not there.
    pub(super) folder: Option<(u32, u32)>,
    /// Whether this user may write in it, or make it where it is not there.
    pub(super) is_writable: bool,
    /// A file in it of another owner, and the number of that owner.
    pub(super) stranger: Option<(PathBuf, u32)>,
    /// Bytes that a user may still write there.
    pub(super) free: Option<u64>,
    /// Bytes that the intake's log may still grow by; none without an intake.
    pub(super) intake_grows: u64,
    /// Who holds its lock.
    pub(super) server: Option<Process>,
    /// Why what is stored in it cannot be used.
    pub(super) unusable: Option<String>,
    /// Whether this user is told what is in it.
    pub(super) is_readable: bool,
}

/// Looks, and changes nothing.
pub(super) fn look(settings: &Settings, processes: &Processes) -> SeenDataDir {
    let path = settings.data_dir.clone();
    let metadata = fs::metadata(&path).ok();
    let folder = metadata.as_ref().map(|it| (it.mode() & 0o7777, it.uid()));
    let place = nearest(&path);
    let mut files = FolderContent::default();
    if let Some((_, owner)) = folder {
        files.count(&path, owner, 0);
    }
    let intake_grows = match settings.intake.listen {
        Some(_) => {
            let mut log = FolderContent::default();
            log.count(&path.join(INTAKE_FOLDER), 0, 0);
            settings.intake.retain_bytes.0.saturating_sub(log.bytes)
        }
        None => 0,
    };
    let unusable = match Control::look(&path) {
        Ok(_) => None,
        Err(error @ (Error::Newer { .. } | Error::Corrupt { .. })) => Some(error.to_string()),
        // Rights and a busy database are judged by what else was seen.
        Err(_) => None,
    };
    SeenDataDir {
        folder,
        is_writable: access(&place, Access::WRITE_OK | Access::EXEC_OK).is_ok(),
        stranger: files.stranger,
        free: statvfs(&place).ok().map(|it| it.f_bavail.saturating_mul(it.f_frsize)),
        intake_grows,
        server: processes.holder(&path.join(LOCK_FILE)),
        unusable,
        is_readable: folder.is_none() || fs::read_dir(&path).is_ok(),
        path,
    }
}

/// The path, or what is there of the way to it.
fn nearest(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = whole.ancestors().find(|path| path.exists());
    there.map_or_else(|| PathBuf::from("/"), Path::to_owned)
}

/// Files below a folder.
#[derive(Debug, Default)]
struct FolderContent {
    count: usize,
    bytes: u64,
    stranger: Option<(PathBuf, u32)>,
}

impl FolderContent {
    fn count(&mut self, folder: &Path, owner: u32, depth: usize) {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            entries => entries.into_iter().flatten().flatten(),
        };
        for entry in entries {
            let Ok(metadata) = entry.metadata() else { continue };
            self.count += 1;
            if self.count > MAX_FILES {
                return;
            }
            self.bytes = self.bytes.saturating_add(metadata.blocks().saturating_mul(512));
            if metadata.uid() != owner && self.stranger.is_none() {
                self.stranger = Some((entry.path(), metadata.uid()));
            }
            if metadata.is_dir() && depth < MAX_DEPTH {
                self.count(&entry.path(), owner, depth + 1);
            }
        }
    }
}

/// What follows from it.
pub(super) fn judge(seen: &SeenDataDir) -> Vec<Finding> {
    let path = seen.path.display();
    let mut found = Vec::new();
    match &seen.server {
        Some(server) => found.push(Finding::ok(AREA, format!("{path} is in use by {server}"))),
        None if seen.folder.is_some() => {
            found.push(Finding::ok(AREA, format!("{path} is there, and no server is at work on it")));
        }
        None => found.push(Finding::ok(AREA, format!("{path} is not there yet: the first start makes it"))),
    }
    if !seen.is_readable {
        found.push(Finding::warning(
            AREA,
            format!("this user may not look into {path}, so what is in it was not judged"),
            "run the doctor as the server's user, or as root",
        ));
    } else if !seen.is_writable {
        found.push(Finding::problem(
            AREA,
            format!("this user cannot write there: a server of this user would not start, {path}"),
            "start the server as the directory's owner, give it to the server's user (chown), or choose another: --data-dir",
        ));
    }
    if let Some((file, user)) = &seen.stranger {
        let owner = seen.folder.map_or(0, |(_, owner)| owner);
        found.push(Finding::problem(
            AREA,
            format!(
                "{} belongs to user {user}, the directory to user {owner}: the server cannot rely on it",
                file.display()
            ),
            format!("chown -R {owner} {path}"),
        ));
    }
    if let Some((mode, _)) = seen.folder
        && mode & 0o077 != 0
    {
        found.push(Finding::warning(
            AREA,
            format!("{path} has mode {mode:04o}: others on this machine can look into it"),
            format!("chmod 0700 {path}"),
        ));
    }
    if let Some(why) = &seen.unusable {
        found.push(Finding::problem(AREA, why.clone(), "until then no server starts with this directory"));
    }
    found.extend(seen.free.and_then(|free| room(free, seen.intake_grows)));
    found
}

/// Whether there is too little space.
fn room(free: u64, intake_grows: u64) -> Option<Finding> {
    let mebibytes = |bytes: u64| Bytes(bytes >> 20 << 20);
    let (has, grows) = (mebibytes(free), mebibytes(intake_grows));
    if free < LEAST_FREE {
        let what = format!(
            "{has} are free there: changes of the configuration, saved counters and metrics will soon fail"
        );
        return Some(Finding::problem(AREA, what, "free some space, or choose another disk: --data-dir"));
    }
    (free < intake_grows).then(|| {
        let what = format!("{has} are free there, and the intake's log may still grow by {grows}");
        Finding::warning(AREA, what, "lower intake.retain_bytes, or free some space")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn sound() -> SeenDataDir {
        SeenDataDir {
            path: "/data".into(),
            folder: Some((0o700, 998)),
            is_writable: true,
            stranger: None,
            free: Some(4 << 30),
            intake_grows: 2 << 30,
            server: None,
            unusable: None,
            is_readable: true,
        }
    }

    #[test]
    fn each_fault_of_the_directory_has_its_finding() {
        let worst = |seen: &SeenDataDir| judge(seen).into_iter().max_by_key(|it| it.level).unwrap();
        assert_eq!(worst(&sound()).level, Level::Ok);
        let open = worst(&SeenDataDir { folder: Some((0o755, 998)), ..sound() });
        assert_eq!((open.level, open.repair.as_str()), (Level::Warning, "chmod 0700 /data"));
        let mixed = worst(&SeenDataDir { stranger: Some(("/data/lock".into(), 0)), ..sound() });
        assert_eq!((mixed.level, mixed.repair.as_str()), (Level::Problem, "chown -R 998 /data"));
        let locked_out = worst(&SeenDataDir { is_writable: false, ..sound() });
        assert!(locked_out.level == Level::Problem && locked_out.what.contains("cannot write"));
        let full = worst(&SeenDataDir { free: Some(1 << 20), ..sound() });
        assert!(full.level == Level::Problem && full.what.contains("1 MiB are free"), "{full:?}");
        let filling = worst(&SeenDataDir { free: Some(1 << 30), ..sound() });
        assert!(filling.level == Level::Warning && filling.what.contains("grow by 2 GiB"), "{filling:?}");
        let newer = worst(&SeenDataDir { unusable: Some("has schema 9".into()), ..sound() });
        assert!(newer.level == Level::Problem && newer.what.contains("schema 9"));
        let hidden = worst(&SeenDataDir { is_readable: false, is_writable: false, ..sound() });
        assert_eq!(hidden.level, Level::Warning, "another user's directory is no fault");
    }

    #[test]
    fn a_directory_that_is_not_there_is_judged_by_what_is() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a/b");
        assert_eq!(nearest(&missing), folder.path());
        fs::write(folder.path().join("file"), vec![1; 9_000]).unwrap();
        let mut files = FolderContent::default();
        files.count(folder.path(), fs::metadata(folder.path()).unwrap().uid(), 0);
        assert!(files.bytes >= 9_000 && files.count == 1 && files.stranger.is_none(), "{files:?}");
        files.count(folder.path(), u32::MAX, 0);
        assert!(files.stranger.is_some());
    }
}
