//! The vocabulary: a document, a change to it, who makes it, and what it presumes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidegate_algorithms::time::Wall;

/// What a document describes: a word that belongs to one service. Documents of a kind that no service of
/// this process has are kept and carried as they are: another version, or another node, may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Kind(&'static str);

impl Kind {
    /// The kind of this word: 1 to [`crate::MAX_KIND_BYTES`] of a-z and `_`.
    ///
    /// # Panics
    /// If it is something else. Kinds are constants, so that this fails when the program is built.
    #[must_use]
    pub const fn new(word: &'static str) -> Self {
        assert!(is_kind(word.as_bytes()), "a kind is 1 to 32 of a-z and _");
        Self(word)
    }

    /// The word, in the database and in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// The kind that a database calls so. `None` if it is no kind's word, or one more than are kept
    /// apart.
    pub(crate) fn of(word: &str) -> Option<Self> {
        static FOUND: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
        // A panic under the lock leaves a whole set.
        let mut found = FOUND.lock();
        if let Some(known) = found.get(word) {
            return Some(Self(known));
        }
        if !is_kind(word.as_bytes()) || found.len() >= crate::MAX_KINDS {
            return None;
        }
        // Never freed, and bounded: a kind is as good as a constant from here on.
        let word: &'static str = String::from(word).leak();
        found.insert(word);
        Some(Self(word))
    }
}

const fn is_kind(word: &[u8]) -> bool {
    let mut at = 0;
    while at < word.len() {
        if !matches!(word[at], b'a'..=b'z' | b'_') {
            return false;
        }
        at += 1;
    }
    !word.is_empty() && word.len() <= crate::MAX_KIND_BYTES
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::of(&word).ok_or_else(|| serde::de::Error::custom(format_args!("unknown kind {word:?}")))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

/// What audit rows about the configuration file are of. No document is of this kind.
pub const FILE: Kind = Kind::new("file");

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
    /// For the audit log: state that was removed and is not kept as a document. See
    /// [`Change::record_removal`].
    pub removed: Option<Arc<str>>,
}

impl Change {
    /// Creates the document or replaces its body.
    #[must_use]
    pub fn put(kind: Kind, name: impl Into<Arc<str>>, body: impl Into<Arc<str>>) -> Self {
        let (name, body) = (name.into(), Some(body.into()));
        Self { kind, name, body, precondition: Precondition::None, removed: None }
    }

    /// Removes the document. It must exist.
    #[must_use]
    pub fn delete(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into(), body: None, precondition: Precondition::None, removed: None }
    }

    /// Changes no document, and leaves a line in the audit log: that state of this kind and name, which is
    /// kept elsewhere, was removed. `removed` says what, as JSON.
    #[must_use]
    pub fn record_removal(kind: Kind, name: impl Into<Arc<str>>, removed: impl Into<Arc<str>>) -> Self {
        Self { removed: Some(removed.into()), ..Self::delete(kind, name) }
    }

    /// Changes no document, and leaves a line in the audit log: that the file at `path` declares something else. Both are JSON. It is
    /// written as a removal of both, so that a node of an earlier version, too, takes it for no document.
    #[must_use]
    pub fn record_file(path: impl Into<Arc<str>>, before: &Value, after: &Value) -> Self {
        Self::record_removal(FILE, path, json!({ "before": before, "after": after }).to_string())
    }

    /// The same change, made only if `precondition` holds.
    #[must_use]
    pub fn when(self, precondition: Precondition) -> Self {
        Self { precondition, ..self }
    }
}

/// The author of a change, its time, and the address it came from, for the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// A name, 1 to [`crate::MAX_ACTOR_BYTES`] bytes. Never a secret.
    pub actor: String,
    /// The civil time of the change.
    pub at: Wall,
    /// From where: the address that asked, or the machine whose file it is. `None` where nobody asked, and in rows that an earlier
    /// version wrote.
    pub from: Option<Arc<str>>,
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
    /// The author, and the time by the civil clock.
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

impl AuditRow {
    /// Whether it put a document. A row about the file has an `after` too, once it is unpacked, and puts none.
    pub(crate) fn puts_document(&self) -> bool {
        self.after.is_some() && self.kind != FILE
    }

    /// As readers see it: of the file, what it declared before and after.
    pub(crate) fn unpacked(mut self) -> Self {
        let packed = self.before.as_deref().filter(|_| self.kind == FILE);
        let Some(Value::Object(mut both)) = packed.and_then(|text| serde_json::from_str(text).ok()) else {
            return self;
        };
        self.before = both.remove("before").map(|value| value.to_string());
        self.after = both.remove("after").map(|value| value.to_string());
        self.action = Action::Put;
        self
    }
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
