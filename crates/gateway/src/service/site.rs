//! The site: routes and upstreams in force, made of a configuration and of the site before.
//!
//! Upstreams whose configuration did not change are taken over as they are, with their connections, breakers and health; of
//! the others, servers that stay keep theirs. So it is with routes: one that did not change is taken over as it is; one that
//! changed, or whose upstream did, keeps what is counted of it, and its breaker, the times that hedging goes by and what it knows of tokens
//! where the rule and the upstreams' names are the same. The keys of an issuer are fetched once for all routes that name it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use tidegate_net::clock::wall;

use crate::authentication::authority::Authority;
use crate::authentication::identity::taken_off;
use crate::authentication::jwt::{self, IssuerKeys, JwtVerifier};
use crate::candidate::Candidate;
use crate::config::{
    Action, Auth, GatewayConfig, JwtKeysUrl, KeyPlace, RouteConfig, TokenPlace, UpstreamConfig,
};
use crate::forwarding::mirror::{MIRRORED, Mirror};
use crate::observed::flow::{Flow, FlowsToCome, OTHERS};
use crate::observed::number::next_number;
use crate::random::random;
use crate::response::refusal::Refusal;
use crate::routes::route::{Route, RouteAction};
use crate::routes::table::Table;
use crate::routes::target::TargetPath;
use crate::servers::breaker::SharedBreaker;
use crate::servers::checks;
use crate::servers::upstream::Upstream;

use super::Gateway;

/// Routes and upstreams that are in force together.
#[derive(Debug, Default)]
pub(crate) struct GatewaySite {
    pub(crate) routes: Vec<Arc<Route>>,
    pub(crate) table: Table,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// What is judged beside them, if something is.
    pub(crate) candidate: Option<Arc<Candidate>>,
    /// The parameters of targets in which some route looks for a key or a token, in order.
    parameters: Vec<Box<str>>,
}

impl GatewaySite {
    /// The keys that its routes verify tokens with, as often as routes do.
    pub(crate) fn issuers(&self) -> impl Iterator<Item = &Arc<IssuerKeys>> {
        self.routes.iter().filter_map(|route| route.jwt.as_ref()?.issuer.as_ref())
    }

    /// Whether some route looks for a key or a token in this parameter.
    pub(crate) fn is_secret(&self, parameter: &str) -> bool {
        self.parameters.binary_search_by(|known| (**known).cmp(parameter)).is_ok()
    }

    /// The position of the route that takes a request.
    pub(crate) fn route_for(
        &self,
        host: &str,
        path: &TargetPath,
        request: &Parts,
    ) -> Result<Option<usize>, Refusal> {
        let accepts = |position: usize| self.routes[position].accepts(request);
        let encoded = |position: usize| self.routes[position].config.slashes.encoded;
        self.table.route(host, path, accepts, encoded)
    }

    /// Tells each upstream the breakers of the routes whose requests it gets: a check of it that passes is news for them, too.
    fn share_breakers(&self) {
        let mut used: HashMap<&str, Vec<Arc<SharedBreaker>>> = HashMap::new();
        for route in &self.routes {
            let Some(breaker) = &route.breaker else { continue };
            for upstream in route.first_upstreams() {
                used.entry(&upstream.config.name).or_default().push(Arc::clone(breaker));
            }
        }
        for upstream in &self.upstreams {
            upstream.is_used_by(used.remove(&*upstream.config.name).unwrap_or_default());
        }
    }
}

