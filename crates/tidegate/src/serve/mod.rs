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

mod counters;
mod error;
mod operator;
mod protocols;
mod reload;
mod routes;
mod trace;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tidegate_admin::ConfigurationStatus;
use tidegate_control::{Control, Limits};
use tidegate_limiter::configuration::Configuration;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::http::{AdminToken, Api, ApiSettings, Service};
use tidegate_limiter::policy_set::{PolicySet, candidates};
use tidegate_limiter::tally::Tallies;
use tidegate_net::accept::Gate;
use tidegate_net::clock::Clock;
use tidegate_net::drain::{Drain, DrainTiming, Drained, Stage};
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::permits::Permits;
use tidegate_net::runtime::{Cores, Pulse, available_cores};
use tidegate_net::stats::Stats;

use crate::config::Config;
pub use counters::Snapshots;
pub use error::StartError;
pub use protocols::Addresses;
use protocols::Protocols;
pub use reload::apply;
use routes::Routes;

/// A process that serves, with its sockets bound.
#[derive(Debug)]
pub struct App {
    cores: Cores,
    drain: Drain,
    drain_timing: DrainTiming,
    engine: Arc<Engine>,
    api: Api,
    snapshots: Option<Snapshots>,
    configuration: ConfigurationStatus,
    http: Option<(Server<Routes>, Listeners)>,
    protocols: Option<Protocols>,
    addresses: Addresses,
}

impl App {
    /// Builds everything that `config` asks for.
    ///
    /// # Errors
    /// What cannot be had: an address, the data directory, a policy set without mistakes.
    pub fn build(config: &Config) -> Result<Self, StartError> {
        let settings = &config.settings;
        let workers = usize::try_from(settings.runtime.workers).unwrap_or(usize::MAX);
        let workers = NonZeroUsize::new(workers).unwrap_or_else(available_cores);
        let listeners = Listeners::bind(&ListenConfig::new(settings.http.listen, workers))?;
        let cores = Cores::start(workers).map_err(StartError::Threads)?;
        let control = Control::open(&settings.data_dir, Limits::default())?;
        let file = config.layer.clone();
        let tallies = Tallies::default();
        let snapshot = control.snapshot();
        let set = PolicySet::assemble(&file, snapshot.revision(), candidates(&snapshot), &tallies)
            .map_err(StartError::Policies)?;
        let clock = Clock::start();
        let snapshots = Snapshots::of(settings);
        let counters = {
            let _inside = cores.handle(0).enter();
            counters::open(settings, snapshots.as_ref(), &clock)?
        };
        let engine = Arc::new(Engine::new(set, tallies, counters, clock));
        let api = Api::new(
            engine.clone(),
            Configuration::new(engine.clone(), control, file),
            ApiSettings {
                admin_token: settings.admin.token.as_ref().map(|token| AdminToken::new(token.expose())),
                trusted_hops: usize::try_from(settings.http.trusted_proxy_hops).unwrap_or(usize::MAX),
            },
        );

        let drain = Drain::new();
        let stats = Arc::new(Stats::new(cores.count(), routes::TEMPLATES));
        let configuration = ConfigurationStatus::new();
        let operator =
            operator::operator(engine.clone(), drain.clone(), stats.clone(), configuration.clone());
        let gate = Gate {
            permits: Permits::new(usize::try_from(settings.limits.connections).unwrap_or(usize::MAX)),
            drain: drain.clone(),
            stats,
        };
        let max_body_bytes = usize::try_from(settings.limits.body_bytes.0).unwrap_or(usize::MAX);
        let decisions = Service::new(api.clone(), routes::FIRST_DECISION_ROUTE, max_body_bytes);
        let http_config =
            HttpConfig { head_timeout: settings.limits.header_deadline, ..HttpConfig::default() };
        let protocols = Protocols::bind(settings, &engine, workers, &gate)?;
        let server = Server::new(Routes::new(decisions, operator), http_config, gate);
        let drain_timing = DrainTiming { deadline: settings.limits.drain_deadline, ..DrainTiming::default() };
        let addresses = protocols.addresses(listeners.address());
        let (http, protocols) = (Some((server, listeners)), Some(protocols));
        Ok(Self {
            cores,
            drain,
            drain_timing,
            engine,
            api,
            snapshots,
            configuration,
            http,
            protocols,
            addresses,
        })
    }

    /// Where each protocol listens, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The decision API.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
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
    pub fn configuration(&self) -> &ConfigurationStatus {
        &self.configuration
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
        if let Some((server, listeners)) = self.http.take() {
            server.start(&self.cores, listeners);
        }
        if let Some(protocols) = self.protocols.take() {
            protocols.start(&self.cores);
        }
        self.drain.advance(Stage::Ready);
    }

    /// Drains: readiness falls, requests in flight end, listeners close. Returns when nothing is
    /// left to lose, or the deadline has passed.
    pub async fn stop(self) -> Drained {
        let drained = self.drain.run(self.drain_timing).await;
        // Both block, and nothing else runs any more.
        self.cores.stop();
        if let Some(snapshots) = &self.snapshots {
            snapshots.save(&self.engine);
        }
        drained
    }

    /// How long a drain may take before what still runs is cut.
    #[must_use]
    pub fn drain_deadline(&self) -> Duration {
        self.drain_timing.deadline
    }
}
