//! How many partitions a log has, and a look at the whole of it that changes nothing.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::error::OpenError;
use crate::files::{Files, read_small, replace};
use crate::finding::Finding;
use crate::groups::{self, GROUPS};
use crate::inspect::{Inspection, Look, inspect};
use crate::recovery::Recovery;
use crate::settings::{Describe, Settings};

const LAYOUT: &str = "log.json";

/// Compares the number of partitions with that of the log, and writes it down.
pub(crate) fn check_partitions(
    files: &dyn Files,
    settings: &Settings,
    recovery: &mut Recovery,
) -> io::Result<Result<(), OpenError>> {
    let path = settings.folder.join(LAYOUT);
    let written = layout(files, &path);
    let entries = files.list(&settings.folder)?;
    let numbers =
        entries.iter().filter(|entry| entry.folder).filter_map(|entry| entry.name.parse::<u16>().ok());
    let folders = numbers.max().map_or(0, |highest| highest.saturating_add(1));
    let configured = settings.partitions;
    // Without the file, a log may have had more partitions than it has folders, but not fewer.
    let found = written.unwrap_or(if folders > configured { folders } else { configured });
    if found != configured && has_lines(files, &settings.folder)? {
        return Ok(Err(OpenError::Partitions { found, configured }));
    }
    if written != Some(configured) {
        if folders > 0 && written.is_none() {
            recovery.findings.push(Finding::Layout { file: path.clone() });
        }
        if let Err(error) = replace(files, &path, format!("{{\"partitions\":{configured}}}\n").as_bytes()) {
            recovery.findings.push(Finding::NotMended { file: path, error: error.to_string() });
        }
    }
    Ok(Ok(()))
}

fn layout(files: &dyn Files, path: &Path) -> Option<u16> {
    let content = read_small(files, path, 4_096).ok()?;
    let layout: BTreeMap<String, u16> = serde_json::from_slice(&content).ok()?;
    layout.get("partitions").copied().filter(|partitions| *partitions > 0)
}

fn has_lines(files: &dyn Files, folder: &Path) -> io::Result<bool> {
    for entry in files.list(folder)? {
        if entry.folder
            && entry.name.parse::<u16>().is_ok()
            && files.list(&folder.join(&entry.name))?.iter().any(|entry| entry.bytes > 0)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A folder as `verify` found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Each partition's segments, lines, bytes on the disk, and offsets.
    pub partitions: Vec<VerifiedPartition>,
    /// What a person should know; nothing was changed.
    pub findings: Vec<Finding>,
}

/// A partition as `verify` found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifiedPartition {
    /// Files with lines.
    pub segments: u64,
    /// Whole lines in them.
    pub lines: u64,
    /// What these files take.
    pub bytes: u64,
    /// From the oldest line to the one after the newest.
    pub offsets: Range<u64>,
}

/// Reads every line of a log and the offsets of its groups, and says what is wrong with it, without changing anything. Of a log that is
/// being written, the newest line may seem torn.
///
/// # Errors
/// When the folder, or a file in it, may not be read.
pub fn verify(folder: &Path, describe: &dyn Describe, files: &dyn Files) -> io::Result<Verification> {
    let mut verification = Verification::default();
    let mut folders: Vec<u16> = files
        .list(folder)?
        .into_iter()
        .filter(|entry| entry.folder)
        .filter_map(|entry| entry.name.parse().ok())
        .collect();
    folders.sort_unstable();
    if layout(files, &folder.join(LAYOUT)).is_none() {
        verification.findings.push(Finding::Layout { file: folder.join(LAYOUT) });
    }
    for number in folders {
        let look = Look { files, describe, everything: true };
        let Inspection { segments, findings, .. } = inspect(look, &folder.join(number.to_string()))?;
        let first = segments.first().map_or(0, |segment| segment.first);
        let end = segments.last().map_or(0, |segment| segment.first + segment.lines);
        verification.partitions.push(VerifiedPartition {
            segments: segments.len() as u64,
            lines: segments.iter().map(|segment| segment.lines).sum(),
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            offsets: first..end,
        });
        verification.findings.extend(findings);
    }
    verification.findings.extend(groups::examine(files, &folder.join(GROUPS))?);
    Ok(verification)
}
