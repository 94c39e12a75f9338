//! The segments of a partition: their names, and the shelf on which readers find them.
//!
//! ```text
//!   writer ---- seals ----> shelf: [sealed][sealed][sealed][active]  <---- readers look up, then read
//!   sealer ---- packs ----/  ^--- retention takes the oldest              files without any lock
//! ```
//!
//! The shelf is locked for look-ups in memory only, never while a file is read or written.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::arrivals::LineArrivals;
use crate::index::{Block, Index, TimeRange};

/// The name of a plain segment ends so, that of a compressed one, and that of an index.
pub(crate) const PLAIN: &str = ".jsonl";
pub(crate) const PACKED: &str = ".jsonl.zst";
pub(crate) const INDEX: &str = ".index";

/// Twenty digits, so that names sort as offsets do.
pub(crate) fn file_name(first: u64, ending: &str) -> String {
    format!("{first:020}{ending}")
}

/// The offset in a name with this ending.
pub(crate) fn offset_in(name: &str, ending: &str) -> Option<u64> {
    let digits = name.strip_suffix(ending)?;
    (digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// A segment that is not written to any more.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) first: u64,
    /// Lines that count: those of the next segment's offsets do not.
    pub(crate) lines: u64,
    pub(crate) packed: bool,
    pub(crate) bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) times: TimeRange,
    /// When it was last written to, on the clock that never goes back: retention by age goes by it.
    pub(crate) written: Instant,
    /// The index until it has its file; afterwards it is read when it is needed.
    pub(crate) index: Option<Arc<Index>>,
    /// The disk failed under it or damaged it, so it stays as it is. A segment that could not be synced gets no index
    /// file: the next start reads all of it.
    pub(crate) suspect: bool,
}

impl Segment {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.lines
    }

    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(file_name(self.first, if self.packed { PACKED } else { PLAIN }))
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        self.bytes + self.index_bytes
    }
}

/// What readers see of the segment that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) first: u64,
    pub(crate) blocks: Vec<Arc<Block>>,
    /// The block under way, up to the last acknowledged line.
    pub(crate) open: Option<Block>,
    pub(crate) bytes: u64,
    pub(crate) times: TimeRange,
}

impl Active {
    pub(crate) fn new(first: u64) -> Self {
        Self { first, blocks: Vec::new(), open: None, bytes: 0, times: TimeRange::NONE }
    }
}

/// The segments of a partition, in order.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    pub(crate) sealed: Vec<Arc<Segment>>,
    pub(crate) active: Option<Active>,
    /// The offset of the next line.
    pub(crate) next: u64,
    /// When lines came.
    pub(crate) arrivals: LineArrivals,
}

/// Where a reader finds some lines.
#[derive(Debug)]
pub(crate) enum LinesPlace {
    /// In a sealed segment.
    Sealed(Arc<Segment>),
    /// In the active segment, in these blocks; its first offset.
    Active(u64, Vec<Arc<Block>>),
}

impl Shelf {
    /// The offsets kept: from the oldest line to the next one.
    pub(crate) fn range(&self) -> Range<u64> {
        let first_sealed = self.sealed.first().map(|segment| segment.first);
        let first = first_sealed.or(self.active.as_ref().map(|active| active.first)).unwrap_or(self.next);
        first.min(self.next)..self.next
    }

    /// The segment that has the line at `offset`, or else the first one after it.
    pub(crate) fn find(&self, offset: u64) -> Option<LinesPlace> {
        let at = self.sealed.partition_point(|segment| segment.end() <= offset);
        if let Some(segment) = self.sealed.get(at) {
            return Some(LinesPlace::Sealed(Arc::clone(segment)));
        }
        let active = self.active.as_ref()?;
        let relative = offset.saturating_sub(active.first);
        let before = |block: &Block| block.first + u64::from(block.lines) <= relative;
        let after = active.blocks.partition_point(|block| before(block));
        let mut blocks = active.blocks[after..].to_vec();
        blocks.extend(active.open.clone().filter(|open| !before(open)).map(Arc::new));
        (!blocks.is_empty()).then_some(LinesPlace::Active(active.first, blocks))
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|segment| segment.disk_bytes()).sum();
        sealed + self.active.as_ref().map_or(0, |active| active.bytes)
    }

    /// Whether this very segment is on the shelf, and not what another one was changed to.
    pub(crate) fn has(&self, segment: &Arc<Segment>) -> bool {
        let found = self.sealed.binary_search_by_key(&segment.first, |sealed| sealed.first);
        found.is_ok_and(|at| Arc::ptr_eq(&self.sealed[at], segment))
    }

    /// Puts a changed segment in the place of the one with its first offset; `false` if that one has gone.
    pub(crate) fn exchange(&mut self, segment: Segment) -> bool {
        let found = self.sealed.binary_search_by_key(&segment.first, |sealed| sealed.first);
        let Ok(at) = found else { return false };
        self.sealed[at] = Arc::new(segment);
        true
    }
}

/// Work for the sealer: a condition that the writer raises and the sealer awaits.
#[derive(Debug, Default)]
pub(crate) struct Seals {
    state: parking_lot::Mutex<(bool, bool)>,
    changed: parking_lot::Condvar,
    closing: OnceLock<()>,
}

impl Seals {
    pub(crate) fn raise(&self) {
        self.state.lock().0 = true;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        self.state.lock().1 = true;
        self.closing.get_or_init(|| ());
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get().is_some()
    }

    /// Waits for work, for the end, or for `wait`; whether to go on.
    pub(crate) fn wait(&self, wait: std::time::Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.0 && !state.1, wait);
        state.0 = false;
        !state.1
    }
}
