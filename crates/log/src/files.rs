//! The file system as the log sees it: a small trait, and the real one.
//!
//! Tests put one in its place that fails, fills up and forgets what was not synced. The trait has what the
//! log needs and nothing else: files that only grow are written in order and cut back, all others are
//! written whole under another name and renamed.

use std::fs;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// A file or folder in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name without the path.
    pub name: String,
    /// Its length; 0 for a folder.
    pub bytes: u64,
    /// When it was last written to, in Unix milliseconds.
    pub modified_ms: i64,
    /// Whether it is a folder.
    pub folder: bool,
}

/// What a log does with the file system.
pub trait Files: Send + Sync {
    /// Takes the lock file at `path` for as long as the answer lives.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
    /// Makes a folder and those above it, if they are missing.
    ///
    /// # Errors
    /// As the system says.
    fn create_folder(&self, path: &Path) -> io::Result<()>;
    /// What is in a folder, in no order.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;
    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// As the system says.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Creates an empty file, or empties the one that is there.
    ///
    /// # Errors
    /// As the system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Growing>>;
    /// Opens a file to cut it back.
    ///
    /// # Errors
    /// As the system says.
    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>>;
    /// Opens a file to read it.
    ///
    /// # Errors
    /// As the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>>;
    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// As the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file that is written at its end.
pub trait Growing: Send {
    /// Writes some of these bytes at the end and says how many.
    ///
    /// # Errors
    /// As the system says; how much was written is then unknown.
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Returns when everything written is durable. After an error the file must not be trusted again: the
    /// kernel may have dropped what it could not write, and say so only once.
    ///
    /// # Errors
    /// As the system says.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file back to this length.
    ///
    /// # Errors
    /// As the system says.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;
}

/// A file that is read at any place.
pub trait Readable: Send + Sync {
    /// Its length.
    ///
    /// # Errors
    /// As the system says.
    fn bytes(&self) -> io::Result<u64>;
    /// Reads some bytes at a place; 0 at the end.
    ///
    /// # Errors
    /// As the system says.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // A file may go between the listing and the look at it.
            let Ok(about) = entry.metadata() else { continue };
            let modified = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: if about.is_dir() { 0 } else { about.len() },
                modified_ms: modified.map_or(0, |at| i64::try_from(at.as_millis()).unwrap_or(i64::MAX)),
                folder: about.is_dir(),
            });
        }
        Ok(entries)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder)?.sync_all()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        Ok(Box::new(fs::OpenOptions::new().create(true).write(true).truncate(true).open(path)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        Ok(Box::new(fs::OpenOptions::new().append(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>> {
        Ok(Box::new(fs::File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

impl Growing for fs::File {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_vectored(parts)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()?;
        still_takes_changes(self)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        use std::io::Seek;
        self.set_len(bytes)?;
        self.seek(io::SeekFrom::Start(bytes)).map(drop)
    }
}

impl Readable for fs::File {
    fn bytes(&self) -> io::Result<u64> {
        self.metadata().map(|about| about.len())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, at)
    }
}

/// Asks the file system of a file that was just synced for a change that changes nothing: for room that the file has.
///
/// ext4 tells an fsync of a transaction that failed only if the fsync itself committed it. Where another process or the kernel's
/// own timer did, the fsync finds no transaction to wait for and says that all is well, although the lines are lost
/// (`jbd2_complete_transaction` in `fs/jbd2/journal.c`). After that failure every further change is refused, and this is one.
/// It takes some 6 microseconds.
fn still_takes_changes(file: &fs::File) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, 1) {
        Err(error @ (Errno::IO | Errno::ROFS)) => Err(error.into()),
        // Not every file system knows this call, and one that is full has synced the lines all the same.
        _ => Ok(()),
    }
}

/// How many parts go to the system at once.
const PARTS: usize = 1_024;

/// Writes all of `parts`, in as few calls as possible.
pub(crate) fn write_all<'a>(file: &mut dyn Growing, parts: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'a>> = Vec::with_capacity(PARTS);
    for part in parts.filter(|part| !part.is_empty()) {
        slices.push(IoSlice::new(part));
        if slices.len() == PARTS {
            write_slices(file, &mut slices)?;
            slices.clear();
        }
    }
    write_slices(file, &mut slices)
}

fn write_slices(file: &mut dyn Growing, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match file.write(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `into` from a place on, and says how much of it was there.
pub(crate) fn read_full(file: &dyn Readable, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(&mut into[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads a whole small file; a longer one is an error.
pub(crate) fn read_small(files: &dyn Files, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = files.open(path)?;
    let bytes = usize::try_from(file.bytes()?).unwrap_or(usize::MAX);
    if bytes > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{bytes} bytes, at most {limit}")));
    }
    let mut content = vec![0; bytes];
    let read = read_full(&*file, &mut content, 0)?;
    content.truncate(read);
    Ok(content)
}

/// Puts a file in the place of the one named `path`: a reader, and a process started after a crash, finds
/// the old content or the new.
pub(crate) fn replace(files: &dyn Files, path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = unfinished(path);
    let mut file = files.create(&unfinished)?;
    write_all(&mut *file, std::iter::once(content))?;
    file.sync()?;
    files.rename(&unfinished, path)?;
    files.sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// The name under which a file is written until it is whole.
pub(crate) fn unfinished(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// How names of files end that were not finished.
pub(crate) const UNFINISHED: &str = ".unfinished";
