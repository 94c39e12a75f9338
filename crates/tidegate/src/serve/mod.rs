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
mod acme;
mod apis;
mod app;
mod breakers;
mod candidate;
mod capacity;
mod certificates;
mod connection_limits;
mod counters;
mod denials;
mod edge;
mod edge_metrics;
mod edges;
mod error;
mod explain_route;
mod file_audit;
mod flow_metrics;
mod gateway;
mod history;
mod inherited;
mod intake;
mod intake_metrics;
mod intake_policies;
mod intake_reader;
mod key_metrics;
mod key_uses;
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
mod saturation;
mod standalone;
mod stored;
mod telemetry;
mod tokens;
mod trace;
mod traces;
mod upstream_metrics;
mod verdicts;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tidegate_access::keys::KeyDocuments;
use tidegate_admin::api::Events;
use tidegate_admin::{ConfigurationStatus, Servers};
use tidegate_certificates::Acme;
use tidegate_control::{Configuration, Services, Snapshot};
use tidegate_edge::documents::EdgeDocuments;
use tidegate_gateway::access_log::AccessLog;
use tidegate_gateway::analytics::Analytics;
use tidegate_gateway::documents::Routes as GatewayRoutes;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::PolicySet;
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::Server;
use tidegate_net::listen::Listeners;
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, available_cores};
use tidegate_net::stats::Stats;
use tidegate_net::tls::NamedCertificates;

