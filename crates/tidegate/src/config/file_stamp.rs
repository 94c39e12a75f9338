//! What tells one version of a file from the next, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells one version of a file from the next; `None`: it is not there. Its rights are part of it: one that could not be read may
/// be readable now.
pub(crate) type Stamp = Option<(i64, i64, u64, u64, [u32; 3])>;

/// The stamp of the file at `path`, symbolic links followed.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    let rights = [metadata.mode(), metadata.uid(), metadata.gid()];
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino(), rights))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_whose_rights_were_mended_is_looked_at_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        fs::write(&path, "key").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let unreadable = stamp(&path);
        assert_eq!(stamp(&path), unreadable);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_ne!(stamp(&path), unreadable);
    }
}
