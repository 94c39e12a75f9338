//! The configuration of one process: the SQLite file of a data directory, and connections to it.
//!
//! One connection writes; a second one reads the audit log, so that a long page of it does not
//! hold up a change.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use crate::database::DataDir;
use crate::document::{Accepted, AuditRow, Author, Revision};
use crate::error::Error;
use crate::snapshot::Snapshot;

/// A data directory in use.
#[derive(Debug)]
pub(crate) struct Local {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
    // Last, so that the connections are closed before the lock is given up.
    dir: DataDir,
}

impl Local {
    /// Opens the directory, creating it if it is missing, and loads what it holds.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Newer`], [`Error::Corrupt`], [`Error::Io`] or
    /// [`Error::Database`]. The database is left as it was found.
    pub(crate) fn open(path: &Path) -> Result<(Self, Snapshot), Error> {
        let dir = DataDir::open(path)?;
        let writer = dir.writer()?;
        let reader = dir.reader()?;
        let snapshot = dir.load(&writer)?;
        Ok((Self { writer: Mutex::new(writer), reader: Mutex::new(reader), dir }, snapshot))
    }

    /// Writes accepted changes in one transaction.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn commit(
        &self,
        accepted: &[Accepted<'_>],
        author: &Author,
        audit_rows: u64,
    ) -> Result<(), Error> {
        self.dir.commit(&mut lock(&self.writer), accepted, author, audit_rows)
    }

    /// What is on the disk.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn load(&self) -> Result<Snapshot, Error> {
        self.dir.load(&lock(&self.writer))
    }

    /// At most `limit` audit rows after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn audit(&self, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.dir.audit(&lock(&self.reader), after, limit)
    }

    /// Oldest and newest revision of the audit log.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn revisions(&self) -> Result<Option<(Revision, Revision)>, Error> {
        self.dir.revisions(&lock(&self.reader))
    }
}

/// A panic under the lock leaves nothing half done: a transaction is rolled back when dropped.
fn lock(mutex: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
