//! An [`App`]'s answers to the program that runs it.

use std::net::SocketAddr;
use std::sync::Arc;

use tidegate_admin::ConfigurationStatus;
use tidegate_control::Configuration;
use tidegate_gateway::access_log::AccessLog;
use tidegate_limiter::engine::Engine;
use tidegate_net::drain::Drain;
use tidegate_net::runtime::Pulse;

use super::{Addresses, App, EdgeAddresses, ListenerTokens, SecuredListeners, Snapshots};

impl App {
    /// Where each protocol listened at the start, with the real ports.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Where the gateway listened at the start, with the real ports.
    #[must_use]
    pub fn gateway_addresses(&self) -> &[SocketAddr] {
        &self.gateway_addresses
    }

    /// Where the edge listens, with the real ports.
    #[must_use]
    pub fn edge_addresses(&self) -> &EdgeAddresses {
        &self.edge_addresses
    }

    /// What is in force of all services, and the way to change it.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
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
    pub fn status(&self) -> &ConfigurationStatus {
        &self.status
    }

    /// The tokens and scopes of each listener.
    #[must_use]
    pub fn tokens(&self) -> &ListenerTokens {
        &self.tokens
    }

    /// The listeners that have TLS at present.
    #[must_use]
    pub fn secured(&self) -> &SecuredListeners {
        self.listeners.secured()
    }

    /// The gateway's access log, if there is one.
    #[must_use]
    pub fn access_log(&self) -> Option<Arc<AccessLog>> {
        self.gateway.access_log().cloned()
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
}
