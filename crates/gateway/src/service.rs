//! The gateway as a service: what is in force, how it is replaced, and its place behind a listener.
//!
//! A request takes the site that is in force when it comes and keeps it to its end, so that a change
//! fails nobody. Upstreams whose configuration did not change are taken over as they are, with their
//! connections, breakers and health; of the others, servers that stay keep theirs.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use http::Request;
use tidegate_algorithms::breaker::Phase;
use tidegate_algorithms::random::Random;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_net::http::{Handle, Peer, Reply, RequestBody};
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Route as CountedRoute;
use tidegate_upstream::backend::BackendStatus;
use tidegate_upstream::connect::Resolver;
use tokio::runtime;

use crate::checks;
use crate::config::{Action, GatewayConfig, RouteConfig, UpstreamConfig};
use crate::limits::Limits;
use crate::route::{Route, RouteAction};
use crate::table::Table;
use crate::upstream::Upstream;

/// How long a name's addresses are used before they are looked up again.
const DNS_REFRESH: Duration = Duration::from_secs(5);

/// How often idle connections are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// What a listener's metrics call requests of the gateway.
pub const TEMPLATES: &[&str] = &["other", "routed"];
const ROUTED: u8 = 1;

/// What holds for all routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewaySettings {
    /// How many proxies in front are trusted to append to `X-Forwarded-For` (fault 48). 0: the field is
    /// not believed.
    pub trusted_hops: usize,
}

/// A gateway, with the limiter `L` in front of its routes.
#[derive(Debug)]
pub struct Gateway<L> {
    site: ArcSwap<Site>,
    limits: L,
    settings: GatewaySettings,
    clock: Clock,
    resolver: Resolver,
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
        let resolver = Resolver::new(DNS_REFRESH);
        let cores = (0..cores.count()).map(|core| cores.handle(core).clone()).collect();
        Self { site: ArcSwap::default(), limits, settings, clock, resolver, cores }
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
        let routes = config.routes.iter();
        let routes =
            routes.map(|config| route(config, known.get(&*config.name).copied(), &upstreams)).collect();
        let table = Table::new(config.routes.iter().map(|config| &**config));
        let in_order = config.upstreams.iter().filter_map(|config| upstreams.get(&config.name).cloned());
        let upstreams = in_order.collect();
        self.site.store(Arc::new(Site { routes, table, upstreams }));
    }

    /// An upstream in force: `before` itself if it did not change.
    fn upstream(&self, config: &Arc<UpstreamConfig>, before: Option<&Arc<Upstream>>) -> Arc<Upstream> {
        if let Some(same) = before.filter(|before| before.config == *config) {
            return Arc::clone(same);
        }
        let [seed, check_seed, _] = self.random();
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

    /// Closes idle connections in time, for as long as it is polled.
    pub async fn sweep(&self) {
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

    pub(crate) fn settings(&self) -> GatewaySettings {
        self.settings
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    pub(crate) fn tick(&self) -> Tick {
        self.clock.tick()
    }

    /// Three random numbers: names for traces, and jitter. They are no secrets.
    pub(crate) fn random(&self) -> [u64; 3] {
        thread_local! {
            static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
        }
        let mut random = Random::seeded(STATE.get());
        let drawn = [random.bits(), random.bits(), random.bits()];
        STATE.set(random.bits());
        drawn
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
) -> Arc<Route> {
    let action = match &config.action {
        Action::Reply(reply) => RouteAction::Reply(reply.clone()),
        Action::Forward { upstream } => {
            // Invariant: who makes a `GatewayConfig` has looked the name up.
            let upstream = upstreams.get(upstream);
            RouteAction::Forward(Arc::clone(upstream.expect("a route's upstream is one of the gateway's")))
        }
    };
    let same_upstream = |known: &Route| match (&known.action, &action) {
        (RouteAction::Forward(before), RouteAction::Forward(now)) => Arc::ptr_eq(before, now),
        (before, now) => matches!((before, now), (RouteAction::Reply(_), RouteAction::Reply(_))),
    };
    let same = before.filter(|before| before.config == *config && same_upstream(before));
    same.cloned().unwrap_or_else(|| Arc::new(Route::new(Arc::clone(config), action)))
}
