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
mod intake_listener;
mod intake_metrics;
mod intake_policies;
mod intake_reader;
mod key_metrics;
mod key_uses;
mod last_warnings;
mod limits;
mod listeners;
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
use tidegate_gateway::documents::Routes as GatewayRoutes;
use tidegate_gateway::service::Gateway;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::PolicySet;
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::listen::Listeners;
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, available_cores};
use tidegate_net::stats::Stats;
use tidegate_net::tls::NamedCertificates;

use crate::config::{Access, Bytes, Config, Listener, Settings, load_tls};
pub use access_log::reopen;
use apis::{Apis, HttpSockets, Shown, Tools};
pub use counters::{Snapshots, lease_config};
pub use edge::{EdgeApp, EdgeOptions};
pub use edges::EdgeAddresses;
use edges::{EdgeListening, EdgeServers, ServedEdge};
pub use error::StartError;
pub use file_audit::record_file;
pub use gateway::GatewayApp;
use inherited::Inherited;
pub(crate) use intake::FOLDER as INTAKE_FOLDER;
use intake::{RunningIntake, ServedIntake};
use intake_policies::IntakePolicies;
use key_uses::KeyUses;
pub use listeners::SecuredListeners;
use listeners::{BoundSockets, ListenGround, Listening, OpenListeners};
pub use memory::memory_warning;
pub(crate) use memory::memory_warning_of;
pub use protocols::Addresses;
use protocols::Protocols;
use proxies::Proxies;
pub use reload::apply;
pub use rotation::rotate;
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
    listeners: OpenListeners,
    gateway: Arc<Gateway>,
    acme: Option<Arc<Acme>>,
    key_uses: Arc<KeyUses>,
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
        let cores = Cores::start(workers).map_err(StartError::Threads)?;
        let control = stored::open(settings, &cores, &sockets).inspect(stored::announce_altered)?;
        let acme = acme::start(config, control.clone(), named.clone())?;
        let secured = SecuredListeners::new(tls.clone());
        let snapshots = Snapshots::of(settings);
        let engine = engine(settings, snapshots.as_ref(), &cores)?;
        let tokens = ListenerTokens::new(Access::new(settings, &config.tokens));
        let verdicts = verdicts::shared(&control, &cores);
        let gateway = proxies::gateway(settings, &engine, &tokens, (&cores, verdicts.clone()))?;
        let edge = ServedEdge::new(*engine.clock(), &cores, (verdicts, settings.edge.dns_refresh));
        let standalone = standalone(config);
        let services = services((&engine, &gateway, &edge), settings, &standalone);
        let configuration = Configuration::start(control, services, &config.layers());
        let (drain, status) = (Drain::new(), ConfigurationStatus::new());
        let events = breakers::events(&engine, &gateway, &drain);
        let tools = Tools::new(settings, &configuration, &secured, acme.as_ref(), &gateway);
        let (parts, stored) = ((&gateway, &edge, &tools), (&configuration, &*standalone));
        let apis = Apis::new(config, &Shown::new(&engine, parts, stored, &tokens, &events), cores.count());
        let gate = gate(settings, &drain, apis.stats());
        let mut door = Door::new(settings, workers, (&gate, &tls, &tokens), &mut inherited);
        let asked = (&engine, &gateway, &edge, acme.as_ref());
        let wired = bind(config, asked, &configuration, sockets.bound(), &mut door)?;
        let others = standalone::bind(&standalone, &mut door)?;
        let servers = wired.counted(apis.counted(), &others);
        tools.look_at(wired.ingestion.as_ref(), &servers);
        let (operator, exporter) = operator::operator(
            (engine.clone(), gateway.clone(), edge),
            (configuration.clone(), events.clone(), apis.guard().clone()),
            (drain.clone(), gate.buffers.clone()),
            (servers, &tools),
            (secured.clone(), acme.as_ref(), wired.ingestion.as_ref()),
            (settings, status.clone()),
        )?;
        let Wired { mut services, bound, edges, ingestion } = wired;
        let addresses = Addresses::bound(settings, &bound);
        let gateway_addresses = bound.addresses(Listener::gateway(0).server());
        let edge_listeners = bound.addresses(Listener::edge(0).server());
        let ground = ListenGround::new(settings, workers, &drain, acme.is_some().then_some(named));
        services.push(Box::new(apis.serve(settings, operator, &gate)));
        let listeners = OpenListeners::new(ground, services, secured, config, bound)?;
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
            listeners,
            acme,
            gateway,
            gateway_addresses,
            edge_addresses: edges.addresses(edge_listeners),
            intake: ingestion.as_ref().map(|it| it.running().clone()),
            addresses,
            others: together(edges, ingestion, others),
            events,
            tools,
            exporter,
        })
    }

    /// Begins to serve.
    pub fn start(&mut self) {
        self.key_uses.start(&self.cores);
        self.listeners.start(&self.cores);
        let gateway = Arc::clone(&self.gateway);
        self.cores.spawn_on(0, async move { gateway.maintain().await });
        for service in self.others.drain(..) {
            service.start(&self.cores);
        }
        let configuration = self.configuration.clone();
        self.cores.spawn_on(0, async move { configuration.follow().await });
        if let Some(acme) = self.acme.clone() {
            self.cores.spawn_on(0, async move { acme.run().await });
        }
        if let Some(analytics) = self.gateway.analytics().cloned() {
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
        self.listeners.release();
        // At once, since a lease that has lapsed cannot be returned.
        let (drained, ()) = tokio::join!(self.drain.run(self.drain_timing), counters.drain(clock.now()));
        counters.drain(clock.now()).await;
        if let Some(analytics) = self.gateway.analytics()
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
        if let Some(log) = self.gateway.access_log() {
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
    (engine, gateway, edge): (&Arc<Engine>, &Arc<Gateway>, &ServedEdge),
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

/// An engine without policies, which are in force once the configuration starts; no request is served before.
fn engine(
    settings: &Settings,
    snapshots: Option<&Snapshots>,
    cores: &Cores,
) -> Result<Arc<Engine>, StartError> {
    let (tallies, mut clock) = (Tallies::default(), Clock::start());
    let set = PolicySet::assemble(Arc::default(), Snapshot::default(), &tallies);
    let counters = counters::open(settings, snapshots, &mut clock, cores)?;
    Ok(Arc::new(Engine::new(set, tallies, counters, clock).on_no_match(settings.on_no_match.into())))
}

/// The services that are wired by hand, with their sockets.
struct Wired {
    /// Those whose listeners come and go, but for the APIs.
    services: Vec<Box<dyn Listening>>,
    /// Theirs, and those of the APIs.
    bound: BoundSockets,
    edges: EdgeServers,
    ingestion: Option<ServedIntake>,
}

/// What these ask: the engine, the gateway and the edge that are in force, and who fetches certificates.
type Asked<'a> = (&'a Arc<Engine>, &'a Arc<Gateway>, &'a Arc<ServedEdge>, Option<&'a Arc<Acme>>);

/// Binds all of them, beside the sockets `apis` that are bound already.
fn bind(
    config: &Config,
    (engine, gateway, edge, acme): Asked<'_>,
    configuration: &Configuration,
    apis: Vec<(Listener, Listeners)>,
    door: &mut Door<'_>,
) -> Result<Wired, StartError> {
    let ingestion = ServedIntake::bind(config, engine, door)?;
    let intake = ingestion.as_ref().map(|ingestion| Box::new(ingestion.listening()) as Box<dyn Listening>);
    let mut services: Vec<Box<dyn Listening>> = vec![
        Box::new(Protocols::new(engine, door)),
        Box::new(Proxies::new(gateway, acme, door)),
        Box::new(EdgeListening::new(config, edge, engine, door)),
    ];
    services.extend(intake);
    let bound = BoundSockets::bind(apis, &services, config, door)?;
    let edges = EdgeServers::bind(config, (edge, configuration), door)?;
    Ok(Wired { services, bound, edges, ingestion })
}

impl Wired {
    /// `servers` and what all services count.
    fn counted(&self, servers: Servers, standalone: &[Box<dyn BoundService>]) -> Servers {
        let servers = self.services.iter().fold(servers, |servers, it| it.counted(servers));
        let servers = self.bound.counted(servers);
        let own = self.ingestion.as_ref().map(|it| it as &dyn BoundService);
        let fixed = [&self.edges as &dyn BoundService].into_iter().chain(own);
        fixed.chain(standalone.iter().map(|it| &**it)).fold(servers, |servers, it| it.counted(servers))
    }
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

/// The services whose listeners stay, in the order in which they begin to serve.
fn together(
    edges: EdgeServers,
    ingestion: Option<ServedIntake>,
    standalone: Vec<Box<dyn BoundService>>,
) -> Vec<Box<dyn BoundService>> {
    let own: [Option<Box<dyn BoundService>>; 2] =
        [Some(Box::new(edges)), ingestion.map(|ingestion| Box::new(ingestion) as _)];
    own.into_iter().flatten().chain(standalone).collect()
}

fn whole(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

/// How many connections one more listener has for itself: a tenth of those allowed.
fn kept_for_a_listener(gate: &Gate) -> usize {
    let limit = gate.permits.limit();
    (limit / 10).max(usize::from(limit > 3))
}
