//! The listeners beside HTTP, each a protocol that existing software speaks to the same engine.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_admin::Servers;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::grpc;
use tidegate_limiter::resp::{self, RespConfig};
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;
use tidegate_net::stats::Stats;
use tidegate_wire::rls::MAX_REQUEST_BYTES;

use super::StartError;
use super::standalone::{BoundService, Door};
use crate::config::{Listener, Settings};

/// Servers with their sockets bound.
#[derive(Debug)]
pub(super) struct Protocols {
    grpc: Option<ListeningServer<Server<grpc::GrpcService>>>,
    resp: Option<ListeningServer<resp::Server>>,
}

/// A server, where it listens, and what it counts.
#[derive(Debug)]
struct ListeningServer<S> {
    server: S,
    listeners: Listeners,
    stats: Arc<Stats>,
}

/// Where each protocol's listener is, with the real port.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The decision API.
    pub http: SocketAddr,
    /// The admin API, if it is elsewhere.
    pub admin: Option<SocketAddr>,
    /// The Envoy rate-limit service, if there is one.
    pub grpc: Option<SocketAddr>,
    /// The Redis protocol, if it is served.
    pub resp: Option<SocketAddr>,
    /// The metrics intake, if there is one.
    pub intake: Option<SocketAddr>,
}

impl Protocols {
    /// Binds every listener but HTTP's; each counts for itself.
    pub(super) fn bind(
        settings: &Settings,
        engine: &Arc<Engine>,
        door: &mut Door<'_>,
    ) -> Result<Self, StartError> {
        let grpc = match settings.grpc.listen {
            Some(address) => {
                let service =
                    grpc::GrpcService::new(engine.clone(), door.gate.drain.clone(), door.tokens.grpc.clone());
                let listeners = door.listeners(Listener::GRPC, address)?;
                // Envoy sends what all of its clients write over a few connections: one client's long fields must not
                // take the room of the others, whose requests Envoy would let through.
                let config = HttpConfig {
                    head_timeout: door.head_timeout,
                    connection_bytes: 16 * MAX_REQUEST_BYTES,
                    ..HttpConfig::default()
                };
                let gate = door.gate(grpc::TEMPLATES);
                let stats = gate.stats.clone();
                Some(ListeningServer { server: Server::new(service, config, gate), listeners, stats })
            }
            None => None,
        };
        let resp = match settings.resp.listen {
            Some(address) => {
                let listeners = door.listeners(Listener::RESP, address)?;
                let config = RespConfig { command_timeout: door.head_timeout, ..RespConfig::default() };
                let gate = door.gate(resp::TEMPLATES);
                let stats = gate.stats.clone();
                let server = resp::Server::new(engine, door.tokens.resp.clone(), config, gate);
                Some(ListeningServer { server, listeners, stats })
            }
            None => None,
        };
        Ok(Self { grpc, resp })
    }

    /// Where everything listens: the decision API at `http`, the admin API at `admin` or there, too, and the
    /// intake at `intake`.
    pub(super) fn addresses(
        &self,
        (http, admin): (SocketAddr, Option<SocketAddr>),
        intake: Option<SocketAddr>,
    ) -> Addresses {
        let grpc = self.grpc.as_ref().map(|grpc| grpc.listeners.address());
        let resp = self.resp.as_ref().map(|resp| resp.listeners.address());
        Addresses { http, admin, grpc, resp, intake }
    }
}

impl BoundService for Protocols {
    fn counted(&self, servers: Servers) -> Servers {
        let servers = match &self.grpc {
            Some(grpc) => servers.with(Listener::GRPC.server(), grpc.stats.clone()),
            None => servers,
        };
        match &self.resp {
            Some(resp) => servers.with_resp(Listener::RESP.server(), resp.stats.clone()),
            None => servers,
        }
    }

    fn start(self: Box<Self>, cores: &Cores) {
        if let Some(ListeningServer { server, listeners, .. }) = self.grpc {
            server.start_http2(cores, listeners);
        }
        if let Some(ListeningServer { server, listeners, .. }) = self.resp {
            server.start(cores, listeners);
        }
    }
}
