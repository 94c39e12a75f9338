//! Explanation of a route's action: a reply of its own, or the server that is next.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use http::request::Parts;
use serde::Serialize;
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::Backend;
use tidegate_upstream::group::{Balance, Candidate};

use crate::authentication::identity::Identity;
use crate::config::{RouteConfig, SplitConfig};
use crate::observed::record::phase_word;
use crate::response::replies::early;
use crate::routes::route::{Route, RouteAction};
use crate::routes::split::{SplitSide, Why};
use crate::servers::adaptive::AdaptiveStatus;
use crate::servers::upstream::Upstream;

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ExplainedAction {
    /// The gateway answers itself.
    Reply {
        status: u16,
        /// Why it does so before it asks whose the request is or charges it: `maintenance`, `head_too_large`, `preflight`.
        #[serde(skip_serializing_if = "Option::is_none")]
        because_of: Option<&'static str>,
    },
    /// A server does.
    Forward(Box<ExplainedUpstream>),
}

#[derive(Debug, Serialize)]
pub(super) struct ExplainedUpstream {
    upstream: String,
    /// The route's canary, and whether the request goes there.
    #[serde(skip_serializing_if = "Option::is_none")]
    canary: Option<ExplainedCanary>,
    /// What the route's upstreams get of the requests, and why this one goes where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<ExplainedSplit>,
    /// Where a copy goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    mirror: Option<String>,
    /// What takes the request when none of the servers below gives a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<ExplainedFallback>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route_breaker: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_breaker: Option<&'static str>,
    /// The limit that is found by how long its replies take.
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive_limit: Option<ExplainedLimit>,
    balance: &'static str,
    /// What is compared of the servers.
    score_is: &'static str,
    /// No server is usable, so that others count, too.
    panic: bool,
    /// The server that would be next.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    servers: Vec<ExplainedServer>,
}

#[derive(Debug, Serialize)]
struct ExplainedLimit {
    limit: u32,
    under_way: u32,
    /// `shadow`, if it refuses nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct ExplainedCanary {
    upstream: String,
    taken: bool,
    because: String,
}

#[derive(Debug, Serialize)]
struct ExplainedSplit {
    shares: Vec<ExplainedShare>,
    because: String,
}

#[derive(Debug, Serialize)]
struct ExplainedShare {
    upstream: String,
    percent: f64,
}

