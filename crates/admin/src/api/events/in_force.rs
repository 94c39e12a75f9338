//! The event that says what is in force, and what has changed since an earlier one.

use std::hash::{BuildHasher, RandomState};

use serde_json::json;
use tidegate_control::{Parts, Revision, Snapshot};

use super::MAX_LISTED;

/// The part of the configuration that readers are told. Only this part is kept, so that a thread that serves requests
/// never has to drop a set.
pub(super) struct InForce {
    documents: Snapshot,
    files: u64,
}

impl InForce {
    pub(super) fn of(parts: &Parts) -> Self {
        Self { documents: parts.documents().clone(), files: parts.files() }
    }

    /// Within one era only documents change, so that a revision has one meaning.
    fn era(&self, salt: &RandomState) -> u64 {
        salt.hash_one((self.files, self.documents.replaced()))
    }

    pub(super) fn id(&self, salt: &RandomState) -> String {
        format!("{}-{:016x}", self.documents.revision().0, self.era(salt))
    }

    /// The revision that an event's id names, if all that can have changed since are documents.
    pub(super) fn revision_of(&self, id: &str, salt: &RandomState) -> Option<Revision> {
        let (revision, era) = id.split_once('-')?;
        let is_of_this = u64::from_str_radix(era, 16) == Ok(self.era(salt));
        revision.parse().ok().filter(|_| is_of_this).map(Revision)
    }

    /// The event that says what has changed since that revision; without one, that all of it may have.
    pub(super) fn event(&self, since: Option<Revision>, salt: &RandomState) -> String {
        let changes = since.and_then(|since| self.documents.changes_after(since));
        let all = changes.is_none();
        let (mut listed, mut more) = (Vec::new(), 0_u64);
        for (kind, name) in changes.into_iter().flatten() {
            if listed.len() < MAX_LISTED {
                listed.push(json!({"kind": kind, "name": name}));
            } else {
                more += 1;
            }
        }
        let revision = self.documents.revision().0;
        let data = json!({"revision": revision, "all": all, "changed": listed, "more": more});
        format!("event: configuration\nid: {}\ndata: {data}\n\n", self.id(salt))
    }
}
