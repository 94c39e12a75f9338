//! The gateway as a service: what is in force, how it is replaced, and its place behind a listener.
//!
//! A request takes the site that is in force when it comes and keeps it to its end, so that a change
//! fails nobody. Upstreams whose configuration did not change are taken over as they are, with their
//! connections, breakers and health; of the others, servers that stay keep theirs.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use http::Request;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use tidegate_access::keys::ApiKeys;
use tidegate_algorithms::breaker::Phase;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_net::http::{Handle, Peer, Reply, RequestBody};
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Route as CountedRoute;
use tidegate_upstream::backend::{BackendStatus, Host};
use tidegate_upstream::connect::Resolver;
use tokio::runtime;

use crate::access_log::AccessLog;
pub use crate::authenticate::IdentityFields;
use crate::checks;
use crate::config::{Action, GatewayConfig, RouteConfig, UpstreamConfig};
use crate::limits::Limits;
use crate::pool::Pool;
use crate::random::random;
use crate::record::TRACE;
use crate::route::{Route, RouteAction};
use crate::table::Table;
use crate::upstream::Upstream;

/// How often idle connections are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// What a listener's metrics call requests of the gateway.
pub const TEMPLATES: &[&str] = &["other", "routed"];
const ROUTED: u8 = 1;

/// What holds for all routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewaySettings {
    /// How many proxies in front are trusted to append to `X-Forwarded-For` (fault 48). 0: the field is
    /// not believed.
    pub trusted_hops: usize,
    /// How long the addresses of a server's name are used before they are looked up again.
    pub dns_refresh: Duration,
    /// Whether a route that lists a policy which is not in force is served without it.
    pub serves_without_policies: bool,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self { trusted_hops: 0, dns_refresh: Duration::from_secs(5), serves_without_policies: false }
    }
}

/// Who may ask for traces: says so of the value of a field `Authorization`.
pub struct TraceGuard(Box<Admits>);

type Admits = dyn Fn(&[u8]) -> bool + Send + Sync;

impl TraceGuard {
    /// Those of whom `admits` says so.
    pub fn new(admits: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self(Box::new(admits))
    }
}

impl fmt::Debug for TraceGuard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TraceGuard")
    }
}

/// A gateway, with the limiter `L` in front of its routes.
#[derive(Debug)]
pub struct Gateway<L> {
    site: ArcSwap<Site>,
    limits: L,
    settings: GatewaySettings,
    clock: Clock,
    resolver: Resolver,
    access_log: Option<Arc<AccessLog>>,
    keys: Arc<ApiKeys>,
    identity_fields: IdentityFields,
    /// `None`: nobody may ask for traces.
    trace_guard: Option<TraceGuard>,
    /// The runtime of each core, where servers are checked.
    cores: Vec<runtime::Handle>,
}

/// Routes and upstreams that are in force together.
#[derive(Debug, Default)]
pub(crate) struct Site {
    pub(crate) routes: Vec<Arc<Route>>,
    pub(crate) table: Table,
    upstreams: Vec<Arc<Upstream>>,
}

/// What is known of an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// Its name.
    pub name: Arc<str>,
    /// What its breaker admits; `None`: it has none.
    pub breaker: Option<Phase>,
    /// Its servers, by address.
    pub servers: Vec<(String, BackendStatus)>,
}

impl<L: Limits> Gateway<L> {
    /// A gateway without routes, for listeners on `cores`.
    #[must_use]
    pub fn new(limits: L, settings: GatewaySettings, clock: Clock, cores: &Cores) -> Self {
        let resolver = Resolver::new(settings.dns_refresh);
        let cores = (0..cores.count()).map(|core| cores.handle(core).clone()).collect();
        Self {
            site: ArcSwap::default(),
            limits,
            settings,
            clock,
            resolver,
            access_log: None,
            keys: Arc::new(ApiKeys::new("")),
            identity_fields: IdentityFields::default(),
            trace_guard: None,
            cores,
        }
    }

    /// The same with an access log.
    #[must_use]
    pub fn with_access_log(self, access_log: Option<Arc<AccessLog>>) -> Self {
        Self { access_log, ..self }
    }

    /// The same with API keys, and fields by which servers are told whose a request is.
    #[must_use]
    pub fn with_keys(self, keys: Arc<ApiKeys>, identity_fields: IdentityFields) -> Self {
        Self { keys, identity_fields, ..self }
    }

