//! What tells one version of a file from the next, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells one version of a file from the next; `None`: it is not there.
pub(crate) type Stamp = Option<(i64, i64, u64, u64)>;

/// The stamp of the file at `path`, symbolic links followed.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino()))
}
