//! What the file declares of upstreams and routes.

use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Kind, LayeredDocument};

use super::{ROUTE, UPSTREAM, config};
use crate::config::{Auth, GatewayConfig, RouteConfig, UpstreamConfig};

/// What the file declares.
#[derive(Clone, Debug, Default)]
pub struct GatewayLayer {
    pub(super) upstreams: Vec<LayeredDocument<UpstreamConfig>>,
    pub(super) routes: Vec<LayeredDocument<RouteConfig>>,
}

impl GatewayLayer {
    /// Whether a route asks for API keys.
    #[must_use]
    pub fn asks_for_keys(&self) -> bool {
        let is_key = |way: &Auth| matches!(way, Auth::Key(_));
        self.routes.iter().any(|route| route.config.ways().iter().any(is_key))
    }

    /// What it declares: kind, name and document.
    #[must_use]
    pub fn documents(&self) -> Vec<(Kind, String, Value)> {
        let upstream = |it: &LayeredDocument<UpstreamConfig>| {
            (UPSTREAM, it.config.name.to_string(), (*it.document).clone())
        };
        let route =
            |it: &LayeredDocument<RouteConfig>| (ROUTE, it.config.name.to_string(), (*it.document).clone());
        self.upstreams.iter().map(upstream).chain(self.routes.iter().map(route)).collect()
    }

    /// Checks what a file has under `[[upstream]]` and `[[route]]`; `policies` are those that a route may list.
    ///
    /// # Errors
    /// As [`GatewayConfig::check`].
    pub fn check(upstreams: &[Value], routes: &[Value], policies: &[&str]) -> Result<Self, Vec<Mistake>> {
        // The check keeps the order of the lists, and one mistake refuses all: so each document pairs with its checked form.
        let checked = GatewayConfig::check(upstreams, routes, policies)?;
        let upstream = |(config, document): (Arc<UpstreamConfig>, &Value)| {
            LayeredDocument::of_file(Arc::clone(&config.name), config, document.clone())
        };
        let route = |(config, document): (Arc<RouteConfig>, &Value)| {
            LayeredDocument::of_file(Arc::clone(&config.name), config, document.clone())
        };
        Ok(Self {
            upstreams: checked.upstreams.into_iter().zip(upstreams).map(upstream).collect(),
            routes: checked.routes.into_iter().zip(routes).map(route).collect(),
        })
    }

    /// How many upstreams and routes it has.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.upstreams.len(), self.routes.len())
    }

    /// Whether some upstream has servers that register themselves.
    #[must_use]
    pub fn has_apps(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.config.registered.is_some())
    }

    /// Its upstreams and routes.
    #[must_use]
    pub fn config(&self) -> GatewayConfig {
        config(self.upstreams.iter().map(|entry| Arc::clone(&entry.config)).collect(), &self.routes)
    }
}