    /// The same for which those that `guard` admits may ask for traces.
    #[must_use]
    pub fn with_traces(self, guard: TraceGuard) -> Self {
        Self { trace_guard: Some(guard), ..self }
    }

    /// Puts `config` in force, and starts the checks of its servers. One caller at a time.
    pub fn apply(&self, config: &GatewayConfig) {
        let before = self.site.load_full();
        let known: HashMap<&str, &Arc<Upstream>> =
            before.upstreams.iter().map(|upstream| (&*upstream.config.name, upstream)).collect();
        let upstreams: HashMap<Arc<str>, Arc<Upstream>> = config
            .upstreams
            .iter()
            .map(|config| {
                (Arc::clone(&config.name), self.upstream(config, known.get(&*config.name).copied()))
            })
            .collect();
        let known: HashMap<&str, &Arc<Route>> =
            before.routes.iter().map(|route| (&*route.config.name, route)).collect();
        let missing = &config.missing_policies;
        let routes = config.routes.iter().map(|config| {
            let config = self.without_claims(config);
            route(&config, known.get(&*config.name).copied(), &upstreams, missing)
        });
        let routes = routes.collect();
        let table = Table::new(config.routes.iter().map(|config| &**config));
        let in_order = config.upstreams.iter().filter_map(|config| upstreams.get(&config.name).cloned());
        let upstreams = in_order.collect();
        self.site.store(Arc::new(Site { routes, table, upstreams }));
    }

    /// A route that takes off its requests what only this gateway may say of their clients.
    fn without_claims(&self, config: &Arc<RouteConfig>) -> Arc<RouteConfig> {
        let request_fields = self.identity_fields.taken_off(&config.request_fields);
        if request_fields == config.request_fields {
            return Arc::clone(config);
        }
        Arc::new(RouteConfig { request_fields, ..RouteConfig::clone(config) })
    }

    /// An upstream in force: `before` itself if it did not change.
    fn upstream(&self, config: &Arc<UpstreamConfig>, before: Option<&Arc<Upstream>>) -> Arc<Upstream> {
        if let Some(same) = before.filter(|before| before.config == *config) {
            return Arc::clone(same);
        }
        let [seed, check_seed, _] = random();
        let (now, cores) = (self.clock.tick(), self.cores.len());
        let made = Upstream::new(Arc::clone(config), cores, seed, now, before.map(|before| &**before));
        let made = Arc::new(made);
        if config.check.is_some() {
            for (server, core) in (0..config.servers.len()).zip(self.cores.iter().cycle()) {
                let seed = check_seed.wrapping_add(server as u64);
                let watching =
                    checks::watch(Arc::downgrade(&made), server, self.resolver.clone(), self.clock, seed);
                drop(core.spawn(watching));
            }
        }
        made
    }

    /// Closes idle connections in time, and follows the names of servers, for as long as it is polled.
    pub async fn maintain(&self) {
        tokio::join!(self.sweep(), self.follow_names());
    }

