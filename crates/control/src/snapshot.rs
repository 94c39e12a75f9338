//! All documents at one revision, and the pure function from one snapshot to the next.
//!
//! A snapshot is immutable and shared by `Arc`. The next one copies the map of the kind that
//! changed (pointers only) and shares the other maps and every document: 8 ms with 100,000
//! documents of that kind in a debug build, which is the order of an `fsync`. A tree with
//! structural sharing would take microseconds at the price of a dependency; configuration does
//! not change often enough to need it.
//!
//! Whether a change is allowed is decided here, before the database is touched, so a refused
//! change costs no I/O. That is sound because one process owns the database, or because the
//! database refuses a revision that is there already.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use crate::document::{AuditRow, Change, Document, Kind, Revision};
use crate::error::{Error, Invalid};

type Documents = BTreeMap<Arc<str>, Document>;

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

/// Every document at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    revision: Revision,
    kinds: [Arc<Documents>; Kind::ALL.len()],
    bytes: usize,
}

impl Snapshot {
    /// The newest change that it contains.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Number of documents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.iter().map(|documents| documents.len()).sum()
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
        self.kinds[kind as usize].get(name)
    }

    /// The documents of one kind, in the byte order of their names.
    pub fn documents(&self, kind: Kind) -> impl ExactSizeIterator<Item = &Document> {
        self.kinds[kind as usize].values()
    }

    /// The documents of one kind whose names come after `name`: the next page of a listing.
    pub fn after(&self, kind: Kind, name: &str) -> impl Iterator<Item = &Document> {
        let range = (Bound::Excluded(name), Bound::Unbounded);
        self.kinds[kind as usize].range::<str, _>(range).map(|(_, document)| document)
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
        match &row.after {
            Some(body) => {
                let (name, body) = (row.name.as_str().into(), body.as_str().into());
                self.insert(Document { kind: row.kind, name, body, revision: row.revision });
            }
            None => drop(self.remove(row.kind, &row.name)),
        }
        self.revision = row.revision;
        true
    }

    /// Makes `change` on `self`. Returns the document before it.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::PreconditionFailed`], [`Error::NotFound`] or [`Error::Full`];
    /// `self` is then unchanged.
    pub(crate) fn apply(&mut self, change: &Change, limits: &Limits) -> Result<Option<Document>, Error> {
        validate(change, limits)?;
        let Change { kind, name, body, precondition } = change;
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
        let Some(body) = body else {
            let removed = self.remove(*kind, name);
            if removed.is_none() {
                return Err(Error::NotFound { kind: *kind, name: name.to_string() });
            }
            self.revision = revision;
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
        self.revision = revision;
        Ok(self.insert(document))
    }

    fn insert(&mut self, document: Document) -> Option<Document> {
        self.bytes += size(&document);
        let documents = Arc::make_mut(&mut self.kinds[document.kind as usize]);
        let before = documents.insert(document.name.clone(), document);
        self.bytes -= before.as_ref().map_or(0, size);
        before
    }

    fn remove(&mut self, kind: Kind, name: &str) -> Option<Document> {
        if !self.kinds[kind as usize].contains_key(name) {
            return None;
        }
        let removed = Arc::make_mut(&mut self.kinds[kind as usize]).remove(name);
        self.bytes -= removed.as_ref().map_or(0, size);
        removed
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
    let Some(body) = &change.body else { return Ok(()) };
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
        Change::put(Kind::Policy, name, body)
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
            (Change::delete(Kind::Policy, "c"), "there is no policy \"c\""),
            (Change::delete(Kind::Override, "a"), "there is no override \"a\""),
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
        assert_eq!(names(snapshot.documents(Kind::Policy).collect()), ["A", "a", "a\0", "b", "ü"]);
        assert_eq!(names(snapshot.after(Kind::Policy, "a").collect()), ["a\0", "b", "ü"]);
        assert_eq!(snapshot.after(Kind::Override, "").count(), 0);
    }

    #[test]
    fn an_older_snapshot_does_not_see_later_changes() {
        let mut snapshot = Snapshot::default();
        snapshot.apply(&put("a", "1"), &Limits::default()).unwrap();
        let old = snapshot.clone();
        snapshot.apply(&put("a", "22"), &Limits::default()).unwrap();
        snapshot.apply(&Change::put(Kind::Override, "o", "3"), &Limits::default()).unwrap();
        assert_eq!(&*old.get(Kind::Policy, "a").unwrap().body, "1");
        assert_eq!((old.revision(), old.len(), old.bytes()), (Revision(1), 1, 2));
        assert_eq!((snapshot.revision(), snapshot.len(), snapshot.bytes()), (Revision(3), 2, 5));
    }
}
