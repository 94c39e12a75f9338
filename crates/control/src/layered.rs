//! Documents of one kind in two layers: the file's, with the stored ones on top.
//!
//! A stored document takes the place of the file's of its name; others follow, as long as there is room. What cannot be read,
//! calls itself otherwise than it is stored, or is one too many, is set aside. A document whose revision did not change is
//! not read again.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;

use crate::document::{Document, Kind, Revision};
use crate::service::{Origin, SetAside};
use crate::snapshot::Snapshot;

/// A document and what it means.
#[derive(Debug)]
pub struct LayeredDocument<T> {
    /// Its name.
    pub name: Arc<str>,
    /// What it means.
    pub config: Arc<T>,
    /// As it was written.
    pub document: Arc<Value>,
    /// `None`: it stands in the file.
    pub revision: Option<Revision>,
}

impl<T> Clone for LayeredDocument<T> {
    fn clone(&self) -> Self {
        let (config, document) = (Arc::clone(&self.config), Arc::clone(&self.document));
        Self { name: Arc::clone(&self.name), config, document, revision: self.revision }
    }
}

impl<T> LayeredDocument<T> {
    /// A document of the file.
    #[must_use]
    pub fn of_file(name: Arc<str>, config: Arc<T>, document: Value) -> Self {
        Self { name, config, document: Arc::new(document), revision: None }
    }

    /// Where it comes from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.revision.map_or(Origin::File, Origin::Stored)
    }
}

/// What a document means, and the name that it gives itself. The text is where mistakes in it point.
type ReadDocument<T> = fn(&Value, &str) -> Result<(Arc<str>, T), Vec<Mistake>>;

/// Documents of one kind.
pub struct Layered<T> {
    /// Which.
    pub kind: Kind,
    /// How many there may be.
    pub most: usize,
    /// What these are, for a message: `up to 10 of them`.
    pub counted: &'static str,
    /// Reads one.
    pub read: ReadDocument<T>,
}

impl<T> Layered<T> {
    fn pointer(&self, name: &str) -> String {
        format!("/{}/{name}", self.kind)
    }

    /// The file's documents with the stored ones on top. Entries that stand in `known` at the same revision are taken
    /// from there; what cannot be in force is added to `set_aside`.
    pub fn merge(
        &self,
        file: &[LayeredDocument<T>],
        stored: &Snapshot,
        known: &[LayeredDocument<T>],
        set_aside: &mut Vec<SetAside>,
    ) -> Vec<LayeredDocument<T>> {
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

    /// Reads what is stored; what is wrong, and what `take` refuses, is set aside. Entries that stand in `known` at the same
    /// revision are taken from there.
    pub fn each(
        &self,
        stored: &Snapshot,
        known: &[LayeredDocument<T>],
        set_aside: &mut Vec<SetAside>,
        mut take: impl FnMut(LayeredDocument<T>) -> Result<(), Mistake>,
    ) {
        let known: HashMap<(&str, Option<Revision>), &LayeredDocument<T>> =
            known.iter().map(|entry| ((&*entry.name, entry.revision), entry)).collect();
        for document in stored.documents(self.kind) {
            let same = known.get(&(&*document.name, Some(document.revision)));
            let entry = same.map_or_else(|| self.read(document), |same| Ok(LayeredDocument::clone(same)));
            if let Err(mistakes) = entry.and_then(|entry| take(entry).map_err(|mistake| vec![mistake])) {
                let (name, revision) = (document.name.to_string(), Some(document.revision));
                set_aside.push(SetAside { kind: self.kind, name, revision, mistakes });
            }
        }
    }

    /// Reads a stored document.
    fn read(&self, document: &Document) -> Result<LayeredDocument<T>, Vec<Mistake>> {
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
        Ok(LayeredDocument {
            name,
            config: Arc::new(config),
            document: Arc::new(value),
            revision: Some(document.revision),
        })
    }

    /// What is said of a document for which there is no room.
    #[must_use]
    pub fn one_too_many(&self, name: &str) -> Mistake {
        Mistake {
            pointer: self.pointer(name),
            problem: "is one too many".to_owned(),
            accepted: format!("up to {} {}", self.most, self.counted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::new("thing");
    const THINGS: Layered<u64> = Layered { kind: KIND, most: 3, counted: "things", read };

    fn read(value: &Value, pointer: &str) -> Result<(Arc<str>, u64), Vec<Mistake>> {
        let name = value["name"].as_str().unwrap_or_default().into();
        let wrong = || {
            let (problem, accepted) = ("is missing".to_owned(), "a number".to_owned());
            vec![Mistake { pointer: format!("{pointer}/size"), problem, accepted }]
        };
        value["size"].as_u64().map(|size| (name, size)).ok_or_else(wrong)
    }

    fn stored(documents: &[(&str, &str, u64)]) -> Snapshot {
        let documents = documents.iter().map(|(name, body, revision)| Document {
            kind: KIND,
            name: (*name).into(),
            body: (*body).into(),
            revision: Revision(*revision),
        });
        Snapshot::restore(Revision(9), documents)
    }

    fn of_file(name: &str, size: u64) -> LayeredDocument<u64> {
        LayeredDocument::of_file(name.into(), Arc::new(size), Value::Null)
    }

    #[test]
    fn a_stored_document_hides_the_files_and_what_cannot_be_in_force_is_set_aside() {
        let stored = stored(&[
            ("b", r#"{"name":"b","size":20}"#, 1),
            ("c", r#"{"name":"c","size":30}"#, 2),
            ("d", r#"{"name":"d","size":40}"#, 3),
            ("e", "{", 4),
            ("f", r#"{"name":"g","size":60}"#, 5),
            ("h", r#"{"name":"h"}"#, 6),
        ]);
        let mut set_aside = Vec::new();
        let merged = THINGS.merge(&[of_file("a", 1), of_file("b", 2)], &stored, &[], &mut set_aside);
        let found: Vec<_> = merged.iter().map(|it| (&*it.name, *it.config, it.origin())).collect();
        assert_eq!(
            found,
            [
                ("a", 1, Origin::File),
                ("b", 20, Origin::Stored(Revision(1))),
                ("c", 30, Origin::Stored(Revision(2))),
            ]
        );
        let said: Vec<_> = set_aside
            .iter()
            .map(|it| (it.name.as_str(), it.mistakes[0].pointer.as_str(), it.mistakes[0].accepted.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                ("d", "/thing/d", "up to 3 things"),
                ("e", "/thing/e", "a JSON document"),
                ("f", "/thing/f", "the name that it is stored under"),
                ("h", "/thing/h/size", "a number"),
            ]
        );
    }

    #[test]
    fn a_document_of_the_same_revision_is_not_read_again() {
        let mut set_aside = Vec::new();
        let before = stored(&[("a", r#"{"name":"a","size":1}"#, 1), ("b", r#"{"name":"b","size":2}"#, 2)]);
        let known = THINGS.merge(&[], &before, &[], &mut set_aside);
        let after = stored(&[("a", r#"{"name":"a","size":1}"#, 1), ("b", r#"{"name":"b","size":2}"#, 3)]);
        let merged = THINGS.merge(&[], &after, &known, &mut set_aside);
        assert!(Arc::ptr_eq(&known[0].config, &merged[0].config));
        assert!(!Arc::ptr_eq(&known[1].config, &merged[1].config));
        assert!(set_aside.is_empty(), "{set_aside:?}");
    }
}
