//! Which backend a connection would get, every backend's score, and why not the others. Nothing changes by asking.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use thiserror::Error;
use tidegate_algorithms::balance::region::{Member, Tier, Unplaced};
use tidegate_algorithms::time::Tick;

use crate::backend::EdgeBackend;
use crate::config::Affinity;
use crate::decisions::{named, rounded, tier_by};
use crate::pool::{Origin, Pool};
use crate::service::EdgeListener;

/// A connection that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Whose it would be.
    pub client: IpAddr,
    /// The address of the listener that it would come to; `None`: the first one.
    pub listener: Option<String>,
    /// The server name that it would ask for.
    pub server_name: Option<String>,
}

/// There is no such listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no such listener of the edge")]
pub struct NoListener;

/// What would become of a connection.
///
/// # Errors
/// When the listener is none of `listeners`.
pub fn explain(listeners: &[Arc<EdgeListener>], question: &Question) -> Result<Value, NoListener> {
    let asked = |listener: &&Arc<EdgeListener>| {
        question.listener.as_deref().is_none_or(|address| address == listener.label())
    };
    let listener = listeners.iter().find(asked).ok_or(NoListener)?;
    let (edge, name) = (&listener.edge, question.server_name.as_deref());
    let (site, now) = (edge.site(), edge.tick());
    let app = listener.config.app_for(name);
    let (location, known_by) = site.locate(question.client, edge.database().as_deref());
    let affine = match listener.config.affinity {
        Affinity::Off => None,
        Affinity::Address => Some(listener.affinity.client(question.client, None)),
        Affinity::ServerName => Some(listener.affinity.client(question.client, name)),
    };
    let before = affine.and_then(|client| listener.affinity.peek(&client, now));
    let spill = listener.config.spill;
    let (country, region) = named(location, &site.regions);
    let mut json = json!({
        "client": question.client,
        "country": country,
        "region": region.as_deref(),
        "known_by": known_by.word(),
        "listener": listener.label(),
        "app": &**app,
        "node_region": site.node.and_then(|node| site.regions.name(node)).map(|name| &**name),
        "spill": spill.word(),
        "was_at": before.as_deref(),
        "panic": false,
        "backends": [],
    });
    let Some(pool) = site.pool(app) else {
        json["why"] = json!("the app has no backends");
        return Ok(json);
    };
    let origin = Origin { location, node: site.node, before: before.as_deref(), spill };
    let is_panic = pool.is_panic(now);
    json["panic"] = json!(is_panic);
    json["backends"] = scores(pool, origin, is_panic, now).into();
    let (next, why) = match pool.preview(origin, now) {
        Ok((chosen, true)) => (Some(chosen.index), "its client was there before, and it has room"),
        Ok((chosen, false)) => (Some(chosen.index), "it has the lowest score"),
        Err(Unplaced::None) => (None, "no backend may be used"),
        Err(Unplaced::Full) => (None, "every backend that may be used is at its hard limit"),
    };
    json["next"] = json!(next.map(|index| &*pool.backends()[index].config.name));
    json["why"] = json!(why);
    Ok(json)
}

/// Every backend, those that may be chosen first, by priority and score.
fn scores(pool: &Pool, origin: Origin<'_>, is_panic: bool, now: Tick) -> Vec<Value> {
    let mut rows: Vec<(u16, Option<f64>, Value)> = Vec::new();
    for (backend, member) in pool.backends().iter().zip(pool.layout(now).members()) {
        let tier = member.tier(origin.location, origin.node);
        let load = backend.load(is_panic, now).filter(|_| backend.is_open());
        let score = load.and_then(|load| member.score(tier, load, origin.spill));
        let mut row = row(backend, tier, member, now);
        row["score"] = json!(score.map(rounded));
        if score.is_none() {
            row["excluded"] = json!(excluded(backend, now));
        }
        rows.push((member.priority, score, row));
    }
    rows.sort_by(|(one, one_score, _), (other, other_score, _)| {
        let last = |score: &Option<f64>| score.unwrap_or(f64::INFINITY);
        score_order(one_score, other_score)
            .then(one.cmp(other))
            .then(last(one_score).total_cmp(&last(other_score)))
    });
    rows.into_iter().map(|(_, _, row)| row).collect()
}

/// Those with a score first.
fn score_order(one: &Option<f64>, other: &Option<f64>) -> std::cmp::Ordering {
    one.is_none().cmp(&other.is_none())
}

fn row(backend: &EdgeBackend, tier: Tier, member: &Member, now: Tick) -> Value {
    let (config, status) = (&backend.config, backend.known.backend.status(now));
    let round_trip = backend.known.round_trip(now);
    json!({
        "backend": &*config.name,
        "address": config.target.to_string(),
        "country": member.location.country.map(|country| country.to_string()),
        "region": config.region.as_deref(),
        "tier": tier.word(),
        "tier_by": tier_by(member.measured.is_some()),
        "priority": config.priority,
        "connections": status.in_flight,
        "soft_limit": config.soft_limit,
        "hard_limit": config.hard_limit,
        "weight": config.weight,
        "connect_ms": rounded(status.latency / 1e6),
        "round_trip_ms": round_trip.map(|nanos| rounded(nanos / 1e6)),
    })
}

/// Why a backend is not chosen, whatever its score would be.
fn excluded(backend: &EdgeBackend, now: Tick) -> &'static str {
    let status = backend.known.backend.status(now);
    if backend.config.drain {
        "it drains"
    } else if backend.config.weight == 0 {
        "its weight is 0"
    } else if !status.is_up {
        "its health checks fail"
    } else if status.is_ejected {
        "connections to it failed"
    } else {
        "it is at its hard limit"
    }
}
