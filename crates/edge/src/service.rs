//! The edge as a service: what is in force, and how it is replaced.
//!
//! A connection takes the site that is in force when it comes, its listener's part included, and keeps its backend to its
//! end, so that a change touches no running connection. Backends that stay keep their connections' count, health and
//! counters.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use parking_lot::Mutex;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::Clock;
use tidegate_net::runtime::Cores;
use tidegate_upstream::backend::{Host, Target};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::verdicts::Verdicts;
use tokio::net::TcpStream;
use tokio::runtime;

use crate::backend::EdgeBackend;
use crate::checks;
use crate::config::{BackendConfig, EdgeConfig, ListenerConfig};
use crate::decisions::DecisionRing;
use crate::geo::Database;
pub use crate::listener::EdgeListener;
use crate::own::{self, BoundListener};
use crate::site::Site;

/// How long a name's addresses are used before they are looked up again, where DNS does not say it.
pub const DNS_REFRESH: Duration = Duration::from_secs(5);

/// An edge: its backends, and where clients are. Its listeners share it.
pub struct Edge {
    site: ArcSwap<Site>,
    database: ArcSwapOption<Database>,
    decisions: DecisionRing,
    /// See [`crate::pool`].
    troubles: Arc<AtomicU64>,
    clock: Clock,
    resolver: Resolver,
    /// The runtime of each core, where backends are checked.
    cores: Vec<runtime::Handle>,
    verdicts: Verdicts,
    applying: Mutex<()>,
    /// Its listeners: those that are open, and those that drain.
    bound: ArcSwap<Vec<BoundListener>>,
}

impl fmt::Debug for Edge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Edge").finish_non_exhaustive()
    }
}

impl Edge {
    /// An edge without backends, for listeners on `cores`.
    #[must_use]
    pub fn new(clock: Clock, cores: &Cores) -> Self {
        Self {
            site: ArcSwap::default(),
            database: ArcSwapOption::empty(),
            decisions: DecisionRing::default(),
            troubles: Arc::default(),
            clock,
            resolver: Resolver::new(DNS_REFRESH),
            cores: (0..cores.count()).map(|core| cores.handle(core).clone()).collect(),
            verdicts: Verdicts::default(),
            applying: Mutex::default(),
            bound: ArcSwap::default(),
        }
    }

    /// The same that tells other nodes what its checks find, and hears what theirs do.
    #[must_use]
    pub fn with_verdicts(self, verdicts: Verdicts) -> Self {
        Self { verdicts, ..self }
    }

    /// The same that looks the addresses of a backend's name up again after `refresh`, where DNS does not say when.
    #[must_use]
    pub fn with_dns_refresh(self, refresh: Duration) -> Self {
        Self { resolver: Resolver::new(refresh), ..self }
    }

    /// Puts `config` in force, and starts the checks of what is new in it.
    pub fn apply(&self, config: &EdgeConfig) {
        // One change at a time: each builds on the site that the one before made.
        let _applying = self.applying.lock();
        let before = self.site.load_full();
        let (site, fresh) = Site::new(config, &before, &self.bound.load(), &self.troubles, self.clock.tick());
        self.site.store(Arc::new(site));
        self.look_at_listeners();
        self.has_trouble();
        let named = config.backends.iter().filter_map(|backend| match &backend.target.host {
            Host::Name(name) => Some(&**name),
            Host::Address(_) => None,
        });
        let named: HashSet<&str> = named.collect();
        self.resolver.forget(|name| !named.contains(name));
        let seed = RandomState::new().hash_one(0);
        for ((backend, core), number) in fresh.iter().zip(self.cores.iter().cycle()).zip(0_u64..) {
            if backend.config.check.is_some() {
                let watching = checks::watch(
                    Arc::downgrade(backend),
                    self.resolver.clone(),
                    self.clock,
                    Arc::clone(&self.troubles),
                    self.verdicts.watch(backend.subject()),
                    seed.wrapping_add(number),
                );
                drop(core.spawn(watching));
            }
        }
    }

