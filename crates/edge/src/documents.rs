//! The edge's part of the configuration: what the file declares, and the backends that registered themselves.
//!
//! A registration is a stored document, so it is durable, in the audit log, and shared where nodes share their
//! configuration. The backends of the file come first, and their names are theirs: a registration under such a name
//! is set aside. Heartbeats and health are no documents: they are state with a lifetime. The node that hears a backend's
//! heartbeats is named in its document, so that the others know whose absence is theirs to deal with.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, Document, Kind, Origin, Parts, Revision, Service, SetAside, Snapshot};

use crate::config::{BackendConfig, EdgeConfig, MAX_BACKENDS};
use crate::service::Edge;

/// Documents that are registered backends; their names are the backends'.
pub const REGISTRATION: Kind = Kind::new("edge_registration");

/// The field of such a document that names the node where the backend registered, where nodes share documents.
pub const REGISTRAR: &str = "node";

/// The file's part and the registrations that are in force together.
#[derive(Clone, Debug)]
pub struct EdgeSet {
    documents: Snapshot,
    table: Arc<EdgeTable>,
}

#[derive(Debug)]
struct EdgeTable {
    layer: Arc<EdgeConfig>,
    registered: Vec<Registration>,
    set_aside: Vec<SetAside>,
}

#[derive(Clone, Debug)]
struct Registration {
    config: Arc<BackendConfig>,
    document: Arc<Value>,
    revision: Revision,
}

/// The documents of an edge.
pub struct EdgeDocuments {
    edge: Arc<Edge>,
    in_force: Mutex<Option<Arc<EdgeTable>>>,
}

impl fmt::Debug for EdgeDocuments {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EdgeDocuments").finish_non_exhaustive()
    }
}

impl EdgeDocuments {
    /// Those of `edge`.
    #[must_use]
    pub fn new(edge: Arc<Edge>) -> Self {
        Self { edge, in_force: Mutex::default() }
    }
}

impl EdgeTable {
    fn assemble(layer: Arc<EdgeConfig>, stored: &Snapshot, last: Option<&Self>) -> Self {
        let known = last.map(|last| &*last.registered).unwrap_or_default();
        let known: HashMap<(&str, Revision), &Registration> =
            known.iter().map(|it| ((&*it.config.name, it.revision), it)).collect();
        let of_file: HashSet<&str> = layer.backends.iter().map(|backend| &*backend.name).collect();
        let (mut registered, mut set_aside) = (Vec::new(), Vec::new());
        for document in stored.documents(REGISTRATION) {
            let same = known.get(&(&*document.name, document.revision)).copied();
            let read = same.map_or_else(|| read(document), |same| Ok(same.clone()));
            let pointer = || format!("/{REGISTRATION}/{}", document.name);
            let mistakes = match read {
                Err(mistakes) => mistakes,
                Ok(_) if of_file.contains(&*document.name) => vec![Mistake {
                    pointer: pointer(),
                    problem: "has the name of a backend of the file".to_owned(),
                    accepted: "a name of its own".to_owned(),
                }],
                Ok(_) if layer.backends.len() + registered.len() >= MAX_BACKENDS => vec![Mistake {
                    pointer: pointer(),
                    problem: "is one too many".to_owned(),
                    accepted: format!("up to {MAX_BACKENDS} backends"),
                }],
                Ok(registration) => {
                    registered.push(registration);
                    continue;
                }
            };
            let (name, revision) = (document.name.to_string(), Some(document.revision));
            set_aside.push(SetAside { kind: REGISTRATION, name, revision, mistakes });
        }
        Self { layer, registered, set_aside }
    }

    /// What is served.
    fn config(&self) -> EdgeConfig {
        let mut config = EdgeConfig::clone(&self.layer);
        config.backends.extend(self.registered.iter().map(|it| Arc::clone(&it.config)));
        config
    }
}

/// The number of the node that a stored document says the backend registered at.
#[must_use]
pub fn registrar(document: &Value) -> u32 {
    document[REGISTRAR].as_u64().and_then(|node| u32::try_from(node).ok()).unwrap_or(0)
}

