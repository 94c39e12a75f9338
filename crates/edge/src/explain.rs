//! Explanations: the backend that a connection would get, every backend's score, and why not the others. Nothing changes by asking.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use thiserror::Error;
use tidegate_algorithms::balance::region::{Layout, Member, Spill, Tier, Unplaced};
use tidegate_algorithms::time::Tick;

use crate::backend::EdgeBackend;
use crate::decisions::{named, rounded, tier_by};
use crate::pool::{Origin, Pool};
use crate::service::EdgeListener;

/// A connection that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Whose it would be.
    pub client: IpAddr,
    /// The address of the listener that it would come to; `None`: the first one of the file.
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
/// When the listener is not in `listeners`.
pub fn explain(listeners: &[Arc<EdgeListener>], question: &Question) -> Result<Value, NoListener> {
    let asked = match question.listener.as_deref() {
        Some(address) => listeners.iter().find(|listener| address == listener.label()),
        None => listeners.iter().min_by_key(|listener| listener.place_in_file()),
    };
    let listener = asked.ok_or(NoListener)?;
    let (edge, name) = (&listener.edge, question.server_name.as_deref());
    let (site, now) = (edge.site(), edge.tick());
    let config = listener.config(&site);
    let app = config.app_for(name);
    let (location, known_by) = site.locate(question.client, edge.database().as_deref());
    let affine = listener.affinity.affine(config, question.client, app, name);
    let before = affine.and_then(|client| listener.affinity.peek(&client, now));
    let spill = config.spill;
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
    let choice = pool.preview(origin, &[], now);
    let is_panic = choice.is_ok_and(|choice| choice.is_last_resort);
    json["panic"] = json!(is_panic);
    let affine = choice.ok().filter(|choice| choice.is_affine).map(|choice| choice.chosen.index);
    let (backends, are_some_left_out) = rows(pool, origin, is_panic, affine, now);
    json["backends"] = backends.into();
    let (next, why) = match choice {
        Ok(choice) if choice.is_affine => {
            (Some(choice.chosen.index), "its client was there before, and it has room")
        }
        Ok(choice) if choice.is_last_resort => (
            Some(choice.chosen.index),
            "no healthy backend has room, and it has the lowest score of the others",
        ),
        Ok(choice) if are_some_left_out => {
            (Some(choice.chosen.index), "it has the lowest score among the backends that are not left out")
        }
        Ok(choice) => (Some(choice.chosen.index), "it has the lowest score"),
        Err(Unplaced::None) => (None, "no backend may be used"),
        Err(Unplaced::Full) if are_some_left_out => {
            (None, "the nearest backends are at their hard limits, and spill is \"never\"")
        }
        Err(Unplaced::Full) => (None, "every backend that may be used is at its hard limit"),
    };
    json["next"] = json!(next.map(|index| &*pool.backends()[index].config.name));
    json["why"] = json!(why);
    Ok(json)
}

/// A backend, as a connection would see it.
struct BackendCandidate {
    index: usize,
    priority: u16,
    tier: Tier,
    is_usable: bool,
    /// `None`: it is not usable, or at its hard limit.
    score: Option<f64>,
}

fn candidates(
    pool: &Pool,
    layout: &Layout,
    origin: Origin<'_>,
    is_panic: bool,
    now: Tick,
) -> Vec<BackendCandidate> {
    let in_panic = if is_panic { pool.in_panic(layout, origin, now) } else { None };
    let counts = |index: usize| in_panic.as_ref().is_some_and(|in_panic| in_panic[index]);
    let members = layout.members().iter().enumerate();
    let candidate = |(index, member): (usize, &Member)| {
        let tier = member.tier(origin.location, origin.node);
        let load = pool.load(index, counts(index), now);
        let score = load.and_then(|load| member.score(tier, load, origin.spill));
        BackendCandidate { index, priority: member.priority, tier, is_usable: load.is_some(), score }
    };
    members.map(candidate).collect()
}