    /// Takes note of a listener that was bound.
    pub(crate) fn listens(&self, address: SocketAddr, config: Arc<ListenerConfig>) {
        let _applying = self.applying.lock();
        self.change_bound(|bound| bound.push(BoundListener { address, config, is_open: true }));
        self.look_at_listeners();
    }

    /// Takes note that the listener that was bound by `config` accepts no more.
    pub(crate) fn closes(&self, config: &Arc<ListenerConfig>) {
        let _applying = self.applying.lock();
        self.change_bound(|bound| {
            for bound in bound.iter_mut().filter(|bound| Arc::ptr_eq(&bound.config, config)) {
                bound.is_open = false;
            }
        });
        self.look_at_listeners();
        // A name that leads to another one of the listeners is found out again by the first connection.
        let site = self.site();
        for backend in site.backends().filter(|it| it.known.is_in_circle()) {
            if !self.is_own(&backend.config.target) {
                backend.known.leads_elsewhere();
                self.has_trouble();
            }
        }
    }

    /// Takes note that the listener that was bound by `config` has no connections any more.
    pub(crate) fn forgets(&self, config: &Arc<ListenerConfig>) {
        let _applying = self.applying.lock();
        self.change_bound(|bound| bound.retain(|bound| !Arc::ptr_eq(&bound.config, config)));
    }

    /// Changes what is known of its listeners, for whoever holds `applying`.
    fn change_bound(&self, change: impl FnOnce(&mut Vec<BoundListener>)) {
        let mut bound = Vec::clone(&self.bound.load());
        change(&mut bound);
        self.bound.store(Arc::new(bound));
    }

    /// Has backends go by what the listeners are: with which header they are checked, and that connections do not go in circles.
    fn look_at_listeners(&self) {
        let site = self.site();
        for backend in site.backends() {
            let (known, app) = (&backend.known, &backend.config.app);
            let header =
                self.listeners(&site, |config| config.serves(app).then_some(config.proxy_protocol_to));
            known.set_header(header.into_iter().flatten().next());
            if self.is_own(&backend.config.target) {
                self.leads_back(backend);
            }
        }
    }

    /// What `pick` says of its listeners, those that are bound and those of the file.
    fn listeners<T>(&self, site: &Site, pick: impl Fn(&ListenerConfig) -> Option<T>) -> Vec<T> {
        let bound = self.bound.load();
        let bound = bound.iter().filter(|bound| bound.is_open);
        let bound = bound.map(|bound| site.listener(&bound.config).unwrap_or(&bound.config));
        bound.chain(site.listeners()).filter_map(|config| pick(config)).collect()
    }

    /// Whether one of its listeners has connections for `app`.
    pub(crate) fn serves(&self, app: &str) -> bool {
        !self.listeners(&self.site(), |config| config.serves(app).then_some(())).is_empty()
    }

    /// Where clients reach its listeners: at the addresses `advertised`, or else at those that its listeners are on, as far as
    /// these say it: one that is on every address of its machine does not. Nowhere while it has no listener.
    #[must_use]
    pub fn addresses(&self, advertised: &[IpAddr]) -> Vec<IpAddr> {
        let bound = self.bound.load();
        let mut addresses: Vec<IpAddr> = own::open_addresses(&bound).map(|address| address.ip()).collect();
        if !addresses.is_empty() && !advertised.is_empty() {
            return advertised.to_vec();
        }
        addresses.retain(|address| !address.is_unspecified());
        addresses.dedup();
        addresses
    }

    /// Whether one of its listeners is at `target`, as far as that is known without connecting.
    pub(crate) fn is_own(&self, target: &Target) -> bool {
        own::is_own(target, own::open_addresses(&self.bound.load()))
    }

    /// Whether one of its listeners is at the other end of `stream`.
    pub(crate) fn is_at_other_end(&self, stream: &TcpStream) -> bool {
        own::leads_back(stream, own::open_addresses(&self.bound.load()))
    }

    /// Takes note that connections to a backend come back to this edge: it gets no more.
    pub(crate) fn leads_back(&self, backend: &EdgeBackend) {
        if backend.known.leads_back() {
            self.has_trouble();
            let (backend, address) = (&backend.config.name, &backend.config.target);
            tracing::error!(
                %backend, %address,
                "a backend is a listener of this edge, so that connections would go in circles: it gets none"
            );
        }
    }

