//! Counters of a log, for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the flush times' buckets, in microseconds; the last bucket has none.
pub const FLUSH_BOUNDS_US: [u64; 12] =
    [250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000];

/// What one partition has done since the process started, and what it has now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionStatistics {
    /// Lines and bytes written and not refused.
    pub lines: u64,
    /// See `lines`.
    pub bytes: u64,
    /// Flushes by time taken; one more than [`FLUSH_BOUNDS_US`].
    pub flushes: [u64; FLUSH_BOUNDS_US.len() + 1],
    /// The sum of these times.
    pub flush_us: u64,
    /// Batches refused because the queue was full.
    pub refused_full: u64,
    /// Batches refused because their client had its share.
    pub refused_share: u64,
    /// Batches refused because the disk was full.
    pub refused_disk_full: u64,
    /// Batches refused because the disk failed.
    pub refused_failed: u64,
    /// Flushes that the disk refused.
    pub failed_writes: u64,
    /// Files given up because they could not be synced.
    pub suspect_files: u64,
    /// Lines acknowledged as `memory` that the disk then refused.
    pub lost_lines: u64,
    /// Files put into quarantine when the log was opened, and bytes in them.
    pub quarantined_files: u64,
    /// See `quarantined_files`.
    pub quarantined_bytes: u64,
    /// Segments removed by retention.
    pub removed_segments: u64,
    /// Blocks that could not be read back.
    pub damaged_blocks: u64,
    /// Bytes that wait or are being written.
    pub queue_bytes: u64,
    /// The bound on `queue_bytes`.
    pub queue_limit_bytes: u64,
    /// Whether the disk refused the last flush.
    pub troubled: bool,
    /// Segments, the active one included.
    pub segments: u64,
    /// What they take, with their indexes.
    pub disk_bytes: u64,
    /// The oldest line kept.
    pub oldest_offset: u64,
    /// The offset that the next line will have.
    pub next_offset: u64,
}

/// What a log has done, by partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// In the order of their numbers.
    pub partitions: Vec<PartitionStatistics>,
}

/// The part of [`PartitionStatistics`] that is counted as it happens.
#[derive(Debug, Default)]
pub(crate) struct PartitionCounters {
    pub(crate) lines: AtomicU64,
    pub(crate) bytes: AtomicU64,
    flushes: [AtomicU64; FLUSH_BOUNDS_US.len() + 1],
    flush_us: AtomicU64,
    pub(crate) refused_full: AtomicU64,
    pub(crate) refused_share: AtomicU64,
    pub(crate) refused_disk_full: AtomicU64,
    pub(crate) refused_failed: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) suspect_files: AtomicU64,
    pub(crate) lost_lines: AtomicU64,
    pub(crate) quarantined_files: AtomicU64,
    pub(crate) quarantined_bytes: AtomicU64,
    pub(crate) removed_segments: AtomicU64,
    pub(crate) damaged_blocks: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl PartitionCounters {
    /// How often lines that were acknowledged before they were synced may have been lost.
    pub(crate) fn losses(&self) -> u64 {
        self.lost_lines.load(Relaxed) + self.suspect_files.load(Relaxed)
    }

    pub(crate) fn flushed(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = FLUSH_BOUNDS_US.partition_point(|bound| *bound < us);
        count(&self.flushes[bucket], 1);
        count(&self.flush_us, us);
    }

    /// What was counted; the rest is left at zero.
    pub(crate) fn read(&self) -> PartitionStatistics {
        PartitionStatistics {
            lines: self.lines.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            flushes: std::array::from_fn(|bucket| self.flushes[bucket].load(Relaxed)),
            flush_us: self.flush_us.load(Relaxed),
            refused_full: self.refused_full.load(Relaxed),
            refused_share: self.refused_share.load(Relaxed),
            refused_disk_full: self.refused_disk_full.load(Relaxed),
            refused_failed: self.refused_failed.load(Relaxed),
            failed_writes: self.failed_writes.load(Relaxed),
            suspect_files: self.suspect_files.load(Relaxed),
            lost_lines: self.lost_lines.load(Relaxed),
            quarantined_files: self.quarantined_files.load(Relaxed),
            quarantined_bytes: self.quarantined_bytes.load(Relaxed),
            removed_segments: self.removed_segments.load(Relaxed),
            damaged_blocks: self.damaged_blocks.load(Relaxed),
            ..PartitionStatistics::default()
        }
    }
}
