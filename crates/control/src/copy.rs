//! This node's copy of the last good revision of a shared configuration: what it starts from while
//! the database is away.
//!
//! ```text
//!   watchers' newest snapshot --at most once per PAUSE--> control-copy.json.<pid> --rename--> control-copy.json
//!                                                                                                |
//!   start, database away <---------------------- checked: ours, whole, of this database ---------'
//! ```
//!
//! Why a file of JSON and not the local database: a copy is replaced whole, has no history, and is
//! never changed in place, so nothing in it can disagree with itself. It holds the revision, the
//! documents, and the address of the database that they are of: a node that is pointed at another
//! database must not serve the old one's policies. No user and no password are in it.
//!
//! Invariants: the file is written beside, synced and renamed, so that a crash leaves the old copy
//! or the new one; only its owner can read it; nodes that share a data directory write files of
//! their own beside, so that they replace each other's copy whole.
//!
//! A copy may lag behind what is in force by [`PAUSE`] and the time to write it. It is a cache: what
//! was answered 200 is in the database.
//!
//! Deliberately absent: changes while the database is away, which would be another history.

use std::borrow::Cow;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::document::{Document, Kind, Revision};
use crate::error::CopyError;
use crate::replace::replace_file;
use crate::snapshot::{History, Snapshot};

/// The copy's file name inside the data directory.
pub const COPY_FILE: &str = "control-copy.json";

/// What this version writes and reads.
const FORMAT: u32 = 1;
/// Largest file that is read: the bytes of all documents twice over, and their names.
const MAX_BYTES: u64 = 1 << 30;
/// Between two copies.
const PAUSE: Duration = Duration::from_secs(1);
/// Until a copy that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Where the copy of one database is.
#[derive(Clone, Debug)]
pub(crate) struct DocumentsCopy {
    path: PathBuf,
    database: String,
}

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Content<'a> {
    format: u32,
    database: Cow<'a, str>,
    revision: Revision,
    /// Absent from copies that an earlier version wrote: they are of another history than any.
    #[serde(default)]
    history: History,
    documents: Vec<CopiedDocument<'a>>,
}

#[derive(Serialize, Deserialize)]
struct CopiedDocument<'a> {
    kind: Kind,
    name: Cow<'a, str>,
    revision: Revision,
    body: Cow<'a, str>,
}

impl DocumentsCopy {
    /// The copy in `data_dir` of the database at this address.
    pub(crate) fn new(data_dir: &Path, database: String) -> Self {
        Self { path: data_dir.join(COPY_FILE), database }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it.
    ///
    /// # Errors
    /// Why it cannot be used. It is left as it is.
    pub(crate) fn load(&self) -> Result<Snapshot, CopyError> {
        let length = match fs::metadata(&self.path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(CopyError::Missing),
            Err(error) => return Err(error.into()),
        };
        if length > MAX_BYTES {
            return Err(CopyError::TooLarge(length));
        }
        let bytes = fs::read(&self.path)?;
        let content: Content<'_> = serde_json::from_slice(&bytes)?;
        if content.format != FORMAT {
            return Err(CopyError::Format { found: content.format, known: FORMAT });
        }
        if content.database != self.database {
            return Err(CopyError::Foreign(content.database.into_owned()));
        }
        let documents = content.documents.into_iter().map(|entry| Document {
            kind: entry.kind,
            name: Arc::from(&*entry.name),
            body: Arc::from(&*entry.body),
            revision: entry.revision,
        });
        Ok(Snapshot::restore(content.revision, documents).in_history(content.history))
    }

    /// Replaces it. Blocks until the disk has it.
    ///
    /// # Errors
    /// When it cannot be written; the old one then still stands.
    pub(crate) fn save(&self, snapshot: &Snapshot) -> Result<(), CopyError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let documents = snapshot.all().map(|document| CopiedDocument {
            kind: document.kind,
            name: Cow::Borrowed(&document.name),
            revision: document.revision,
            body: Cow::Borrowed(&document.body),
        });
        let content = Content {
            format: FORMAT,
            database: Cow::Borrowed(&self.database),
            revision: snapshot.revision(),
            history: snapshot.history(),
            documents: documents.collect(),
        };
        Ok(replace_file(&self.path, |out| serde_json::to_writer(out, &content).map_err(io::Error::from))?)
    }
}

