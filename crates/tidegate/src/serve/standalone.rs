//! A service that asks nothing of the others: how it comes into the process, and where it binds its listeners.
//!
//! ```text
//!   ServiceConfig::serve ──▶ Standalone ──documents──▶ control::Services
//!                                 ├───────routes─────▶ the admin API
//!                                 └───────bind───────▶ BoundService ──▶ counted, started
//! ```
//!
//! The decision service, the gateway, the edge and the intake are wired by hand in `mod.rs`, because they ask one
//! another for decisions, keys and tokens. What binds them is the same [`Door`]. Those whose listeners come and go are
//! [`super::listeners::Listening`]; the others are each a [`BoundService`] once they are bound.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tidegate_access::guard::Guard;
use tidegate_access::routes::ApiRoutes;
use tidegate_admin::Servers;
use tidegate_control::{Configuration, Services};
use tidegate_net::accept::Gate;
use tidegate_net::drain::Drain;
use tidegate_net::http::{Handle, HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::permits::Permits;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_net::tls::Tls;

use super::inherited::Inherited;
use super::{ListenerTokens, StartError, kept_for_a_listener};
use crate::config::{Listener, Secured, Settings};

/// A service that asks nothing of the others.
pub trait Standalone: fmt::Debug {
    /// `services` with those of its documents.
    fn documents(&self, services: Services) -> Services;

    /// What it answers beside the rest of the admin API.
    fn routes(&self, guard: &Arc<Guard>, configuration: &Configuration) -> ApiRoutes;

    /// What the OpenAPI document says of these routes.
    fn described(&self) -> Value;

    /// Binds its listeners, which may be none.
    ///
    /// # Errors
    /// When an address cannot be had.
    fn bind(&self, door: &mut Door<'_>) -> Result<Vec<Box<dyn BoundService>>, StartError>;
}

/// Binds the listeners of all of them, which are the last: every socket of the service manager has its listener then.
pub(super) fn bind(
    services: &[Box<dyn Standalone>],
    door: &mut Door<'_>,
) -> Result<Vec<Box<dyn BoundService>>, StartError> {
    let mut bound = Vec::new();
    for service in services {
        bound.extend(service.bind(door)?);
    }
    door.inherited.is_used_up()?;
    Ok(bound)
}

/// A service whose sockets are bound.
pub trait BoundService: fmt::Debug + Send + Sync {
    /// `servers` and what its own count.
    fn counted(&self, servers: Servers) -> Servers;

    /// Begins to serve.
    fn start(self: Box<Self>, cores: &Cores);
}

/// Where services bind their listeners: all share the drain of the process and its permits, but for those that each
/// has for itself.
#[derive(Debug)]
pub struct Door<'a> {
    pub(super) workers: NonZeroUsize,
    pub(super) gate: &'a Gate,
    pub(super) tls: &'a [Secured],
    pub(super) tokens: &'a ListenerTokens,
    pub(super) head_timeout: Duration,
    pub(super) inherited: &'a mut Inherited,
}

impl<'a> Door<'a> {
    pub(super) fn new(
        settings: &Settings,
        workers: NonZeroUsize,
        (gate, tls, tokens): (&'a Gate, &'a [Secured], &'a ListenerTokens),
        inherited: &'a mut Inherited,
    ) -> Self {
        Self { workers, gate, tls, tokens, head_timeout: settings.limits.header_deadline, inherited }
    }

    /// Serves HTTP on `address`. `templates` are the names of its routes in metrics, the first that of all others.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn http(
        &mut self,
        listener: Listener,
        address: SocketAddr,
        templates: &[&str],
        handler: impl Handle,
    ) -> Result<HttpService, StartError> {
        let listeners = self.listeners(listener, address)?;
        let gate = self.gate(templates);
        let stats = Arc::clone(&gate.stats);
        let config = HttpConfig { head_timeout: self.head_timeout, ..HttpConfig::default() };
        Ok(HttpService { listener, server: Server::new(handler, config, gate), listeners, stats })
    }

    /// Listens on `address`, with the TLS of `listener` if it has any.
    pub(super) fn listeners(
        &mut self,
        listener: Listener,
        address: SocketAddr,
    ) -> Result<Listeners, StartError> {
        Ok(self.inherited.listeners(address, self.workers)?.with_tls(tls_of(self.tls, listener)))
    }

    /// A gate that has a tenth of the connections for itself and counts by itself.
    pub(super) fn gate<N: AsRef<str>>(&self, templates: &[N]) -> Gate {
        let stats = Arc::new(Stats::new(self.workers.get(), templates));
        let permits = self.gate.permits.keeping(kept_for_a_listener(self.gate));
        Gate { permits, stats, ..self.gate.clone() }
    }

    /// As [`Door::gate`], for a server whose listeners may come later.
    pub(super) fn server_gate<N: AsRef<str>>(&self, templates: &[N]) -> Arc<ServerGate> {
        let stats = Arc::new(Stats::new(self.workers.get(), templates));
        Arc::new(ServerGate { whole: self.gate.clone(), stats, permits: OnceLock::new() })
    }
}

/// The gate of a server whose listeners may come later: it counts from the start, and connections are kept for it from the
/// first listener on that serves, for as long as the process runs. Where others have them all at that time, they are kept
/// as connections end.
#[derive(Debug)]
pub(super) struct ServerGate {
    whole: Gate,
    stats: Arc<Stats>,
    permits: OnceLock<Permits>,
}

impl ServerGate {
    /// The gate of a listener that begins to serve, until `drain` closes it.
    pub(super) fn open(&self, drain: Drain, cores: &Cores) -> Gate {
        let keep = || {
            let (permits, count) = (self.whole.permits.keeping(0), kept_for_a_listener(&self.whole));
            let kept = permits.clone();
            cores.spawn_on(0, async move { kept.keep(count).await });
            permits
        };
        let permits = self.permits.get_or_init(keep).clone();
        Gate { permits, drain, stats: Arc::clone(&self.stats), ..self.whole.clone() }
    }

    /// What it counts.
    pub(super) fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }
}

/// The TLS of `listener`, if it has any.
pub(super) fn tls_of(tls: &[Secured], listener: Listener) -> Option<Tls> {
    tls.iter().find(|it| it.listener == listener).map(|it| it.tls.clone())
}

/// A server of HTTP, bound.
#[derive(Debug)]
pub struct HttpService {
    listener: Listener,
    server: Server,
    listeners: Listeners,
    stats: Arc<Stats>,
}

impl HttpService {
    /// Where it listens, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listeners.address()
    }
}

impl BoundService for HttpService {
    fn counted(&self, servers: Servers) -> Servers {
        servers.with(self.listener.server(), Arc::clone(&self.stats))
    }

    fn start(self: Box<Self>, cores: &Cores) {
        self.server.start(cores, self.listeners);
    }
}
