//! All documents at one revision, and the pure function from one snapshot to the next.
//!
//! A snapshot never changes after it was made, and shares what it can with the one before: the
//! documents of a kind are a persistent tree, so that a change among 100,000 of them copies a path of
//! some twenty nodes and not the whole map. It also remembers the names of the last changes, from
//! which a watcher learns what to look at again ([`Snapshot::changes_since`]).
//!
//! Whether a change is allowed is decided here, before the database is touched, so a refused
//! change costs no I/O. That is sound because one process owns the database, or because the
//! database refuses a revision that is there already.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::document::{AuditRow, Change, Document, Kind, Revision};
use crate::error::{Error, Invalid};

type Documents = RedBlackTreeMapSync<Arc<str>, Document>;

/// Changes whose names a snapshot remembers: those of one whole [`crate::Control::apply`].
const MAX_REMEMBERED: usize = crate::MAX_CHANGES;

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

/// Which of several histories a revision belongs to: a digest of its row in the audit log. A database that
/// lost its newest revisions (in a failover, or restored from a backup) makes others with the same numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History(pub(crate) i64);

/// Every document at one revision. Cloning it copies a few pointers.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    revision: Revision,
    /// Of a shared configuration.
    history: History,
    replaced: u64,
    kinds: BTreeMap<Kind, Documents>,
    bytes: usize,
    /// The last changes, oldest first; each made the revision after the one before it.
    remembered: Arc<VecDeque<(Kind, Arc<str>)>>,
    /// The same for all snapshots that were made from one another by changes. Where a database was
    /// loaded anew, revisions with the same number may say something else.
    lineage: Arc<()>,
}

/// The same documents at the same revision, however they came about.
impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        (self.revision, &self.kinds) == (other.revision, &other.kinds)
    }
}

impl Eq for Snapshot {}

