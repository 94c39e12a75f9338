//! The listeners beside HTTP, each a protocol that existing software speaks to the same engine.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tidegate_limiter::credential::Credential;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::resp::{self, RespConfig};
use tidegate_net::accept::Gate;
use tidegate_net::listen::{ListenConfig, ListenError, Listeners};
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

use crate::config::Settings;

/// Servers with their sockets bound.
#[derive(Debug)]
pub(super) struct Protocols {
    resp: (resp::Server, Listeners),
    addresses: Addresses,
}

/// Where each protocol's listener is, with the real port.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The decision API.
    pub http: SocketAddr,
    /// The Redis protocol.
    pub resp: SocketAddr,
}

impl Protocols {
    /// Binds every listener but the one at `http`. `gate` is HTTP's: all share its permits and its
    /// drain, and each counts for itself.
    pub(super) fn bind(
        settings: &Settings,
        engine: &Arc<Engine>,
        workers: NonZeroUsize,
        http: SocketAddr,
        gate: &Gate,
    ) -> Result<Self, ListenError> {
        let listeners = Listeners::bind(&ListenConfig::new(settings.resp.listen, workers))?;
        let addresses = Addresses { http, resp: listeners.address() };
        let gate = Gate { stats: Arc::new(Stats::new(workers.get(), resp::TEMPLATES)), ..gate.clone() };
        let password = settings.resp.password.as_ref().map(|password| Credential::new(password.expose()));
        let config = RespConfig { command_timeout: settings.limits.header_deadline, ..RespConfig::default() };
        Ok(Self { resp: (resp::Server::new(engine, password, config, gate), listeners), addresses })
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Begins to serve.
    pub(super) fn start(self, cores: &Cores) {
        let (resp, listeners) = self.resp;
        resp.start(cores, listeners);
    }
}
