//! A process that is an edge and nothing else: what `tidegate edge` starts.
//!
//! ```text
//!   --listen      the edge
//!   --api         backends register here
//!   --http-listen /livez, /readyz, /metrics
//! ```
//!
//! No file and no data folder: backends come by registration, and are forgotten when the process ends. What needs
//! more is in the file that `tidegate serve` reads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_access::tokens::TokensInForce;
use tidegate_admin::{Lifecycle, Metrics, Operator, Process, Readiness, Servers};
use tidegate_edge::config::{EdgeConfig, ListenerConfig};
use tidegate_edge::limits::Unlimited;
use tidegate_edge::registration::{AddressRules, MemoryStore, RegistrationApi, Registry, TEMPLATES};
use tidegate_edge::service::{DNS_REFRESH, EdgeListener};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, available_cores};
use tidegate_net::stats::Stats;
use tidegate_upstream::verdicts::Verdicts;

use super::StartError;
use super::edge_metrics::EdgeMetrics;
use super::edges::ServedEdge;
use super::gateway::{
    MAX_BUFFERED_BYTES, MAX_CONNECTIONS, MAX_OPERATOR_CONNECTIONS, OPERATOR_TEMPLATES, OperatorPages,
};
use super::operator::BUILD;
use super::registrations::ByToken;

/// Most connections to the registration API, which clients cannot take.
const MAX_API_CONNECTIONS: usize = 1_000;

/// How long a registered backend stays without a heartbeat.
const HEARTBEAT_TTL: Duration = Duration::from_secs(60);

/// What an edge without a file is told.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The region of this node.
    pub region: Option<String>,
    /// The app of the listener.
    pub app: String,
    /// Where backends register.
    pub api: SocketAddr,
    /// Where the operator's pages are.
    pub http_listen: SocketAddr,
    /// Who may register.
    pub tokens: TokensInForce,
}

/// An edge with its sockets bound.
#[derive(Debug)]
pub struct EdgeApp {
    cores: Cores,
    drain: Drain,
    listener: (Arc<EdgeListener>, Listeners),
    api: (Server, Listeners),
    registry: Arc<Registry>,
    operator: (Server, Listeners),
}

impl EdgeApp {
    /// Builds an edge.
    ///
    /// # Errors
    /// What cannot be had: an address, threads.
    pub fn build(options: &EdgeOptions) -> Result<Self, StartError> {
        let workers = available_cores();
        let bind = |address, flag| {
            let listeners = Listeners::bind(&ListenConfig::new(address, workers));
            listeners.map_err(|source| StartError::ListenFlag { flag, source })
        };
        let sockets = bind(options.listen, "--listen")?;
        let api_sockets = bind(options.api, "--api")?;
        let operator_sockets = bind(options.http_listen, "--http-listen")?;
        let cores = Cores::start(workers).map_err(StartError::Threads)?;
        let (drain, buffers) = (Drain::new(), Buffers::new(MAX_BUFFERED_BYTES));
        let gate = |templates, most| {
            let stats = Arc::new(Stats::new(cores.count(), templates));
            Gate { permits: Permits::new(most), buffers: buffers.clone(), drain: drain.clone(), stats }
        };
        let clock = Clock::start();
        let served = ServedEdge::new(clock, &cores, (Verdicts::default(), DNS_REFRESH));
        let edge_gate = gate(OPERATOR_TEMPLATES, MAX_CONNECTIONS);
        let app = options.app.as_str().into();
        let config = ListenerConfig { app, ..ListenerConfig::new(options.listen) };
        let listener = EdgeListener::new(
            Arc::clone(&served.edge),
            config,
            edge_gate.clone(),
            &sockets,
            Arc::new(Unlimited),
        );
        served.add(Arc::clone(&listener));
        let region = options.region.as_deref().map(Arc::from);
        let base = EdgeConfig { region, ..EdgeConfig::default() };
        let store = Arc::new(MemoryStore::new(Arc::clone(&served.edge), base));
        let registry = Arc::new(Registry::new(Arc::clone(&served.edge), store, clock, HEARTBEAT_TTL));
        let allows_loopback = options.api.ip().to_canonical().is_loopback();
        let api = RegistrationApi {
            edge: Arc::clone(&served.edge),
            registry: Arc::clone(&registry),
            rules: AddressRules { allowed: Vec::new(), allows_loopback },
            admission: Arc::new(ByToken(options.tokens.clone())),
        };
        let api_gate = gate(TEMPLATES, MAX_API_CONNECTIONS);
        let mut metrics = Metrics::new();
        metrics.register(BUILD);
        metrics.register(Process::started_now());
        metrics.register(Lifecycle { drain: drain.clone() });
        let servers = Servers::default().with_streams("edge", Arc::clone(&edge_gate.stats));
        metrics.register(servers.with("registration", Arc::clone(&api_gate.stats)));
        metrics.register(EdgeMetrics(served));
        let pages = OperatorPages(Operator::new(Readiness::new(drain.clone()), metrics));
        let operator_gate = gate(OPERATOR_TEMPLATES, MAX_OPERATOR_CONNECTIONS);
        Ok(Self {
            listener: (listener, sockets),
            api: (Server::new(api, HttpConfig::default(), api_gate), api_sockets),
            operator: (Server::new(pages, HttpConfig::default(), operator_gate), operator_sockets),
            registry,
            cores,
            drain,
        })
    }

    /// Where the edge, its API and the operator's pages are, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> [SocketAddr; 3] {
        [&self.listener.1, &self.api.1, &self.operator.1].map(Listeners::address)
    }

    /// Serves until `stop` is over, then drains.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Drained {
        let Self { cores, drain, listener, api, registry, operator } = self;
        listener.0.start(&cores, listener.1);
        api.0.start(&cores, api.1);
        operator.0.start(&cores, operator.1);
        cores.spawn_on(0, async move { registry.expire().await });
        drain.advance(Stage::Ready);
        stop.await;
        let drained = drain.run(DrainTiming::default()).await;
        cores.stop();
        drained
    }
}