/// Keeps `copy` up with what is in force until it is aborted. `saved` is what was read of it, `kept`
/// the revision in it.
pub(crate) async fn keep(
    copy: DocumentsCopy,
    saved: Option<Snapshot>,
    mut newest: watch::Receiver<Arc<Snapshot>>,
    kept: Arc<AtomicU64>,
) {
    let mut saved = saved.map(Arc::new);
    let mut is_failing = false;
    loop {
        let snapshot = newest.borrow_and_update().clone();
        if saved.as_ref() != Some(&snapshot) {
            let (to, what) = (copy.clone(), Arc::clone(&snapshot));
            match tokio::task::spawn_blocking(move || to.save(&what)).await {
                Ok(Ok(())) => {
                    kept.store(snapshot.revision().0, Ordering::Relaxed);
                    saved = Some(snapshot);
                    is_failing = false;
                }
                Ok(Err(error)) => {
                    // Once, until it works again: it is tried for as long as the process lives.
                    if !is_failing {
                        let path = copy.path().display();
                        tracing::warn!(%path, %error, "no copy of the stored configuration can be kept");
                    }
                    is_failing = true;
                }
                // The runtime is shutting down.
                Err(_) => return,
            }
        }
        sleep(PAUSE).await;
        let waiting = async {
            if is_failing {
                timeout(RETRY, newest.changed()).await.unwrap_or(Ok(()))
            } else {
                newest.changed().await
            }
        };
        if waiting.await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::document::Change;
    use crate::snapshot::Limits;

    fn snapshot(body: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (kind, name) in [("policy", "a \"b\"\n"), ("override", "ü"), ("other", "d")] {
            snapshot.apply(&Change::put(Kind::new(kind), name, body), &Limits::default()).unwrap();
        }
        snapshot
    }

    #[test]
    fn what_was_saved_is_read_again_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let copy = DocumentsCopy::new(&folder.path().join("made/for/it"), "h:1/d".to_owned());
        assert!(matches!(copy.load(), Err(CopyError::Missing)));
        for body in ["{\"limit\":1}", "{\"limit\" : 2.0}"] {
            copy.save(&snapshot(body)).unwrap();
            assert_eq!(copy.load().unwrap(), snapshot(body), "byte for byte");
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(copy.path()), mode(copy.path().parent().unwrap())), (0o600, 0o700));
        let files = fs::read_dir(copy.path().parent().unwrap()).unwrap().count();
        assert_eq!(files, 1, "nothing is left beside it");
    }

    #[test]
    fn a_copy_that_is_torn_or_of_another_database_or_version_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let copy = DocumentsCopy::new(folder.path(), "h:1/d".to_owned());
        copy.save(&snapshot("{}")).unwrap();
        let elsewhere = DocumentsCopy::new(folder.path(), "h:1/other".to_owned());
        assert!(matches!(elsewhere.load(), Err(CopyError::Foreign(of)) if of == "h:1/d"));
        let whole = fs::read(copy.path()).unwrap();
        for length in 0..whole.len() {
            fs::write(copy.path(), &whole[..length]).unwrap();
            assert!(matches!(copy.load(), Err(CopyError::Damaged(_))), "{length} bytes of it");
        }
        let text = String::from_utf8(whole).unwrap().replace("\"format\":1", "\"format\":2");
        fs::write(copy.path(), text).unwrap();
        assert!(matches!(copy.load(), Err(CopyError::Format { found: 2, .. })));
    }
}
