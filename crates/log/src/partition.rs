//! The state that a partition's writer, its readers and the sealer share.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use crate::files::{Files, read_small};
use crate::index::{Index, MAX_INDEX_BYTES};
use crate::inspect::{Look, index_of_lines};
use crate::queue::AppendQueue;
use crate::segment::{INDEX, PLAIN, Segment, Shelf, file_name};
use crate::settings::{Clock, Describe, Settings};
use crate::statistics::{PartitionCounters, PartitionStatistics, count};

/// Indexes of sealed segments that stay in memory.
const CACHED_INDEXES: usize = 4;

pub(crate) struct Partition {
    pub(crate) folder: PathBuf,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) describe: Arc<dyn Describe>,
    pub(crate) clock: Clock,
    pub(crate) queue: AppendQueue,
    pub(crate) bounds: PartitionBounds,
    pub(crate) counters: PartitionCounters,
    /// The next offset, for those who wait for lines.
    pub(crate) end: watch::Sender<u64>,
    shelf: RwLock<Shelf>,
    cache: Mutex<VecDeque<(u64, Arc<Index>)>>,
}

/// A partition's part of the settings.
#[derive(Clone, Debug)]
pub(crate) struct PartitionBounds {
    pub(crate) settings: Settings,
    pub(crate) segment_bytes: u64,
    /// What segments and indexes may take; what the sealer writes beside them is kept free.
    pub(crate) disk_bytes: u64,
    /// At once to the disk.
    pub(crate) flush_bytes: usize,
    /// In one batch.
    pub(crate) batch_bytes: usize,
}

/// At most this much goes to the disk before those who wait for it are answered.
const FLUSH_BYTES: u64 = 4 << 20;
/// Part of a partition's share of the disk that no segment exceeds; as much again is kept free for the
/// sealer, and as much may lie in quarantine.
pub(crate) const PARTS_OF_DISK: u64 = 8;

impl PartitionBounds {
    pub(crate) fn new(settings: &Settings) -> Self {
        let share = settings.retain_bytes.map_or(u64::MAX, |all| all / u64::from(settings.partitions.max(1)));
        let part = share / PARTS_OF_DISK;
        let flush = FLUSH_BYTES.min(part);
        let batch = part.min(settings.queue_bytes as u64 / 2);
        Self {
            segment_bytes: settings.segment_bytes.clamp(1, part.min(1 << 30)),
            disk_bytes: share - 2 * part,
            flush_bytes: usize::try_from(flush).unwrap_or(usize::MAX),
            batch_bytes: usize::try_from(batch).unwrap_or(usize::MAX),
            settings: settings.clone(),
        }
    }
}

impl Partition {
    pub(crate) fn new(
        folder: PathBuf,
        files: Arc<dyn Files>,
        describe: Arc<dyn Describe>,
        clock: Clock,
        bounds: PartitionBounds,
        shelf: Shelf,
    ) -> Self {
        Self {
            folder,
            files,
            describe,
            clock,
            queue: AppendQueue::new(bounds.settings.queue_bytes),
            bounds,
            counters: PartitionCounters::default(),
            end: watch::Sender::new(shelf.next),
            shelf: RwLock::new(shelf),
            cache: Mutex::default(),
        }
    }

