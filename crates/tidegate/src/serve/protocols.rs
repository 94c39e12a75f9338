//! The listeners beside HTTP, each a protocol that existing software speaks to the same engine.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use tidegate_admin::Servers;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::grpc;
use tidegate_limiter::resp::{self, RespConfig};
use tidegate_net::accept::Gate;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_net::tls::Tls;

use super::inherited::Inherited;
use super::{ListenerTokens, StartError, permits_of_a_listener};
use crate::config::{Listener, Secured, Settings};

/// Servers with their sockets bound.
#[derive(Debug)]
pub(super) struct Protocols {
    grpc: (Server<grpc::Service>, Listeners),
    resp: (resp::Server, Listeners),
    grpc_stats: Arc<Stats>,
    resp_stats: Arc<Stats>,
}

/// Where each protocol's listener is, with the real port.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The decision API.
    pub http: SocketAddr,
    /// The admin API, if it is elsewhere.
    pub admin: Option<SocketAddr>,
    /// The Envoy rate-limit service.
    pub grpc: SocketAddr,
    /// The Redis protocol.
    pub resp: SocketAddr,
    /// The metrics intake, if there is one.
    pub intake: Option<SocketAddr>,
}

/// What guards the listeners.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guards<'a> {
    pub(super) tls: &'a [Secured],
    pub(super) tokens: &'a ListenerTokens,
}

impl Protocols {
    /// Binds every listener but HTTP's: all share the drain of `gate` and its permits, but for those that each
    /// has for itself, and each counts for itself.
    pub(super) fn bind(
        settings: &Settings,
        engine: &Arc<Engine>,
        workers: NonZeroUsize,
        gate: &Gate,
        guards: &Guards<'_>,
        inherited: &mut Inherited,
    ) -> Result<Self, StartError> {
        let mut bind = |address, listener| {
            let listeners = inherited.listeners(address, workers)?;
            Ok::<_, StartError>(listeners.with_tls(tls_of(guards.tls, listener)))
        };
        let stats = |templates| Arc::new(Stats::new(workers.get(), templates));
        let (grpc_stats, resp_stats) = (stats(grpc::TEMPLATES), stats(resp::TEMPLATES));
        let gate = |stats: &Arc<Stats>| Gate {
            permits: permits_of_a_listener(gate),
            stats: stats.clone(),
            ..gate.clone()
        };
        let header_deadline = settings.limits.header_deadline;

        let config = HttpConfig { head_timeout: header_deadline, ..HttpConfig::default() };
        let grpc_gate = gate(&grpc_stats);
        let service = grpc::Service::new(engine.clone(), grpc_gate.drain.clone(), guards.tokens.grpc.clone());
        let grpc = (Server::new(service, config, grpc_gate), bind(settings.grpc.listen, Listener::Grpc)?);

        let config = RespConfig { command_timeout: header_deadline, ..RespConfig::default() };
        let server = resp::Server::new(engine, guards.tokens.resp.clone(), config, gate(&resp_stats));
        let resp = (server, bind(settings.resp.listen, Listener::Resp)?);
        Ok(Self { grpc, resp, grpc_stats, resp_stats })
    }

    /// `servers` and what these count.
    pub(super) fn counted(&self, servers: Servers) -> Servers {
        servers
            .with(Listener::Grpc.server(), self.grpc_stats.clone())
            .with_resp(Listener::Resp.server(), self.resp_stats.clone())
    }

    /// Where everything listens: the decision API at `http`, the admin API at `admin` or there, too, and the
    /// intake at `intake`.
    pub(super) fn addresses(
        &self,
        (http, admin): (SocketAddr, Option<SocketAddr>),
        intake: Option<SocketAddr>,
    ) -> Addresses {
        Addresses { http, admin, grpc: self.grpc.1.address(), resp: self.resp.1.address(), intake }
    }

    /// Begins to serve.
    pub(super) fn start(self, cores: &Cores) {
        let (grpc, listeners) = self.grpc;
        grpc.start_http2(cores, listeners);
        let (resp, listeners) = self.resp;
        resp.start(cores, listeners);
    }
}

/// The TLS of `listener`, if it has any.
pub(super) fn tls_of(tls: &[Secured], listener: Listener) -> Option<Tls> {
    tls.iter().find(|it| it.listener == listener).map(|it| it.tls.clone())
}
