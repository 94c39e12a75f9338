//! The configuration of one process: the SQLite file of a data directory, and connections to it.
//!
//! One connection writes; a second one reads the audit log, so that a long page of it does not
//! hold up a change.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::counts::{self, Added, Batch, Period, Sums};
use crate::database::DataDir;
use crate::document::{Accepted, Altered, AuditRow, Kind, Revision};
use crate::error::Error;
use crate::secrets::{Secret, SecretUpdate};
use crate::snapshot::Snapshot;
use crate::uses::{self, Use};

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
        let outcome = self.dir.commit(&mut self.writer.lock(), accepted, audit_rows);
        if self.is_writable.swap(outcome.is_ok(), Ordering::Relaxed)
            && let Err(error) = &outcome
        {
            tracing::error!(%error, "the configuration cannot be changed");
        }
        outcome
    }

    /// All secrets, by name.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn secrets(&self) -> Result<Vec<Secret>, Error> {
        self.dir.secrets(&self.writer.lock())
    }

    /// Puts a secret in the place of the known version; its version then.
    ///
    /// # Errors
    /// [`Error::Moved`], [`Error::Full`], [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn put_secret(&self, update: SecretUpdate<'_>) -> Result<u64, Error> {
        self.dir.put_secret(&mut self.writer.lock(), update)?.into_version()
    }

    /// Adds a batch of counted requests.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn add_counts(&self, batch: &Batch, now: u64) -> Result<Added, Error> {
        counts::write(&mut self.writer.lock(), batch, now).map_err(|source| self.dir.failed(source))
    }

    /// Keeps when documents were last of use.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn keep_uses(&self, kind: Kind, uses: &[Use]) -> Result<(), Error> {
        uses::write(&mut self.writer.lock(), kind, uses).map_err(|source| self.dir.failed(source))
    }

    /// What is kept of documents that were of use in this second or later.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn uses(&self, kind: Kind, since: u64) -> Result<Vec<Use>, Error> {
        uses::read(&self.reader.lock(), kind, since).map_err(|source| self.dir.failed(source))
    }

    /// All sums of a period, and the number of the writer's last batch.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn read_counts<A: Default>(
        &self,
        period: Period,
        writer: u64,
        add: impl Fn(&mut A, u64, &str, &Sums),
    ) -> Result<(A, u64), Error> {
        self.dir.read_counts(&mut self.reader.lock(), period, writer, add)
    }

    /// What is on the disk.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn load(&self) -> Result<Snapshot, Error> {
        self.dir.load(&self.writer.lock())
    }

    /// At most `limit` audit rows after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn audit(&self, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.dir.audit(&self.reader.lock(), after, limit)
    }

    /// What documents of this kind were before their first change after this revision.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn first_before(
        &self,
        after: Revision,
        kind: Kind,
    ) -> Result<Vec<(String, Option<String>)>, Error> {
        self.dir.first_before(&self.reader.lock(), after, kind)
    }

    /// Oldest and newest revision of the audit log.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn revisions(&self) -> Result<Option<(Revision, Revision)>, Error> {
        self.dir.revisions(&self.reader.lock())
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