use crate::config::{Access, Bytes, Config, Secured, Settings, load_tls};
pub use access_log::reopen;
use apis::{Apis, HttpSockets, Shown, Tools};
pub use counters::{Snapshots, lease_config};
pub use edge::{EdgeApp, EdgeOptions};
pub use edges::EdgeAddresses;
use edges::{EdgeServers, ServedEdge};
pub use error::StartError;
pub use file_audit::record_file;
pub use gateway::GatewayApp;
use inherited::Inherited;
pub(crate) use intake::FOLDER as INTAKE_FOLDER;
use intake::{RunningIntake, ServedIntake};
use intake_policies::IntakePolicies;
use key_uses::KeyUses;
pub use memory::memory_warning;
pub(crate) use memory::memory_warning_of;
pub use protocols::Addresses;
use protocols::Protocols;
use proxies::{Proxies, ServedGateway};
pub use reload::apply;
pub use rotation::rotate;
use routes::Routes;
pub use standalone::{BoundService, Door, HttpService, Standalone};
use telemetry::Exporter;
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
    acme: Option<Arc<Acme>>,
    analytics: Option<Arc<Analytics>>,
    key_uses: Arc<KeyUses>,
    http: Vec<(Server<Routes>, Listeners)>,
    others: Vec<Box<dyn BoundService>>,
    intake: Option<RunningIntake>,
    events: Events,
    tools: Tools,
    exporter: Option<Exporter>,
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
        let (settings, workers) = (&config.settings, workers(&config.settings));
        let named = NamedCertificates::default();
        let tls = load_tls(config, &named).map_err(StartError::Tls)?;
        let mut inherited = Inherited::of_process(settings.runtime.share_ports)?;
        let sockets = HttpSockets::bind(settings, workers, &tls, &mut inherited)?;
        let http_addresses = sockets.addresses();
        let cores = Cores::start(workers).map_err(StartError::Threads)?;
        let control = stored::open(settings, &cores, &sockets).inspect(stored::announce_altered)?;
        let acme = acme::start(config, control.clone(), named)?;
        let (tallies, mut clock, snapshots) = (Tallies::default(), Clock::start(), Snapshots::of(settings));
        // In force until the configuration starts; no request is served before.
        let set = PolicySet::assemble(Arc::default(), Snapshot::default(), &tallies);
        let counters = counters::open(settings, snapshots.as_ref(), &mut clock, &cores)?;
        let engine = Engine::new(set, tallies, counters, clock).on_no_match(settings.on_no_match.into());
        let engine = Arc::new(engine);
        let tokens = ListenerTokens::new(Access::new(settings, &config.tokens));
        let verdicts = verdicts::shared(&control, &cores);
        let gateway = proxies::gateway(settings, &engine, &tokens, (&cores, verdicts.clone()))?;
        let edge = ServedEdge::new(*engine.clock(), &cores, (verdicts, settings.edge.dns_refresh));
        let standalone = standalone(config);
        let services = services((&engine, &gateway, &edge), settings, &standalone);
        let configuration = Configuration::start(control, services, &config.layers());
        let (drain, status) = (Drain::new(), ConfigurationStatus::new());
        let events = breakers::events(&engine, &gateway, &drain);
        let tools = Tools::new(settings, &configuration, &tls, acme.as_ref(), &gateway);
        let (parts, stored) = ((&gateway, &edge, &tools), (&configuration, &*standalone));
        let shown = Shown::new(&engine, parts, stored, &tokens, &events);
        let apis = Apis::new(config, &shown, sockets, cores.count());
        let gate = gate(settings, &drain, apis.stats());
        let mut door = Door::new(settings, workers, (&gate, &tls, &tokens), &mut inherited);
        let wired = (&engine, &gateway, &edge, acme.as_ref());
        let (protocols, proxies, edges, ingestion) = bind(config, wired, &configuration, &mut door)?;
        let bound = standalone::bind(&standalone, &mut door)?;
        let servers = counted(apis.counted(), &[&protocols, &proxies, &edges], ingestion.as_ref(), &bound);
        tools.look_at(ingestion.as_ref(), &servers);
        let (operator, exporter) = operator::operator(
            (engine.clone(), gateway.clone(), edge),
            (configuration.clone(), events.clone(), apis.guard().clone()),
            (drain.clone(), gate.buffers.clone()),
            (servers, &tools),
            (&tls, acme.as_ref(), ingestion.as_ref()),
            (settings, status.clone()),
        )?;
        Ok(Self {
            key_uses: KeyUses::new(settings, gateway.keys(), configuration.control()),
            cores,
            drain,
            drain_timing: DrainTiming::with_deadline(settings.limits.drain_deadline),
            engine,
            configuration,
            snapshots,
            status,
            tokens,
            tls,
            access_log: proxies.access_log(),
            acme,
            analytics: proxies.analytics(),
            http: apis.serve(settings, operator, &gate),
            gateway_addresses: proxies.addresses(),
            edge_addresses: edges.addresses(),
            intake: ingestion.as_ref().map(|it| it.running().clone()),
            addresses: protocols.addresses(http_addresses, ingestion.as_ref().map(ServedIntake::address)),
            others: together((protocols, proxies, edges, ingestion), bound),
            events,
            tools,
            exporter,
        })
    }

    /// Begins to serve.
    pub fn start(&mut self) {
        self.key_uses.start(&self.cores);
        for (server, listeners) in self.http.drain(..) {
            server.start(&self.cores, listeners);
        }
        for service in self.others.drain(..) {
            service.start(&self.cores);
        }
        let configuration = self.configuration.clone();
        self.cores.spawn_on(0, async move { configuration.follow().await });
        if let Some(acme) = self.acme.clone() {
            self.cores.spawn_on(0, async move { acme.run().await });
        }
        if let Some(analytics) = self.analytics.clone() {
            let control = self.configuration.control().clone();
            self.cores.spawn_on(0, async move { analytics.keep(control).await });
        }
        let load = self.tools.load.clone();
        self.cores.spawn_on(0, async move { load.follow().await });
        let history = self.tools.history.clone();
        self.cores.spawn_on(0, async move { history.follow().await });
        let events = self.events.clone();
        self.cores.spawn_on(0, async move { events.follow().await });
        if let Some(exporter) = self.exporter.clone() {
            self.cores.spawn_on(0, async move { exporter.run().await });
        }
        self.drain.advance(Stage::Ready);
    }

    /// Drains: readiness falls, units taken ahead are returned, requests in flight end, listeners
    /// close. Returns when nothing is left to lose, or the deadline has passed.
    pub async fn stop(self) -> Drained {
        let (counters, clock) = (self.engine.counters(), self.engine.clock());
        // At once, since a lease that has lapsed cannot be returned.
        let (drained, ()) = tokio::join!(self.drain.run(self.drain_timing), counters.drain(clock.now()));
        counters.drain(clock.now()).await;
        if let Some(analytics) = &self.analytics
            && let Err(error) = analytics.store(self.configuration.control()).await
        {
            tracing::warn!(%error, "the last counts of requests are lost: they cannot be stored");
        }
        self.key_uses.finish().await;
        // All requests have ended, and their spans are there.
        if let Some(exporter) = &self.exporter {
            exporter.finish().await;
        }
        // All of these block, and nothing else runs any more.
        self.cores.stop();
        if let Some(intake) = &self.intake {
            intake.log().close();
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

/// The services with documents: one line for each that is wired by hand.
fn services(
    (engine, gateway, edge): (&Arc<Engine>, &Arc<ServedGateway>, &ServedEdge),
    settings: &Settings,
    standalone: &[Box<dyn Standalone>],
) -> Services {
    let services = Services::default()
        .with(Policies::new(engine.clone()))
        .with(GatewayRoutes::new(gateway.clone()))
        .with(EdgeDocuments::new(edge.edge.clone()))
        .with(KeyDocuments(gateway.keys().clone()))
        .with(IntakePolicies::of(settings));
    standalone.iter().fold(services, |services, it| it.documents(services))
}

/// The services that are wired by hand, bound.
type Wired = (Protocols, Proxies, EdgeServers, Option<ServedIntake>);

/// What these ask: the engine, the gateway and the edge that are in force, and who fetches certificates.
type Asked<'a> = (&'a Arc<Engine>, &'a Arc<ServedGateway>, &'a Arc<ServedEdge>, Option<&'a Arc<Acme>>);

fn bind(
    config: &Config,
    (engine, gateway, edge, acme): Asked<'_>,
    configuration: &Configuration,
    door: &mut Door<'_>,
) -> Result<Wired, StartError> {
    Ok((
        Protocols::bind(&config.settings, engine, door)?,
        Proxies::bind(config, gateway, acme, door)?,
        EdgeServers::bind(config, (edge, configuration, engine), door)?,
        ServedIntake::bind(config, engine, door)?,
    ))
}

/// The services of `config` that ask nothing of the others.
fn standalone(config: &Config) -> Vec<Box<dyn Standalone>> {
    let serve = config.services.iter().filter_map(|service| service.serve);
    serve.map(|serve| serve(config)).collect()
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

/// `servers` and what all of these services count.
fn counted(
    servers: Servers,
    own: &[&dyn BoundService],
    ingestion: Option<&ServedIntake>,
    standalone: &[Box<dyn BoundService>],
) -> Servers {
    let own = own.iter().copied().chain(ingestion.map(|it| it as &dyn BoundService));
    own.chain(standalone.iter().map(|it| &**it)).fold(servers, |servers, it| it.counted(servers))
}

/// All services that are bound, in the order in which they begin to serve.
fn together(
    (protocols, proxies, edges, ingestion): Wired,
    standalone: Vec<Box<dyn BoundService>>,
) -> Vec<Box<dyn BoundService>> {
    let own: [Option<Box<dyn BoundService>>; 4] = [
        Some(Box::new(protocols)),
        Some(Box::new(proxies)),
        Some(Box::new(edges)),
        ingestion.map(|ingestion| Box::new(ingestion) as _),
    ];
    own.into_iter().flatten().chain(standalone).collect()
}

fn whole(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

/// The permits of one more listener: it has a tenth of the connections allowed for itself.
fn permits_of_a_listener(gate: &Gate) -> Permits {
    let limit = gate.permits.limit();
    gate.permits.keeping((limit / 10).max(usize::from(limit > 3)))
}
