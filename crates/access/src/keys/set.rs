//! The keys as a service of the configuration: stored documents in, the keys in force out.
//!
//! The file declares none: a file is read by more people than a digest should be. The next set is made from the last
//! one, so that a change of one key among 100,000 costs what one among ten does.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;
use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, Document, Kind, Origin, Parts, Service, SetAside, Snapshot};

use super::{ApiKey, ApiKeys, KEY, KeyDocument};

/// Keys in force together, and the stored documents that they were made from.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    documents: Snapshot,
    keys: RedBlackTreeMapSync<Arc<str>, Arc<ApiKey>>,
    set_aside: RedBlackTreeMapSync<Arc<str>, SetAside>,
}

impl KeySet {
    pub(super) fn get(&self, id: &str) -> Option<&Arc<ApiKey>> {
        self.keys.get(id)
    }

    pub(super) fn after(&self, id: &str) -> impl Iterator<Item = &Arc<ApiKey>> {
        let range = (std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded);
        self.keys.range::<str, _>(range).map(|(_, key)| key)
    }

    pub(super) fn len(&self) -> usize {
        self.keys.size()
    }

    /// The set of these documents, with what is known of the use of the keys of `last`.
    fn of(stored: &Snapshot, last: &Self) -> Self {
        let mut set = Self { documents: stored.clone(), ..Self::default() };
        for document in stored.documents(KEY) {
            set.put(document, last);
        }
        set
    }

    fn put(&mut self, document: &Document, last: &Self) {
        let name = Arc::clone(&document.name);
        self.keys.remove_mut(&name);
        self.set_aside.remove_mut(&name);
        match read(document) {
            Ok(read) => {
                let known = last.keys.get(&name).map(|key| Arc::clone(&key.last_used));
                let last_used = known.unwrap_or_default();
                let (id, revision) = (Arc::clone(&name), document.revision);
                self.keys.insert_mut(name, Arc::new(ApiKey { id, document: read, revision, last_used }));
            }
            Err(mistakes) => {
                let (id, revision) = (name.to_string(), Some(document.revision));
                self.set_aside.insert_mut(name, SetAside { kind: KEY, name: id, revision, mistakes });
            }
        }
    }
}

fn read(document: &Document) -> Result<KeyDocument, Vec<Mistake>> {
    let pointer = format!("/{KEY}/{}", document.name);
    let wrong = |problem: String, accepted: &str| {
        vec![Mistake { pointer: pointer.clone(), problem, accepted: accepted.to_owned() }]
    };
    let value: Value =
        serde_json::from_str(&document.body).map_err(|error| wrong(error.to_string(), "a JSON document"))?;
    if value.get("name").is_some_and(|name| *name != *document.name) {
        return Err(wrong("has another name".to_owned(), "the name that it is stored under"));
    }
    KeyDocument::read(&value, &pointer)
}

/// The keys as the configuration knows them.
#[derive(Debug)]
pub struct KeyDocuments(pub Arc<ApiKeys>);

impl Service for KeyDocuments {
    const KINDS: &'static [Kind] = &[KEY];
    type Layer = ();
    type Set = KeySet;

    fn assemble(&self, _: Arc<()>, stored: &Snapshot) -> KeySet {
        KeySet::of(stored, &self.0.in_force.load())
    }

    fn after(&self, last: &KeySet, stored: &Snapshot) -> KeySet {
        let Some(changes) = stored.changes_since(&last.documents) else {
            return KeySet::of(stored, last);
        };
        let mut next = KeySet { documents: stored.clone(), ..last.clone() };
        for (_, name) in changes.filter(|(kind, _)| *kind == KEY) {
            match stored.get(KEY, name) {
                Some(document) => next.put(document, last),
                None => {
                    next.keys.remove_mut(name);
                    next.set_aside.remove_mut(name);
                }
            }
        }
        next
    }

    fn objections(&self, last: &KeySet, next: &KeySet, _: Option<&Change>) -> Vec<Mistake> {
        let is_new = |it: &&SetAside| last.set_aside.get(&*it.name) != Some(*it);
        next.set_aside.values().filter(is_new).flat_map(|it| it.mistakes.clone()).collect()
    }

    fn document(&self, set: &KeySet, _: Kind, name: &str) -> Option<Value> {
        set.keys.get(name).map(|key| key.document.write(name))
    }

    fn origin(&self, set: &KeySet, _: Kind, name: &str) -> Option<Origin> {
        set.keys.get(name).map(|key| Origin::Stored(key.revision))
    }

    fn names(&self, set: &KeySet, _: Kind) -> Vec<Arc<str>> {
        set.keys.keys().cloned().collect()
    }

    fn set_aside(&self, set: &KeySet) -> Vec<SetAside> {
        set.set_aside.values().cloned().collect()
    }

    fn set_aside_count(&self, set: &KeySet) -> usize {
        set.set_aside.size()
    }

    fn announce(&self, last: Option<&KeySet>, next: &KeySet) {
        let is_new = |it: &&SetAside| last.is_none_or(|last| last.set_aside.get(&*it.name) != Some(*it));
        let count = next.set_aside.values().filter(is_new).count();
        if count > 0 {
            tracing::error!(count, "set aside: API keys that cannot be read (GET /v1/set-aside)");
        }
    }

    fn put_in_force(&self, set: Arc<KeySet>, _: &Parts) {
        self.0.put_in_force(set);
    }
}
