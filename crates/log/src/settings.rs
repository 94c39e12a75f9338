//! Settings of a log, and the choices of its callers.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use crate::error::OpenError;

/// The smallest share of the disk that a partition works with.
const LEAST_DISK_BYTES: u64 = 1 << 20;

/// How a log keeps its lines. Every number is a bound.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where everything is: `<folder>/<partition>/<first-offset>.jsonl`.
    pub folder: PathBuf,
    /// Independent sequences of lines, each with a writer of its own; fixed once the log has lines.
    pub partitions: u16,
    /// A segment that reached this length is sealed. At most an eighth of a partition's share of
    /// `retain_bytes`.
    pub segment_bytes: u64,
    /// A segment that is this old is sealed when it has lines.
    pub segment_age: Duration,
    /// Everything in the folder takes at most this many bytes; the oldest segments go first. Each partition
    /// has an equal share.
    pub retain_bytes: Option<u64>,
    /// Sealed segments that were last written to this long ago are removed. A civil clock that jumps while the
    /// process runs removes nothing; at a start, how old a segment is is told by the civil clock.
    pub retain_age: Option<Duration>,
    /// What may wait for the disk, in each partition, with what is being written.
    pub queue_bytes: usize,
    /// Flushes begin at least this long after one another. After an idle time a flush begins at once.
    pub flush_gap: Duration,
    /// Lines that nobody waits to see synced are synced after this time at the latest.
    pub sync_gap: Duration,
    /// After the disk refused lines it is left alone for so long.
    pub retry_gap: Duration,
    /// Whether sealed segments are compressed.
    pub compress: bool,
    /// How many groups of readers may keep their offsets.
    pub max_groups: usize,
    /// Groups whose names begin so are counted by themselves, up to the same number: readers cannot use it up.
    pub own_groups: Option<&'static str>,
}

impl Settings {
    /// The defaults, in a folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            partitions: 1,
            segment_bytes: 64 << 20,
            segment_age: Duration::from_secs(3_600),
            retain_bytes: None,
            retain_age: None,
            queue_bytes: 64 << 20,
            flush_gap: Duration::from_millis(1),
            sync_gap: Duration::from_secs(1),
            retry_gap: Duration::from_millis(100),
            compress: true,
            max_groups: 100,
            own_groups: None,
        }
    }

    /// Whether a log can keep within these bounds.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        if self.partitions == 0 {
            return Err(OpenError::Settings("a log has at least one partition"));
        }
        if self.queue_bytes < LEAST_QUEUE_BYTES {
            return Err(OpenError::Settings("a partition's queue has at least 64 KiB"));
        }
        let least = LEAST_DISK_BYTES * u64::from(self.partitions);
        if self.retain_bytes.is_some_and(|bytes| bytes < least) {
            return Err(OpenError::Settings("retention leaves each partition at least 1 MiB"));
        }
        Ok(())
    }
}

/// A smaller queue holds hardly a batch.
const LEAST_QUEUE_BYTES: usize = 64 << 10;

/// Where the log reads the time. The caller brings it, so that one file of the workspace reads clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// For waits and measurements.
    pub monotonic: fn() -> Instant,
    /// The civil time in Unix milliseconds, for the age of what an earlier process left.
    pub wall_ms: fn() -> i64,
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The lines are in the queue. They are lost when the process is killed, or when the disk refuses them;
    /// the latter is counted. While the disk refuses lines, `Memory` waits as `Written` does.
    Memory,
    /// The operating system has the lines. They survive `kill -9`; a power loss within
    /// [`Settings::sync_gap`] loses them.
    Written,
    /// The disk says that it has the lines. They survive a power loss.
    Fsync,
}

impl Durability {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Written => "written",
            Self::Fsync => "fsync",
        }
    }
}

/// What the index keeps of a line. The one who encoded the line knows it, so that nothing is parsed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The digest of the line's name.
    pub name: NameDigest,
    /// The line's length, its `\n` included; at most [`MAX_LINE_BYTES`].
    pub bytes: u32,
    /// The line's own time in Unix milliseconds.
    pub ms: i64,
}

/// A longer line is refused.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// A name as the index knows it. Two names may share a digest, so a digest only says where a name is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameDigest(pub u32);

impl NameDigest {
    /// The digest of a name. It is in the index files, so it never changes.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(SipHasher13::new_with_keys(0, 0).hash(name.as_bytes()) as u32)
    }
}

/// What a line says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description<'line> {
    /// What it is found by.
    pub name: Cow<'line, str>,
    /// Its time in Unix milliseconds.
    pub ms: i64,
}

/// How the log understands lines when their index is gone.
pub trait Describe: Send + Sync {
    /// Name and time of a line without its `\n`; `None` if these bytes are no line of this log. It is what
    /// tells a torn line from a whole one, so a line cut short anywhere must give `None`.
    fn describe<'line>(&self, line: &'line [u8]) -> Option<Description<'line>>;
}
