//! The edge's documents, checked: what `[[edge.listener]]`, `[[edge.backend]]` and `[[edge.place]]` of a file end as, and
//! stored backends and places.
//!
//! Reading is total: any tree of values gives a configuration or the list of everything wrong with it.

mod backend;
mod listener;
mod place;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_algorithms::document::{DocumentReader, MAX_MISTAKES, Mistake, shown};

pub use crate::own::is_own;
pub use backend::{BACKEND_KEYS, BackendConfig, CheckConfig, Probe, address};
pub use listener::{Affinity, LISTENER_KEYS, ListenerConfig, OnUnhealthy, ServerNames};
pub use place::{PLACE_KEYS, PlaceConfig, Who};

/// Most backends, stored and registered ones included.
pub const MAX_BACKENDS: usize = 10_000;

/// Most listeners.
pub const MAX_LISTENERS: usize = 64;

/// Most places, those of the file and stored ones.
pub const MAX_PLACES: usize = 10_000;

/// The app of listeners and backends that name none.
pub const DEFAULT_APP: &str = "default";

/// What is said of the edge: by the file alone, or with what is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeConfig {
    /// The region of this node.
    pub region: Option<Arc<str>>,
    /// Where connections can go; of equal ones the first wins.
    pub backends: Vec<Arc<BackendConfig>>,
    /// What listeners do with connections. Open listeners are found again by their addresses.
    pub listeners: Arc<[Arc<ListenerConfig>]>,
    /// The places of clients. The most exact network wins, and of equal networks the first.
    pub places: Arc<[Arc<PlaceConfig>]>,
    /// The longest round trip of each tier; `None`: a backend's tier comes from its place.
    pub round_trip_tiers: Option<TierBounds>,
    /// A database in MaxMind's format, for clients that no network of `places` has.
    pub database: Option<PathBuf>,
}

/// Reads a list, noting what is wrong with it; entries with mistakes are left out.
pub fn each<T>(
    list: &str,
    values: &[Value],
    most: usize,
    mistakes: &mut Vec<Mistake>,
    read: impl Fn(&Value, &str) -> Result<T, Vec<Mistake>>,
) -> Vec<(usize, T)> {
    if values.len() > most {
        mistakes.push(Mistake {
            pointer: format!("{list}/{most}"),
            problem: format!("is one of {}", values.len()),
            accepted: format!("at most {most}"),
        });
    }
    let mut good = Vec::new();
    for (index, value) in values.iter().take(most).enumerate() {
        match read(value, &format!("{list}/{index}")) {
            Ok(read) => good.push((index, read)),
            Err(found) => mistakes.extend(found),
        }
    }
    good
}

/// The backends and places of a file.
pub type BackendsAndPlaces = (Vec<Arc<BackendConfig>>, Vec<Arc<PlaceConfig>>);

/// Checks what a file has under `[[edge.backend]]` and `[[edge.place]]`: in the order of the lists.
///
/// # Errors
/// Every mistake found, with pointers that begin with `/edge/backend/N` and `/edge/place/N`.
pub fn check(backends: &[Value], places: &[Value]) -> Result<BackendsAndPlaces, Vec<Mistake>> {
    let mut mistakes = Vec::new();
    let backends = each("/edge/backend", backends, MAX_BACKENDS, &mut mistakes, BackendConfig::read);
    let places = each("/edge/place", places, MAX_PLACES, &mut mistakes, PlaceConfig::read);
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (at, backend) in &backends {
        if let Some(other) = first.insert(&backend.name, *at) {
            mistakes.push(Mistake {
                pointer: format!("/edge/backend/{at}/name"),
                problem: format!("is {:?}, as is edge.backend[{other}]", backend.name),
                accepted: "a name of its own".to_owned(),
            });
        }
    }
    mistakes.truncate(MAX_MISTAKES);
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let backends = backends.into_iter().map(|(_, backend)| Arc::new(backend)).collect();
    Ok((backends, places.into_iter().map(|(_, place)| Arc::new(place)).collect()))
}

/// A name in a field that may be left out.
fn optional_name(reader: &mut DocumentReader<'_>, field: &str) -> Option<Arc<str>> {
    reader.field(field)?;
    reader.name(field).map(Arc::from)
}

/// A country in a field that may be left out.
fn optional_country(
    reader: &mut DocumentReader<'_>,
    field: &str,
) -> Option<tidegate_algorithms::balance::region::Country> {
    let value = reader.field(field)?;
    let country = value.as_str().and_then(tidegate_algorithms::balance::region::Country::parse);
    if country.is_none() {
        reader.mistake(field, format!("is {}", shown(value)), "two letters of ISO 3166: \"BR\"");
    }
    country
}

#[cfg(test)]
mod tests;
