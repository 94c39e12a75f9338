//! The edge's part of the configuration: backends and places, from the file and from the control store, and the
//! backends that registered themselves.
//!
//! ```text
//!   file                  stored
//!   [[edge.backend]] -->  documents of kind edge_backend       a stored one hides the file's of its name
//!   [[edge.place]]   -->  documents of kind edge_place         before the file's, which have no names
//!                         documents of kind edge_registration  never under the name of one of the others
//! ```
//!
//! What is stored is durable, in the audit log, and shared where nodes share their configuration; what a file says is its
//! node's own. What cannot be in force is set aside, and a change or a file that would set something aside is refused.
//! A document whose revision did not change is not read again, and a change of other services' documents leaves the edge
//! alone.
//!
//! Heartbeats and health are no documents: they are state with a lifetime. The node that hears a registered backend's
//! heartbeats is named in its document, so that the others know whose absence is theirs to deal with.

mod kinds;
mod layer;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, Kind, LayeredDocument, Origin, Parts, Service, SetAside, Snapshot};

use self::kinds::{BACKENDS, PLACES, registered};
pub use self::layer::EdgeLayer;
use crate::config::{BackendConfig, EdgeConfig, PlaceConfig};
use crate::service::Edge;

/// Documents that are backends, as `[[edge.backend]]` describes them.
pub const BACKEND: Kind = Kind::new("edge_backend");

/// Documents that are places, as `[[edge.place]]` describes them, with a name.
pub const PLACE: Kind = Kind::new("edge_place");

/// Documents that are registered backends; their names are the backends'.
pub const REGISTRATION: Kind = Kind::new("edge_registration");

/// The field of such a document that names the node where the backend registered, where nodes share documents.
pub const REGISTRAR: &str = "node";

/// Most lines of the log about what one change sets aside; what is left is counted.
const MAX_LINES: usize = 32;

/// The file's part and the documents that are in force together.
#[derive(Clone, Debug)]
pub struct EdgeSet {
    documents: Snapshot,
    table: Arc<EdgeTable>,
}

#[derive(Debug)]
struct EdgeTable {
    layer: Arc<EdgeLayer>,
    backends: Vec<LayeredDocument<BackendConfig>>,
    places: Vec<LayeredDocument<PlaceConfig>>,
    registered: Vec<LayeredDocument<BackendConfig>>,
    set_aside: Vec<SetAside>,
    /// Where each backend, place and registration stands in its list, by name.
    by_name: [HashMap<Arc<str>, usize>; 3],
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

    /// What is wrong with a backend that is put, if it is this edge itself.
    fn circle(&self, set: &EdgeSet, name: &str) -> Option<Mistake> {
        let [backends, ..] = &set.table.by_name;
        let put = &set.table.backends[*backends.get(name)?];
        let is_own = put.revision.is_some() && self.edge.is_own(&put.config.target);
        is_own.then(|| Mistake {
            pointer: format!("/{BACKEND}/{name}/address"),
            problem: format!(
                "is {:?}, where this edge itself listens: connections would go in circles",
                put.config.target.to_string()
            ),
            accepted: "the address of the backend itself".to_owned(),
        })
    }
}

impl EdgeSet {
    /// The backends and places of a file with the stored ones on top.
    #[must_use]
    pub fn assemble(layer: Arc<EdgeLayer>, stored: &Snapshot) -> Self {
        let table = Arc::new(EdgeTable::assemble(layer, stored, None));
        Self { documents: stored.clone(), table }
    }

    /// What is not in force, and why.
    #[must_use]
    pub fn set_aside(&self) -> &[SetAside] {
        &self.table.set_aside
    }

    /// What is set aside and was not, or for another reason, in the set before.
    fn newly_aside<'a>(&'a self, last: Option<&'a Self>) -> impl Iterator<Item = &'a SetAside> {
        let known = last.map(Self::set_aside).unwrap_or_default();
        let known: HashMap<(Kind, &str), &SetAside> =
            known.iter().map(|it| ((it.kind, &*it.name), it)).collect();
        let is_new = move |it: &&SetAside| known.get(&(it.kind, &*it.name)).is_none_or(|old| **old != **it);
        self.set_aside().iter().filter(is_new)
    }
}

impl EdgeTable {
    fn assemble(layer: Arc<EdgeLayer>, stored: &Snapshot, last: Option<&Self>) -> Self {
        let mut set_aside = Vec::new();
        let known = last.map(|last| &*last.backends).unwrap_or_default();
        let backends = BACKENDS.merge(&layer.backends, stored, known, &mut set_aside);
        let known = last.map(|last| &*last.places).unwrap_or_default();
        let places = PLACES.merge(&layer.places, stored, known, &mut set_aside);
        let known = last.map(|last| &*last.registered).unwrap_or_default();
        let registered = registered(&backends, stored, known, &mut set_aside);
        let by_name = [by_name(&backends), by_name(&places), by_name(&registered)];
        Self { layer, backends, places, registered, set_aside, by_name }
    }

    /// What is served.
    fn config(&self) -> EdgeConfig {
        let backends = self.backends.iter().chain(&self.registered);
        // Of the same network the first counts, and what is stored comes before the file's.
        let (stored, of_file): (Vec<_>, Vec<_>) =
            self.places.iter().partition(|place| place.revision.is_some());
        EdgeConfig {
            backends: backends.map(|entry| Arc::clone(&entry.config)).collect(),
            places: stored.into_iter().chain(of_file).map(|entry| Arc::clone(&entry.config)).collect(),
            ..EdgeConfig::clone(&self.layer.config)
        }
    }

