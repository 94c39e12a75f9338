//! Files that a user names: read with a bound and refused with a sentence; written to after a try.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes: a report of 500 long steps has about 20 MB.
const MAX_BYTES: usize = 64 << 20;

/// Reads a text file of at most 64 MiB; the error names the file.
pub(super) fn text(path: &Path) -> io::Result<String> {
    text_within(path, MAX_BYTES)
}

/// Reads a text file of at most `most` bytes, and no more than those; the error names the file.
pub(super) fn text_within(path: &Path, most: usize) -> io::Result<String> {
    String::from_utf8(bytes_within(path, most)?)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {e}", path.display())))
}

/// Reads a file of at most 64 MiB; the error names the file.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    bytes_within(path, MAX_BYTES)
}

/// Reads a file of at most `most` bytes, and no more than those; the error names the file.
pub(super) fn bytes_within(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(named)?;
    let read = file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(named)?;
    if read > most {
        let why = format!("{}: larger than {most} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// A file to be written after a long run. It is opened before the run, so that a path that cannot be
/// written to costs no run. What was in it stays until it is written; one that was new goes if it never is.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl Output {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it cannot be written to; the error names it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("{} cannot be written: {e}", path.display()));
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(named)?;
        Ok(Self { path: path.to_owned(), file, is_new })
    }

    /// Replaces what is in it.
    ///
    /// # Errors
    /// When that fails; the error names the file.
    pub(super) fn write(mut self, text: &str) -> io::Result<()> {
        let path = self.path.clone();
        let named =
            |e: io::Error| io::Error::new(e.kind(), format!("{} cannot be written: {e}", path.display()));
        // A pipe has no length to set.
        if self.file.metadata().map_err(named)?.is_file() {
            self.file.set_len(0).map_err(named)?;
        }
        self.file.write_all(text.as_bytes()).map_err(named)?;
        self.is_new = false;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new {
            // A file that is gone already is as wanted.
            let _gone = fs::remove_file(&self.path).is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_keeps_what_was_there_until_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::write(&old, "a longer text").unwrap();
        drop((Output::open(&old).unwrap(), Output::open(&new).unwrap()));
        assert_eq!((fs::read_to_string(&old).unwrap().as_str(), new.exists()), ("a longer text", false));
        Output::open(&old).unwrap().write("short").unwrap();
        Output::open(&new).unwrap().write("text").unwrap();
        assert_eq!([&old, &new].map(|path| fs::read_to_string(path).unwrap()), ["short", "text"]);
        let nowhere = Output::open(&folder.path().join("no/such")).unwrap_err().to_string();
        assert!(nowhere.contains("no/such cannot be written"), "{nowhere}");
        assert!(Output::open(folder.path()).is_err());
        Output::open(Path::new("/dev/null")).unwrap().write("text").unwrap();
    }

    #[test]
    fn an_endless_file_is_read_to_its_bound_only() {
        let refused = text_within(Path::new("/dev/zero"), 1 << 16).unwrap_err();
        assert!(refused.to_string().contains("/dev/zero: larger than 65536 bytes"), "{refused}");
    }
}
