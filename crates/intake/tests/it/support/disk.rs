//! The operating system's files, which refuse what a test says.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use tidegate_log::{Entry, Files, Growing, Readable, RealFiles};

#[derive(Default)]
struct Faults {
    is_full: AtomicBool,
    next_sync: AtomicBool,
    /// How the names of files begin whose reads wait.
    held: Mutex<Option<String>>,
    released: Condvar,
    waiting: AtomicUsize,
}

/// A disk that is told when to fail; clones share it.
#[derive(Clone, Default)]
pub struct FailingDisk(Arc<Faults>);

impl FailingDisk {
    /// Whether it has no space from now on.
    pub fn fill(&self, is_full: bool) {
        self.0.is_full.store(is_full, SeqCst);
    }

    /// Lets the next sync of a file fail.
    pub fn fail_next_sync(&self) {
        self.0.next_sync.store(true, SeqCst);
    }

    /// Whether that sync is still to come.
    pub fn will_fail(&self) -> bool {
        self.0.next_sync.load(SeqCst)
    }

    /// Lets reads of files wait whose names begin so, until the answer is dropped.
    pub fn hold(&self, beginning: &str) -> Held<'_> {
        *self.0.held.lock().unwrap() = Some(beginning.to_owned());
        Held(&self.0)
    }

    /// How many reads wait.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(SeqCst)
    }

    fn growing(&self, file: Box<dyn Growing>) -> Box<dyn Growing> {
        Box::new(Growth { file, faults: Arc::clone(&self.0) })
    }
}

impl Files for FailingDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        RealFiles.create(path).map(|file| self.growing(file))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        RealFiles.reopen(path).map(|file| self.growing(file))
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

    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>> {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Ok(Box::new(Reading { file: RealFiles.open(path)?, name, faults: Arc::clone(&self.0) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove(path)
    }
}

/// Reads wait until this is dropped.
pub struct Held<'a>(&'a Faults);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.held.lock().unwrap() = None;
        self.0.released.notify_all();
    }
}

struct Reading {
    file: Box<dyn Readable>,
    name: String,
    faults: Arc<Faults>,
}

impl Readable for Reading {
    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        self.faults.waiting.fetch_add(1, SeqCst);
        let held = self.faults.held.lock().unwrap();
        let is_held =
            |held: &mut Option<String>| held.as_ref().is_some_and(|it| self.name.starts_with(&**it));
        drop(self.faults.released.wait_while(held, is_held).unwrap());
        self.faults.waiting.fetch_sub(1, SeqCst);
        self.file.read_at(into, at)
    }
}

struct Growth {
    file: Box<dyn Growing>,
    faults: Arc<Faults>,
}

impl Growing for Growth {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.faults.is_full.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write(parts)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.faults.next_sync.swap(false, SeqCst) {
            return Err(io::Error::other("the disk failed"));
        }
        self.file.sync()
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.file.cut(bytes)
    }
}