impl Gateway {
    /// Puts `config` in force, and starts the checks of its servers. One caller at a time.
    pub fn apply(&self, config: &GatewayConfig) {
        let before = self.site.load_full();
        let known: HashMap<&str, &Arc<Upstream>> =
            before.upstreams.iter().map(|upstream| (&*upstream.config.name, upstream)).collect();
        let mut flows = self.flows_of_servers.to_come(flows_of_servers(config, &known));
        let upstreams: HashMap<Arc<str>, Arc<Upstream>> = config
            .upstreams
            .iter()
            .map(|config| {
                let before = known.get(&*config.name).copied();
                (Arc::clone(&config.name), self.upstream(config, &mut flows, before))
            })
            .collect();
        let known: HashMap<&str, &Arc<Route>> =
            before.routes.iter().map(|route| (&*route.config.name, route)).collect();
        let stay = config.routes.iter().filter_map(|config| Some(&known.get(&*config.name)?.flow));
        let mut flows = self.flows_of_routes.to_come(stay);
        let missing = &config.missing_policies;
        let claims = self.claims(config);
        let mut issuers: HashMap<Arc<str>, Arc<IssuerKeys>> =
            before.issuers().map(|issuer| (Arc::clone(&issuer.url().text), Arc::clone(issuer))).collect();
        let routes = config.routes.iter().map(|config| {
            let config = without_claims(config, &claims);
            let issuer = config.keys_url().map(|url| {
                let made = || self.issuer(url);
                Arc::clone(issuers.entry(Arc::clone(&url.text)).or_insert_with(made))
            });
            let before = known.get(&*config.name).copied();
            let flow = match &*config.name {
                // Of a page with a series twice, Prometheus takes nothing.
                OTHERS => flows.shared(),
                _ => flows.counters(before.map(|before| &before.flow)),
            };
            route(&config, before, &upstreams, missing, issuer, flow)
        });
        let routes = routes.collect();
        let table = Table::new(config.routes.iter().map(|config| &**config));
        let in_order = config.upstreams.iter().filter_map(|config| upstreams.get(&config.name).cloned());
        let upstreams = in_order.collect();
        let last = before.candidate.as_ref();
        let candidate = config.candidate.as_ref().map(|it| Candidate::beside(config, it, last, wall()));
        let site = GatewaySite { routes, table, upstreams, candidate, parameters: parameters(config) };
        site.share_breakers();
        self.site.store(Arc::new(site));
    }

    /// The fields in which only this gateway may say whose a request is.
    fn claims(&self, config: &GatewayConfig) -> Vec<HeaderName> {
        let mut names: Vec<HeaderName> = self.identity_fields.names().cloned().collect();
        for route in &config.routes {
            names.extend(route.mirror.as_ref().map(|_| MIRRORED));
            for way in route.ways() {
                match way {
                    Auth::Jwt(jwt) => names.extend(jwt.fields.iter().map(|(name, _)| name.clone())),
                    Auth::Forward(forward) => names.extend(forward.fields.iter().cloned()),
                    Auth::Key(_) | Auth::Certificate(_) | Auth::Any { .. } | Auth::All { .. } => {}
                }
            }
        }
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        names
    }

    /// Keys that are fetched from now on.
    fn issuer(&self, url: &Arc<JwtKeysUrl>) -> Arc<IssuerKeys> {
        let made = IssuerKeys::new(Arc::clone(url));
        if let Some(core) = self.cores.first() {
            drop(core.spawn(jwt::follow(Arc::downgrade(&made), self.resolver.clone())));
        }
        made
    }

    /// An upstream in force: `before` itself if it did not change.
    fn upstream(
        &self,
        config: &Arc<UpstreamConfig>,
        flows: &mut FlowsToCome<'_>,
        before: Option<&Arc<Upstream>>,
    ) -> Arc<Upstream> {
        if let Some(same) = before.filter(|before| before.config == *config) {
            return Arc::clone(same);
        }
        let [seed, check_seed, _] = random();
        let now = self.clock.tick();
        let made = Upstream::new(Arc::clone(config), flows, seed, now, before.map(|before| &**before));
        let made = Arc::new(made);
        if config.check.is_some() {
            for (server, core) in (0..config.servers.len()).zip(self.cores.iter().cycle()) {
                let seed = check_seed.wrapping_add(server as u64);
                let watched = self.verdicts.watch(made.subject(server));
                let (made, resolver) = (Arc::downgrade(&made), self.resolver.clone());
                let watching = checks::watch(made, server, resolver, self.clock, watched, seed);
                drop(core.spawn(watching));
            }
        }
        made
    }
}

/// Where the servers of `config` are counted that are there already, in upstreams of these names.
fn flows_of_servers<'k>(
    config: &'k GatewayConfig,
    known: &'k HashMap<&str, &'k Arc<Upstream>>,
) -> impl Iterator<Item = &'k Arc<Flow>> {
    config.upstreams.iter().flat_map(move |config| {
        let before = known.get(&*config.name).copied();
        config.servers.iter().filter_map(move |server| before?.flow_at(&server.backend.target))
    })
}

