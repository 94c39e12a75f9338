//! A file that is replaced whole: written beside, flushed to the disk and renamed, so that a crash leaves the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces the file at `path` by what `write` writes. Only its owner may read it. Processes that share the folder write files of
/// their own beside, and replace each other's whole. Blocks until the disk has it.
///
/// # Errors
/// Those of the disk and of `write`; the old file then still stands.
pub fn replace_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let beside = path.with_added_extension(std::process::id().to_string());
    remove_if_there(&beside)?;
    let written = write_anew(&beside, write).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // Best effort: the error that led here says more.
        fs::remove_file(&beside).unwrap_or_default();
    }
    written?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

fn write_anew(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?);
    write(&mut out)?;
    out.flush()?;
    out.get_ref().sync_all()
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_written_whole_leaves_the_old_one_and_nothing_beside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        replace_file(&path, |out| out.write_all(b"old")).unwrap();
        let failed = replace_file(&path, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // What a process that was killed left beside is in nobody's way.
        fs::write(path.with_added_extension(std::process::id().to_string()), b"left").unwrap();
        replace_file(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