/// Reads a stored document.
fn read(document: &Document) -> Result<Registration, Vec<Mistake>> {
    let pointer = format!("/{REGISTRATION}/{}", document.name);
    let wrong = |problem: String, accepted: &str| {
        vec![Mistake { pointer: pointer.clone(), problem, accepted: accepted.to_owned() }]
    };
    let value: Value =
        serde_json::from_str(&document.body).map_err(|error| wrong(error.to_string(), "a JSON document"))?;
    let mut backend = value.clone();
    let registrar = registrar(&value);
    backend.as_object_mut().and_then(|fields| fields.remove(REGISTRAR));
    let config = BackendConfig::read(&backend, &pointer)?;
    if *config.name != *document.name {
        return Err(wrong(format!("calls itself {:?}", config.name), "the name that it is stored under"));
    }
    let config = BackendConfig { registrar: Some(registrar), ..config };
    Ok(Registration { config: Arc::new(config), document: Arc::new(value), revision: document.revision })
}

impl Service for EdgeDocuments {
    const KINDS: &'static [Kind] = &[REGISTRATION];
    type Layer = EdgeConfig;
    type Set = EdgeSet;

    fn assemble(&self, layer: Arc<EdgeConfig>, stored: &Snapshot) -> EdgeSet {
        let table = Arc::new(EdgeTable::assemble(layer, stored, None));
        EdgeSet { documents: stored.clone(), table }
    }

    fn after(&self, last: &EdgeSet, stored: &Snapshot) -> EdgeSet {
        let changed = stored.changes_since(&last.documents);
        let is_same_history = changed.is_some();
        let concerns_it =
            changed.is_none_or(|mut changes| changes.any(|(kind, _)| Self::KINDS.contains(&kind)));
        let table = if concerns_it {
            let known = Some(&*last.table).filter(|_| is_same_history);
            Arc::new(EdgeTable::assemble(Arc::clone(&last.table.layer), stored, known))
        } else {
            Arc::clone(&last.table)
        };
        EdgeSet { documents: stored.clone(), table }
    }

    fn objections(&self, last: &EdgeSet, next: &EdgeSet, _change: Option<&Change>) -> Vec<Mistake> {
        let known = &last.table.set_aside;
        let new = next.table.set_aside.iter().filter(|it| !known.contains(it));
        new.flat_map(|it| it.mistakes.iter().cloned()).collect()
    }

    fn document(&self, set: &EdgeSet, _kind: Kind, name: &str) -> Option<Value> {
        let found = set.table.registered.iter().find(|it| &*it.config.name == name);
        found.map(|it| Value::clone(&it.document))
    }

    fn origin(&self, set: &EdgeSet, _kind: Kind, name: &str) -> Option<Origin> {
        let found = set.table.registered.iter().find(|it| &*it.config.name == name);
        found.map(|it| Origin::Stored(it.revision))
    }

    fn names(&self, set: &EdgeSet, _kind: Kind) -> Vec<Arc<str>> {
        set.table.registered.iter().map(|it| Arc::clone(&it.config.name)).collect()
    }

    fn set_aside(&self, set: &EdgeSet) -> Vec<SetAside> {
        set.table.set_aside.clone()
    }

    fn set_aside_count(&self, set: &EdgeSet) -> usize {
        set.table.set_aside.len()
    }

    fn announce(&self, last: Option<&EdgeSet>, next: &EdgeSet) {
        let known = last.map(|last| &*last.table.set_aside).unwrap_or_default();
        for it in next.table.set_aside.iter().filter(|it| !known.contains(it)).take(32) {
            let mistakes: Vec<_> = it.mistakes.iter().map(ToString::to_string).collect();
            let mistakes = mistakes.join("; ");
            tracing::error!(name = ?it.name, mistakes, "set aside: this registration is not in force");
        }
        if let Some(last) = last.filter(|last| !Arc::ptr_eq(&last.table.layer, &next.table.layer)) {
            let (before, after) = (last.table.layer.backends.len(), next.table.layer.backends.len());
            tracing::info!(before, after, "the file's backends of the edge were read again");
        }
    }

    fn put_in_force(&self, set: Arc<EdgeSet>, _parts: &Parts) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        if in_force.as_ref().is_none_or(|table| !Arc::ptr_eq(table, &set.table)) {
            self.edge.apply(&set.table.config());
            *in_force = Some(Arc::clone(&set.table));
        }
    }
}
