//! The configuration of one process: the SQLite file of a data directory, and connections to it.
//!
//! One connection writes; a second one reads the audit log, so that a long page of it does not
//! hold up a change.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use crate::database::DataDir;
use crate::document::{Accepted, Altered, AuditRow, Revision};
use crate::error::Error;
use crate::snapshot::Snapshot;

/// A data directory in use.
#[derive(Debug)]
pub(crate) struct Local {
    // Before the writer, so that it is closed first: only the last connection moves the log into the
    // database, and one that only reads cannot.
    reader: Mutex<Connection>,
    writer: Mutex<Connection>,
    /// Whether the database took the last change.
    is_writable: AtomicBool,
    /// What was found at the start.
    altered: Vec<Altered>,
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
        let mut writer = dir.writer()?;
        let reader = dir.reader()?;
        let snapshot = dir.load(&writer)?;
        let is_writable = AtomicBool::new(try_out(&dir, &mut writer, snapshot.revision()));
        let altered = dir.altered(&reader).unwrap_or_else(|error| {
            tracing::error!(%error, "the audit log cannot be read, so documents are not compared with it");
            Vec::new()
        });
        let (writer, reader) = (Mutex::new(writer), Mutex::new(reader));
        Ok((Self { writer, reader, is_writable, altered, dir }, snapshot))
    }

    /// Whether the database took the last change, or would have at the start.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Relaxed)
    }

    /// Documents that were not what the audit log says, when they were loaded.
    pub(crate) fn altered(&self) -> &[Altered] {
        &self.altered
    }

    /// Writes accepted changes in one transaction.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn commit(&self, accepted: &[Accepted], audit_rows: u64) -> Result<(), Error> {
        let outcome = self.dir.commit(&mut lock(&self.writer), accepted, audit_rows);
        if self.is_writable.swap(outcome.is_ok(), Ordering::Relaxed)
            && let Err(error) = &outcome
        {
            tracing::error!(%error, "the configuration cannot be changed");
        }
        outcome
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

/// Whether a change would be taken. A page that is damaged may be one that only changes touch.
fn try_out(dir: &DataDir, writer: &mut Connection, newest: Revision) -> bool {
    let outcome = dir.try_out(writer, newest);
    if let Err(error) = &outcome {
        tracing::error!(%error, "the configuration cannot be changed");
    }
    outcome.is_ok()
}

/// A panic under the lock leaves nothing half done: a transaction is rolled back when dropped.
fn lock(mutex: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