    pub(crate) fn shelf(&self) -> RwLockReadGuard<'_, Shelf> {
        self.shelf.read()
    }

    pub(crate) fn change_shelf(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.shelf.write()
    }

    /// The index of a sealed segment. If its file is gone or damaged, all of the segment is read, and the sealer
    /// writes the file again.
    ///
    /// # Errors
    /// `NotFound` if the segment was changed meanwhile and has to be looked up again, `InvalidData` if it is
    /// damaged, and as the system says.
    pub(crate) fn index_of(&self, segment: &Arc<Segment>) -> io::Result<Arc<Index>> {
        if let Some(index) = &segment.index {
            return Ok(Arc::clone(index));
        }
        let mut cache = self.cache.lock();
        let fits = |index: &Index| index.packed == segment.packed && index.bytes() == segment.bytes;
        let cached = cache.iter().find(|(first, index)| *first == segment.first && fits(index));
        if let Some((_, index)) = cached {
            return Ok(Arc::clone(index));
        }
        drop(cache);
        let path = self.folder.join(file_name(segment.first, INDEX));
        let content = read_small(&*self.files, &path, MAX_INDEX_BYTES);
        let Some(index) = content.ok().and_then(|content| Index::decode(&content)).filter(fits) else {
            return self.index_again(segment);
        };
        let index = Arc::new(index);
        cache = self.cache.lock();
        if cache.len() == CACHED_INDEXES {
            cache.pop_front();
        }
        cache.push_back((segment.first, Arc::clone(&index)));
        Ok(index)
    }

    fn index_again(&self, segment: &Arc<Segment>) -> io::Result<Arc<Index>> {
        if !self.shelf().has(segment) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let path = segment.path(&self.folder);
        let look = Look { files: &*self.files, describe: &*self.describe, everything: true };
        let index = Arc::new(index_of_lines(look, &*self.files.open(&path)?, segment.packed)?);
        if index.bytes() != segment.bytes {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it has no index and lines that are none",
            ));
        }
        tracing::warn!(segment = %path.display(), "its index was missing or damaged, and is made again");
        let mut shelf = self.change_shelf();
        if shelf.has(segment) {
            shelf.exchange(Segment { index: Some(Arc::clone(&index)), ..Segment::clone(segment) });
        }
        Ok(index)
    }

    /// Removes a segment's files, the data first: an index without its segment is nothing.
    pub(crate) fn remove_files(&self, segment: &Segment) -> io::Result<()> {
        self.files.remove(&segment.path(&self.folder))?;
        if segment.packed && segment.index.is_some() {
            self.remove_plain(segment)?;
        }
        self.remove_index(segment)
    }

    /// Removes a segment's index, if it is still there.
    pub(crate) fn remove_index(&self, segment: &Segment) -> io::Result<()> {
        self.remove_if_there(&file_name(segment.first, INDEX))
    }

    /// Removes the plain form of a compressed segment, if it is still there.
    pub(crate) fn remove_plain(&self, segment: &Segment) -> io::Result<()> {
        self.remove_if_there(&file_name(segment.first, PLAIN))
    }

    fn remove_if_there(&self, name: &str) -> io::Result<()> {
        match self.files.remove(&self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the oldest segments until the partition has room for `more` bytes, and those that are too old.
    pub(crate) fn retain(&self, more: u64) {
        let now = (self.clock.monotonic)();
        let is_old = |segment: &Segment| {
            let age = now.saturating_duration_since(segment.written);
            self.bounds.settings.retain_age.is_some_and(|longest| age > longest)
        };
        loop {
            let oldest = {
                let shelf = self.shelf();
                let Some(oldest) = shelf.sealed.first() else { return };
                if shelf.sealed.len() == 1 && shelf.active.as_ref().is_none_or(|active| active.bytes == 0) {
                    // It alone says which offsets were given.
                    return;
                }
                let full = shelf.disk_bytes().saturating_add(more) > self.bounds.disk_bytes;
                if !full && !is_old(oldest) {
                    return;
                }
                Arc::clone(oldest)
            };
            if let Err(error) = self.remove_files(&oldest)
                && error.kind() != io::ErrorKind::NotFound
            {
                if more == 0 {
                    // Asked so now and then only, and not with each flush.
                    tracing::warn!(segment = %oldest.path(&self.folder).display(), %error, "a segment past its retention cannot be removed");
                }
                return;
            }
            // The sealer may have put another form in its place meanwhile; that one goes the next time round.
            let mut shelf = self.change_shelf();
            if shelf.sealed.first().is_some_and(|first| Arc::ptr_eq(first, &oldest)) {
                shelf.sealed.remove(0);
                count(&self.counters.removed_segments, 1);
            }
        }
    }

    pub(crate) fn statistics(&self) -> PartitionStatistics {
        let (queue_bytes, troubled) = self.queue.fill();
        let shelf = self.shelf();
        PartitionStatistics {
            queue_bytes: queue_bytes as u64,
            queue_limit_bytes: self.queue.limit() as u64,
            troubled,
            segments: (shelf.sealed.len() + usize::from(shelf.active.is_some())) as u64,
            disk_bytes: shelf.disk_bytes(),
            oldest_offset: shelf.range().start,
            next_offset: shelf.range().end,
            ..self.counters.read()
        }
    }
}