    /// Looks the names of servers up again, one after the other: a busy connection would lead to the old address for
    /// ever.
    async fn follow_names(&self) {
        loop {
            tokio::time::sleep(self.settings.dns_refresh).await;
            let site = self.site.load_full();
            let servers = || {
                site.upstreams
                    .iter()
                    .flat_map(|upstream| upstream.group.backends().iter().zip(&upstream.pools))
            };
            let named = servers().filter_map(|(backend, pool)| match &backend.target().host {
                Host::Name(name) => Some((&**name, pool)),
                Host::Address(_) => None,
            });
            let named: Vec<(&str, &Arc<Pool>)> = named.collect();
            let used: HashSet<&str> = named.iter().map(|(name, _)| *name).collect();
            self.resolver.forget(|name| !used.contains(name));
            for (name, pool) in named {
                if let Some(addresses) = self.resolver.again(name).await {
                    pool.keep_to(&addresses);
                }
            }
        }
    }

    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            let now = monotonic();
            for upstream in &self.site.load_full().upstreams {
                upstream.pools.iter().for_each(|pool| pool.sweep(now));
            }
        }
    }

    /// What is known of each upstream.
    #[must_use]
    pub fn upstreams(&self) -> Vec<UpstreamStatus> {
        let now = self.clock.tick();
        let status = |upstream: &Arc<Upstream>| UpstreamStatus {
            name: Arc::clone(&upstream.config.name),
            breaker: upstream.breaker.as_ref().map(|breaker| breaker.phase()),
            servers: upstream
                .group
                .backends()
                .iter()
                .map(|backend| (backend.target().to_string(), backend.status(now)))
                .collect(),
        };
        self.site.load().upstreams.iter().map(status).collect()
    }

    /// As [`Gateway::site`], to hold on to.
    pub(crate) fn site_in_force(&self) -> Arc<Site> {
        self.site.load_full()
    }

    pub(crate) fn site(&self) -> Guard<Arc<Site>> {
        self.site.load()
    }

    pub(crate) fn limits(&self) -> &L {
        &self.limits
    }

    /// The API keys in force.
    #[must_use]
    pub fn keys(&self) -> &Arc<ApiKeys> {
        &self.keys
    }

    pub(crate) fn identity_fields(&self) -> &IdentityFields {
        &self.identity_fields
    }

    pub(crate) fn settings(&self) -> GatewaySettings {
        self.settings
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    pub(crate) fn tick(&self) -> Tick {
        self.clock.tick()
    }

    /// Its access log, if it has one.
    #[must_use]
    pub fn access_log(&self) -> Option<&Arc<AccessLog>> {
        self.access_log.as_ref()
    }

    /// Whether a request asks for a trace and may. What it asks with goes no further: neither the field, nor the token
    /// that was good for it.
    pub(crate) fn takes_trace(&self, fields: &mut HeaderMap) -> bool {
        let (Some(asked), Some(guard)) = (fields.remove(TRACE), &self.trace_guard) else { return false };
        let admits = |value: &HeaderValue| (guard.0)(value.as_bytes());
        let token = [PROXY_AUTHORIZATION, AUTHORIZATION];
        let token = token.into_iter().find(|name| fields.get(name).is_some_and(admits));
        let Some(name) = token else { return false };
        fields.remove(name);
        asked == "1"
    }
}

/// A gateway behind a listener; several listeners may share one.
#[derive(Debug)]
pub struct GatewayService<L>(pub Arc<Gateway<L>>);

impl<L: Limits> Handle for GatewayService<L> {
    async fn handle(&self, request: Request<RequestBody>, peer: &Peer) -> Reply {
        let answer = self.0.proxy(request, peer).await;
        let counted = if answer.route.is_some() { CountedRoute::new(ROUTED) } else { CountedRoute::OTHER };
        match answer.upgrade {
            None => Reply::new(counted, answer.reply),
            Some((offer, tunnel)) => {
                let head = answer.reply.map(drop);
                Reply::upgrade(counted, offer, head, |client| tunnel.run(client))
            }
        }
    }

    fn may_upgrade(&self) -> bool {
        true
    }
}

/// A route in force; `before` itself if it did not change, so that it keeps its breaker.
fn route(
    config: &Arc<RouteConfig>,
    before: Option<&Arc<Route>>,
    upstreams: &HashMap<Arc<str>, Arc<Upstream>>,
    missing: &HashSet<Arc<str>>,
) -> Arc<Route> {
    let lacks = config.policies.iter().find(|policy| missing.contains(*policy)).cloned();
    let action = match &config.action {
        Action::Reply(reply) => RouteAction::Reply(reply.clone()),
        Action::Forward { upstream } => {
            // Invariant: who makes a `GatewayConfig` has looked the name up.
            let upstream = upstreams.get(upstream);
            RouteAction::Forward(Arc::clone(upstream.expect("a route's upstream is one of the gateway's")))
        }
    };
    // Invariant: as above.
    let fallback = config.fallback_upstream.as_ref().map(|name| {
        Arc::clone(upstreams.get(name).expect("a route's fallback is one of the gateway's upstreams"))
    });
    let is_same = |before: &Option<Arc<Upstream>>, now: &Option<Arc<Upstream>>| match (before, now) {
        (Some(before), Some(now)) => Arc::ptr_eq(before, now),
        (before, now) => before.is_none() && now.is_none(),
    };
    let same_upstream = |known: &Route| match (&known.action, &action) {
        (RouteAction::Forward(before), RouteAction::Forward(now)) => Arc::ptr_eq(before, now),
        (before, now) => matches!((before, now), (RouteAction::Reply(_), RouteAction::Reply(_))),
    };
    let same = before.filter(|before| {
        before.config == *config
            && before.lacks == lacks
            && same_upstream(before)
            && is_same(&before.fallback, &fallback)
    });
    same.cloned().unwrap_or_else(|| Arc::new(Route::new(Arc::clone(config), action, fallback, lacks)))
}
