//! What a key may name: a tier that some policy has numbers for, and routes that are in force.

use std::sync::Arc;

use tidegate_access::refusal::Refusal;
use tidegate_control::Parts;

use super::documents::{POLICY, ROUTE};

/// The field of the routes that a key opens.
pub(super) const OPENED: &str = "routes";

/// Refuses a tier for which no policy in force has numbers: its clients would be limited as those without a tier.
pub(super) fn expect_tier(parts: &Parts, tier: Option<&str>) -> Result<(), Refusal> {
    let Some(tier) = tier else { return Ok(()) };
    let mut known = Vec::new();
    for name in parts.names(POLICY) {
        let document = parts.document(POLICY, &name).unwrap_or_default();
        let tiers = document["tiers"].as_object();
        known.extend(tiers.into_iter().flat_map(serde_json::Map::keys).cloned());
    }
    if known.iter().any(|name| name == tier) {
        return Ok(());
    }
    known.sort_unstable();
    known.dedup();
    let accepted = if known.is_empty() { "none: no policy has tiers".to_owned() } else { known.join(", ") };
    Err(Refusal::field("/tier", format!("is {tier:?}, which no policy has numbers for"), accepted))
}

/// Refuses a route that is not in force: the key would open nothing there, for a slip of the pen.
pub(super) fn expect_routes(parts: &Parts, routes: Option<&[Arc<str>]>) -> Result<(), Refusal> {
    let Some(routes) = routes else { return Ok(()) };
    let known = parts.names(ROUTE);
    let Some(place) = routes.iter().position(|route| !known.contains(route)) else { return Ok(()) };
    let problem = format!("is {:?}, which is no route", routes[place]);
    Err(Refusal::field(format!("/{OPENED}/{place}"), problem, "the names of routes that are in force"))
}
