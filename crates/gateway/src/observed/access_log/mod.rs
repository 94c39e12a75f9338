//! The access log: a line for each request, written by a thread of its own.
//!
//! ```text
//!   Record ── sampled by rule ──> line ──> queue, at most QUEUE_BYTES ──> thread ──> file, rotated; or stdout
//!                                            full: the line is dropped       fails: its lines are dropped
//!                                            and counted                     and counted
//! ```
//!
//! A request appends its line to the queue's bytes and goes on: it waits for no disk, and a disk that is full, slow or
//! frozen costs lines and nothing else (fault 77). The thread takes all that is there at once, so that a busy log takes
//! few calls of the system.
//!
//! Rejected: a channel of lines, which allocates for each of them and wakes the thread as often.

mod file;
pub(crate) mod line;
mod rules;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use self::file::{LogFile, WriteOutcome};
use crate::observed::record::{ReadsRecords, RequestRecord};
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use rules::{SampleRule, StatusClass};

/// Most bytes of lines that wait to be written.
pub const QUEUE_BYTES: usize = 4 << 20;

/// How long the thread waits for more lines after the first, unless there are [`BATCH_BYTES`].
const GATHERING: Duration = Duration::from_millis(20);
const BATCH_BYTES: usize = 64 << 10;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The process's standard output.
    Stdout,
    /// A file.
    File {
        /// Where it is.
        path: PathBuf,
        /// What it may grow to before it is renamed.
        max_bytes: u64,
        /// How many renamed ones are kept: `path.1` is the newest.
        keep: u32,
    },
}

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// A JSON object.
    Json,
    /// Apache's combined format, then the trace.
    Combined,
}

/// What is logged, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogSettings {
    /// Where lines go.
    pub destination: Destination,
    /// How they look.
    pub format: LineFormat,
    /// Which requests have one: as the first rule that fits says; all that none fits.
    pub rules: Vec<SampleRule>,
}

/// What has become of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessLogStats {
    /// Written.
    pub written: u64,
    /// Dropped, since the queue was full.
    pub dropped: u64,
    /// Dropped, since they could not be written.
    pub failed: u64,
    /// Not made, since a rule leaves them out.
    pub left_out: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: usize,
}

/// An access log. Its thread ends with [`AccessLog::close`].
#[derive(Debug)]
pub struct AccessLog {
    format: LineFormat,
    rules: Vec<SampleRule>,
    shared: Arc<LogState>,
}

/// What requests and the thread share.
#[derive(Debug, Default)]
struct LogState {
    queue: Mutex<LineQueue>,
    /// Something is there for the thread.
    filled: Condvar,
    /// The thread has ended.
    ended: Condvar,
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

#[derive(Debug, Default)]
struct LineQueue {
    bytes: Vec<u8>,
    lines: u64,
    reopen: bool,
    is_closed: bool,
    has_ended: bool,
}

impl AccessLog {
    /// Opens the log's file and starts its thread.
    ///
    /// # Errors
    /// When the file cannot be opened, or there is no thread.
    pub fn open(settings: AccessLogSettings) -> io::Result<Arc<Self>> {
        let AccessLogSettings { destination, format, rules } = settings;
        let file = LogFile::open(destination)?;
        let shared = Arc::new(LogState::default());
        let writing = Arc::clone(&shared);
        let write = move || writing.write(file);
        drop(thread::Builder::new().name("access-log".to_owned()).spawn(write)?);
        Ok(Arc::new(Self { format, rules, shared }))
    }

    /// Opens the file again, since something else has renamed it. What is queued is written to the new one.
    pub fn reopen(&self) {
        self.shared.queue().reopen = true;
        self.shared.filled.notify_one();
    }

    /// Writes what is queued and ends the thread. False if that took longer than `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        let mut queue = self.shared.queue();
        queue.is_closed = true;
        self.shared.filled.notify_one();
        self.shared.ended.wait_while_for(&mut queue, |queue| !queue.has_ended, patience);
        queue.has_ended
    }

    /// What has become of lines.
    #[must_use]
    pub fn stats(&self) -> AccessLogStats {
        let LogState { written, dropped, failed, left_out, .. } = &*self.shared;
        AccessLogStats {
            written: written.load(Relaxed),
            dropped: dropped.load(Relaxed),
            failed: failed.load(Relaxed),
            left_out: left_out.load(Relaxed),
            queued_bytes: self.shared.queue().bytes.len(),
        }
    }
}

impl ReadsRecords for AccessLog {
    /// Logs a request that has ended, if its rule wants that.
    fn note(&self, record: &RequestRecord) {
        let route = record.route.as_ref().map(|route| &*route.config.name);
        let rule = self.rules.iter().find(|rule| rule.fits(route, record.status));
        if rule.is_some_and(|rule| !rule.draws(crate::random::fraction())) {
            self.shared.left_out.fetch_add(1, Relaxed);
            return;
        }
        let mut line = String::with_capacity(1_024);
        match self.format {
            LineFormat::Json => line::json(record, &mut line),
            LineFormat::Combined => line::combined(record, &mut line),
        }
        line.push('\n');
        self.shared.push(line.as_bytes());
    }
}

impl LogState {
    fn push(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.is_closed || queue.bytes.len() + line.len() > QUEUE_BYTES {
            drop(queue);
            self.dropped.fetch_add(1, Relaxed);
            return;
        }
        let before = queue.bytes.len();
        queue.bytes.extend_from_slice(line);
        queue.lines += 1;
        let is_due = before == 0 || (before < BATCH_BYTES && queue.bytes.len() >= BATCH_BYTES);
        drop(queue);
        if is_due {
            self.filled.notify_one();
        }
    }

    /// Writes lines until the log is closed.
    fn write(&self, mut file: LogFile) {
        let mut batch = Vec::new();
        loop {
            batch.clear();
            let mut queue = self.wait();
            std::mem::swap(&mut queue.bytes, &mut batch);
            let lines = std::mem::take(&mut queue.lines);
            let reopen = std::mem::take(&mut queue.reopen);
            let is_last = queue.is_closed;
            drop(queue);
            if reopen {
                file.reopen();
            }
            let WriteOutcome { written, failed } = file.write(&batch);
            debug_assert_eq!(written + failed, lines, "each line is written or not");
            self.written.fetch_add(written, Relaxed);
            self.failed.fetch_add(failed, Relaxed);
            if is_last {
                self.queue().has_ended = true;
                self.ended.notify_all();
                return;
            }
        }
    }

    /// The queue, when there is something to do and some time was given for more.
    fn wait(&self) -> MutexGuard<'_, LineQueue> {
        let is_urgent = |queue: &LineQueue| queue.is_closed || queue.reopen;
        let is_idle = |queue: &mut LineQueue| queue.bytes.is_empty() && !is_urgent(queue);
        let mut queue = self.queue();
        self.filled.wait_while(&mut queue, is_idle);
        let is_short = |queue: &mut LineQueue| queue.bytes.len() < BATCH_BYTES && !is_urgent(queue);
        self.filled.wait_while_for(&mut queue, is_short, GATHERING);
        queue
    }

    fn queue(&self) -> MutexGuard<'_, LineQueue> {
        self.queue.lock()
    }
}
