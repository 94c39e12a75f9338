//! The kinds of documents of the edge: how each is read, and how many there may be.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Layered, LayeredDocument, SetAside, Snapshot};

use super::{BACKEND, PLACE, REGISTRAR, REGISTRATION, registrar};
use crate::config::{BackendConfig, MAX_BACKENDS, MAX_PLACES, PlaceConfig};

/// What is counted for the limit of backends.
const COUNTED_BACKENDS: &str = "backends, registered ones included";

/// What `[[edge.backend]]` says, in documents.
pub(super) const BACKENDS: Layered<BackendConfig> =
    Layered { kind: BACKEND, most: MAX_BACKENDS, counted: COUNTED_BACKENDS, read: read_backend };

/// What `[[edge.place]]` says, in documents.
pub(super) const PLACES: Layered<PlaceConfig> =
    Layered { kind: PLACE, most: MAX_PLACES, counted: "places", read: PlaceConfig::read_named };

/// Backends that registered themselves.
const REGISTRATIONS: Layered<BackendConfig> =
    Layered { kind: REGISTRATION, most: MAX_BACKENDS, counted: COUNTED_BACKENDS, read: read_registration };

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

/// The registrations whose names no backend has, as many as there is room for beside the backends.
pub(super) fn registered(
    backends: &[LayeredDocument<BackendConfig>],
    stored: &Snapshot,
    known: &[LayeredDocument<BackendConfig>],
    set_aside: &mut Vec<SetAside>,
) -> Vec<LayeredDocument<BackendConfig>> {
    let names: HashMap<&str, &LayeredDocument<BackendConfig>> =
        backends.iter().map(|entry| (&*entry.name, entry)).collect();
    let mut entries = Vec::new();
    REGISTRATIONS.each(stored, known, set_aside, |entry| {
        if let Some(other) = names.get(&*entry.name) {
            let whose = if other.revision.is_some() { "put by the admin API" } else { "of the file" };
            return Err(Mistake {
                pointer: format!("/{REGISTRATION}/{}", entry.name),
                problem: format!("has the name of a backend {whose}"),
                accepted: "a name of its own".to_owned(),
            });
        }
        if backends.len() + entries.len() >= REGISTRATIONS.most {
            return Err(REGISTRATIONS.one_too_many(&entry.name));
        }
        entries.push(entry);
        Ok(())
    });
    entries
}
