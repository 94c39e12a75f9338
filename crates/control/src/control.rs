//! The handle that services and the admin API hold.
//!
//! A change is decided on the newest snapshot (pure), written in one transaction, and only then
//! published to watchers, all under the writer's lock: watchers see revisions in order, and never
//! one that a crash could take back. Reading never touches the disk.
//!
//! Every method blocks for at most a transaction, and must not be called on an asynchronous
//! thread when it writes; [`Control::run`] moves it to a blocking one.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};

use crate::database::{Accepted, AuditRow, DataDir};
use crate::document::{Author, Change, Document, Kind, Precondition, Revision};
use crate::error::Error;
use crate::snapshot::Snapshot;

/// Calls of [`Control::run`] that may occupy a blocking thread at once; others wait their turn.
const BLOCKING_CALLS: usize = 4;

/// How much may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Documents of all kinds together.
    pub documents: usize,
    /// Bytes of one body.
    pub body_bytes: usize,
    /// Bytes of all names and bodies together: they are all held in memory.
    pub total_bytes: usize,
    /// Audit rows kept, at least 1; older ones are pruned.
    pub audit_rows: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { documents: 100_000, body_bytes: 64 << 10, total_bytes: 256 << 20, audit_rows: 1_000_000 }
    }
}

/// How much is stored, for the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Documents of all kinds together.
    pub documents: usize,
    /// Bytes of all names and bodies.
    pub bytes: usize,
    /// Audit rows in the database.
    pub audit_rows: u64,
    /// Audit rows ever pruned.
    pub audit_pruned: u64,
}

/// The configuration of one data directory. Clones share it; the last one to go closes it.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    newest: watch::Sender<Arc<Snapshot>>,
    blocking: Arc<Semaphore>,
    // Last, so that the connections are closed before the lock is given up.
    dir: DataDir,
}

impl Control {
    /// Opens the configuration in `path`, creating the directory if it is missing.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Newer`], [`Error::Corrupt`], [`Error::Io`] or
    /// [`Error::Database`]. The database is left as it was found.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, Error> {
        let limits = Limits { audit_rows: limits.audit_rows.max(1), ..limits };
        let dir = DataDir::open(path)?;
        let writer = dir.writer()?;
        let reader = dir.reader()?;
        let newest = watch::Sender::new(Arc::new(dir.load(&writer)?));
        let blocking = Arc::new(Semaphore::new(BLOCKING_CALLS));
        let (writer, reader) = (Mutex::new(writer), Mutex::new(reader));
        Ok(Self { shared: Arc::new(Shared { limits, writer, reader, newest, blocking, dir }) })
    }

    /// Every document at the newest revision. Never blocks on the disk.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.newest.borrow().clone()
    }

    /// The newest snapshot, and a wake-up for each later one (a slow watcher skips to the newest).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.newest.subscribe()
    }

    /// One document. Never blocks on the disk.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &str) -> Option<Document> {
        self.shared.newest.borrow().get(kind, name).cloned()
    }

    /// Creates or replaces a document.
    ///
    /// # Errors
    /// As [`Control::apply`].
    pub fn put(
        &self,
        (kind, name): (Kind, &str),
        body: &str,
        precondition: Precondition,
        author: &Author,
    ) -> Result<Revision, Error> {
        self.apply(&[Change::put(kind, name, body).when(precondition)], author)
    }

    /// Removes a document.
    ///
    /// # Errors
    /// As [`Control::apply`]; [`Error::NotFound`] if there is none.
    pub fn delete(
        &self,
        (kind, name): (Kind, &str),
        precondition: Precondition,
        author: &Author,
    ) -> Result<Revision, Error> {
        self.apply(&[Change::delete(kind, name).when(precondition)], author)
    }

    /// Makes all changes, in order, or none. Each makes one revision; the last one is returned.
    /// When this returns, the changes are on the disk.
    ///
    /// # Errors
    /// Of the first change that is refused: [`Error::Invalid`], [`Error::PreconditionFailed`],
    /// [`Error::NotFound`] or [`Error::Full`]; of the whole: [`Error::TooManyChanges`] or
    /// [`Error::InvalidActor`]; of the disk: [`Error::Database`] or [`Error::Corrupt`].
    pub fn apply(&self, changes: &[Change], author: &Author) -> Result<Revision, Error> {
        if changes.len() > crate::MAX_CHANGES {
            return Err(Error::TooManyChanges { count: changes.len() });
        }
        if author.actor.is_empty() || author.actor.len() > crate::MAX_ACTOR_BYTES {
            return Err(Error::InvalidActor { bytes: author.actor.len() });
        }
        let shared = &*self.shared;
        let mut writer = lock(&shared.writer);
        let mut next = Snapshot::clone(&self.snapshot());
        let mut accepted = Vec::with_capacity(changes.len());
        for change in changes {
            let before = next.apply(change, &shared.limits)?;
            accepted.push(Accepted { change, revision: next.revision(), before });
        }
        let newest = next.revision();
        if accepted.is_empty() {
            return Ok(newest);
        }
        match shared.dir.commit(&mut writer, &accepted, author, shared.limits.audit_rows) {
            Ok(()) => {
                shared.newest.send_replace(Arc::new(next));
                Ok(newest)
            }
            Err(error) => {
                self.resynchronise(&writer);
                Err(error)
            }
        }
    }

    /// At most `limit` audit rows (capped at [`crate::MAX_AUDIT_PAGE`]) after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub fn audit(&self, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
        let limit = limit.min(crate::MAX_AUDIT_PAGE);
        self.shared.dir.audit(&lock(&self.shared.reader), after, limit)
    }

    /// How much is stored.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub fn usage(&self) -> Result<Usage, Error> {
        let revisions = self.shared.dir.revisions(&lock(&self.shared.reader))?;
        let snapshot = self.snapshot();
        Ok(Usage {
            documents: snapshot.len(),
            bytes: snapshot.bytes(),
            audit_rows: revisions.map_or(0, |(oldest, newest)| newest.0 - oldest.0 + 1),
            audit_pruned: revisions.map_or(0, |(oldest, _)| oldest.0 - 1),
        })
    }

    /// Runs a blocking call on a thread that may block. If the caller goes away before the answer,
    /// the call is still made.
    ///
    /// # Errors
    /// Those of `call`; [`Error::Stopped`] if the runtime is shutting down.
    ///
    /// # Panics
    /// If `call` does.
    pub async fn run<T, F>(&self, call: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    {
        let permit = self.shared.blocking.clone().acquire_owned().await.map_err(|_closed| Error::Stopped)?;
        let this = self.clone();
        let blocking = move || {
            let result = call(&this);
            drop(permit);
            result
        };
        match tokio::task::spawn_blocking(blocking).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => Err(Error::Stopped),
            },
        }
    }

    /// After a failed commit, what is on the disk decides. If it cannot be read either, the next
    /// change fails on the audit log's primary key instead of diverging from it.
    fn resynchronise(&self, writer: &Connection) {
        if let Ok(stored) = self.shared.dir.load(writer)
            && stored.revision() != self.snapshot().revision()
        {
            self.shared.newest.send_replace(Arc::new(stored));
        }
    }
}

/// A panic under the lock leaves nothing half done: a transaction is rolled back when dropped.
fn lock(mutex: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