impl Snapshot {
    /// The newest change that it contains.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many times since the start the database turned out to have another history than what was known:
    /// then everything may differ, also at the same revision.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    pub(crate) fn history(&self) -> History {
        self.history
    }

    /// The same, of this history.
    pub(crate) fn in_history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// The same, in the place of `known`, which was of another history.
    pub(crate) fn replacing(mut self, known: &Self) -> Self {
        self.replaced = known.replaced + 1;
        self
    }

    /// Number of documents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.values().map(Documents::size).sum()
    }

    /// Whether there is no document at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all names and bodies.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The document of that name, if there is one.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Document> {
        self.kinds.get(&kind)?.get(name)
    }

    /// The documents of one kind, in the byte order of their names.
    pub fn documents(&self, kind: Kind) -> impl ExactSizeIterator<Item = &Document> {
        self.of(kind).values()
    }

    /// Every document, by kind and name.
    pub fn all(&self) -> impl Iterator<Item = &Document> {
        self.kinds.values().flat_map(Documents::values)
    }

    /// The documents of one kind whose names come after `name`: the next page of a listing.
    pub fn after(&self, kind: Kind, name: &str) -> impl Iterator<Item = &Document> {
        let range = (Bound::Excluded(name), Bound::Unbounded);
        self.of(kind).range::<str, _>(range).map(|(_, document)| document)
    }

    /// The documents that changes after `earlier` have touched, oldest change first; `None` if that is
    /// not known: more changes than are remembered, or another history.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Option<impl Iterator<Item = (Kind, &Arc<str>)>> {
        if !Arc::ptr_eq(&self.lineage, &earlier.lineage) {
            return None;
        }
        self.changes_after(earlier.revision)
    }

    /// The same since an earlier revision of this history.
    #[must_use]
    pub fn changes_after(&self, earlier: Revision) -> Option<impl Iterator<Item = (Kind, &Arc<str>)>> {
        let count = usize::try_from(self.revision.0.checked_sub(earlier.0)?).ok()?;
        let known = self.remembered.len().checked_sub(count)?;
        Some(self.remembered.range(known..).map(|(kind, name)| (*kind, name)))
    }

    /// Whether `other` is the same state of the same history.
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.revision == other.revision && Arc::ptr_eq(&self.lineage, &other.lineage)
    }

    pub(crate) fn restore(revision: Revision, documents: impl IntoIterator<Item = Document>) -> Self {
        let mut snapshot = Self { revision, ..Self::default() };
        for document in documents {
            snapshot.insert(document);
        }
        snapshot
    }

    /// Makes a change that another node made. False, and `self` unchanged, if it is not the next one.
    pub(crate) fn replay(&mut self, row: &AuditRow) -> bool {
        if row.revision != self.revision.next() {
            return false;
        }
        match row.after.as_ref().filter(|_| row.puts_document()) {
            Some(body) => {
                let (name, body) = (row.name.as_str().into(), body.as_str().into());
                self.insert(Document { kind: row.kind, name, body, revision: row.revision });
            }
            None => drop(self.remove(row.kind, &row.name)),
        }
        self.advance(row.kind, row.name.as_str().into());
        true
    }

    /// Makes `change` on `self`. Returns the document before it.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::PreconditionFailed`], [`Error::NotFound`] or [`Error::Full`];
    /// `self` is then unchanged.
    pub(crate) fn apply(&mut self, change: &Change, limits: &Limits) -> Result<Option<Document>, Error> {
        validate(change, limits)?;
        let Change { kind, name, body, precondition, removed } = change;
        let before = self.get(*kind, name);
        let found = before.map(|document| document.revision);
        if !precondition.holds(found) {
            return Err(Error::PreconditionFailed {
                kind: *kind,
                name: name.to_string(),
                expected: *precondition,
                found,
            });
        }
        let revision = self.revision.next();
        if let Some(removed) = removed {
            self.advance(*kind, name.clone());
            return Ok(Some(Document { kind: *kind, name: name.clone(), body: removed.clone(), revision }));
        }
        let Some(body) = body else {
            let removed = self.remove(*kind, name);
            if removed.is_none() {
                return Err(Error::NotFound { kind: *kind, name: name.to_string() });
            }
            self.advance(*kind, name.clone());
            return Ok(removed);
        };
        let freed = before.map_or(0, size);
        let document = Document { kind: *kind, name: name.clone(), body: body.clone(), revision };
        if self.bytes - freed + size(&document) > limits.total_bytes {
            return Err(Error::Full { what: "the bytes of all documents", limit: limits.total_bytes });
        }
        if before.is_none() && self.len() >= limits.documents {
            return Err(Error::Full { what: "the number of documents", limit: limits.documents });
        }
        self.advance(*kind, name.clone());
        Ok(self.insert(document))
    }

    fn of(&self, kind: Kind) -> &Documents {
        static NONE: LazyLock<Documents> = LazyLock::new(Documents::new_sync);
        self.kinds.get(&kind).unwrap_or(&NONE)
    }

    fn advance(&mut self, kind: Kind, name: Arc<str>) {
        self.revision = self.revision.next();
        let remembered = Arc::make_mut(&mut self.remembered);
        if remembered.len() == MAX_REMEMBERED {
            remembered.pop_front();
        }
        remembered.push_back((kind, name));
    }

    fn insert(&mut self, document: Document) -> Option<Document> {
        let documents = self.kinds.entry(document.kind).or_default();
        let before = documents.get(&document.name).cloned();
        self.bytes += size(&document);
        self.bytes -= before.as_ref().map_or(0, size);
        documents.insert_mut(document.name.clone(), document);
        before
    }

    fn remove(&mut self, kind: Kind, name: &str) -> Option<Document> {
        let documents = self.kinds.get_mut(&kind)?;
        let removed = documents.get(name).cloned()?;
        documents.remove_mut(name);
        if documents.is_empty() {
            self.kinds.remove(&kind);
        }
        self.bytes -= size(&removed);
        Some(removed)
    }
}

fn size(document: &Document) -> usize {
    document.name.len() + document.body.len()
}

fn validate(change: &Change, limits: &Limits) -> Result<(), Error> {
    let refuse = |problem| {
        let name = change.name.chars().take(crate::MAX_NAME_BYTES).collect();
        Err(Error::Invalid { kind: change.kind, name, problem })
    };
    if change.name.is_empty() || change.name.len() > crate::MAX_NAME_BYTES {
        return refuse(Invalid::Name { bytes: change.name.len() });
    }
    let Some(body) = change.body.as_ref().or(change.removed.as_ref()) else { return Ok(()) };
    if body.len() > limits.body_bytes {
        return refuse(Invalid::BodySize { bytes: body.len(), limit: limits.body_bytes });
    }
    match serde_json::from_str::<serde::de::IgnoredAny>(body) {
        Ok(_) => Ok(()),
        Err(error) => refuse(Invalid::BodySyntax { line: error.line(), column: error.column() }),
    }
}

