//! A document of the gateway and what it means; the file's with the stored ones on top.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Document, Kind, Revision, SetAside, Snapshot};

use super::{ROUTE, UPSTREAM};
use crate::config::{
    MAX_ROUTES, MAX_UPSTREAMS, RouteConfig, Source, UpstreamConfig, read_route, read_upstream,
};

/// A document and what it means.
#[derive(Debug)]
pub(super) struct GatewayDocument<T> {
    pub(super) config: Arc<T>,
    pub(super) document: Arc<Value>,
    /// `None`: it stands in the file.
    pub(super) revision: Option<Revision>,
}

/// A kind of document of the gateway.
pub(super) trait Documented: Sized {
    const KIND: Kind;
    const MOST: usize;
    fn read(document: &Value, pointer: &str) -> Result<Self, Vec<Mistake>>;
    fn name(&self) -> &Arc<str>;
}

impl Documented for UpstreamConfig {
    const KIND: Kind = UPSTREAM;
    const MOST: usize = MAX_UPSTREAMS;

    fn read(document: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        read_upstream(document, pointer, Source::Stored)
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl Documented for RouteConfig {
    const KIND: Kind = ROUTE;
    const MOST: usize = MAX_ROUTES;

    fn read(document: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        read_route(document, pointer, Source::Stored)
    }

    fn name(&self) -> &Arc<str> {
        &self.name
    }
}

impl<T> Clone for GatewayDocument<T> {
    fn clone(&self) -> Self {
        let (config, document) = (Arc::clone(&self.config), Arc::clone(&self.document));
        Self { config, document, revision: self.revision }
    }
}

pub(super) fn aside<T: Documented>(entry: &GatewayDocument<T>, mistake: Mistake) -> SetAside {
    SetAside {
        kind: T::KIND,
        name: entry.config.name().to_string(),
        revision: entry.revision,
        mistakes: vec![mistake],
    }
}

/// The file's documents with the stored ones on top. Entries that stand in `known` at the same revision are taken
/// from there.
pub(super) fn merge<T: Documented>(
    file: &[GatewayDocument<T>],
    stored: &Snapshot,
    known: &[GatewayDocument<T>],
    set_aside: &mut Vec<SetAside>,
) -> Vec<GatewayDocument<T>> {
    let known: HashMap<(&str, Option<Revision>), &GatewayDocument<T>> =
        known.iter().map(|entry| ((&**entry.config.name(), entry.revision), entry)).collect();
    let mut entries = file.to_vec();
    let places: HashMap<Arc<str>, usize> =
        file.iter().enumerate().map(|(place, entry)| (Arc::clone(entry.config.name()), place)).collect();
    for document in stored.documents(T::KIND) {
        let same = known.get(&(&*document.name, Some(document.revision)));
        let read = same.map_or_else(|| read::<T>(document), |entry| Ok((*entry).clone()));
        let mistakes = match (read, places.get(&document.name)) {
            (Ok(entry), Some(place)) => {
                entries[*place] = entry;
                continue;
            }
            (Ok(entry), None) if entries.len() < T::MOST => {
                entries.push(entry);
                continue;
            }
            (Ok(_), None) => vec![Mistake {
                pointer: format!("/{}/{}", T::KIND, document.name),
                problem: "is one too many".to_owned(),
                accepted: format!("up to {} of them", T::MOST),
            }],
            (Err(mistakes), _) => mistakes,
        };
        let (name, revision) = (document.name.to_string(), Some(document.revision));
        set_aside.push(SetAside { kind: T::KIND, name, revision, mistakes });
    }
    entries
}

/// Reads a stored document.
fn read<T: Documented>(document: &Document) -> Result<GatewayDocument<T>, Vec<Mistake>> {
    let pointer = format!("/{}/{}", T::KIND, document.name);
    let wrong = |problem: String, accepted: &str| {
        vec![Mistake { pointer: pointer.clone(), problem, accepted: accepted.to_owned() }]
    };
    let value: Value =
        serde_json::from_str(&document.body).map_err(|error| wrong(error.to_string(), "a JSON document"))?;
    let config = T::read(&value, &pointer)?;
    if **config.name() != *document.name {
        let problem = format!("calls itself {:?}", config.name());
        return Err(wrong(problem, "the name that it is stored under"));
    }
    Ok(GatewayDocument {
        config: Arc::new(config),
        document: Arc::new(value),
        revision: Some(document.revision),
    })
}
