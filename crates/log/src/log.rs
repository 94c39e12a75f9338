//! A log as its callers see it, and how it starts and ends.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{AppendError, GroupError, OpenError, ReadError};
use crate::files::Files;
use crate::finding::Finding;
use crate::groups::{GROUPS, Groups};
use crate::inspect::{Look, inspect};
use crate::layout::check_partitions;
use crate::partition::{PARTS_OF_DISK, Partition, PartitionBounds};
use crate::queue::{Appended, Lines};
use crate::reader::{ReadLines, Scan, Scanned, read, scan};
use crate::recovery::{Mending, Recovery, bound_quarantine};
use crate::sealer;
use crate::segment::Seals;
use crate::settings::{Clock, Describe, Description, Durability, Settings};
use crate::statistics::{Statistics, count};
use crate::writer::Writer;

const LOCK: &str = "lock";
const QUARANTINE: &str = "quarantine";
/// What the quarantine holds where nothing bounds the log.
const QUARANTINE_BYTES: u64 = 1 << 30;

/// An open log. Dropping it closes it.
pub struct Log {
    partitions: Vec<Arc<Partition>>,
    groups: Groups,
    seals: Arc<Seals>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    sealer: Mutex<Option<JoinHandle<()>>>,
    _lock: Box<dyn Send + Sync>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("partitions", &self.partitions.len()).finish_non_exhaustive()
    }
}

