//! A process that is a gateway and nothing else: what `tidegate gateway URL` starts.
//!
//! ```text
//!   --listen        the gateway          --http-listen   /livez, /readyz, /metrics
//! ```
//!
//! No file, no data folder, no limits. What needs those is in the file that `tidegate serve` reads.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response, StatusCode};
use tidegate_admin::{Lifecycle, Metrics, Operator, Process, Readiness, Servers};
use tidegate_gateway::config::GatewayConfig;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::{Gateway, GatewayService, GatewaySettings, TEMPLATES};
use tidegate_net::accept::Gate;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{Body, Handle, HandleFuture, HttpConfig, Peer, Reply, RequestBody, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, available_cores};
use tidegate_net::stats::{Route, Stats};

use super::StartError;
use super::flow_metrics::FlowMetrics;
use super::operator::BUILD;
use super::upstream_metrics::UpstreamMetrics;

/// Most open connections, those of operators aside.
pub(super) const MAX_CONNECTIONS: usize = 10_000;

/// Most bytes that are held for all clients together.
pub(super) const MAX_BUFFERED_BYTES: usize = 256 << 20;

/// Most connections to the operator's pages, which clients cannot take.
pub(super) const MAX_OPERATOR_CONNECTIONS: usize = 64;

/// A gateway with its sockets bound.
#[derive(Debug)]
pub struct GatewayApp {
    cores: Cores,
    drain: Drain,
    gateway: Arc<Gateway>,
    proxy: (Server, Listeners),
    operator: (Server, Listeners),
}

impl GatewayApp {
    /// Builds a gateway of `config` that listens on `listen`, with the operator's pages on `http_listen`.
    ///
    /// # Errors
    /// What cannot be had: an address, threads.
    pub fn build(
        config: &GatewayConfig,
        listen: SocketAddr,
        http_listen: SocketAddr,
    ) -> Result<Self, StartError> {
        let workers = available_cores();
        let bind = |address, flag| {
            let listeners = Listeners::bind(&ListenConfig::new(address, workers));
            listeners.map_err(|source| StartError::ListenFlag { flag, source })
        };
        let proxy_listeners = bind(listen, "--listen")?;
        let operator_listeners = bind(http_listen, "--http-listen")?;
        let cores = Cores::start(workers).map_err(StartError::Threads)?;
        let drain = Drain::new();
        // Without a file it is in front of somebody's own servers.
        let settings = GatewaySettings { explains_failures: true, ..GatewaySettings::default() };
        let gateway = Gateway::new(Arc::new(Unlimited), settings, Clock::start(), &cores);
        let gateway = Arc::new(gateway);
        gateway.apply(config);
        let buffers = Buffers::new(MAX_BUFFERED_BYTES);
        let gate = |templates, most| {
            let stats = Arc::new(Stats::new(cores.count(), templates));
            Gate { permits: Permits::new(most), buffers: buffers.clone(), drain: drain.clone(), stats }
        };
        let proxy_gate = gate(TEMPLATES, MAX_CONNECTIONS);
        let operator_gate = gate(OPERATOR_TEMPLATES, MAX_OPERATOR_CONNECTIONS);
        let mut metrics = Metrics::new();
        metrics.register(BUILD);
        metrics.register(Process::started_now());
        metrics.register(Lifecycle { drain: drain.clone() });
        metrics.register(Servers::default().with("gateway", proxy_gate.stats.clone()));
        metrics.register(UpstreamMetrics(Arc::clone(&gateway)));
        metrics.register(FlowMetrics(Arc::clone(&gateway)));
        let pages = OperatorPages(Operator::new(Readiness::new(drain.clone()), metrics));
        let service = GatewayService::new(Arc::clone(&gateway));
        Ok(Self {
            proxy: (Server::new(service, HttpConfig::default(), proxy_gate), proxy_listeners),
            operator: (Server::new(pages, HttpConfig::default(), operator_gate), operator_listeners),
            cores,
            drain,
            gateway,
        })
    }

    /// Where the gateway listens, and where the operator's pages are, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.proxy.1.address(), self.operator.1.address())
    }

    /// Serves until `stop` is over, then drains.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Drained {
        let Self { cores, drain, gateway, proxy, operator } = self;
        proxy.0.start(&cores, proxy.1);
        operator.0.start(&cores, operator.1);
        cores.spawn_on(0, async move { gateway.maintain().await });
        drain.advance(Stage::Ready);
        stop.await;
        // No other process takes over from this one: who ends it does not wait for WebSockets.
        let default = DrainTiming::default();
        let drained = drain.run(DrainTiming { last_words: default.deadline, ..default }).await;
        cores.stop();
        drained
    }
}

pub(super) const OPERATOR_TEMPLATES: &[&str] = &["other"];

/// The operator's pages, alone on their listener.
#[derive(Debug)]
pub(super) struct OperatorPages(pub(super) Operator);

impl Handle for OperatorPages {
    fn handle<'a>(&'a self, request: Request<RequestBody>, _peer: &'a Peer) -> HandleFuture<'a> {
        Box::pin(async move {
            let page = self.0.answer(&request).map(|(_, page)| page);
            let response = page.unwrap_or_else(|| {
                let mut missing = Response::new(Body::from("there are /livez, /readyz and /metrics\n"));
                *missing.status_mut() = StatusCode::NOT_FOUND;
                missing
            });
            Reply::new(Route::OTHER, response)
        })
    }
}
