//! The state of upstreams, routes and a candidate, for metrics and the admin API.

use std::sync::Arc;

use tidegate_algorithms::breaker::Phase;
use tidegate_upstream::backend::BackendStatus;
use tidegate_upstream::client_pair::ClientCertificate;

use super::Gateway;
use crate::authentication::jwt::JwtKeysStatus;
use crate::candidate::{CandidateStats, DifferenceCounts, no_counts};
use crate::forwarding::mirror::MirrorStats;
use crate::observed::flow::{OTHERS, RouteFlow, ServerFlow};
use crate::routes::route::Route;
use crate::servers::adaptive::AdaptiveStatus;
use crate::servers::breaker::Judged;
use crate::servers::upstream::Upstream;

/// What is known of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: Arc<str>,
    /// What its breaker admits; `None`: it has none.
    pub breaker: Option<Phase>,
    /// Its adaptive limit; `None`: it has none.
    pub adaptive: Option<AdaptiveStatus>,
    /// Its servers, by address.
    pub servers: Vec<(String, BackendStatus)>,
}

/// The certificate that the servers of an upstream are shown.
#[derive(Clone, Debug)]
pub struct UpstreamCertificate {
    /// The upstream's name.
    pub upstream: Arc<str>,
    /// What is in force.
    pub certificate: ClientCertificate,
    /// Whether its files as they are now were refused.
    pub is_refused: bool,
}

/// Whose a breaker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerOf {
    /// An upstream's.
    Upstream,
    /// A route's.
    Route,
}

/// What is known of a breaker.
#[derive(Clone, Debug)]
pub struct BreakerStatus {
    /// Whose it is.
    pub of: BreakerOf,
    /// The upstream's or the route's name.
    pub name: Arc<str>,
    /// What it judges by.
    pub judged: Judged,
}

impl Gateway {
    /// What is known of each upstream.
    #[must_use]
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let now = self.clock.tick();
        let status = |upstream: &Arc<Upstream>| UpstreamStatus {
            name: Arc::clone(&upstream.config.name),
            breaker: upstream.breaker.as_ref().map(|breaker| breaker.phase()),
            adaptive: upstream.adaptive.as_ref().map(|limit| limit.status()),
            servers: upstream
                .group
                .backends()
                .iter()
                .map(|backend| (backend.target().to_string(), backend.status(now)))
                .collect(),
        };
        self.site.load().upstreams.iter().map(status).collect()
    }

    /// The certificates that servers are shown, of upstreams that have one.
    #[must_use]
    pub fn certificates(&self) -> Vec<UpstreamCertificate> {
        let shown = |upstream: &Arc<Upstream>| {
            let tls = upstream.config.tls.as_ref()?;
            let (certificate, is_refused) = (tls.certificate()?, tls.is_certificate_refused());
            Some(UpstreamCertificate { upstream: Arc::clone(&upstream.config.name), certificate, is_refused })
        };
        self.site.load().upstreams.iter().filter_map(shown).collect()
    }

    /// What is counted of each route's requests, in the order of the configuration; last of all others together, if there were some.
    #[must_use]
    pub fn route_flows(&self) -> Vec<RouteFlow> {
        let site = self.site.load();
        let apart = site.routes.iter().filter(|route| !self.flows_of_routes.is_shared(&route.flow));
        let flow = |route: &Arc<Route>| RouteFlow {
            route: Arc::clone(&route.config.name),
            totals: route.flow.totals(),
        };
        let others = self.flows_of_routes.others();
        let others = others.map(|totals| RouteFlow { route: OTHERS.into(), totals });
        apart.map(flow).chain(others).collect()
    }

    /// What is counted at each server, in the order of the configuration; last at all others together, if there were some.
    #[must_use]
    pub fn server_flows(&self) -> Vec<ServerFlow> {
        let site = self.site.load();
        let set = &self.flows_of_servers;
        let apart = site.upstreams.iter().flat_map(|upstream| {
            let servers = upstream.group.backends().iter().zip(&upstream.pools);
            let servers = servers.filter(move |(_, pool)| !set.is_shared(pool.flow()));
            servers.map(move |(backend, pool)| ServerFlow {
                upstream: Arc::clone(&upstream.config.name),
                server: backend.target().to_string(),
                totals: pool.flow().totals(),
            })
        });
        let others = set.others().map(|totals| ServerFlow {
            upstream: OTHERS.into(),
            server: OTHERS.to_owned(),
            totals,
        });
        apart.chain(others).collect()
    }

    /// The routes that have a breaker of their own, and what it admits.
    #[must_use]
    pub fn route_breakers(&self) -> Vec<(Arc<str>, Phase)> {
        let site = self.site.load();
        let phase =
            |route: &Arc<Route>| Some((Arc::clone(&route.config.name), route.breaker.as_ref()?.phase()));
        site.routes.iter().filter_map(phase).collect()
    }

    /// What each breaker judges by now: those of upstreams, then those of routes.
    #[must_use]
    pub fn breakers(&self) -> Vec<BreakerStatus> {
        let (site, now) = (self.site.load(), self.clock.tick());
        let upstreams = site.upstreams.iter().filter_map(|upstream| {
            let judged = upstream.breaker.as_ref()?.seen(now);
            Some(BreakerStatus { of: BreakerOf::Upstream, name: Arc::clone(&upstream.config.name), judged })
        });
        let routes = site.routes.iter().filter_map(|route| {
            let judged = route.breaker.as_ref()?.seen(now);
            Some(BreakerStatus { of: BreakerOf::Route, name: Arc::clone(&route.config.name), judged })
        });
        upstreams.chain(routes).collect()
    }

    /// How the keys of each issuer fare that routes name by a URL.
    #[must_use]
    pub fn jwt_keys(&self) -> Vec<JwtKeysStatus> {
        let site = self.site.load();
        let mut all: Vec<JwtKeysStatus> = site.issuers().map(|issuer| issuer.status()).collect();
        all.sort_unstable_by(|one, other| one.url.cmp(&other.url));
        all.dedup_by(|one, other| one.url == other.url);
        all
    }

    /// What became of the copies of each route's requests, of routes that have copies.
    #[must_use]
    pub fn mirrors(&self) -> Vec<MirrorStats> {
        let site = self.site.load();
        let stats =
            site.routes.iter().filter_map(|route| Some(route.mirror.as_ref()?.stats(&route.config.name)));
        stats.collect()
    }

    /// What was found of the candidate that is judged beside what is in force, if there is one.
    #[must_use]
    pub fn candidate(&self) -> Option<CandidateStats> {
        self.site.load().candidate.as_ref().map(|candidate| candidate.stats())
    }

    /// How many requests would fare the same, and how many in which way otherwise.
    #[must_use]
    pub fn candidate_counts(&self) -> DifferenceCounts {
        self.site.load().candidate.as_ref().map_or_else(no_counts, |candidate| candidate.counts())
    }
}
