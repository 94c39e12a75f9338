//! A durable log of lines: appended in batches, acknowledged as the caller asks, read by offset or by name.
//!
//! ```text
//!   append --> queue --> writer --> <folder>/<partition>/<first-offset>.jsonl          any tool reads them
//!    bounded, fair     one thread,        sealed: .jsonl.zst, .index                   (jq, zstdcat)
//!                      group commit   <folder>/groups/<group>.json                     readers' offsets
//!   read, scan <-- shelf, index --'   <folder>/quarantine/                             what was damaged
//! ```
//!
//! A line is bytes that end in `\n`; what is in it the caller knows ([`Describe`]). Its offset is its number
//! in its partition, from 0 on, and never changes.
//!
//! # What can be lost, and when
//!
//! | acknowledged as | process killed | power lost | disk refuses the write |
//! |---|---|---|---|
//! | [`Durability::Memory`] | what was in the queue: some milliseconds, at most [`Settings::queue_bytes`] | as `Written`, and the queue | the lines, counted as `lost_lines`; from then on it is asked as `Written` |
//! | [`Durability::Written`] | nothing | the last [`Settings::sync_gap`] (1 s) | nothing: not acknowledged. Lines of the second before an fsync failed may be lost |
//! | [`Durability::Fsync`] | nothing | nothing, if the disk keeps what it says it has | nothing: not acknowledged |
//!
//! In every mode lines may be there that were never acknowledged: the process was killed, or the answer was
//! lost on its way. A client that sends them again has them twice; the log does not compare lines.
//!
//! # Bounds
//!
//! Each is in [`Settings`] or named where it is used, and [`Statistics`] says when it was reached: the
//! queue, a client's share of it, a batch, a line, a segment, a block, the disk, the quarantine, the groups.
//!
//! Deliberately absent: a runtime (writers and the sealer are plain threads), a clock (see [`Clock`]), and
//! checksums in the segments, which stay lines of text; compressed ones have a checksum for each frame.

mod arrivals;
mod error;
mod files;
mod finding;
mod groups;
mod index;
mod inspect;
mod layout;
mod log;
mod partition;
mod queue;
mod reader;
mod recovery;
mod sealer;
mod segment;
mod settings;
mod statistics;
mod writer;

pub use error::{AppendError, GroupError, OpenError, ReadError};
pub use files::{Entry, Files, Growing, Readable, RealFiles};
pub use finding::Finding;
pub use groups::is_group_name;
pub use layout::{Verification, VerifiedPartition, verify};
pub use log::Log;
pub use queue::{Appended, Lines};
pub use reader::{ReadLines, Scan, Scanned};
pub use recovery::Recovery;
pub use settings::{Clock, Describe, Description, Durability, Fact, MAX_LINE_BYTES, NameDigest, Settings};
pub use statistics::{FLUSH_BOUNDS_US, PartitionStatistics, Statistics};