impl Log {
    /// Opens the log in a folder, or makes one. Whatever the files in it are, the log starts: what is damaged
    /// is set aside and told in the [`Recovery`]. Blocks while segments without an index are read.
    ///
    /// # Errors
    /// What an operator has to mend.
    pub fn open(
        settings: Settings,
        describe: Arc<dyn Describe>,
        files: Arc<dyn Files>,
        clock: Clock,
    ) -> Result<(Self, Recovery), OpenError> {
        settings.check()?;
        let folder = settings.folder.clone();
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::Folder { path, error }
        };
        files.create_folder(&folder).map_err(at(&folder))?;
        let lock = files.lock(&folder.join(LOCK)).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => OpenError::InUse(folder.clone()),
            _ => OpenError::Folder { path: folder.join(LOCK), error },
        })?;
        let mut recovery = Recovery::default();
        check_partitions(&*files, &settings, &mut recovery).map_err(at(&folder))??;
        let groups = folder.join(GROUPS);
        let groups = Groups::open(groups.clone(), Arc::clone(&files), &settings, &mut recovery.findings)
            .map_err(at(&groups))?;
        let bounds = PartitionBounds::new(&settings);
        let quarantine = folder.join(QUARANTINE);
        let mut partitions = Vec::new();
        for number in 0..settings.partitions {
            let folder = folder.join(number.to_string());
            files.create_folder(&folder).map_err(at(&folder))?;
            let look = Look { files: &*files, describe: &*describe, everything: false };
            let inspection = inspect(look, &folder).map_err(at(&folder))?;
            let mending = Mending {
                files: &*files,
                folder: &folder,
                quarantine: &quarantine,
                number,
                clock,
                recovery: &mut recovery,
            };
            let shelf = mending.mend(inspection, groups.furthest(number));
            let partition = Partition::new(
                folder,
                Arc::clone(&files),
                Arc::clone(&describe),
                clock,
                bounds.clone(),
                shelf,
            );
            partition.retain(0);
            partitions.push(Arc::new(partition));
        }
        let room = settings.retain_bytes.map_or(QUARANTINE_BYTES, |all| all / PARTS_OF_DISK);
        if let Err(error) = bound_quarantine(&*files, &quarantine, room) {
            recovery.findings.push(Finding::NotMended { file: quarantine, error: error.to_string() });
        }
        if let Some(first) = partitions.first() {
            count(&first.counters.quarantined_files, recovery.quarantined_files);
            count(&first.counters.quarantined_bytes, recovery.quarantined_bytes);
        }
        let log = Self::start(partitions, groups, lock).map_err(at(&folder))?;
        Ok((log, recovery))
    }

    fn start(
        partitions: Vec<Arc<Partition>>,
        groups: Groups,
        lock: Box<dyn Send + Sync>,
    ) -> io::Result<Self> {
        let seals = Arc::new(Seals::default());
        let log = Self {
            partitions,
            groups,
            seals: Arc::clone(&seals),
            writers: Mutex::default(),
            sealer: Mutex::default(),
            _lock: lock,
        };
        for (number, partition) in log.partitions.iter().enumerate() {
            let writer = Writer::new(Arc::clone(partition), Arc::clone(&seals));
            let thread =
                thread::Builder::new().name(format!("log-writer-{number}")).spawn(|| writer.run())?;
            log.writers.lock().push(thread);
        }
        let partitions = log.partitions.clone();
        seals.raise();
        let sealer = thread::Builder::new().name("log-sealer".to_owned());
        let sealer = sealer.spawn(move || sealer::run(&partitions, &seals))?;
        *log.sealer.lock() = Some(sealer);
        Ok(log)
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        // Invariant: a log has a partition.
        self.partitions.first().map_or(Path::new(""), |partition| &partition.bounds.settings.folder)
    }

    /// How many partitions there are.
    #[must_use]
    pub fn partitions(&self) -> u16 {
        // Invariant: made from as many.
        u16::try_from(self.partitions.len()).unwrap_or(u16::MAX)
    }

    fn partition(&self, number: u16) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::from(number))
    }

    /// Appends whole lines. They are queued by the call itself; the answer comes when as much is done as
    /// `durability` asks for. Dropping the answer does not take the lines back.
    pub fn append(
        &self,
        partition: u16,
        lines: Lines,
        durability: Durability,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send + use<> {
        let offered = self.offer(vec![(partition, lines)], durability);
        // Invariant: as many answers as parts.
        async move { outcome(offered?.pop().flatten()).await }
    }

    /// Appends the parts of one batch, each to a partition of its own, in the order of their numbers. All parts are
    /// queued by the call itself, or none is. The answer comes when as much is done for every part as `durability`
    /// asks for, and says the least that is promised of any. When the disk refuses a part, the answer is why, and
    /// other parts may be kept.
    pub fn append_parts(
        &self,
        parts: Vec<(u16, Lines)>,
        durability: Durability,
    ) -> impl Future<Output = Result<Durability, AppendError>> + Send + use<> {
        let offered = self.offer(parts, durability);
        async move {
            let mut all = Ok(Durability::Fsync);
            // Each is waited for: who sends a refused batch again does not overtake a part of it.
            for waiting in offered? {
                all = match (all, outcome(waiting).await) {
                    (Ok(least), Ok(appended)) => Ok(least.min(appended.durability)),
                    (Err(error), _) | (Ok(_), Err(error)) => Err(error),
                };
            }
            all
        }
    }

    /// Makes durable what was appended before, in every partition; `client` is who waits for it. What the disk has
    /// refused of it, or lost, stays lost: [`Self::losses`] says whether there was any.
    pub fn sync(&self, client: u64) -> impl Future<Output = Result<(), AppendError>> + Send + use<> {
        let nothing = || Lines { bytes: Bytes::new(), facts: Vec::new(), client };
        let queue = |partition: &Arc<Partition>| {
            let room = partition.queue.admit(&nothing())?;
            Ok(room.push(nothing(), Durability::Fsync))
        };
        let queued: Result<Vec<_>, AppendError> = self.partitions.iter().map(queue).collect();
        async move {
            for waiting in queued? {
                outcome(waiting).await?;
            }
            Ok(())
        }
    }

    /// How often lines that were acknowledged as less than `fsync` may have been lost, since the log was opened. If
    /// this is the same before they were appended and after a [`Self::sync`], they are on the disk.
    #[must_use]
    pub fn losses(&self) -> u64 {
        let losses = |partition: &Arc<Partition>| partition.counters.losses();
        self.partitions.iter().map(losses).sum()
    }

    /// Queues all parts or none.
    fn offer(
        &self,
        parts: Vec<(u16, Lines)>,
        durability: Durability,
    ) -> Result<Vec<Option<PendingAppend>>, AppendError> {
        // Each queue is locked until all are known to have room: always in this order, so that no two wait for
        // each other.
        if parts.is_empty() || !parts.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(AppendError::Misdescribed);
        }
        let mut rooms = Vec::with_capacity(parts.len());
        for (number, lines) in &parts {
            let partition = self.partition(*number).ok_or(AppendError::NoPartition(*number))?;
            lines.check(partition.bounds.batch_bytes)?;
            let counters = &partition.counters;
            rooms.push(partition.queue.admit(lines).inspect_err(|error| match error {
                AppendError::Full { .. } => count(&counters.refused_full, 1),
                AppendError::ShareExceeded { .. } => count(&counters.refused_share, 1),
                _ => {}
            })?);
        }
        let pushed = rooms.into_iter().zip(parts).map(|(room, (_, lines))| room.push(lines, durability));
        Ok(pushed.collect())
    }

    /// Reads lines from an offset on, at most so many lines and bytes, from one segment. Reads files, so it
    /// belongs on a thread that may block.
    ///
    /// # Errors
    /// When there are no such lines, or their file cannot be read.
    pub fn read(
        &self,
        partition: u16,
        from_offset: u64,
        max_lines: u64,
        max_bytes: usize,
    ) -> Result<ReadLines, ReadError> {
        let found = self.partition(partition).ok_or(ReadError::NoPartition(partition))?;
        read(found, from_offset, max_lines, max_bytes)
    }

    /// The offsets kept: from the oldest line to the next one to come.
    #[must_use]
    pub fn offsets(&self, partition: u16) -> Option<Range<u64>> {
        Some(self.partition(partition)?.shelf().range())
    }

    /// How long ago the line at `offset` came; `None` if it is not kept, or has not come. It may be a second less, of a line
    /// that has waited for hours some minutes more, and of one from an earlier process up to
    /// [`Settings::segment_age`] less.
    #[must_use]
    pub fn age(&self, partition: u16, offset: u64) -> Option<Duration> {
        let partition = self.partition(partition)?;
        let shelf = partition.shelf();
        let came = shelf.arrivals.of(offset).filter(|_| shelf.range().contains(&offset))?;
        Some((partition.clock.monotonic)().saturating_duration_since(came))
    }

    /// Returns when the partition has a line at `offset`; at once for a partition that is not there.
    pub fn wait_past(&self, partition: u16, offset: u64) -> impl Future<Output = ()> + Send + use<> {
        let end = self.partition(partition).map(|partition| partition.end.subscribe());
        async move {
            if let Some(mut end) = end {
                // An error says that the log was dropped.
                drop(end.wait_for(|next| *next > offset).await);
            }
        }
    }

    /// Keeps how far a group has come: the offset of the next line that it wants. Blocks until that is
    /// durable.
    ///
    /// # Errors
    /// When the offset does not exist, or cannot be kept.
    pub fn commit(&self, group: &str, partition: u16, offset: u64) -> Result<(), GroupError> {
        let found = self.partition(partition).ok_or(GroupError::NoPartition(partition))?;
        let next = found.shelf().next;
        if offset > next {
            return Err(GroupError::Beyond { next });
        }
        self.groups.commit(group, partition, offset)
    }

    /// How far a group has come; `None` if it never committed.
    #[must_use]
    pub fn committed(&self, group: &str, partition: u16) -> Option<u64> {
        self.groups.committed(group, partition)
    }

    /// All groups with their offsets by partition.
    #[must_use]
    pub fn groups(&self) -> BTreeMap<String, BTreeMap<u16, u64>> {
        self.groups.all()
    }

    /// Forgets a group whose offsets are `so_far`; whether there was one. So a caller that records elsewhere how far the
    /// group had come records what is forgotten.
    ///
    /// # Errors
    /// When its file cannot be removed.
    pub fn remove_group(&self, group: &str, so_far: &BTreeMap<u16, u64>) -> Result<bool, GroupError> {
        self.groups.remove(group, so_far)
    }

    /// Hands out the lines that have a name and a time, partition by partition, in the order of their
    /// offsets. Segments and blocks that the index rules out are not read. Reads files, so it belongs on a
    /// thread that may block.
    ///
    /// # Errors
    /// When a segment cannot be read.
    pub fn scan(
        &self,
        wanted: &Scan<'_>,
        mut each: impl FnMut(&[u8], &Description<'_>) -> ControlFlow<()>,
    ) -> Result<Scanned, ReadError> {
        let mut scanned = Scanned::default();
        for partition in &self.partitions {
            if scan(partition, wanted, &mut scanned, &mut each)?.is_break() {
                return Ok(scanned);
            }
        }
        Ok(Scanned { complete: true, ..scanned })
    }

    /// What the log has done, and what it has.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { partitions: self.partitions.iter().map(|partition| partition.statistics()).collect() }
    }

    /// Takes no more lines, writes those that wait, and returns when they are on the disk.
    pub fn close(&self) {
        for partition in &self.partitions {
            partition.queue.close();
        }
        for writer in self.writers.lock().drain(..) {
            // A writer that panicked has said so.
            drop(writer.join());
        }
        self.seals.close();
        if let Some(sealer) = self.sealer.lock().take() {
            drop(sealer.join());
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close();
    }
}

type PendingAppend = oneshot::Receiver<Result<Appended, AppendError>>;

/// What became of lines, when it is known.
async fn outcome(waiting: Option<PendingAppend>) -> Result<Appended, AppendError> {
    match waiting {
        None => Ok(Appended { first_offset: None, durability: Durability::Memory }),
        Some(outcome) => outcome.await.unwrap_or(Err(AppendError::Closing)),
    }
}
