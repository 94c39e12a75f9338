//! The listeners beside HTTP, each a protocol that existing software speaks to the same engine.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tidegate_limiter::credential::Credential;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::grpc;
use tidegate_limiter::resp::{self, RespConfig};
use tidegate_net::accept::Gate;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::{ListenConfig, ListenError, Listeners};
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;

use crate::config::Settings;

/// Servers with their sockets bound.
#[derive(Debug)]
pub(super) struct Protocols {
    grpc: (Server<grpc::Service>, Listeners),
    resp: (resp::Server, Listeners),
}

/// Where each protocol's listener is, with the real port.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The decision API.
    pub http: SocketAddr,
    /// The Envoy rate-limit service.
    pub grpc: SocketAddr,
    /// The Redis protocol.
    pub resp: SocketAddr,
}

impl Protocols {
    /// Binds every listener but HTTP's, whose `gate` it is: all share its permits and its drain, and
    /// each counts for itself.
    pub(super) fn bind(
        settings: &Settings,
        engine: &Arc<Engine>,
        workers: NonZeroUsize,
        gate: &Gate,
    ) -> Result<Self, ListenError> {
        let bind = |address| Listeners::bind(&ListenConfig::new(address, workers));
        let gate = |templates| Gate { stats: Arc::new(Stats::new(workers.get(), templates)), ..gate.clone() };
        let header_deadline = settings.limits.header_deadline;

        let config = HttpConfig { head_timeout: header_deadline, ..HttpConfig::default() };
        let grpc_gate = gate(grpc::TEMPLATES);
        let service = grpc::Service::new(engine.clone(), grpc_gate.drain.clone());
        let grpc = (Server::new(service, config, grpc_gate), bind(settings.grpc.listen)?);

        let password = settings.resp.password.as_ref().map(|password| Credential::new(password.expose()));
        let config = RespConfig { command_timeout: header_deadline, ..RespConfig::default() };
        let server = resp::Server::new(engine, password, config, gate(resp::TEMPLATES));
        let resp = (server, bind(settings.resp.listen)?);
        Ok(Self { grpc, resp })
    }

    /// Where everything listens, HTTP at `http`.
    pub(super) fn addresses(&self, http: SocketAddr) -> Addresses {
        Addresses { http, grpc: self.grpc.1.address(), resp: self.resp.1.address() }
    }

    /// Begins to serve.
    pub(super) fn start(self, cores: &Cores) {
        let (grpc, listeners) = self.grpc;
        grpc.start_http2(cores, listeners);
        let (resp, listeners) = self.resp;
        resp.start(cores, listeners);
    }
}