#[derive(Debug, Serialize)]
struct ExplainedFallback {
    /// Asked first.
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    /// What the client is told when that gives no reply either.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

#[derive(Debug, Serialize)]
struct ExplainedServer {
    server: String,
    score: f64,
    /// Its weight, less while it starts slowly; 0: it gets nothing now.
    share: f64,
    up: bool,
    ejected: bool,
    /// Why it gets nothing, or why connections to it fail: what its last health check says, or what is wrong with its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    because_of: Option<String>,
    full: bool,
    requests: u32,
    latency_ms: f64,
}

/// What is answered before anybody asks whose the request is or charges it, and why.
pub(super) fn before_limits(route: &RouteConfig, request: &Parts, client: IpAddr) -> Option<ExplainedAction> {
    let early = early(route, request, client)?;
    let because_of = Some(early.word());
    Some(ExplainedAction::Reply { status: early.reply().status().as_u16(), because_of })
}

/// What the route does with a request that is let through.
pub(super) fn explained_action(
    route: &Route,
    request: &Parts,
    identity: Option<&Identity>,
    client: IpAddr,
    now: Tick,
) -> ExplainedAction {
    let main = match &route.action {
        RouteAction::Redirect(redirect) => {
            return ExplainedAction::Reply { status: redirect.status.as_u16(), because_of: None };
        }
        RouteAction::Reply(reply) => {
            return ExplainedAction::Reply { status: reply.status.as_u16(), because_of: None };
        }
        RouteAction::Forward(main) => main,
    };
    let (upstream, side) = route.side(main, request, identity, client);
    let mut explained = explained_upstream(route, upstream, request, client, now);
    if let (Some(side), Some(split)) = (side, &route.config.split) {
        if split.is_canary {
            explained.canary = explained_canary(split, main, side);
        } else {
            explained.split = explained_split(split, main, side);
        }
    }
    explained.mirror = route.mirror.as_ref().map(|mirror| mirror.upstream.config.name.to_string());
    let RouteConfig { fallback, fallback_upstream, .. } = &*route.config;
    explained.fallback = (fallback.is_some() || fallback_upstream.is_some()).then(|| ExplainedFallback {
        upstream: fallback_upstream.as_ref().map(ToString::to_string),
        status: fallback.as_ref().map(|reply| reply.status.as_u16()),
    });
    ExplainedAction::Forward(Box::new(explained))
}

/// The canary, which has the first of the places.
fn explained_canary(split: &SplitConfig, main: &Upstream, side: SplitSide) -> Option<ExplainedCanary> {
    let (upstream, places) = split.places(&main.config.name).next()?;
    let because = match side.why {
        Why::Fields => "its fields send it there".to_owned(),
        Why::Share { place } => {
            let [place, end] = [place, places.end].map(percent);
            format!("its place is {place} of 100, and those below {end} go there")
        }
    };
    Some(ExplainedCanary { upstream: upstream.to_string(), taken: side.share.is_some(), because })
}

/// All shares of a split, and the place of a request.
fn explained_split(split: &SplitConfig, main: &Upstream, side: SplitSide) -> Option<ExplainedSplit> {
    let parts: Vec<_> = split.places(&main.config.name).collect();
    let because = match side.why {
        Why::Fields => "its fields send it there".to_owned(),
        Why::Share { place } => {
            let (_, places) = parts.get(side.share.unwrap_or(parts.len() - 1))?;
            let [place, start, end] = [place, places.start, places.end].map(percent);
            format!("its place is {place} of 100, and those from {start} to below {end} go there")
        }
    };
    let share = |(upstream, places): (&Arc<str>, Range<u64>)| ExplainedShare {
        upstream: upstream.to_string(),
        percent: percent(places.end - places.start),
    };
    Some(ExplainedSplit { shares: parts.into_iter().map(share).collect(), because })
}

fn percent(per_thousand: u64) -> f64 {
    per_thousand as f64 / 10.0
}

fn explained_upstream(
    route: &Route,
    upstream: &Upstream,
    request: &Parts,
    client: IpAddr,
    now: Tick,
) -> ExplainedUpstream {
    let pick = upstream.group.explain(upstream.key(&request.headers, client), now);
    let (balance, score_is) = match upstream.group.settings().balance {
        Balance::RoundRobin => ("round_robin", "credit: the highest is next"),
        Balance::LeastRequests => {
            ("least_requests", "requests / share: the lowest is next, of several by share")
        }
        Balance::PeakEwma => (
            "peak_ewma",
            "expected latency x (requests / share + 1): one drawn by share is next, unless a second one costs less than half",
        ),
        Balance::RingHash => {
            ("ring_hash", "requests / weight: the first of the key's servers that is not overloaded is next")
        }
    };
    let backends = upstream.group.backends();
    let server = |(position, (backend, it)): (usize, (&Arc<Backend>, &Candidate))| ExplainedServer {
        server: backend.target().to_string(),
        score: it.score,
        share: it.share,
        up: it.status.is_up,
        ejected: it.status.is_ejected,
        because_of: because_of(upstream, position, backend, it),
        full: it.is_full,
        requests: it.status.in_flight,
        latency_ms: it.status.latency / 1_000_000.0,
    };
    ExplainedUpstream {
        upstream: upstream.config.name.to_string(),
        canary: None,
        split: None,
        mirror: None,
        fallback: None,
        route_breaker: route.breaker.as_ref().map(|breaker| phase_word(breaker.phase())),
        upstream_breaker: upstream.breaker.as_ref().map(|breaker| phase_word(breaker.phase())),
        adaptive_limit: upstream.adaptive.as_ref().map(|limit| {
            let AdaptiveStatus { limit, under_way, is_shadow, .. } = limit.status();
            ExplainedLimit { limit, under_way, mode: is_shadow.then_some("shadow") }
        }),
        balance,
        score_is,
        panic: pick.is_panic,
        next: pick.next.map(|next| backends[next].target().to_string()),
        servers: backends.iter().zip(&pick.candidates).enumerate().map(server).collect(),
    }
}

/// Why a server gets nothing, or why connections to it fail.
fn because_of(upstream: &Upstream, position: usize, backend: &Backend, it: &Candidate) -> Option<String> {
    let down = (!it.status.is_up).then(|| match backend.check_failure() {
        Some(reason) => format!("its health checks fail: {reason}"),
        None => "it is new, and its first health check has not passed yet".to_owned(),
    });
    let refused = || upstream.refused_certificate(position).map(|reason| format!("certificate: {reason}"));
    let ejected = || it.status.is_ejected.then(|| "requests there failed too often in a row".to_owned());
    down.or_else(refused).or_else(ejected)
}
