//! The crate's errors, named by what the caller can do about them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_algorithms::policy::Mistake;

use crate::document::{Kind, Precondition, Revision};

/// Why a change was refused, or why the database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else changed the document first: read it again (HTTP 412).
    #[error("{kind} {name:?} is {}, but the change expects {expected}", FoundRevision(*found))]
    PreconditionFailed {
        /// Kind of the document.
        kind: Kind,
        /// Name of the document.
        name: String,
        /// What the change asked for.
        expected: Precondition,
        /// The document's revision, if it exists.
        found: Option<Revision>,
    },
    /// Another change came first, so this one was decided on what is no longer newest: decide it
    /// again on that.
    #[error(
        "other nodes stored changes first, each time that it was tried; the newest revision is {newest}: try again"
    )]
    Moved {
        /// A revision that is newer.
        newest: Revision,
    },
    /// There is nothing of that name to delete (HTTP 404).
    #[error("there is no {kind} {name:?}")]
    NotFound {
        /// Kind of the document.
        kind: Kind,
        /// Name of the document.
        name: String,
    },
    /// The change itself is malformed (HTTP 422).
    #[error("{kind} {name:?}: {problem}")]
    Invalid {
        /// Kind of the document.
        kind: Kind,
        /// Name of the document.
        name: String,
        /// What is wrong and what is accepted.
        problem: Invalid,
    },
    /// The author's name is empty or too long (HTTP 422).
    #[error("the author's name has {bytes} bytes (accepted: 1 to {})", crate::MAX_ACTOR_BYTES)]
    InvalidActor {
        /// Length of the name.
        bytes: usize,
    },
    /// A limit of [`crate::Limits`] would be passed (HTTP 507): delete something first.
    #[error("{what} would pass {limit}")]
    Full {
        /// What the limit counts.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// More changes at once than [`crate::MAX_CHANGES`] (HTTP 413): split them.
    #[error("{count} changes at once (accepted: at most {})", crate::MAX_CHANGES)]
    TooManyChanges {
        /// How many there were.
        count: usize,
    },
    /// Another process works on this data directory.
    #[error("{} is in use by another tidegate process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The database was written by a newer version of this program.
    #[error("{} has schema {found}, this version knows up to {supported}: start the newer version", path.display())]
    Newer {
        /// The database file, or the schema's name in PostgreSQL.
        path: PathBuf,
        /// The schema that was found.
        found: i64,
        /// The newest schema that this program knows.
        supported: i64,
    },
    /// The file is not a sound database of this program. It is left as it is.
    #[error("{} is damaged or not a tidegate database ({reason}): move it away or restore a copy", path.display())]
    Corrupt {
        /// The database file, or the schema's name in PostgreSQL.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A directory or file cannot be used.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The database failed: disk full, an I/O error. Nothing was changed.
    #[error("{}: {source}", path.display())]
    Database {
        /// The database file.
        path: PathBuf,
        /// SQLite's answer.
        source: rusqlite::Error,
    },
    /// The shared database does not answer or refuses (HTTP 503). Nothing was changed, and what is in
    /// force stays so.
    #[error("the configuration database cannot be used now, and what is in force stays so: {reason}")]
    Unavailable {
        /// Its words, or the network's.
        reason: String,
    },
    /// The shared database is away at the start, and there is no copy of its last revision here.
    #[error(
        "the configuration database cannot be used now ({reason}), nor the copy of its last revision, {}: \
         {copy}",
        path.display()
    )]
    NothingToStartWith {
        /// The database's words, or the network's.
        reason: String,
        /// Where the copy would be.
        path: PathBuf,
        /// Why it is of no use.
        copy: CopyError,
    },
    /// The shared database did not answer in time (HTTP 503). Nothing was changed.
    #[error(
        "the configuration database did not answer within {:?}, and what is in force stays so",
        crate::OPERATION
    )]
    Late,
    /// The shared database was lost while it took a change (HTTP 503).
    #[error(
        "it is not known whether the change was made: read the document again before you repeat it: {reason}"
    )]
    Unknown {
        /// Its words, or the network's.
        reason: String,
    },
    /// The runtime is shutting down and did not wait for the answer.
    #[error("the configuration store is shutting down")]
    Stopped,
}

/// What is wrong with one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The name is empty or too long.
    #[error("the name has {bytes} bytes (accepted: 1 to {})", crate::MAX_NAME_BYTES)]
    Name {
        /// Length of the name.
        bytes: usize,
    },
    /// The body is too long.
    #[error("the body has {bytes} bytes (accepted: at most {limit})")]
    BodySize {
        /// Length of the body.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The body is not one JSON value.
    #[error("the body is not JSON: line {line}, column {column}")]
    BodySyntax {
        /// Line of the mistake, from 1.
        line: usize,
        /// Column of the mistake, from 1.
        column: usize,
    },
}

/// Why there is no copy to start from.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// None was ever written here.
    #[error("there is none")]
    Missing,
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Larger than any that is written.
    #[error("it has {0} bytes, more than a copy can have")]
    TooLarge(u64),
    /// Not what this version writes.
    #[error("it is damaged or of another version: {0}")]
    Damaged(#[from] serde_json::Error),
    /// Of a later or unknown format.
    #[error("it has format {found}, this version knows {known}")]
    Format {
        /// The file's.
        found: u32,
        /// What this version writes and reads.
        known: u32,
    },
    /// Of another database than the one that is configured.
    #[error("it is of another database, {0}")]
    Foreign(String),
}

/// Why the configuration was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Mend the document.
    #[error("the document has {} mistake{}", .0.len(), if .0.len() == 1 { "" } else { "s" })]
    Mistakes(Vec<Mistake>),
    /// The document stands in the configuration file: change it there.
    #[error("{kind} {name:?} is declared in the configuration file and cannot be deleted here")]
    DeclaredInFile {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Look at the file, and decide again.
    #[error("{kind} {name:?} has changed in the configuration file since")]
    FileChanged {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// Go back to one that has been.
    #[error("revision {wanted} has not been yet: the newest is {newest}")]
    NotThere {
        /// What was asked for.
        wanted: Revision,
        /// The newest one.
        newest: Revision,
    },
    /// Go back to a later one: what changed first is no longer known.
    #[error(
        "the audit log does not reach back to revision {wanted}: it has the changes after revision {oldest}"
    )]
    Pruned {
        /// What was asked for.
        wanted: Revision,
        /// The oldest that can be gone back to.
        oldest: Revision,
    },
    /// Look at what was changed since, and decide again.
    #[error("the newest revision is {newest}, not {expected}: somebody has changed something since")]
    Overtaken {
        /// What was presumed.
        expected: Revision,
        /// The newest one.
        newest: Revision,
    },
    /// Try again later.
    #[error("{} changes wait already", crate::MAX_WAITING)]
    TooManyWaiting,
    /// The control store refused, or failed. One failure may meet several changes.
    #[error(transparent)]
    Control(Arc<Error>),
}

impl From<Error> for ChangeError {
    fn from(error: Error) -> Self {
        Self::Control(Arc::new(error))
    }
}

struct FoundRevision(Option<Revision>);

impl std::fmt::Display for FoundRevision {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(revision) => write!(out, "at revision {revision}"),
            None => out.write_str("absent"),
        }
    }
}
