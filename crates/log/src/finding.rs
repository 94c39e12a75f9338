//! What is said of a folder of a log: by a start that mends it, and by a look that changes nothing.

use std::fmt;
use std::path::PathBuf;

/// What was found in the folder of a log that is worth a person's look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The end of a segment is not whole lines.
    Torn {
        /// The segment.
        file: PathBuf,
        /// Where the whole lines end.
        from: u64,
        /// Bytes after that.
        bytes: u64,
        /// Line ends among them.
        line_ends: u64,
        /// Where these bytes were put; `None` if they are where they were.
        kept_in: Option<PathBuf>,
    },
    /// Offsets without lines.
    Gap {
        /// The segment after it.
        file: PathBuf,
        /// The first offset missing.
        from: u64,
        /// The next offset that is there.
        to: u64,
    },
    /// Lines of an earlier segment have the offsets of this one. They are hidden by it.
    Overlap {
        /// The later segment.
        file: PathBuf,
        /// How many.
        lines: u64,
    },
    /// The index did not fit its segment.
    StaleIndex {
        /// The segment.
        file: PathBuf,
        /// Whole lines in it.
        lines: u64,
    },
    /// The segment has fewer lines than its index, which is written when all of them are on the disk: some are lost.
    Shorter {
        /// The segment.
        file: PathBuf,
        /// Whole lines in it.
        lines: u64,
        /// Lines that its index has.
        indexed: u64,
    },
    /// There is an index without its segment, whose lines are lost.
    OnlyIndex {
        /// The index.
        file: PathBuf,
    },
    /// A segment was compressed and its plain form not yet removed. One is kept.
    TwoForms {
        /// The plain form.
        file: PathBuf,
    },
    /// A segment that the disk does not give back.
    Unreadable {
        /// The segment.
        file: PathBuf,
        /// What the system says.
        error: String,
    },
    /// Something that is not the log's. It is left alone.
    Foreign {
        /// What.
        file: PathBuf,
    },
    /// A group's offsets cannot be read, or there are more groups than configured. The group begins at the
    /// oldest line.
    Group {
        /// Its file.
        file: PathBuf,
    },
    /// The file that says how many partitions there are was missing or damaged.
    Layout {
        /// The file.
        file: PathBuf,
    },
    /// Something could not be mended now. The log works without it.
    NotMended {
        /// What.
        file: PathBuf,
        /// What the system says.
        error: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn { file, from, bytes, line_ends, kept_in } => {
                write!(
                    f,
                    "{}: from byte {from} on these are not whole lines: {bytes} bytes, {line_ends} line ends",
                    file.display()
                )?;
                match kept_in {
                    Some(kept) => write!(f, "; moved to {}", kept.display()),
                    None => f.write_str("; left where they are, and not read"),
                }
            }
            Self::Gap { file, from, to } => {
                write!(f, "{}: the lines before it, {from} to {}, are missing", file.display(), to - 1)
            }
            Self::Overlap { file, lines } => write!(
                f,
                "{}: {lines} lines before it have the same offsets; those of this file are read",
                file.display()
            ),
            Self::StaleIndex { file, lines } => {
                write!(
                    f,
                    "{}: its index does not fit and is made again from its {lines} lines",
                    file.display()
                )
            }
            Self::Shorter { file, lines, indexed } => write!(
                f,
                "{}: it has {lines} lines and its index {indexed}: {} are missing",
                file.display(),
                indexed.saturating_sub(*lines)
            ),
            Self::OnlyIndex { file } => {
                write!(f, "{}: the segment of this index is missing", file.display())
            }
            Self::TwoForms { file } => {
                write!(f, "{}: it is also there compressed; the form with more lines is kept", file.display())
            }
            Self::Unreadable { file, error } => write!(f, "{}: it cannot be read: {error}", file.display()),
            Self::Foreign { file } => write!(f, "{}: not a file of this log; left alone", file.display()),
            Self::Group { file } => {
                write!(f, "{}: not a group's offsets; the group begins at the oldest line", file.display())
            }
            Self::Layout { file } => {
                write!(f, "{}: missing or damaged; written again from the settings", file.display())
            }
            Self::NotMended { file, error } => {
                write!(f, "{}: could not be mended, and is done without: {error}", file.display())
            }
        }
    }
}