/// Publishes what follows `known`, unless something newer was published meanwhile. What follows may
/// be older, where a database was restored.
pub(crate) fn publish(newest: &watch::Sender<Arc<Snapshot>>, known: Revision, next: Snapshot) {
    newest.send_if_modified(|current| {
        let follows = current.revision() == known || next.revision() > current.revision();
        if follows {
            *current = Arc::new(next);
        }
        follows
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(name: &str, body: &str) -> Change {
        Change::put(Kind::new("policy"), name, body)
    }

    #[test]
    fn a_refused_change_leaves_the_snapshot_as_it_was() {
        let limits = Limits { documents: 2, body_bytes: 16, total_bytes: 20, ..Limits::default() };
        let mut snapshot = Snapshot::default();
        snapshot.apply(&put("a", "1"), &limits).unwrap();
        snapshot.apply(&put("b", "2"), &limits).unwrap();
        let before = snapshot.clone();
        let long = "x".repeat(crate::MAX_NAME_BYTES + 1);
        let deep = "[".repeat(17);
        let cases = [
            (put("", "1"), "policy \"\": the name has 0 bytes (accepted: 1 to 512)"),
            (put(&long, "1"), "the name has 513 bytes (accepted: 1 to 512)"),
            (put("c", &deep), "policy \"c\": the body has 17 bytes (accepted: at most 16)"),
            (put("c", "{\n 1}"), "policy \"c\": the body is not JSON: line 2, column 2"),
            (put("c", "3"), "the number of documents would pass 2"),
            (put("a", "\"0123456789abcd\""), ""),
            (put("a", "[1,2,3,4,5,6,7]"), ""),
            (Change::delete(Kind::new("policy"), "c"), "there is no policy \"c\""),
            (Change::delete(Kind::new("override"), "a"), "there is no override \"a\""),
        ];
        for (change, message) in cases {
            let mut after = before.clone();
            match after.apply(&change, &limits) {
                Err(error) => {
                    assert!(error.to_string().ends_with(message), "{error} is not {message}");
                    assert_eq!(after, before);
                }
                Ok(_) => assert_eq!(message, "", "{change:?} went through"),
            }
        }
        snapshot.apply(&put("a", "\"0123456789abcd\""), &limits).unwrap();
        let full = snapshot.apply(&put("b", "12345"), &limits).unwrap_err();
        assert_eq!(full.to_string(), "the bytes of all documents would pass 20");
    }

    #[test]
    fn pages_follow_the_order_of_names() {
        let mut snapshot = Snapshot::default();
        for name in ["b", "a\0", "a", "ü", "A"] {
            snapshot.apply(&put(name, "{}"), &Limits::default()).unwrap();
        }
        let names =
            |documents: Vec<&Document>| documents.iter().map(|d| d.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(snapshot.documents(Kind::new("policy")).collect()), ["A", "a", "a\0", "b", "ü"]);
        assert_eq!(names(snapshot.after(Kind::new("policy"), "a").collect()), ["a\0", "b", "ü"]);
        assert_eq!(snapshot.after(Kind::new("override"), "").count(), 0);
    }

    #[test]
    fn a_snapshot_knows_what_changed_since_an_earlier_one_of_its_history() {
        let limits = Limits::default();
        let mut snapshot = Snapshot::default();
        let empty = snapshot.clone();
        for name in ["a", "b", "a"] {
            snapshot.apply(&put(name, "1"), &limits).unwrap();
        }
        snapshot.apply(&Change::delete(Kind::new("policy"), "b"), &limits).unwrap();
        let since = |later: &Snapshot, earlier: &Snapshot| {
            let changes = later.changes_since(earlier)?;
            Some(changes.map(|(_, name)| name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(since(&snapshot, &empty).unwrap(), ["a", "b", "a", "b"]);
        assert_eq!(since(&snapshot, &snapshot).unwrap(), [""; 0]);
        assert_eq!(since(&empty, &snapshot), None, "the future");
        let loaded = Snapshot::restore(Revision(3), []);
        assert_eq!(since(&snapshot, &loaded), None, "another history");
        for _ in 0..MAX_REMEMBERED {
            snapshot.apply(&put("c", "1"), &limits).unwrap();
        }
        assert_eq!(since(&snapshot, &empty), None, "too long ago");
    }

    #[test]
    fn an_older_snapshot_does_not_see_later_changes() {
        let mut snapshot = Snapshot::default();
        snapshot.apply(&put("a", "1"), &Limits::default()).unwrap();
        let old = snapshot.clone();
        snapshot.apply(&put("a", "22"), &Limits::default()).unwrap();
        snapshot.apply(&Change::put(Kind::new("override"), "o", "3"), &Limits::default()).unwrap();
        assert_eq!(&*old.get(Kind::new("policy"), "a").unwrap().body, "1");
        assert_eq!((old.revision(), old.len(), old.bytes()), (Revision(1), 1, 2));
        assert_eq!((snapshot.revision(), snapshot.len(), snapshot.bytes()), (Revision(3), 2, 5));
    }
}
