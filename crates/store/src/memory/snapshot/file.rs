//! Snapshots in files: written beside the old one, flushed to the disk, then renamed over it, so
//! that a crash at any moment leaves the old file or the new one.
//!
//! The file is readable by its owner only: it holds the hash key, with which one could choose keys
//! that collide.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tidegate_algorithms::time::Now;

use super::{Restored, SnapshotError, Written};
use crate::memory::Memory;

/// Read and write for the owner, nothing for others.
const OWNER_ONLY: u32 = 0o600;

/// Replaces the snapshot at `path` by what `memory` knows at `now`. Blocks until the disk has it.
///
/// # Errors
/// When the file cannot be written; the old snapshot then still stands.
pub fn save(memory: &Memory, path: &Path, now: Now) -> Result<Written, SnapshotError> {
    let partial = path.with_extension("partial");
    remove_if_there(&partial)?;
    let saved = save_beside(memory, &partial, now).and_then(|written| {
        fs::rename(&partial, path)?;
        Ok(written)
    });
    if saved.is_err() {
        // A disk that is full needs the room. Best effort: the error that led here says more.
        remove_if_there(&partial).unwrap_or_default();
    }
    let written = saved?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok(written)
}

fn save_beside(memory: &Memory, partial: &Path, now: Now) -> Result<Written, SnapshotError> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(partial)?;
    let written = memory.snapshot(&mut file, now)?;
    file.sync_all()?;
    Ok(written)
}

/// The store that the snapshot at `path` describes; `None` if there is no such file.
///
/// # Errors
/// When there is a file, and it cannot be read or is not a whole snapshot of this version.
pub fn load(max_bytes: usize, path: &Path, now: Now) -> Result<Option<Restored>, SnapshotError> {
    match File::open(path) {
        Ok(file) => Memory::restore(max_bytes, &mut BufReader::new(file), now).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
