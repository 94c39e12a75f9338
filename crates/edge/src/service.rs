//! The edge as a service: what is in force, how it is replaced, and its listeners.
//!
//! A connection takes the site that is in force when it comes and keeps its backend to its end, so that a change
//! touches no running connection. Backends that stay keep their connections' count, health and counters.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use tidegate_algorithms::balance::affinity::{AffinityTable, client_network};
use tidegate_algorithms::time::Tick;
use tidegate_net::accept::{Gate, accept};
use tidegate_net::clock::Clock;
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::Proxied;
use tidegate_net::runtime::Cores;
use tidegate_net::tls::Tls;
use tidegate_upstream::connect::Resolver;
use tokio::runtime;

use crate::arrival;
use crate::backend::EdgeBackend;
use crate::checks;
use crate::config::{BackendConfig, EdgeConfig, ListenerConfig};
use crate::decisions::DecisionRing;
use crate::geo::Database;
use crate::limits::Limits;
use crate::site::Site;
use crate::stats::{AffinityStats, ListenerStats};

/// How long a name's addresses are used before they are looked up again.
const DNS_REFRESH: Duration = Duration::from_secs(5);

/// Most clients that a listener remembers the backends of.
pub const MAX_AFFINE_CLIENTS: usize = 131_072;

/// Parts of the table of these clients, each behind a lock of its own.
const AFFINITY_SHARDS: usize = 16;

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
    applying: Mutex<()>,
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
            applying: Mutex::default(),
        }
    }

    /// Puts `config` in force, and starts the checks of what is new in it.
    pub fn apply(&self, config: &EdgeConfig) {
        // One at a time: each builds on what the one before left.
        let _applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.site.load_full();
        let (site, fresh) = Site::new(config, &before, &self.troubles, self.clock.tick());
        self.site.store(Arc::new(site));
        self.troubles.fetch_add(1, Relaxed);
        let seed = RandomState::new().hash_one(0);
        for ((backend, core), number) in fresh.iter().zip(self.cores.iter().cycle()).zip(0_u64..) {
            if backend.config.check.is_some() {
                let watching = checks::watch(
                    Arc::downgrade(backend),
                    self.resolver.clone(),
                    self.clock,
                    Arc::clone(&self.troubles),
                    seed.wrapping_add(number),
                );
                drop(core.spawn(watching));
            }
        }
    }

    /// Has clients looked up in `database` from now on.
    pub fn use_database(&self, database: Option<Database>) {
        self.database.store(database.map(Arc::new));
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

    pub(crate) fn database(&self) -> Guard<Option<Arc<Database>>> {
        self.database.load()
    }

    pub(crate) fn tick(&self) -> Tick {
        self.clock.tick()
    }

    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Takes note that a backend was taken out.
    pub(crate) fn has_trouble(&self) {
        self.troubles.fetch_add(1, Relaxed);
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

/// A listener of an edge.
#[derive(Debug)]
pub struct EdgeListener {
    pub(crate) edge: Arc<Edge>,
    pub(crate) config: ListenerConfig,
    /// What bounds its connections and counts them.
    pub(crate) gate: Gate,
    pub(crate) tls: Option<Tls>,
    pub(crate) proxied: Option<Proxied>,
    pub(crate) address: SocketAddr,
    /// Its address, for metrics, logs and decisions.
    pub(crate) label: Arc<str>,
    pub(crate) affinity: AffinityShards,
    /// What decides its policies.
    pub(crate) limits: Arc<dyn Limits>,
    stats: ListenerStats,
}

impl EdgeListener {
    /// A listener of `edge` that is bound at `listeners`; `limits` decides its policies.
    #[must_use]
    pub fn new(
        edge: Arc<Edge>,
        config: ListenerConfig,
        gate: Gate,
        listeners: &Listeners,
        limits: Arc<dyn Limits>,
    ) -> Arc<Self> {
        let address = listeners.address();
        let idle = u64::try_from(config.affinity_idle.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(Self {
            edge,
            gate,
            tls: listeners.tls().cloned(),
            proxied: listeners.proxied().cloned(),
            address,
            label: address.to_string().into(),
            affinity: AffinityShards::new(idle),
            limits,
            stats: ListenerStats::default(),
            config,
        })
    }

    /// Its address, as metrics name it.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> &ListenerStats {
        &self.stats
    }

    /// What is counted of the clients that it remembers.
    #[must_use]
    pub fn affinity_stats(&self) -> AffinityStats {
        self.affinity.stats()
    }

    /// Serves `listeners` until the drain ends: socket `i` on core `i`, a task for each connection.
    pub fn start(self: &Arc<Self>, cores: &Cores, listeners: Listeners) {
        for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
            let listener = Arc::clone(self);
            cores.spawn_on(core, async move {
                let serve = |stream, peer, held| {
                    drop(tokio::spawn(arrival::serve(Arc::clone(&listener), stream, peer, core, held)));
                };
                if let Err(error) = accept(socket, &listener.gate, core, serve).await {
                    tracing::error!(listener = %listener.address, %error, "cannot watch a listening socket");
                }
            });
        }
    }
}

/// A client, as it is known again: its network, and a hash of the server name that it asks for, if that counts.
pub(crate) type Client = (IpAddr, u64);

type ClientTable = AffinityTable<Client, Arc<str>>;

/// Where clients were, in parts.
#[derive(Debug)]
pub(crate) struct AffinityShards {
    shards: Box<[Mutex<ClientTable>]>,
    hasher: RandomState,
}

impl AffinityShards {
    fn new(idle: u64) -> Self {
        let table = |_| Mutex::new(AffinityTable::new(MAX_AFFINE_CLIENTS / AFFINITY_SHARDS, idle));
        Self { shards: (0..AFFINITY_SHARDS).map(table).collect(), hasher: RandomState::new() }
    }

    /// How a client is known again.
    pub(crate) fn client(&self, address: IpAddr, server_name: Option<&str>) -> Client {
        (client_network(address), server_name.map_or(0, |name| self.hasher.hash_one(name)))
    }

    pub(crate) fn find(&self, client: &Client, now: Tick) -> Option<Arc<str>> {
        self.shard(client).find(client, now)
    }

    /// As [`AffinityShards::find`], without its counting as a visit.
    pub(crate) fn peek(&self, client: &Client, now: Tick) -> Option<Arc<str>> {
        self.shard(client).peek(client, now).cloned()
    }

    pub(crate) fn bind(&self, client: Client, backend: &Arc<str>, now: Tick) {
        self.shard(&client).bind(client, Arc::clone(backend), now);
    }

    fn shard(&self, client: &Client) -> MutexGuard<'_, ClientTable> {
        let index = self.hasher.hash_one(client) as usize % self.shards.len();
        // Entries are whole: whatever a panicking holder left there is whole.
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> AffinityStats {
        let mut stats = AffinityStats::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            stats.clients += shard.len() as u64;
            stats.dropped += shard.dropped();
        }
        stats
    }
}
