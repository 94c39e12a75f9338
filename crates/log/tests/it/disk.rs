//! A disk in memory that fails as told and, when the power goes, keeps what a real one may keep.
//!
//! Of a file, what was synced is there afterwards; of the rest each block of 64 bytes is there or is zeros,
//! and the length is anything between. Names are a journal: what was not synced is there up to some point
//! of it. A file whose sync failed is never durable again, although later syncs of it succeed: that is
//! what the kernel does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tidegate_log::{Entry, Files, Growing, Readable};

const BLOCK: usize = 64;

#[derive(Clone, Default)]
struct File {
    content: Vec<u8>,
    durable: Vec<u8>,
    poisoned: bool,
}

#[derive(Clone)]
enum Change {
    Link(PathBuf, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Clone, Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    journal: Vec<Change>,
    folders: BTreeSet<PathBuf>,
    faults: Faults,
}

/// What fails.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Bytes that fit on the disk; `None` for no bound.
    pub(crate) space: Option<usize>,
    /// The next write stores half of its bytes and fails.
    pub(crate) next_write: bool,
    /// The next sync of a file fails.
    pub(crate) next_sync: bool,
    /// Cutting back fails.
    pub(crate) cuts: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

/// Numbers that look random; the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound.max(1)
    }
}

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn fail(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// The faults that have not happened yet.
    pub(crate) fn faults(&self) -> Faults {
        self.state().faults
    }

    /// What is left after the power went, as another disk: this one goes on for whoever still writes to it.
    pub(crate) fn after_power_loss(&self, dice: &mut Dice) -> Self {
        let mut state = self.state().clone();
        state.faults = Faults::default();
        let kept = dice.below(state.journal.len() + 1);
        let journal = std::mem::take(&mut state.journal);
        state.names = state.durable_names.clone();
        for change in journal.into_iter().take(kept) {
            apply(&mut state.names, &change);
        }
        state.durable_names = state.names.clone();
        for file in &mut state.files {
            file.content = what_is_left(file, dice);
            file.durable = file.content.clone();
            file.poisoned = false;
        }
        Self(Arc::new(Mutex::new(state)))
    }

    /// What is left after the process was killed: all that it wrote.
    pub(crate) fn after_kill(&self) -> Self {
        let mut state = self.state().clone();
        state.faults = Faults::default();
        Self(Arc::new(Mutex::new(state)))
    }

    /// Whether all that was written to a file survives a loss of power.
    pub(crate) fn is_synced(&self, path: &Path) -> bool {
        let state = self.state();
        let file = state.names.get(path).map(|file| &state.files[*file]);
        file.is_some_and(|file| !file.poisoned && file.content == file.durable)
    }

    /// The paths of all files.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// Cuts a file, as whoever copies it may do.
    pub(crate) fn cut(&self, path: &Path, bytes: usize) {
        let mut state = self.state();
        let file = state.names[path];
        state.files[file].content.truncate(bytes);
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let state = self.state();
        state.files[state.names[path]].content.clone()
    }
}

fn what_is_left(file: &File, dice: &mut Dice) -> Vec<u8> {
    let (now, then) = (&file.content, &file.durable);
    let (short, long) = (now.len().min(then.len()), now.len().max(then.len()));
    let length = if dice.below(2) == 0 { long } else { short + dice.below(long - short + 1) };
    let mut left = Vec::with_capacity(length);
    for start in (0..length).step_by(BLOCK) {
        let source = if dice.below(2) == 0 { now } else { then };
        left.extend((start..(start + BLOCK).min(length)).map(|at| source.get(at).copied().unwrap_or(0)));
    }
    left
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &Change) {
    match change {
        Change::Link(path, file) => {
            names.insert(path.clone(), *file);
        }
        Change::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Change::Remove(path) => {
            names.remove(path);
        }
    }
}

impl State {
    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        self.journal.push(change);
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn used(&self) -> usize {
        self.names.values().map(|file| self.files[*file].content.len()).sum()
    }
}

impl Files for Disk {
    fn lock(&self, _: &Path) -> io::Result<Box<dyn Send + Sync>> {
        Ok(Box::new(()))
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.state().folders.insert(path.to_owned());
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state();
        let entry = |path: &PathBuf, bytes: usize, folder| Entry {
            name: path.file_name().unwrap().to_str().unwrap().to_owned(),
            bytes: bytes as u64,
            modified_ms: 0,
            folder,
        };
        if !state.folders.contains(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = |path: &&PathBuf| path.parent() == Some(folder);
        let names = state.names.iter().filter(|(path, _)| inside(path));
        let files = names.map(|(path, file)| entry(path, state.files[*file].content.len(), false));
        let folders = state.folders.iter().filter(inside).map(|path| entry(path, 0, true));
        Ok(files.chain(folders).collect())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.journal.clear();
        state.durable_names = state.names.clone();
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        let mut state = self.state();
        if state.faults.space == Some(0) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = state.files.len();
        state.files.push(File::default());
        state.change(Change::Link(path.to_owned(), file));
        Ok(Box::new(Handle(self.clone(), file)))
    }

    fn reopen(&self, path: &Path) -> io::Result<Box<dyn Growing>> {
        let file = self.state().find(path)?;
        Ok(Box::new(Handle(self.clone(), file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Readable>> {
        let file = self.state().find(path)?;
        Ok(Box::new(Handle(self.clone(), file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.find(from)?;
        state.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.find(path)?;
        state.change(Change::Remove(path.to_owned()));
        Ok(())
    }
}

struct Handle(Disk, usize);

impl Growing for Handle {
    fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.0.state();
        let wanted: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let room = state.faults.space.map_or(usize::MAX, |space| space.saturating_sub(state.used()));
        let failing = std::mem::take(&mut state.faults.next_write);
        let stored = if failing { wanted.len() / 2 } else { wanted.len().min(room) };
        state.files[self.1].content.extend_from_slice(&wanted[..stored]);
        if failing {
            return Err(io::Error::other("the disk failed"));
        }
        if stored == 0 && !wanted.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(stored)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.state();
        let failing = std::mem::take(&mut state.faults.next_sync);
        let file = &mut state.files[self.1];
        if failing {
            file.poisoned = true;
            return Err(io::Error::other("the disk failed"));
        }
        if !file.poisoned {
            file.durable = file.content.clone();
        }
        Ok(())
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let mut state = self.0.state();
        if state.faults.cuts {
            return Err(io::Error::other("the disk failed"));
        }
        state.files[self.1].content.truncate(usize::try_from(bytes).unwrap());
        Ok(())
    }
}

impl Readable for Handle {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.state().files[self.1].content.len() as u64)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.0.state();
        let content = &state.files[self.1].content;
        let rest = content.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let read = rest.len().min(into.len());
        into[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }
}
