//! How far groups of readers have come: a small file each, replaced as a whole.
//!
//! A group that reads, works and then commits sees every line at least once: what it did not commit it
//! sees again. An offset that was committed is never given to another line, even if the files that had the
//! lines are lost.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::error::GroupError;
use crate::files::{Files, UNFINISHED, read_small, replace};
use crate::finding::Finding;
use crate::inspect::LAST_FIRST_OFFSET;
use crate::settings::Settings;

/// The folder of the groups, beside the partitions.
pub(crate) const GROUPS: &str = "groups";
const ENDING: &str = ".json";
/// Longest name of a group of readers.
const MAX_NAME: usize = 64;
/// Longest name of any group: those of the log's owner have its prefix in front of a name.
const MAX_OWN_NAME: usize = 128;
/// A longer file is damaged: 65,536 partitions in 30 bytes each.
const MAX_BYTES: usize = 2 << 20;

type Offsets = BTreeMap<u16, u64>;

pub(crate) struct Groups {
    folder: PathBuf,
    files: Arc<dyn Files>,
    limit: usize,
    own: Option<&'static str>,
    offsets: Mutex<BTreeMap<String, Offsets>>,
}

impl Groups {
    /// Reads what was committed. A file that is no such thing is reported and left.
    pub(crate) fn open(
        folder: PathBuf,
        files: Arc<dyn Files>,
        settings: &Settings,
        findings: &mut Vec<Finding>,
    ) -> io::Result<Self> {
        files.create_folder(&folder)?;
        let (limit, own) = (settings.max_groups, settings.own_groups);
        let mut offsets = BTreeMap::new();
        for entry in files.list(&folder)? {
            let path = folder.join(&entry.name);
            if entry.name.ends_with(UNFINISHED) {
                drop(files.remove(&path));
                continue;
            }
            match (group_of(&entry.name), load(&*files, &path)) {
                (Some(name), Some(group)) if has_room(&offsets, name, own, limit) => {
                    offsets.insert(name.to_owned(), group);
                }
                _ => findings.push(Finding::Group { file: path }),
            }
        }
        Ok(Self { folder, files, limit, own, offsets: Mutex::new(offsets) })
    }

    fn offsets(&self) -> MutexGuard<'_, BTreeMap<String, Offsets>> {
        self.offsets.lock()
    }

    pub(crate) fn committed(&self, group: &str, partition: u16) -> Option<u64> {
        self.offsets().get(group)?.get(&partition).copied()
    }

    /// The furthest that any group has come in a partition.
    pub(crate) fn furthest(&self, partition: u16) -> u64 {
        self.offsets().values().filter_map(|group| group.get(&partition)).copied().max().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, BTreeMap<u16, u64>> {
        self.offsets().clone()
    }

    /// Returns when the offset is durable. Two commits follow one another; the later one counts.
    pub(crate) fn commit(&self, group: &str, partition: u16, offset: u64) -> Result<(), GroupError> {
        if !is_file_name(group) {
            return Err(GroupError::Name);
        }
        let mut offsets = self.offsets();
        if !offsets.contains_key(group) && !has_room(&offsets, group, self.own, self.limit) {
            return Err(GroupError::TooMany(self.limit));
        }
        let mut changed = offsets.get(group).cloned().unwrap_or_default();
        if changed.insert(partition, offset) == Some(offset) {
            return Ok(());
        }
        replace(&*self.files, &self.path(group), text(&changed).as_bytes())?;
        offsets.insert(group.to_owned(), changed);
        Ok(())
    }

    /// Forgets a group that has come `so_far`; whether there was one.
    pub(crate) fn remove(&self, group: &str, so_far: &Offsets) -> Result<bool, GroupError> {
        if !is_file_name(group) {
            return Err(GroupError::Name);
        }
        let mut offsets = self.offsets();
        if offsets.get(group) != Some(so_far) {
            return Ok(false);
        }
        self.files.remove(&self.path(group))?;
        self.files.sync_folder(&self.folder)?;
        offsets.remove(group);
        Ok(true)
    }

    fn path(&self, group: &str) -> PathBuf {
        self.folder.join(format!("{group}{ENDING}"))
    }
}

/// Whether there may be one more group, of this name. Groups of the log's owner and groups of readers are counted
/// apart.
fn has_room(groups: &BTreeMap<String, Offsets>, name: &str, own: Option<&str>, limit: usize) -> bool {
    let is_own = |name: &str| own.is_some_and(|prefix| name.starts_with(prefix));
    groups.keys().filter(|other| is_own(other) == is_own(name)).count() < limit
}

/// Whether a group of readers can have this name.
#[must_use]
pub fn is_group_name(name: &str) -> bool {
    name.len() <= MAX_NAME && is_file_name(name)
}

/// Whether a group's file can have this name.
fn is_file_name(name: &str) -> bool {
    (1..=MAX_OWN_NAME).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// What in the folder of a log's groups is no group's offsets; nothing if there is no such folder.
pub(crate) fn examine(files: &dyn Files, folder: &Path) -> io::Result<Vec<Finding>> {
    let entries = match files.list(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.into_iter().map(|entry| entry.name).filter(|name| !name.ends_with(UNFINISHED));
    let damaged = names.filter(|name| group_of(name).is_none() || load(files, &folder.join(name)).is_none());
    Ok(damaged.map(|name| Finding::Group { file: folder.join(name) }).collect())
}

/// The group that a file of this name is of.
fn group_of(file: &str) -> Option<&str> {
    file.strip_suffix(ENDING).filter(|name| is_file_name(name))
}

fn text(offsets: &Offsets) -> String {
    let members: Vec<String> =
        offsets.iter().map(|(partition, offset)| format!("\"{partition}\":{offset}")).collect();
    format!("{{{}}}\n", members.join(","))
}

fn load(files: &dyn Files, path: &Path) -> Option<Offsets> {
    let offsets: Offsets = serde_json::from_slice(&read_small(files, path, MAX_BYTES).ok()?).ok()?;
    // The next line's offset would be beyond it: a log counts no further than names of segments do.
    offsets.values().all(|offset| *offset <= LAST_FIRST_OFFSET).then_some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leaves_the_folder_is_refused() {
        for name in ["", ".", "..", ".hidden", "a/b", "a\\b", "a b", "ä", &"a".repeat(65)] {
            assert!(!is_group_name(name), "{name}");
            assert_eq!(is_file_name(name), name.len() == 65, "{name}");
        }
        for name in ["a", "forwarder-1", "team.alerts", &"a".repeat(64)] {
            assert!(is_group_name(name), "{name}");
        }
    }

    #[test]
    fn offsets_are_read_as_they_are_written() {
        let offsets = Offsets::from([(0, 12), (7, u64::MAX)]);
        assert_eq!(text(&offsets), "{\"0\":12,\"7\":18446744073709551615}\n");
        assert_eq!(serde_json::from_str::<Offsets>(&text(&offsets)).unwrap(), offsets);
    }
}
