//! Servers that registered themselves: the edge's documents, as far as they say where a backend is.
//!
//! What is in such a document was checked by the registration API. A document that cannot be read all the same is left
//! out here; the edge says so.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::Deserialize;
use tidegate_control::{Kind, LayeredDocument, Snapshot};
use tidegate_upstream::backend::{BackendSettings, Host, Target};

use crate::config::{ServerConfig, UpstreamConfig};

/// Documents of another service: backends that registered themselves.
pub(super) const REGISTRATION: Kind = Kind::new("edge_registration");

/// Of a registered backend what matters here.
#[derive(Deserialize)]
struct Registered {
    app: String,
    address: SocketAddr,
    weight: Option<u32>,
    hard_limit: Option<u32>,
}

/// The upstreams as they are served: those that name an app have its registered backends as servers, behind their own.
pub(super) fn with_registered(
    upstreams: &[LayeredDocument<UpstreamConfig>],
    stored: &Snapshot,
) -> Vec<Arc<UpstreamConfig>> {
    let mut by_app: HashMap<&str, Vec<Registered>> = upstreams
        .iter()
        .filter_map(|upstream| Some((&*upstream.config.registered.as_ref()?.app, Vec::new())))
        .collect();
    if !by_app.is_empty() {
        for document in stored.documents(REGISTRATION) {
            let Ok(backend) = serde_json::from_str::<Registered>(&document.body) else { continue };
            if let Some(backends) = by_app.get_mut(backend.app.as_str()) {
                backends.push(backend);
            }
        }
    }
    let served = |upstream: &LayeredDocument<UpstreamConfig>| {
        let config = &upstream.config;
        let Some(registered) = &config.registered else { return Arc::clone(config) };
        let backends = by_app.get(&*registered.app).into_iter().flatten();
        let servers = backends.map(|backend| server(backend, registered.max_requests));
        let servers = config.servers.iter().cloned().chain(servers).collect();
        Arc::new(UpstreamConfig { servers, ..UpstreamConfig::clone(config) })
    };
    upstreams.iter().map(served).collect()
}

fn server(backend: &Registered, max_requests: u32) -> ServerConfig {
    let target = Target { host: Host::Address(backend.address.ip()), port: backend.address.port() };
    let (weight, hard_limit) = (backend.weight.unwrap_or(1), backend.hard_limit.unwrap_or(max_requests));
    ServerConfig { backend: BackendSettings { target, weight, hard_limit }, is_tls: false }
}
