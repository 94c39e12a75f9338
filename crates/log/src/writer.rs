//! A partition's writer: one thread that alone appends to the partition's files.
//!
//! ```text
//!   queue --takes all that waits--> write --> fdatasync --> index, shelf --> answers --> gap --> again
//!                                     |           |          if somebody waits for it, or a second
//!                                     |           |          after the oldest line not synced
//!                                     |           '- failed: the file is never trusted again
//!                                     '- failed: cut back to the last answered line
//! ```
//!
//! One flush serves all who came while the last one ran. The gap between flushes is what gathers more of
//! them under load; after an idle time there is none.
//!
//! Invariants: readers see answered lines only. A line that was refused is cut off before the next one is
//! written, or its file is left behind and the offsets go on in another.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::AppendError;
use crate::files::{Growing, write_all};
use crate::index::{Index, Indexer};
use crate::partition::Partition;
use crate::queue::{Appended, QueuedBatch, Work};
use crate::segment::{Active, PLAIN, Seals, Segment, file_name};
use crate::settings::Durability;
use crate::statistics::count;

/// How often an idle writer looks for segments that are too old.
const IDLE_WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Writer {
    partition: Arc<Partition>,
    seals: Arc<Seals>,
    open: Option<OpenSegment>,
    last_flush: Option<Instant>,
    last_look: Instant,
    troubled: bool,
}

/// The segment under way.
struct OpenSegment {
    file: Box<dyn Growing>,
    first: u64,
    /// Answered lines and their bytes.
    lines: u64,
    bytes: u64,
    indexer: Indexer,
    since: Instant,
    /// When the oldest line was written that was not synced.
    dirty_since: Option<Instant>,
}

impl Writer {
    pub(crate) fn new(partition: Arc<Partition>, seals: Arc<Seals>) -> Self {
        let now = (partition.clock.monotonic)();
        Self { partition, seals, open: None, last_flush: None, last_look: now, troubled: false }
    }

