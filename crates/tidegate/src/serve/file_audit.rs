//! Changes of the configuration file in the audit log: when, at which machine, from what, to what.
//!
//! ```text
//!   start, reload ──> what the file declares ──differs from──> what was last recorded, in the data directory
//!                              |                                   ^
//!                              `─> one row of the audit log ─then──'
//! ```
//!
//! The last record is kept beside the stored configuration, so that a change of the file while no process runs is recorded at
//! the next start. The first start of a data directory records nothing: there is nothing before. The row has what differs, up
//! to [`MAX_BYTES`]; it is written even if nothing that may be shown does, since tokens, listeners and comments are part of the
//! file.
//!
//! Each node records its own file. While the database is away it is tried again, and what was recorded last stays, so that no
//! change is lost: several may become one row then. A crash between the row and the record writes the row again. A record that
//! cannot be read counts as absent, which the log says: changes since it was written get no row.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidegate_control::{Author, Change, ChangeError, Configuration, Error, replace_file};
use tidegate_net::clock::wall;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::config::Loaded;
use crate::config::watch::State;

/// In the data directory: what the file declared when that was last recorded.
const RECORDED_FILE: &str = "file-recorded.json";
/// The author of such a change in the audit log: whoever may write the file.
const ACTOR: &str = "file";
/// Most of what differs that a row has, as JSON before and after together; the audit log takes 64 KiB.
const MAX_BYTES: usize = 48 << 10;
/// The largest record that is read. What a file may have is a fraction of it.
const MAX_RECORDED_BYTES: u64 = 64 << 20;
/// Until a row that could not be stored is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// What was recorded last.
#[derive(Serialize, Deserialize)]
struct Recorded {
    /// Of the file's bytes.
    digest: String,
    declared: Value,
}

/// Records what the file declares now and whenever it is read again, for as long as it is polled.
pub async fn record_file(configuration: &Configuration, data_dir: &Path, mut state: watch::Receiver<State>) {
    let place = data_dir.join(RECORDED_FILE);
    loop {
        let loaded = Arc::clone(&state.borrow_and_update().loaded);
        while !record(configuration, &place, &loaded).await {
            sleep(RETRY).await;
        }
        if state.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// False: try again.
async fn record(configuration: &Configuration, place: &Path, loaded: &Arc<Loaded>) -> bool {
    let Some((path, digest)) = loaded.read_from() else { return true };
    let (kept_at, now) = (place.to_owned(), Arc::clone(loaded));
    // On a thread of its own: a large file takes long to compare, and signals are heard on this one.
    let compared = tokio::task::spawn_blocking(move || compare(&kept_at, digest, &now)).await;
    let Ok(Some((next, differs))) = compared else { return true };
    if let Some((before, after)) = differs {
        let change = Change::record_file(path, &before, &after);
        let author = Author { actor: ACTOR.to_owned(), at: wall(), from: machine() };
        match configuration.change(change, author).await {
            Ok(_) => {}
            Err(ChangeError::Control(error)) if matches!(*error, Error::Invalid { .. }) => {
                // It would be refused each time, and no later change would be recorded.
                tracing::error!(%error, "the change of the file cannot be written to the audit log");
            }
            Err(error) => {
                tracing::warn!(%error, "the change of the file is not in the audit log yet: it is tried again");
                return false;
            }
        }
    }
    let kept_at = place.to_owned();
    let keep =
        move || replace_file(&kept_at, |out| serde_json::to_writer(out, &next).map_err(io::Error::from));
    if let Ok(Err(error)) = tokio::task::spawn_blocking(keep).await {
        tracing::warn!(%error, path = %place.display(), "the file's declarations cannot be recorded for the audit log");
    }
    true
}

/// What a row of the audit log has before and after.
type Differs = (Value, Value);

/// What is to be recorded, and how it differs from what was recorded last, if something was; `None`: it is the same file.
fn compare(place: &Path, digest: String, loaded: &Loaded) -> Option<(Recorded, Option<Differs>)> {
    let last = read(place).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %place.display(), "the record of what the file declared cannot be read: changes of the file since then are not in the audit log");
        None
    });
    if last.as_ref().is_some_and(|last| last.digest == digest) {
        return None;
    }
    let next = Recorded { digest, declared: loaded.declared() };
    let differs = last.map(|last| difference(&last.declared, &next.declared));
    Some((next, differs))
}

/// What differs of two files: of each kind, by name.
fn difference(before: &Value, after: &Value) -> (Value, Value) {
    let of = |file: &Value| file.as_object().cloned().unwrap_or_default();
    let (old, new) = (of(before), of(after));
    let mut differs = [Map::new(), Map::new()];
    let (mut bytes, mut left_out) = (0, 0_u64);
    let mut kinds: Vec<&String> = old.keys().chain(new.keys()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let [was, is] = [&old, &new].map(|file| file.get(kind).and_then(Value::as_object));
        let mut names: Vec<&String> = was.into_iter().chain(is).flat_map(Map::keys).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let both = [was, is].map(|documents| documents.and_then(|documents| documents.get(name)));
            if both[0] == both[1] {
                continue;
            }
            let size: usize = both
                .iter()
                .flatten()
                .map(|value| kind.len() + name.len() + value.to_string().len() + 8)
                .sum();
            if bytes + size > MAX_BYTES {
                left_out += 1;
                continue;
            }
            bytes += size;
            for (side, value) in differs.iter_mut().zip(both) {
                if let Some(value) = value {
                    let of_kind = side.entry(kind.as_str()).or_insert_with(|| Value::Object(Map::new()));
                    of_kind[name] = value.clone();
                }
            }
        }
    }
    let [before, mut after] = differs;
    if left_out > 0 {
        after.insert("left_out".to_owned(), left_out.into());
    }
    (Value::Object(before), Value::Object(after))
}

/// The name of this machine.
pub(super) fn machine() -> Option<Arc<str>> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim()).filter(|name| !name.is_empty()).map(Arc::from)
}

/// What was recorded last, if something was.
fn read(place: &Path) -> io::Result<Option<Recorded>> {
    let mut bytes = Vec::new();
    match File::open(place) {
        Ok(file) => file.take(MAX_RECORDED_BYTES).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(serde_json::from_slice(&bytes)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_said_and_no_more_than_a_row_takes() {
        let old = json!({"setting": {"a": "1", "b": "2"}, "policy": {"p": {"limit": 1}, "gone": {}}});
        let new = json!({"setting": {"a": "1", "b": "3"}, "policy": {"p": {"limit": 1}}, "route": {"r": {"to": "u"}}});
        let (before, after) = difference(&old, &new);
        assert_eq!(before, json!({"setting": {"b": "2"}, "policy": {"gone": {}}}));
        assert_eq!(after, json!({"setting": {"b": "3"}, "route": {"r": {"to": "u"}}}));
        assert_eq!(difference(&old, &old), (json!({}), json!({})));

        let many: Map<String, Value> =
            (0..5_000).map(|n| (format!("policy-{n}"), json!({"limit": n}))).collect();
        let (before, after) = difference(&json!({}), &json!({"policy": many}));
        assert_eq!(before, json!({}));
        let shown = after["policy"].as_object().unwrap().len();
        assert_eq!(after["left_out"], 5_000 - shown);
        assert!((500..5_000).contains(&shown), "{shown}");
        assert!(after.to_string().len() < 64 << 10);
    }
}
