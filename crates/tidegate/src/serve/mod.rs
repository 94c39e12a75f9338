//! The one wiring place: configuration -> build -> start -> run -> drain.
//!
//! ```text
//!   Loaded --build--> App --start--> cores serve      main thread: signals, reload, snapshots
//!                      |                 |                               |
//!                      listeners are     decision API, health, metrics   drain, last snapshot
//!                      bound already
//! ```
//!
//! `build` does everything that can fail, so that a process either starts whole or says why not;
//! sockets are bound by then, which is how tests run the same app on port 0.

mod access_log;
mod apis;
mod breakers;
mod connection_limits;
mod counters;
mod edge;
mod edge_metrics;
mod edges;
mod error;
mod explain_route;
mod gateway;
mod inherited;
mod intake;
mod intake_metrics;
mod key_metrics;
mod last_warnings;
mod limits;
mod memory;
mod operator;
mod protocols;
mod proxies;
mod registrations;
mod reload;
mod rotation;
mod route_limits;
mod routes;
mod tokens;
mod trace;
mod traces;
mod upstream_metrics;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tidegate_access::keys::KeyDocuments;
use tidegate_admin::api::Events;
use tidegate_admin::{ConfigurationStatus, Servers};
use tidegate_control::{Configuration, Control, Limits, Place, Services, Snapshot};
use tidegate_edge::documents::EdgeDocuments;
use tidegate_gateway::access_log::AccessLog;
use tidegate_gateway::documents::Routes as GatewayRoutes;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::PolicySet;
use tidegate_limiter::tally::Tallies;
use tidegate_log::Log;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::Server;
use tidegate_net::listen::Listeners;
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, Pulse, available_cores};
use tidegate_net::stats::Stats;

use crate::config::{Access, Bytes, Config, Listener, Secured, Settings, load_tls};
pub use access_log::reopen;
use apis::{Apis, HttpSockets, Shown};
pub use counters::{Snapshots, lease_config};
pub use edge::{EdgeApp, EdgeOptions};
pub use edges::EdgeAddresses;
use edges::{EdgeServers, ServedEdge};
pub use error::StartError;
pub use gateway::GatewayApp;
use inherited::Inherited;
use intake::Ingestion;
pub use memory::memory_warning;
pub use protocols::Addresses;
use protocols::{Guards, Protocols};
use proxies::{Proxies, ServedGateway};
pub use reload::apply;
pub use rotation::rotate;
use routes::Routes;
pub use tokens::ListenerTokens;

/// A process that serves, with its sockets bound.
#[derive(Debug)]
pub struct App {
    cores: Cores,
    drain: Drain,
    drain_timing: DrainTiming,
    engine: Arc<Engine>,
    configuration: Configuration,
    snapshots: Option<Snapshots>,
    status: ConfigurationStatus,
    tokens: ListenerTokens,
    tls: Vec<Secured>,
    access_log: Option<Arc<AccessLog>>,
    http: Vec<(Server<Routes>, Listeners)>,
    others: Option<(Protocols, Proxies, EdgeServers, Option<Ingestion>)>,
    log: Option<Arc<Log>>,
    events: Events,
    addresses: Addresses,
    gateway_addresses: Vec<SocketAddr>,
    edge_addresses: EdgeAddresses,
}

/// As many as the settings say, or as there are cores.
fn workers(settings: &Settings) -> NonZeroUsize {
    let stated = usize::try_from(settings.runtime.workers).unwrap_or(usize::MAX);
    NonZeroUsize::new(stated).unwrap_or_else(available_cores)
}

