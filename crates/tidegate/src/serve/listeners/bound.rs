//! The sockets of the start: they are bound before anything is served.

use std::net::SocketAddr;

use tidegate_admin::Servers;
use tidegate_net::listen::Listeners;

use super::{DeclaredListener, Listening};
use crate::config::{Config, Listener};
use crate::serve::StartError;
use crate::serve::standalone::Door;

/// Listeners of servers that may have none at the start.
const COMING: [Listener; 4] = [Listener::GRPC, Listener::RESP, Listener::gateway(0), Listener::edge(0)];

/// The sockets that were bound at the start.
#[derive(Debug)]
pub(in crate::serve) struct BoundSockets(Vec<(Listener, Listeners)>);

impl BoundSockets {
    /// Those of `first`, and those of all other listeners that `services` want.
    pub(in crate::serve) fn bind(
        first: Vec<(Listener, Listeners)>,
        services: &[Box<dyn Listening>],
        config: &Config,
        door: &mut Door<'_>,
    ) -> Result<Self, StartError> {
        let mut bound = Self(first);
        for wanted in services.iter().flat_map(|service| service.wanted(config)) {
            let DeclaredListener { listener, address, .. } = wanted.declared;
            bound.0.push((listener, door.listeners(listener, address)?));
        }
        Ok(bound)
    }

    /// `servers` without those that have no listener, as long as nobody has connected to them.
    pub(in crate::serve) fn counted(&self, servers: Servers) -> Servers {
        let absent = COMING.into_iter().filter(|listener| self.addresses(listener.server()).is_empty());
        absent.fold(servers, |servers, listener| servers.once_used(listener.server()))
    }

    /// Where this one is, with the real port.
    pub(in crate::serve) fn address(&self, listener: Listener) -> Option<SocketAddr> {
        self.0.iter().find(|(it, _)| *it == listener).map(|(_, sockets)| sockets.address())
    }

    /// Where all listeners of a server are.
    pub(in crate::serve) fn addresses(&self, server: &'static str) -> Vec<SocketAddr> {
        let of_server = self.0.iter().filter(|(listener, _)| listener.server() == server);
        of_server.map(|(_, sockets)| sockets.address()).collect()
    }

    /// Each listener with its sockets.
    pub(super) fn into_parts(self) -> Vec<(Listener, Listeners)> {
        self.0
    }
}
