//! The SQLite file: opening, migrating, loading, and writing one transaction.
//!
//! Write-ahead log with `synchronous = FULL`: a commit returns when the disk has it, so an acknowledged change survives
//! `kill -9` and power loss. A lock file, not SQLite's own lock, keeps a second process away: SQLite would let both work, and
//! each would decide on a snapshot that the other has outdated.
//!
//! Revisions are the audit table's primary key and consecutive: a lost race or a torn history shows as a key conflict.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};

use crate::asked_from;
use crate::counts::{self, Period, Sums};
use crate::document::{Accepted, Altered, AuditRow, Kind, Revision};
use crate::error::Error;
use crate::secrets::{self, Secret, SecretUpdate, Written};
use crate::snapshot::Snapshot;
use crate::statements::{
    altered, audit_row, document, first_before, revisions, signed, write_audit, write_document,
};
use crate::uses;

/// The file's name inside the data directory.
pub const DATABASE_FILE: &str = "control.sqlite";

/// The file that a running process holds locked.
pub const LOCK_FILE: &str = "lock";

/// How long a connection waits for SQLite's own short locks.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// "TIDE": marks the file as ours.
const APPLICATION_ID: i64 = 0x5449_4445;

/// Schema changes, oldest first. The n-th brings `user_version` to n and never changes again.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE document (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        body TEXT NOT NULL,
        revision INTEGER NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE audit (
        revision INTEGER PRIMARY KEY,
        at_nanos INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        before TEXT,
        after TEXT
    ) STRICT;
",
    secrets::TABLE,
    counts::TABLES,
    asked_from::COLUMN,
    uses::TABLE,
];

/// The data directory, owned by this process for as long as the value lives.
#[derive(Debug)]
pub(crate) struct DataDir {
    database: PathBuf,
    /// `None` if the directory is only looked at.
    lock: Option<File>,
}

/// Says so when it is over. Closing alone would not always do: a child process that another thread has
/// just forked, and that has not yet become its own program, holds a copy of the descriptor and with it
/// the lock.
impl Drop for DataDir {
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked by closing it.
        let _closed_instead = self.lock.as_ref().map(File::unlock);
    }
}

