//! Why the log refuses, by what the caller can do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Why a log cannot be opened. Damage is none of the reasons: see [`Recovery`](crate::Recovery).
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process writes this log.
    #[error("{0} is in use by another process: stop it, or give this one another folder")]
    InUse(PathBuf),
    /// The folder cannot be made, listed or written to.
    #[error("{path}: {error}; give this process the right to read and write there")]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Lines would be looked for in the wrong partition.
    #[error(
        "the log has lines in {found} partitions and is configured for {configured}: configure {found}, or give \
         it an empty folder"
    )]
    Partitions {
        /// As the log was made.
        found: u16,
        /// As the settings have it.
        configured: u16,
    },
    /// A bound that nothing could be kept within.
    #[error("{0}")]
    Settings(&'static str),
}

/// Why lines were not taken. Such lines are not read back, unless the process is killed before it cuts them off
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// The disk is slower than the input.
    #[error("the queue is full")]
    Full {
        /// When to try again.
        retry_after: Duration,
    },
    /// The queue is filling, and this client has more than its share in it.
    #[error("this client's lines fill its share of the queue: try again later")]
    ShareExceeded {
        /// When to try again.
        retry_after: Duration,
    },
    /// More than may be taken at once.
    #[error("{bytes} bytes at once, at most {limit}")]
    TooLarge {
        /// Bytes given, or of the longest line.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The facts are not those of the bytes, a line has no end, or parts are not in the order of their partitions.
    #[error("the lines are not as described")]
    Misdescribed,
    /// No such partition.
    #[error("there is no partition {0}")]
    NoPartition(u16),
    /// There is no space left. The log goes on by itself once there is.
    #[error("the disk is full")]
    DiskFull,
    /// The disk refused the lines.
    #[error("the disk refused the lines: {0}")]
    Refused(String),
    /// The log is closing.
    #[error("the log is closing")]
    Closing,
}

/// Why nothing was read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// No such partition.
    #[error("there is no partition {0}")]
    NoPartition(u16),
    /// Retention removed these lines.
    #[error("the oldest line kept is {oldest}")]
    Gone {
        /// Where to go on.
        oldest: u64,
    },
    /// The lines were never written.
    #[error("the next line will be {next}")]
    Beyond {
        /// Where to go on.
        next: u64,
    },
    /// The file cannot be read.
    #[error("the segment cannot be read: {0}")]
    Unreadable(#[from] io::Error),
}

/// Why a group's offset was not kept.
#[derive(Debug, Error)]
pub enum GroupError {
    /// The name does not fit a file's name.
    #[error("a group's name has 1 to 64 letters, digits, `-`, `_` or `.`, and does not begin with `.`")]
    Name,
    /// No such partition.
    #[error("there is no partition {0}")]
    NoPartition(u16),
    /// The bound on groups is reached.
    #[error("there are {0} groups already: remove one")]
    TooMany(usize),
    /// The lines were never written.
    #[error("the next line will be {next}")]
    Beyond {
        /// The end of the partition.
        next: u64,
    },
    /// The offset could not be made durable.
    #[error("the offset could not be kept: {0}")]
    Storage(#[from] io::Error),
}
