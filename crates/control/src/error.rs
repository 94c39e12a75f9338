//! What can go wrong, named by what the caller can do about it.

use std::path::PathBuf;

use crate::document::{Kind, Precondition, Revision};

/// Why a change was refused, or why the database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else changed the document first: read it again (HTTP 412).
    #[error("{kind} {name:?} is {}, but the change expects {expected}", Found(*found))]
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
        /// The database file.
        path: PathBuf,
        /// The schema that was found.
        found: i64,
        /// The newest schema that this program knows.
        supported: i64,
    },
    /// The file is not a sound database of this program. It is left as it is.
    #[error("{} is damaged or not a tidegate database ({reason}): move it away or restore a copy", path.display())]
    Corrupt {
        /// The database file.
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
        source: std::io::Error,
    },
    /// The database failed: disk full, an I/O error. Nothing was changed.
    #[error("{}: {source}", path.display())]
    Database {
        /// The database file.
        path: PathBuf,
        /// SQLite's answer.
        source: rusqlite::Error,
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

struct Found(Option<Revision>);

impl std::fmt::Display for Found {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(revision) => write!(out, "at revision {revision}"),
            None => out.write_str("absent"),
        }
    }
}
