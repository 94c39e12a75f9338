//! Reports of the tester in the data folder: those of runs that were started here, and what was put beside them.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde_json::{Value, json};

/// Most reports that are listed.
const MAX_LISTED: usize = 200;
/// Most entries of the folder that are looked at.
const MAX_SEEN: usize = 10_000;
/// Largest report that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// What reports of runs that were started here begin with.
const OWN: &str = "run-";

/// Whether this is a report's name, which leads nowhere but into the folder.
fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= 128 && name.ends_with(".json") && !name.starts_with('.') && name.bytes().all(allowed)
}

/// The reports, the newest first: name, bytes and when it was written.
pub(super) fn list(folder: &Path) -> Vec<Value> {
    let mut found = found(folder);
    found.sort_by(|a, b| (b.at_ms, &b.name).cmp(&(a.at_ms, &a.name)));
    let listed = found.into_iter().take(MAX_LISTED);
    listed.map(|it| json!({ "name": it.name, "bytes": it.bytes, "at_unix_ms": it.at_ms })).collect()
}

struct FoundReport {
    name: String,
    bytes: u64,
    at_ms: u64,
}

/// All of them; a folder that is not there has none. A run under way has an empty file, which is no report yet.
fn found(folder: &Path) -> Vec<FoundReport> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_SEEN).flatten();
    let report = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| is_name(name))?;
        // Of the entry itself: a link is no report.
        let known = entry.metadata().ok().filter(|known| known.is_file() && known.len() > 0)?;
        let since = known.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(FoundReport { name, bytes: known.len(), at_ms: u64::try_from(since.as_millis()).ok()? })
    };
    entries.filter_map(report).collect()
}

/// One of them.
pub(super) fn read(folder: &Path, name: &str) -> Option<String> {
    let path = folder.join(Some(name).filter(|name| is_name(name))?);
    if !fs::symlink_metadata(&path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    let read = File::open(path).ok()?.take(MAX_BYTES + 1).read_to_string(&mut text).ok()?;
    (read as u64 <= MAX_BYTES).then_some(text)
}

/// Makes the folder, and room in it for one more: the oldest of the runs that were started here go. What somebody put
/// there stays.
///
/// # Errors
/// When the folder cannot be made, or a report not be removed.
pub(super) fn make_room(folder: &Path, most: usize) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut own: Vec<_> = found(folder).into_iter().filter(|it| it.name.starts_with(OWN)).collect();
    own.sort_by(|a, b| (b.at_ms, &b.name).cmp(&(a.at_ms, &a.name)));
    own.iter().skip(most.saturating_sub(1)).try_for_each(|old| fs::remove_file(folder.join(&old.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_listed_read_and_bounded_and_nothing_else_is() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("saturation");
        assert!(list(&folder).is_empty());
        make_room(&folder, 3).unwrap();
        fs::write(scratch.path().join("secret.json"), "{}").unwrap();
        std::os::unix::fs::symlink("../secret.json", folder.join("link.json")).unwrap();
        for name in ["run-1.json", "run-2.json", "run-3.json", "mine.json", ".hidden.json", "note.txt"] {
            fs::write(folder.join(name), "{}").unwrap();
        }
        fs::write(folder.join("run-4.json"), "").unwrap();
        let names = || {
            let mut names: Vec<_> =
                list(&folder).iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["mine.json", "run-1.json", "run-2.json", "run-3.json"]);
        assert_eq!(read(&folder, "mine.json").as_deref(), Some("{}"));
        for name in ["link.json", "../secret.json", "..", "", ".hidden.json", "note.txt", "none.json"] {
            assert_eq!(read(&folder, name), None, "{name}");
        }
        make_room(&folder, 3).unwrap();
        assert_eq!(names().len(), 3);
        assert!(names().contains(&"mine.json".to_owned()));
    }
}