impl App {
    /// Builds everything that `config` asks for.
    ///
    /// # Errors
    /// What cannot be had: an address, the data directory, a policy set without mistakes.
    pub fn build(config: &Config) -> Result<Self, StartError> {
        let settings = &config.settings;
        let workers = workers(settings);
        let tls = load_tls(config).map_err(StartError::Tls)?;
        let mut inherited = Inherited::of_process(settings.runtime.share_ports)?;
        let sockets = HttpSockets::bind(settings, workers, &tls, &mut inherited)?;
        let http_addresses = sockets.addresses();
        let cores = Cores::start(workers).map_err(StartError::Threads)?;
        let control = open_control(settings, &cores).inspect(announce_altered)?;
        let (tallies, mut clock) = (Tallies::default(), Clock::start());
        // In force until the configuration starts, and nobody is served before.
        let set = PolicySet::assemble(Arc::default(), Snapshot::default(), &tallies);
        let snapshots = Snapshots::of(settings);
        let counters = counters::open(settings, snapshots.as_ref(), &mut clock, &cores)?;
        let engine = Engine::new(set, tallies, counters, clock);
        let engine = Arc::new(engine.on_no_match(settings.on_no_match.into()));
        let tokens = ListenerTokens::new(Access::new(settings, &config.tokens));
        let gateway = proxies::gateway(settings, &engine, &tokens, &cores)?;
        let edge = ServedEdge::new(*engine.clock(), &cores);
        let configuration =
            Configuration::start(control, services(&engine, &gateway, &edge), &config.layers());
        let (drain, status) = (Drain::new(), ConfigurationStatus::new());
        let events = breakers::events(&engine, &gateway, &drain);
        let shown = Shown::new(&engine, (&gateway, &edge), &configuration, &tokens, &events);
        let apis = Apis::new(config, &shown, sockets, cores.count());
        let gate = gate(settings, &drain, apis.stats());
        let (guards, edge_parts) = (Guards { tls: &tls, tokens: &tokens }, (&edge, &configuration, &engine));
        let protocols = Protocols::bind(settings, &engine, workers, &gate, &guards, &mut inherited)?;
        let proxies = Proxies::bind(config, &gateway, workers, &gate, &tls, &mut inherited)?;
        let edges = EdgeServers::bind(config, edge_parts, workers, &gate, &guards, &mut inherited)?;
        let ingestion = Ingestion::bind(config, &engine, workers, &gate, &guards, &mut inherited)?;
        inherited.is_used_up()?;
        let servers = edges.counted(counted(apis.counted(), &protocols, &proxies, ingestion.as_ref()));
        let operator = operator::operator(
            (engine.clone(), gateway, edge),
            (configuration.clone(), events.clone(), apis.guard().clone()),
            (drain.clone(), gate.buffers.clone()),
            servers,
            (&tls, ingestion.as_ref()),
            status.clone(),
        );
        let http = apis.serve(settings, operator, &gate);
        let drain_timing = DrainTiming { deadline: settings.limits.drain_deadline, ..DrainTiming::default() };
        let addresses = protocols.addresses(http_addresses, ingestion.as_ref().map(Ingestion::address));
        let (gateway_addresses, edge_addresses) = (proxies.addresses(), edges.addresses());
        Ok(Self {
            cores,
            drain,
            drain_timing,
            engine,
            configuration,
            snapshots,
            status,
            tokens,
            tls,
            access_log: proxies.access_log(),
            http,
            log: ingestion.as_ref().map(Ingestion::log),
            others: Some((protocols, proxies, edges, ingestion)),
            events,
            addresses,
            gateway_addresses,
            edge_addresses,
        })
    }

    /// Where each protocol listens, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Where the gateway listens, with the real ports.
    #[must_use]
    pub fn gateway_addresses(&self) -> &[SocketAddr] {
        &self.gateway_addresses
    }

    /// Where the edge listens, with the real ports.
    #[must_use]
    pub fn edge_addresses(&self) -> &EdgeAddresses {
        &self.edge_addresses
    }

    /// What is in force of all services, and the way to change it.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The engine behind every protocol.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// How the counters are saved, if they are.
    #[must_use]
    pub fn snapshots(&self) -> Option<&Snapshots> {
        self.snapshots.as_ref()
    }

    /// Where to say how a reload of the file went.
    #[must_use]
    pub fn status(&self) -> &ConfigurationStatus {
        &self.status
    }

    /// Who may do what at each listener.
    #[must_use]
    pub fn tokens(&self) -> &ListenerTokens {
        &self.tokens
    }

    /// The listeners that have TLS.
    #[must_use]
    pub fn tls(&self) -> &[Secured] {
        &self.tls
    }