    /// Has clients looked up in `database` from now on.
    pub fn use_database(&self, database: Option<Database>) {
        self.database.store(database.map(Arc::new));
    }

    /// The region that this node is in, if that is known.
    #[must_use]
    pub fn region(&self) -> Option<Arc<str>> {
        let site = self.site();
        site.node.and_then(|node| site.regions.name(node)).cloned()
    }

    /// Its source of time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The last placements.
    #[must_use]
    pub fn decisions(&self) -> &DecisionRing {
        &self.decisions
    }

    pub(crate) fn site(&self) -> Guard<Arc<Site>> {
        self.site.load()
    }

    /// The same, to be kept for longer than a moment.
    pub(crate) fn site_to_keep(&self) -> Arc<Site> {
        self.site.load_full()
    }

    pub(crate) fn database(&self) -> Guard<Option<Arc<Database>>> {
        self.database.load()
    }

    pub(crate) fn tick(&self) -> Tick {
        self.clock.tick()
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Takes note that a backend was taken out, or may be used again.
    pub(crate) fn has_trouble(&self) {
        // After what it is about, which whoever sees it sees, too.
        self.troubles.fetch_add(1, Release);
    }

    /// The backends that registered themselves, in the order of their names.
    #[must_use]
    pub fn registered(&self) -> Vec<RegisteredBackend> {
        let (site, now) = (self.site(), self.tick());
        let ours = site.backends().filter(|backend| backend.config.registrar.is_some());
        let report = |backend: &Arc<EdgeBackend>| RegisteredBackend {
            config: Arc::clone(&backend.config),
            is_healthy: backend.known.backend.is_usable(now),
        };
        let mut registered: Vec<RegisteredBackend> = ours.map(report).collect();
        registered.sort_by(|one, other| one.config.name.cmp(&other.config.name));
        registered
    }

    /// What is known of each backend, by app and then in the order of the configuration.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendReport> {
        let (site, now) = (self.site(), self.tick());
        let pools = site.pools();
        let backends = pools.iter().flat_map(|pool| pool.backends());
        backends.map(|backend| BackendReport::new(backend, now)).collect()
    }
}

/// A backend that registered itself.
#[derive(Clone, Debug)]
pub struct RegisteredBackend {
    /// As it is in force.
    pub config: Arc<BackendConfig>,
    /// Whether checks and connections let it be used.
    pub is_healthy: bool,
}

/// What is known of a backend.
#[derive(Clone, Debug)]
pub struct BackendReport {
    /// Its name.
    pub name: Arc<str>,
    /// Its app.
    pub app: Arc<str>,
    /// Its region; empty: none is known.
    pub region: Arc<str>,
    /// Whether its checks let it be used.
    pub is_up: bool,
    /// Whether failed connections have taken it out for now.
    pub is_ejected: bool,
    /// Connections that are open, or being made.
    pub open: u32,
    /// See [`crate::stats::BackendStats`].
    pub connections: u64,
    /// Times that it could not be reached.
    pub failures: u64,
    /// Seconds that connecting took in all.
    pub connect_seconds: f64,
    /// Connections that it broke off.
    pub broken: u64,
    /// Connections that were closed because it went down.
    pub closed_unhealthy: u64,
    /// Bytes from clients, and to them.
    pub bytes: (u64, u64),
}

impl BackendReport {
    fn new(backend: &EdgeBackend, now: Tick) -> Self {
        let (config, stats) = (&backend.config, &backend.known.stats);
        let status = backend.known.backend.status(now);
        Self {
            name: Arc::clone(&config.name),
            app: Arc::clone(&config.app),
            region: config.region.clone().unwrap_or_else(|| "".into()),
            is_up: status.is_up,
            is_ejected: status.is_ejected,
            open: status.in_flight,
            connections: stats.connections.load(Relaxed),
            failures: status.failures,
            connect_seconds: stats.connect_nanos.load(Relaxed) as f64 / 1e9,
            broken: stats.broken.load(Relaxed),
            closed_unhealthy: stats.closed_unhealthy.load(Relaxed),
            bytes: stats.traffic.read(),
        }
    }
}
