//! The vocabulary: a document, a change to it, who makes it, and what it presumes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::time::Wall;

/// What a document describes. A new kind comes with a new schema version, so that an older
/// program refuses the database instead of stumbling over a word it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A rate-limit policy; its name is the policy's.
    Policy,
    /// A client's own limits; its name is the client's.
    Override,
    /// The limits of everyone else.
    Defaults,
}

impl Kind {
    /// Every kind, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Policy, Self::Override, Self::Defaults];

    /// The word for it in the database and in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Override => "override",
            Self::Defaults => "defaults",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Position in the history of all changes. 0 is the empty configuration; each change adds 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A stored document. Cloning it copies two pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it describes.
    pub kind: Kind,
    /// Unique among its kind; opaque text of 1 to [`crate::MAX_NAME_BYTES`] bytes.
    pub name: Arc<str>,
    /// One JSON value, byte for byte as it was put.
    pub body: Arc<str>,
    /// The change that wrote it; the document's `ETag`.
    pub revision: Revision,
}

/// What must be true of a document for a change to it to go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: the last writer wins.
    #[default]
    None,
    /// It exists at exactly this revision (`If-Match`).
    IfMatch(Revision),
    /// It does not exist (`If-None-Match: *`).
    IfNoneMatch,
}

impl Precondition {
    pub(crate) fn holds(self, found: Option<Revision>) -> bool {
        match self {
            Self::None => true,
            Self::IfMatch(revision) => found == Some(revision),
            Self::IfNoneMatch => found.is_none(),
        }
    }
}

impl fmt::Display for Precondition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("nothing"),
            Self::IfMatch(revision) => write!(out, "revision {revision}"),
            Self::IfNoneMatch => out.write_str("its absence"),
        }
    }
}

/// One change: a new body, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Kind of the document.
    pub kind: Kind,
    /// Name of the document.
    pub name: Arc<str>,
    /// The new body; `None` deletes.
    pub body: Option<Arc<str>>,
    /// What the change presumes.
    pub precondition: Precondition,
}

impl Change {
    /// Creates the document or replaces its body.
    #[must_use]
    pub fn put(kind: Kind, name: impl Into<Arc<str>>, body: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into(), body: Some(body.into()), precondition: Precondition::None }
    }

    /// Removes the document. It must exist.
    #[must_use]
    pub fn delete(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into(), body: None, precondition: Precondition::None }
    }

    /// The same change, made only if `precondition` holds.
    #[must_use]
    pub fn when(self, precondition: Precondition) -> Self {
        Self { precondition, ..self }
    }
}

/// Who makes a change, and when: both end in the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// A name, 1 to [`crate::MAX_ACTOR_BYTES`] bytes. Never a secret.
    pub actor: String,
    /// The civil time of the change.
    pub at: Wall,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Created or replaced.
    Put,
    /// Removed.
    Delete,
}

impl Action {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }
}

/// One line of the audit log: who changed what, when, from what, to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// The revision that the change made.
    pub revision: Revision,
    /// Who, and when by the civil clock.
    pub author: Author,
    /// What was done.
    pub action: Action,
    /// Kind of the document.
    pub kind: Kind,
    /// Name of the document.
    pub name: String,
    /// The body before, unless the document was new.
    pub before: Option<String>,
    /// The body after, unless the document was deleted.
    pub after: Option<String>,
}

/// A change that the snapshot has already accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) change: Change,
    pub(crate) author: Author,
    pub(crate) revision: Revision,
    pub(crate) before: Option<Document>,
}

/// A stored document that is not what its change wrote: something else has altered the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Altered {
    /// Kind of the document.
    pub kind: Kind,
    /// Name of the document.
    pub name: Arc<str>,
    /// Its revision, under which the audit log has something else.
    pub revision: Revision,
    /// The body in the audit log, if that row is of the same document.
    pub recorded: Option<String>,
}