    /// The gateway's access log, if there is one.
    #[must_use]
    pub fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.access_log.clone()
    }

    /// Whether the cores still run their tasks.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.cores.pulse()
    }

    /// The lifecycle.
    #[must_use]
    pub fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Begins to serve.
    pub fn start(&mut self) {
        for (server, listeners) in self.http.drain(..) {
            server.start(&self.cores, listeners);
        }
        if let Some((protocols, proxies, edges, ingestion)) = self.others.take() {
            protocols.start(&self.cores);
            proxies.start(&self.cores);
            edges.start(&self.cores);
            if let Some(ingestion) = ingestion {
                ingestion.announce_unknown_policies();
                ingestion.start(&self.cores);
            }
        }
        let configuration = self.configuration.clone();
        self.cores.spawn_on(0, async move { configuration.follow().await });
        let events = self.events.clone();
        self.cores.spawn_on(0, async move { events.follow().await });
        self.drain.advance(Stage::Ready);
    }

    /// Drains: readiness falls, units taken ahead are returned, requests in flight end, listeners
    /// close. Returns when nothing is left to lose, or the deadline has passed.
    pub async fn stop(self) -> Drained {
        let (counters, clock) = (self.engine.counters(), self.engine.clock());
        // At once, since a lease that has lapsed cannot be returned.
        let (drained, ()) = tokio::join!(self.drain.run(self.drain_timing), counters.drain(clock.now()));
        counters.drain(clock.now()).await;
        // All of these block, and nothing else runs any more.
        self.cores.stop();
        if let Some(log) = &self.log {
            log.close();
        }
        if let Some(snapshots) = &self.snapshots {
            snapshots.save(&self.engine);
        }
        if let Some(log) = &self.access_log {
            access_log::close(log);
        }
        drained
    }

    /// How long a drain may take before what still runs is cut.
    #[must_use]
    pub fn drain_deadline(&self) -> Duration {
        self.drain_timing.deadline
    }
}

/// The services with documents: one line for each.
fn services(engine: &Arc<Engine>, gateway: &Arc<ServedGateway>, edge: &ServedEdge) -> Services {
    Services::default()
        .with(Policies::new(engine.clone()))
        .with(GatewayRoutes::new(gateway.clone()))
        .with(EdgeDocuments::new(edge.edge.clone()))
        .with(KeyDocuments(gateway.keys().clone()))
}

/// Says which stored documents are not what was put.
fn announce_altered(control: &Control) {
    for document in control.altered() {
        tracing::error!(
            kind = %document.kind,
            name = ?document.name,
            revision = document.revision.0,
            recorded = ?document.recorded,
            "this stored document is not what was put: something else has altered the database; it is in \
             force as it is, put it again (GET /v1/set-aside)"
        );
    }
}

/// What connections must pass, within the bounds for all listeners together.
fn gate(settings: &Settings, drain: &Drain, stats: Arc<Stats>) -> Gate {
    Gate {
        permits: Permits::new(usize::try_from(settings.limits.connections).unwrap_or(usize::MAX)),
        buffers: Buffers::new(whole(settings.limits.buffered_bytes)),
        drain: drain.clone(),
        stats,
    }
}

/// What all servers count.
fn counted(
    http: Servers,
    protocols: &Protocols,
    proxies: &Proxies,
    ingestion: Option<&Ingestion>,
) -> Servers {
    let servers = protocols.counted(http);
    let servers = match proxies.stats() {
        Some(stats) => servers.with(Listener::Gateway(0).server(), stats),
        None => servers,
    };
    match ingestion {
        Some(ingestion) => ingestion.counted(servers),
        None => servers,
    }
}

fn whole(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

/// The permits of one more listener: it has a tenth of the connections allowed for itself.
fn permits_of_a_listener(gate: &Gate) -> Permits {
    let limit = gate.permits.limit();
    gate.permits.keeping((limit / 10).max(usize::from(limit > 3)))
}

/// The stored configuration: shared in PostgreSQL, or this process's own file.
fn open_control(settings: &Settings, cores: &Cores) -> Result<Control, StartError> {
    let (folder, limits) = (&settings.data_dir, Limits::default());
    let Some(url) = settings.control_url() else { return Ok(Control::open(folder, limits)?) };
    let control = Control::connect(Place::parse(url.expose())?, folder, limits, cores.handle(0))?;
    if control.is_from_copy() {
        tracing::warn!(
            revision = control.snapshot().revision().0,
            "the configuration's database is away: started from this node's copy of the last revision \
             it knew; changes are refused until it is back"
        );
    }
    Ok(control)
}
