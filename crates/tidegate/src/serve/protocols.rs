//! The listeners beside HTTP, each a protocol that existing software speaks to the same engine.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_access::tokens::TokensInForce;
use tidegate_admin::Servers;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::grpc;
use tidegate_limiter::resp::{self, RespConfig};
use tidegate_net::drain::Drain;
use tidegate_net::http::{HttpConfig, Server};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;
use tidegate_wire::rls::MAX_REQUEST_BYTES;

use super::listeners::{
    BoundSockets, DeclaredListener, ListenerTerms, Listening, ServeListener, WantedListener,
};
use super::standalone::{Door, ServerGate};
use crate::config::{Config, Listener, Settings, TlsSettings};

/// What serves gRPC and RESP, each for itself, where there are listeners for them.
#[derive(Debug)]
pub(super) struct Protocols {
    engine: Arc<Engine>,
    grpc: Arc<ServerGate>,
    grpc_tokens: TokensInForce,
    grpc_config: HttpConfig,
    resp: Arc<ServerGate>,
    resp_tokens: TokensInForce,
    resp_config: RespConfig,
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

impl Addresses {
    /// Those of the start.
    pub(super) fn bound(settings: &Settings, bound: &BoundSockets) -> Self {
        let listeners = [Listener::HTTP, Listener::ADMIN, Listener::GRPC, Listener::RESP, Listener::INTAKE];
        let [http, admin, grpc, resp, intake] = listeners.map(|listener| bound.address(listener));
        // Invariant: the decision API is always bound.
        Self { http: http.unwrap_or(settings.http.listen), admin, grpc, resp, intake }
    }
}

impl Protocols {
    /// Of every protocol but HTTP; each counts for itself.
    pub(super) fn new(engine: &Arc<Engine>, door: &Door<'_>) -> Self {
        Self {
            engine: Arc::clone(engine),
            grpc: door.server_gate(grpc::TEMPLATES),
            grpc_tokens: door.tokens.grpc.clone(),
            // Envoy sends what all of its clients write over a few connections: one client's long fields must not
            // take the room of the others, whose requests Envoy would let through.
            grpc_config: HttpConfig {
                head_timeout: door.head_timeout,
                connection_bytes: 16 * MAX_REQUEST_BYTES,
                ..HttpConfig::default()
            },
            resp: door.server_gate(resp::TEMPLATES),
            resp_tokens: door.tokens.resp.clone(),
            resp_config: RespConfig { command_timeout: door.head_timeout, ..RespConfig::default() },
        }
    }

    fn grpc(&self) -> Arc<dyn ServeListener> {
        Arc::new(GrpcListener {
            engine: Arc::clone(&self.engine),
            tokens: self.grpc_tokens.clone(),
            config: self.grpc_config.clone(),
            gate: Arc::clone(&self.grpc),
        })
    }

    fn resp(&self) -> Arc<dyn ServeListener> {
        Arc::new(RespListener {
            engine: Arc::clone(&self.engine),
            tokens: self.resp_tokens.clone(),
            config: self.resp_config.clone(),
            gate: Arc::clone(&self.resp),
        })
    }
}

impl Listening for Protocols {
    fn wanted(&self, config: &Config) -> Vec<WantedListener> {
        let declared = |listener, address, tls: &TlsSettings| DeclaredListener {
            listener,
            address,
            terms: ListenerTerms::Settings(tls.clone()),
        };
        let settings = &config.settings;
        let grpc = settings.grpc.listen.map(|address| WantedListener {
            declared: declared(Listener::GRPC, address, &settings.grpc.tls),
            server: self.grpc(),
        });
        let resp = settings.resp.listen.map(|address| WantedListener {
            declared: declared(Listener::RESP, address, &settings.resp.tls),
            server: self.resp(),
        });
        grpc.into_iter().chain(resp).collect()
    }

    fn counted(&self, servers: Servers) -> Servers {
        let servers = servers.with(Listener::GRPC.server(), self.grpc.stats());
        servers.with_resp(Listener::RESP.server(), self.resp.stats())
    }
}

/// Envoy's rate-limit service on a listener.
#[derive(Debug)]
struct GrpcListener {
    engine: Arc<Engine>,
    tokens: TokensInForce,
    config: HttpConfig,
    gate: Arc<ServerGate>,
}

impl ServeListener for GrpcListener {
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores) {
        let service = grpc::GrpcService::new(Arc::clone(&self.engine), drain.clone(), self.tokens.clone());
        let gate = self.gate.open(drain, cores);
        Server::new(service, self.config.clone(), gate).start_http2(cores, sockets);
    }
}

/// The Redis protocol on a listener.
#[derive(Debug)]
struct RespListener {
    engine: Arc<Engine>,
    tokens: TokensInForce,
    config: RespConfig,
    gate: Arc<ServerGate>,
}

impl ServeListener for RespListener {
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores) {
        let gate = self.gate.open(drain, cores);
        resp::Server::new(&self.engine, self.tokens.clone(), self.config.clone(), gate).start(cores, sockets);
    }
}