impl DataDir {
    /// Creates the directory (mode 0700) and the database file (0600) if they are missing, and
    /// takes the lock.
    ///
    /// # Errors
    /// [`Error::InUse`] or [`Error::Io`].
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed(path))?;
        let lock_path = path.join(LOCK_FILE);
        let lock = private_file(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => return Err(failed(&lock_path)(source)),
        }
        let database = path.join(DATABASE_FILE);
        private_file(&database).map_err(failed(&database))?;
        File::open(path).and_then(|directory| directory.sync_all()).map_err(failed(path))?;
        Ok(Self { database, lock: Some(lock) })
    }

    /// The same directory for a look, whoever owns it; nothing is created in it. `None` if there is no
    /// database.
    pub(crate) fn beside(path: &Path) -> Option<Self> {
        let database = path.join(DATABASE_FILE);
        database.exists().then_some(Self { database, lock: None })
    }

    /// What is stored, if this program knows the schema.
    ///
    /// # Errors
    /// [`Error::Newer`], [`Error::Corrupt`] or [`Error::Database`].
    pub(crate) fn look(&self) -> Result<Snapshot, Error> {
        let connection = self.reader()?;
        let version: i64 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(|source| self.failed(source))?;
        let supported = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        match version {
            // Made by a process that has not yet written anything.
            0 => Ok(Snapshot::default()),
            _ if version > supported => {
                Err(Error::Newer { path: self.database.clone(), found: version, supported })
            }
            _ => self.load(&connection),
        }
    }

    /// The connection that writes, with the schema brought up to date.
    ///
    /// # Errors
    /// [`Error::Newer`], [`Error::Corrupt`] or [`Error::Database`].
    pub(crate) fn writer(&self) -> Result<Connection, Error> {
        let mut connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        self.migrate(&mut connection)?;
        Ok(connection)
    }

    /// A connection that only reads.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Database`].
    pub(crate) fn reader(&self) -> Result<Connection, Error> {
        self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection, Error> {
        let open = || {
            let connection =
                Connection::open_with_flags(&self.database, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            if flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE) {
                connection.execute_batch(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
                     PRAGMA journal_size_limit = 67108864;",
                )?;
            }
            Ok(connection)
        };
        open().map_err(|source| self.failed(source))
    }

    fn migrate(&self, connection: &mut Connection) -> Result<(), Error> {
        let newest = MIGRATIONS.len();
        let pragma = |name| {
            connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map_err(|source| self.failed(source))
        };
        let found = pragma("user_version")?;
        let owner = pragma("application_id")?;
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(|source| self.failed(source))?;
        if owner != APPLICATION_ID && (owner, found, tables) != (0, 0, 0) {
            return Err(self.corrupt("another program's SQLite database"));
        }
        let Some(pending) = usize::try_from(found).ok().and_then(|done| MIGRATIONS.get(done..)) else {
            let supported = i64::try_from(newest).unwrap_or(i64::MAX);
            return Err(Error::Newer { path: self.database.clone(), found, supported });
        };
        for (version, migration) in (found + 1..).zip(pending) {
            step(connection, version, migration).map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    /// Reads every document, after SQLite has checked the table they are in. The audit log is not
    /// checked: it may be gigabytes, and nothing is decided from it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] or [`Error::Database`].
    pub(crate) fn load(&self, connection: &Connection) -> Result<Snapshot, Error> {
        let read = || {
            let verdict: String =
                connection.query_row("PRAGMA quick_check('document')", [], |row| row.get(0))?;
            if verdict != "ok" {
                return Ok(Err(verdict));
            }
            let revision = revisions(connection)?.map_or(Revision(0), |(_, newest)| newest);
            let mut select = connection.prepare("SELECT kind, name, body, revision FROM document")?;
            let documents = select.query_map([], document)?.collect::<Result<Vec<_>, _>>()?;
            let ahead = documents.iter().find(|document| document.revision > revision);
            Ok(match ahead {
                Some(document) => Err(format!("{} is ahead of the audit log", document.revision)),
                None => Ok(Snapshot::restore(revision, documents)),
            })
        };
        read().map_err(|source| self.failed(source))?.map_err(|reason| self.corrupt(&reason))
    }

    /// Writes accepted changes and their audit rows in one transaction, and prunes the audit log
    /// to `audit_rows`.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn commit(
        &self,
        connection: &mut Connection,
        accepted: &[Accepted],
        audit_rows: u64,
    ) -> Result<(), Error> {
        let mut write = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for one in accepted {
                write_document(&transaction, one)?;
                write_audit(&transaction, one)?;
            }
            if let Some(newest) = accepted.last() {
                let pruned = signed(newest.revision.0.saturating_sub(audit_rows));
                transaction.prepare("DELETE FROM audit WHERE revision <= ?")?.execute([pruned])?;
            }
            transaction.commit()
        };
        write().map_err(|source| self.failed(source))
    }

    /// Whether the next change could be written, found out by writing one and taking it back.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]: it could not.
    pub(crate) fn try_out(&self, connection: &mut Connection, newest: Revision) -> Result<(), Error> {
        let mut write = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let insert = "INSERT INTO audit (revision, at_nanos, actor, action, kind, name) VALUES (?, 0, '', '', '', '')";
            transaction.prepare(insert)?.execute([signed(newest.next().0)])?;
            transaction.rollback()
        };
        write().map_err(|source| self.failed(source))
    }

    /// The documents that are not what the audit log says of their revisions. SQLite has no checksums: a
    /// bit that flips in a body shows nowhere else. Rows that were pruned cannot be compared.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]: the audit log cannot be read.
    pub(crate) fn altered(&self, connection: &Connection) -> Result<Vec<Altered>, Error> {
        altered(connection).map_err(|source| self.failed(source))
    }

    /// At most `limit` audit rows after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn audit(
        &self,
        connection: &Connection,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<AuditRow>, Error> {
        let read = || {
            connection
                .prepare(
                    "SELECT revision, at_nanos, actor, action, kind, name, before, after, asked_from
                     FROM audit WHERE revision > ? ORDER BY revision LIMIT ?",
                )?
                .query_map(params![signed(after.0), signed(limit as u64)], audit_row)?
                .collect::<rusqlite::Result<_>>()
        };
        read().map_err(|source| self.failed(source))
    }

    /// What documents of this kind were before their first change after this revision.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn first_before(
        &self,
        connection: &Connection,
        after: Revision,
        kind: Kind,
    ) -> Result<Vec<(String, Option<String>)>, Error> {
        first_before(connection, after, kind).map_err(|source| self.failed(source))
    }

    /// Oldest and newest revision of the audit log.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn revisions(&self, connection: &Connection) -> Result<Option<(Revision, Revision)>, Error> {
        revisions(connection).map_err(|source| self.failed(source))
    }

    /// All secrets, by name.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn secrets(&self, connection: &Connection) -> Result<Vec<Secret>, Error> {
        secrets::read(connection).map_err(|source| self.failed(source))
    }

    /// Puts one in the place of the known version.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`]; then nothing was written.
    pub(crate) fn put_secret(
        &self,
        connection: &mut Connection,
        update: SecretUpdate<'_>,
    ) -> Result<Written, Error> {
        secrets::write(connection, update).map_err(|source| self.failed(source))
    }

    /// All sums of a period, and the number of the writer's last batch.
    ///
    /// # Errors
    /// [`Error::Database`] or [`Error::Corrupt`].
    pub(crate) fn read_counts<A: Default>(
        &self,
        connection: &mut Connection,
        period: Period,
        writer: u64,
        add: impl Fn(&mut A, u64, &str, &Sums),
    ) -> Result<(A, u64), Error> {
        counts::read(connection, period, writer, add).map_err(|source| self.failed(source))
    }

    fn corrupt(&self, reason: &str) -> Error {
        Error::Corrupt { path: self.database.clone(), reason: reason.to_owned() }
    }

    pub(crate) fn failed(&self, source: rusqlite::Error) -> Error {
        let damaged =
            matches!(source.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
                || matches!(source, rusqlite::Error::FromSqlConversionFailure(..));
        if damaged {
            self.corrupt(&source.to_string())
        } else {
            Error::Database { path: self.database.clone(), source }
        }
    }
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn step(connection: &mut Connection, version: i64, migration: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(migration)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::DataDir;

    #[test]
    fn a_copy_of_the_descriptor_does_not_keep_the_lock() {
        let scratch = tempfile::tempdir().unwrap();
        let owner = DataDir::open(scratch.path()).unwrap();
        let copy_in_a_forked_child = owner.lock.as_ref().unwrap().try_clone().unwrap();
        DataDir::open(scratch.path()).unwrap_err();
        drop(owner);
        DataDir::open(scratch.path()).unwrap();
        drop(copy_in_a_forked_child);
    }
}