/// Why a candidate with room is not looked at: others come before it, whatever the scores are.
fn left_out(candidate: &BackendCandidate, all: &[BackendCandidate], spill: Spill) -> Option<&'static str> {
    // A tier that refuses when it is full decides also then.
    let decides =
        |it: &&BackendCandidate| if spill == Spill::Never { it.is_usable } else { it.score.is_some() };
    let (priority, tier) = all.iter().filter(decides).map(|it| (it.priority, it.tier)).min()?;
    if candidate.priority > priority {
        Some("backends of a lower priority number come first")
    } else if spill == Spill::Never && candidate.tier > tier {
        Some("there are nearer ones, and spill is \"never\"")
    } else {
        None
    }
}

/// Every backend, those that may be chosen first, by priority and score; and whether some that have room are left out.
/// `affine` is where the client goes because it was there.
fn rows(
    pool: &Pool,
    origin: Origin<'_>,
    is_panic: bool,
    affine: Option<usize>,
    now: Tick,
) -> (Vec<Value>, bool) {
    let layout = pool.layout(now);
    let mut all = candidates(pool, &layout, origin, is_panic, now);
    let why_not = |candidate: &BackendCandidate| match candidate.score {
        _ if affine == Some(candidate.index) => None,
        Some(_) => left_out(candidate, &all, origin.spill),
        None => Some(excluded(&pool.backends()[candidate.index], now)),
    };
    let reasons: Vec<Option<&str>> = all.iter().map(why_not).collect();
    let are_some_left_out = all.iter().any(|it| it.score.is_some() && reasons[it.index].is_some());
    all.sort_by(|one, other| {
        let key = |it: &BackendCandidate| (reasons[it.index].is_some(), it.score.is_none(), it.priority);
        let score = |it: &BackendCandidate| it.score.unwrap_or(f64::INFINITY);
        key(one).cmp(&key(other)).then(score(one).total_cmp(&score(other)))
    });
    let to_row = |it: &BackendCandidate| {
        let mut row = row(&pool.backends()[it.index], it.tier, &layout.members()[it.index], now);
        row["score"] = json!(it.score.map(rounded));
        if let Some(reason) = reasons[it.index] {
            row["excluded"] = json!(reason);
        }
        row
    };
    (all.iter().map(to_row).collect(), are_some_left_out)
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
        "health": health(backend, now),
        "check_failure": backend.known.backend.check_failure(),
        "connections": status.in_flight,
        "soft_limit": config.soft_limit,
        "hard_limit": config.hard_limit,
        "weight": config.weight,
        "connect_ms": rounded(status.latency / 1e6),
        "round_trip_ms": round_trip.map(|nanos| rounded(nanos / 1e6)),
    })
}

/// What checks and connections say of a backend.
fn health(backend: &EdgeBackend, now: Tick) -> &'static str {
    let status = backend.known.backend.status(now);
    if backend.known.is_in_circle() {
        IN_CIRCLE
    } else if !status.is_up {
        down(backend)
    } else if status.is_ejected {
        CONNECTIONS_FAIL
    } else if backend.known.is_in_doubt() {
        "the last connection to it failed, and the next one tries it"
    } else {
        "healthy"
    }
}

/// Why a backend is down.
fn down(backend: &EdgeBackend) -> &'static str {
    let is_new = backend.known.backend.check_failure().is_none();
    if is_new { "it is new, and its first health check has not passed yet" } else { CHECKS_FAIL }
}

const CHECKS_FAIL: &str = "its health checks fail";
const IN_CIRCLE: &str = "it is a listener of this edge";
const CONNECTIONS_FAIL: &str = "connections to it fail";

/// Why a backend is not chosen, whatever its score would be.
fn excluded(backend: &EdgeBackend, now: Tick) -> &'static str {
    let status = backend.known.backend.status(now);
    if backend.config.drain {
        "it drains"
    } else if backend.config.weight == 0 {
        "its weight is 0"
    } else if backend.known.is_in_circle() {
        IN_CIRCLE
    } else if !status.is_up {
        down(backend)
    } else if status.is_ejected {
        CONNECTIONS_FAIL
    } else {
        "it is at its hard limit"
    }
}