    /// Writes until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        loop {
            let partition = Arc::clone(&self.partition);
            partition.queue.gather(self.gap());
            match partition.queue.take(partition.bounds.flush_bytes, self.wait()) {
                Work::Write(batches) => self.flush(batches),
                Work::Nothing => {}
                Work::Closed => break,
            }
            self.keep_house();
        }
        self.seal();
    }

    fn now(&self) -> Instant {
        (self.partition.clock.monotonic)()
    }

    /// How long to let lines gather before the next flush.
    fn gap(&self) -> Duration {
        let settings = &self.partition.bounds.settings;
        let gap = if self.troubled { settings.retry_gap } else { settings.flush_gap };
        let next = self.last_flush.map(|last| last + gap);
        next.map_or(Duration::ZERO, |next| next.saturating_duration_since(self.now()))
    }

    /// How long to wait for lines before something else is due.
    fn wait(&self) -> Duration {
        let settings = &self.partition.bounds.settings;
        let sync =
            self.open.as_ref().and_then(|open| open.dirty_since).map(|since| since + settings.sync_gap);
        let now = self.now();
        sync.map_or(IDLE_WAIT, |due| due.saturating_duration_since(now)).min(IDLE_WAIT)
    }

    fn flush(&mut self, batches: Vec<QueuedBatch>) {
        let began = self.now();
        let outcome = self.keep(&batches);
        let counters = &self.partition.counters;
        counters.flushed(self.now().saturating_duration_since(began));
        self.last_flush = Some(began);
        // Without anything to write, it is not known whether the disk takes lines again.
        let is_tried = outcome.is_err() || batches.iter().any(|batch| !batch.lines.facts.is_empty());
        if is_tried && self.troubled != outcome.is_err() {
            self.troubled = outcome.is_err();
            match &outcome {
                Err(error) => {
                    tracing::error!(folder = %self.partition.folder.display(), %error, "lines are refused until the disk takes them again")
                }
                Ok(_) => {
                    tracing::info!(folder = %self.partition.folder.display(), "the disk takes lines again")
                }
            }
        }
        self.partition.queue.done(&batches, self.troubled);
        let (first, durability) = match outcome {
            Ok(kept) => kept,
            Err(error) => return self.refuse(batches, &error),
        };
        let mut first_offset = first;
        for batch in batches {
            if let Some(reply) = batch.reply {
                // The one who asked may have gone.
                drop(reply.send(Ok(Appended { first_offset: Some(first_offset), durability })));
            }
            first_offset += batch.lines.facts.len() as u64;
        }
    }

    fn refuse(&self, batches: Vec<QueuedBatch>, error: &AppendError) {
        let counters = &self.partition.counters;
        count(&counters.failed_writes, 1);
        for batch in batches {
            match batch.reply {
                Some(reply) => {
                    let full = *error == AppendError::DiskFull;
                    count(if full { &counters.refused_disk_full } else { &counters.refused_failed }, 1);
                    drop(reply.send(Err(error.clone())));
                }
                None => count(&counters.lost_lines, batch.lines.facts.len() as u64),
            }
        }
    }

    /// Writes these lines, syncs them if somebody waits for that, and shows them to readers.
    fn keep(&mut self, batches: &[QueuedBatch]) -> Result<(u64, Durability), AppendError> {
        let bytes: u64 = batches.iter().map(|batch| batch.lines.bytes.len() as u64).sum();
        if bytes == 0 {
            return self.sync();
        }
        let limit = self.partition.bounds.segment_bytes;
        if self.open.as_ref().is_some_and(|open| open.lines > 0 && open.bytes + bytes > limit) {
            self.seal();
        }
        self.partition.retain(bytes);
        let now = self.now();
        let open = match self.open.take() {
            Some(open) => open,
            None => self.begin().map_err(|error| refusal(&error))?,
        };
        let open = self.open.insert(open);
        let parts = batches.iter().map(|batch| &*batch.lines.bytes);
        if let Err(error) = write_all(&mut *open.file, parts) {
            if open.file.cut(open.bytes).is_err() {
                self.give_up();
            }
            return Err(refusal(&error));
        }
        let synced = batches.iter().any(|batch| batch.durability == Durability::Fsync);
        if synced {
            if let Err(error) = open.file.sync() {
                self.give_up();
                return Err(refusal(&error));
            }
            open.dirty_since = None;
        } else if open.dirty_since.is_none() {
            open.dirty_since = Some(now);
        }
        let durability = if synced { Durability::Fsync } else { Durability::Written };
        Ok((self.show(batches, bytes, now), durability))
    }

    /// Makes durable what was written before.
    fn sync(&mut self) -> Result<(u64, Durability), AppendError> {
        if let Some(open) = &mut self.open
            && open.dirty_since.is_some()
        {
            if let Err(error) = open.file.sync() {
                self.give_up();
                return Err(refusal(&error));
            }
            open.dirty_since = None;
        }
        Ok((self.partition.shelf().next, Durability::Fsync))
    }

    /// Creates the next segment's file.
    fn begin(&self) -> io::Result<OpenSegment> {
        let partition = &self.partition;
        let first = partition.shelf().next;
        let path = partition.folder.join(file_name(first, PLAIN));
        let file = partition.files.create(&path)?;
        if let Err(error) = partition.files.sync_folder(&partition.folder) {
            // It is empty: the next attempt creates it anew, and a start removes it.
            drop(partition.files.remove(&path));
            return Err(error);
        }
        partition.change_shelf().active = Some(Active::new(first));
        let since = self.now();
        Ok(OpenSegment {
            file,
            first,
            lines: 0,
            bytes: 0,
            indexer: Indexer::default(),
            since,
            dirty_since: None,
        })
    }

    /// Puts written lines into the index and before the readers; answers with the offset of the first.
    fn show(&mut self, batches: &[QueuedBatch], bytes: u64, now: Instant) -> u64 {
        // Invariant: called with a segment open.
        let Some(open) = &mut self.open else { return self.partition.shelf().next };
        let facts = batches.iter().flat_map(|batch| &batch.lines.facts);
        let mut lines = 0;
        let mut ended = Vec::new();
        for fact in facts {
            lines += 1;
            ended.extend(open.indexer.add(fact).map(Arc::new));
        }
        open.lines += lines;
        open.bytes += bytes;
        let mut shelf = self.partition.change_shelf();
        let first = shelf.next;
        let oldest = shelf.range().start;
        shelf.arrivals.note(first, now, oldest);
        shelf.next += lines;
        if let Some(active) = &mut shelf.active {
            active.open = open.indexer.open();
            active.bytes = open.bytes;
            for block in ended.iter().map(|block| &**block).chain(&active.open) {
                active.times.join(block.times);
            }
            active.blocks.extend(ended);
        }
        let next = shelf.next;
        drop(shelf);
        self.partition.end.send_replace(next);
        count(&self.partition.counters.lines, lines);
        count(&self.partition.counters.bytes, bytes);
        first
    }

    /// What is due without lines.
    fn keep_house(&mut self) {
        let now = self.now();
        let settings = &self.partition.bounds.settings;
        let (age, sync_gap) = (settings.segment_age, settings.sync_gap);
        let since = |since: Instant| now.saturating_duration_since(since);
        let Some(open) = &mut self.open else {
            return self.look(now);
        };
        if open.lines > 0 && since(open.since) >= age {
            self.seal();
        } else if open.dirty_since.is_some_and(|dirty| since(dirty) >= sync_gap) {
            match open.file.sync() {
                Ok(()) => open.dirty_since = None,
                Err(error) => {
                    tracing::error!(%error, "a segment could not be synced");
                    self.give_up();
                }
            }
        }
        self.look(now);
    }

    /// Removes what retention by age does not keep, now and then.
    fn look(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last_look) >= IDLE_WAIT {
            self.last_look = now;
            self.partition.retain(0);
        }
    }

    /// Ends the segment under way: its lines are on the disk, or it is suspect.
    fn seal(&mut self) {
        let Some(open) = &mut self.open else { return };
        if open.dirty_since.is_some() && open.file.sync().is_err() {
            return self.give_up();
        }
        self.shelve(false);
        self.seals.raise();
    }

    /// Leaves a file behind that can be neither synced nor cut back.
    fn give_up(&mut self) {
        count(&self.partition.counters.suspect_files, 1);
        if let Some(open) = &mut self.open {
            tracing::error!(
                folder = %self.partition.folder.display(), segment = open.first,
                "this segment is not written to any more, because the disk failed under it"
            );
            // Lines that were not answered should not come back; readers and the next start can do without.
            drop(open.file.cut(open.bytes));
        }
        self.shelve(true);
    }

    fn shelve(&mut self, suspect: bool) {
        let Some(mut open) = self.open.take() else { return };
        let partition = &self.partition;
        let mut shelf = partition.change_shelf();
        let Some(active) = shelf.active.take() else { return };
        if open.lines == 0 {
            drop(shelf);
            // An empty file is nothing: a start removes it, too.
            drop(partition.files.remove(&partition.folder.join(file_name(open.first, PLAIN))));
            return;
        }
        let mut blocks = active.blocks;
        blocks.extend(open.indexer.end().map(Arc::new));
        let index = Index { packed: false, blocks };
        shelf.sealed.push(Arc::new(Segment {
            first: open.first,
            lines: open.lines,
            packed: false,
            bytes: open.bytes,
            index_bytes: index.encoded_len(),
            times: active.times,
            written: (partition.clock.monotonic)(),
            index: Some(Arc::new(index)),
            suspect,
        }));
    }
}

/// Also when a bug has ended the thread: nobody waits for a writer that is gone.
impl Drop for Writer {
    fn drop(&mut self) {
        let queue = &self.partition.queue;
        queue.close();
        while let Work::Write(batches) = queue.take(usize::MAX, Duration::ZERO) {
            drop(batches);
        }
    }
}

/// What the caller is told.
fn refusal(error: &io::Error) -> AppendError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => AppendError::DiskFull,
        _ => AppendError::Refused(error.to_string()),
    }
}