    fn document(&self, kind: Kind, name: &str) -> Option<(&Arc<Value>, Origin)> {
        fn found<T>(entry: &LayeredDocument<T>) -> (&Arc<Value>, Origin) {
            (&entry.document, entry.origin())
        }
        let [backends, places, registered] = &self.by_name;
        match kind {
            BACKEND => backends.get(name).map(|place| found(&self.backends[*place])),
            PLACE => places.get(name).map(|place| found(&self.places[*place])),
            _ => registered.get(name).map(|place| found(&self.registered[*place])),
        }
    }
}

fn by_name<T>(entries: &[LayeredDocument<T>]) -> HashMap<Arc<str>, usize> {
    entries.iter().enumerate().map(|(place, entry)| (Arc::clone(&entry.name), place)).collect()
}

fn names<T>(entries: &[LayeredDocument<T>]) -> Vec<Arc<str>> {
    entries.iter().map(|entry| Arc::clone(&entry.name)).collect()
}

/// The number of the node that a stored document says the backend registered at.
#[must_use]
pub fn registrar(document: &Value) -> u32 {
    document[REGISTRAR].as_u64().and_then(|node| u32::try_from(node).ok()).unwrap_or(0)
}

/// What is wrong with a backend that is put, if with it a registration could not be in force any more.
fn in_the_way(put: &Change, registration: &SetAside) -> Mistake {
    if *put.name != *registration.name {
        return BACKENDS.one_too_many(&put.name);
    }
    Mistake {
        pointer: format!("/{BACKEND}/{}", put.name),
        problem: "has the name of a backend that registered itself".to_owned(),
        accepted: "a name of its own; or that one is removed first, by the registration API".to_owned(),
    }
}

impl Service for EdgeDocuments {
    const KINDS: &'static [Kind] = &[BACKEND, PLACE, REGISTRATION];
    type Layer = EdgeLayer;
    type Set = EdgeSet;

    fn assemble(&self, layer: Arc<EdgeLayer>, stored: &Snapshot) -> EdgeSet {
        EdgeSet::assemble(layer, stored)
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

    fn objections(&self, last: &EdgeSet, next: &EdgeSet, change: Option<&Change>) -> Vec<Mistake> {
        if Arc::ptr_eq(&last.table, &next.table) || change.is_some_and(|it| !Self::KINDS.contains(&it.kind)) {
            return Vec::new();
        }
        let put = change.filter(|change| change.kind == BACKEND);
        if let Some(circle) = put.and_then(|put| self.circle(next, &put.name)) {
            return vec![circle];
        }
        let objection = |it: &SetAside| match put {
            Some(put) if it.kind == REGISTRATION => vec![in_the_way(put, it)],
            _ => it.mistakes.clone(),
        };
        next.newly_aside(Some(last)).flat_map(objection).collect()
    }

    fn document(&self, set: &EdgeSet, kind: Kind, name: &str) -> Option<Value> {
        set.table.document(kind, name).map(|(document, _)| Value::clone(document))
    }

    fn origin(&self, set: &EdgeSet, kind: Kind, name: &str) -> Option<Origin> {
        set.table.document(kind, name).map(|(_, origin)| origin)
    }

    fn names(&self, set: &EdgeSet, kind: Kind) -> Vec<Arc<str>> {
        match kind {
            BACKEND => names(&set.table.backends),
            PLACE => names(&set.table.places),
            _ => names(&set.table.registered),
        }
    }

    fn set_aside(&self, set: &EdgeSet) -> Vec<SetAside> {
        set.table.set_aside.clone()
    }

    fn set_aside_count(&self, set: &EdgeSet) -> usize {
        set.table.set_aside.len()
    }

    fn announce(&self, last: Option<&EdgeSet>, next: &EdgeSet) {
        if last.is_some_and(|last| Arc::ptr_eq(&last.table, &next.table)) {
            return;
        }
        let mut lines = 0_usize;
        for it in next.newly_aside(last) {
            lines += 1;
            if lines <= MAX_LINES {
                let mistakes: Vec<_> = it.mistakes.iter().map(ToString::to_string).collect();
                let mistakes = mistakes.join("; ");
                tracing::error!(
                    kind = %it.kind, name = ?it.name, mistakes,
                    "set aside: this document is not in force; mend it or delete it (GET /v1/set-aside)"
                );
            }
        }
        if lines > MAX_LINES {
            tracing::error!(more = lines - MAX_LINES, "set aside: further documents of the edge");
        }
        if let Some(last) = last.filter(|last| !Arc::ptr_eq(&last.table.layer, &next.table.layer)) {
            let (before, after) = (last.table.layer.backends.len(), next.table.layer.backends.len());
            tracing::info!(before, after, "the file's backends of the edge were read again");
        }
    }

    fn put_in_force(&self, set: Arc<EdgeSet>, _parts: &Parts) {
        let mut in_force = self.in_force.lock();
        if in_force.as_ref().is_none_or(|table| !Arc::ptr_eq(table, &set.table)) {
            self.edge.apply(&set.table.config());
            *in_force = Some(Arc::clone(&set.table));
        }
    }
}