/// The parameters in which the routes look for keys and tokens.
fn parameters(config: &GatewayConfig) -> Vec<Box<str>> {
    let mut parameters = Vec::new();
    for way in config.routes.iter().flat_map(|route| route.ways()) {
        match way {
            Auth::Key(key) => parameters.extend(key.places.iter().filter_map(|place| match place {
                KeyPlace::Parameter(name) => Some(name.clone()),
                KeyPlace::Field(_) | KeyPlace::Bearer | KeyPlace::Basic => None,
            })),
            Auth::Jwt(jwt) => parameters.extend(jwt.places.iter().filter_map(|place| match place {
                TokenPlace::Parameter(name) => Some(name.clone()),
                TokenPlace::Bearer | TokenPlace::Cookie(_) | TokenPlace::Protocol(_) => None,
            })),
            Auth::Forward(_) | Auth::Certificate(_) | Auth::Any { .. } | Auth::All { .. } => {}
        }
    }
    parameters.sort_unstable();
    parameters.dedup();
    parameters
}

/// A route that takes the `claims` that clients make off its requests.
fn without_claims(config: &Arc<RouteConfig>, claims: &[HeaderName]) -> Arc<RouteConfig> {
    if claims.is_empty() {
        return Arc::clone(config);
    }
    let request_fields = taken_off(&config.request_fields, claims);
    Arc::new(RouteConfig { request_fields, ..RouteConfig::clone(config) })
}

/// A route in force: `before` itself if it did not change. If it did, or its upstream, it takes over what `before` has learnt where
/// that holds for it, too: a server that registers, or a new weight, closes no breaker.
fn route(
    config: &Arc<RouteConfig>,
    before: Option<&Arc<Route>>,
    upstreams: &HashMap<Arc<str>, Arc<Upstream>>,
    missing: &HashSet<Arc<str>>,
    issuer: Option<Arc<IssuerKeys>>,
    flow: Arc<Flow>,
) -> Arc<Route> {
    // Invariant: who makes a `GatewayConfig` has looked the names up.
    let named = |name: &Arc<str>| {
        Arc::clone(upstreams.get(name).expect("an upstream of a route is one of the gateway's"))
    };
    let action = match &config.action {
        Action::Redirect(redirect) => RouteAction::Redirect(redirect.clone()),
        Action::Reply(reply) => RouteAction::Reply(reply.clone()),
        Action::Forward { upstream } => RouteAction::Forward(named(upstream)),
    };
    let same_auth = before.filter(|before| before.config.auth == config.auth);
    let jwt = config.ways().iter().any(|way| matches!(way, Auth::Jwt(_))).then(|| {
        let known = same_auth.and_then(|before| before.jwt.as_ref());
        JwtVerifier::new(issuer, known)
    });
    let authority = config.ways().iter().find_map(|way| match way {
        Auth::Forward(forward) => Some(Authority::new(named(&forward.upstream))),
        _ => None,
    });
    // What was learnt of other upstreams says nothing of these.
    let same_upstreams = before.filter(|before| before.asks_upstreams_of(config));
    let breaker = config.breaker.map(|settings| {
        let known = same_upstreams.filter(|before| before.config.breaker == config.breaker);
        let known = known.and_then(|before| before.breaker.clone());
        known.unwrap_or_else(|| Arc::new(SharedBreaker::new(settings, "route", &config.name)))
    });
    let hedge =
        config.hedge.then(|| same_upstreams.and_then(|before| before.hedge.clone()).unwrap_or_default());
    let mirror = config.mirror.as_ref().map(|mirror| {
        let known = same_upstreams.and_then(|before| before.mirror.as_deref());
        Mirror::new(mirror, &config.name, named(&mirror.upstream), known)
    });
    let shares = config.split.iter().flat_map(|split| &split.shares);
    let made = Route {
        action,
        fallback: config.fallback_upstream.as_ref().map(named),
        lacks: config.policies.iter().find(|policy| missing.contains(*policy)).cloned(),
        breaker,
        shares: shares.map(|share| named(&share.upstream)).collect(),
        mirror,
        hedge,
        jwt,
        authority,
        flow,
        number: next_number(),
        config: Arc::clone(config),
    };
    match before {
        Some(before) if before.is_same(&made) => Arc::clone(before),
        _ => Arc::new(made),
    }
}
