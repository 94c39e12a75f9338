//! A document of the edge and what it means; the file's with the stored ones on top.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Document, Kind, Revision, SetAside, Snapshot};

use super::{BACKEND, PLACE, REGISTRAR, REGISTRATION, registrar};
use crate::config::{BackendConfig, MAX_BACKENDS, MAX_PLACES, PlaceConfig};

/// A document and what it means.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) name: Arc<str>,
    pub(super) config: Arc<T>,
    pub(super) document: Arc<Value>,
    /// `None`: it stands in the file.
    pub(super) revision: Option<Revision>,
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        let (config, document) = (Arc::clone(&self.config), Arc::clone(&self.document));
        Self { name: Arc::clone(&self.name), config, document, revision: self.revision }
    }
}

/// What a document means, and the name that it gives itself.
type Read<T> = fn(&Value, &str) -> Result<(Arc<str>, T), Vec<Mistake>>;

/// Documents of one kind.
pub(super) struct OfKind<T> {
    pub(super) kind: Kind,
    most: usize,
    read: Read<T>,
}

/// What `[[edge.backend]]` says, in documents.
pub(super) const BACKENDS: OfKind<BackendConfig> =
    OfKind { kind: BACKEND, most: MAX_BACKENDS, read: read_backend };

/// What `[[edge.place]]` says, in documents.
pub(super) const PLACES: OfKind<PlaceConfig> =
    OfKind { kind: PLACE, most: MAX_PLACES, read: PlaceConfig::read_named };

/// Backends that registered themselves.
pub(super) const REGISTRATIONS: OfKind<BackendConfig> =
    OfKind { kind: REGISTRATION, most: MAX_BACKENDS, read: read_registration };

fn read_backend(value: &Value, pointer: &str) -> Result<(Arc<str>, BackendConfig), Vec<Mistake>> {
    let config = BackendConfig::read(value, pointer)?;
    Ok((Arc::clone(&config.name), config))
}

fn read_registration(value: &Value, pointer: &str) -> Result<(Arc<str>, BackendConfig), Vec<Mistake>> {
    let mut backend = value.clone();
    backend.as_object_mut().and_then(|fields| fields.remove(REGISTRAR));
    let (name, config) = read_backend(&backend, pointer)?;
    Ok((name, BackendConfig { registrar: Some(registrar(value)), ..config }))
}

impl<T> OfKind<T> {
    fn pointer(&self, name: &str) -> String {
        format!("/{}/{name}", self.kind)
    }

    /// The file's documents with the stored ones on top. Entries that stand in `known` at the same revision are taken
    /// from there.
    pub(super) fn merge(
        &self,
        file: &[Entry<T>],
        stored: &Snapshot,
        known: &[Entry<T>],
        set_aside: &mut Vec<SetAside>,
    ) -> Vec<Entry<T>> {
        let mut entries = file.to_vec();
        let places: HashMap<&str, usize> =
            file.iter().enumerate().map(|(place, entry)| (&*entry.name, place)).collect();
        self.each(stored, known, set_aside, |entry| {
            if let Some(place) = places.get(&*entry.name) {
                entries[*place] = entry;
            } else if entries.len() < self.most {
                entries.push(entry);
            } else {
                return Err(self.one_too_many(&entry.name));
            }
            Ok(())
        });
        entries
    }

    /// The stored documents whose names are not `taken`, as many as there is room for beside those.
    pub(super) fn beside<U>(
        &self,
        taken: &[Entry<U>],
        stored: &Snapshot,
        known: &[Entry<T>],
        set_aside: &mut Vec<SetAside>,
    ) -> Vec<Entry<T>> {
        let names: HashMap<&str, &Entry<U>> = taken.iter().map(|entry| (&*entry.name, entry)).collect();
        let mut entries = Vec::new();
        self.each(stored, known, set_aside, |entry| {
            if let Some(other) = names.get(&*entry.name) {
                let whose = if other.revision.is_some() { "put by the admin API" } else { "of the file" };
                return Err(Mistake {
                    pointer: self.pointer(&entry.name),
                    problem: format!("has the name of a backend {whose}"),
                    accepted: "a name of its own".to_owned(),
                });
            }
            if taken.len() + entries.len() >= self.most {
                return Err(self.one_too_many(&entry.name));
            }
            entries.push(entry);
            Ok(())
        });
        entries
    }

    /// Reads what is stored; what is wrong, and what `take` refuses, is set aside.
    fn each(
        &self,
        stored: &Snapshot,
        known: &[Entry<T>],
        set_aside: &mut Vec<SetAside>,
        mut take: impl FnMut(Entry<T>) -> Result<(), Mistake>,
    ) {
        let known: HashMap<(&str, Option<Revision>), &Entry<T>> =
            known.iter().map(|entry| ((&*entry.name, entry.revision), entry)).collect();
        for document in stored.documents(self.kind) {
            let same = known.get(&(&*document.name, Some(document.revision)));
            let entry = same.map_or_else(|| self.read(document), |same| Ok(Entry::clone(same)));
            if let Err(mistakes) = entry.and_then(|entry| take(entry).map_err(|mistake| vec![mistake])) {
                let (name, revision) = (document.name.to_string(), Some(document.revision));
                set_aside.push(SetAside { kind: self.kind, name, revision, mistakes });
            }
        }
    }

    /// Reads a stored document.
    fn read(&self, document: &Document) -> Result<Entry<T>, Vec<Mistake>> {
        let pointer = self.pointer(&document.name);
        let wrong = |problem: String, accepted: &str| {
            vec![Mistake { pointer: pointer.clone(), problem, accepted: accepted.to_owned() }]
        };
        let value: Value = serde_json::from_str(&document.body)
            .map_err(|error| wrong(error.to_string(), "a JSON document"))?;
        let (name, config) = (self.read)(&value, &pointer)?;
        if name != document.name {
            return Err(wrong(format!("calls itself {name:?}"), "the name that it is stored under"));
        }
        Ok(Entry {
            name,
            config: Arc::new(config),
            document: Arc::new(value),
            revision: Some(document.revision),
        })
    }

    /// What is said of a document for which there is no room.
    pub(super) fn one_too_many(&self, name: &str) -> Mistake {
        let what = if self.kind == PLACE { "places" } else { "backends, registered ones included" };
        Mistake {
            pointer: self.pointer(name),
            problem: "is one too many".to_owned(),
            accepted: format!("up to {} {what}", self.most),
        }
    }
}
