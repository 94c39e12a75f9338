//! A route in force: its configuration, and what requests on it share.

use std::sync::Arc;

use http::request::Parts;
use tidegate_algorithms::breaker;

use crate::breaker::SharedBreaker;
use crate::config::{RouteConfig, StaticReply};
use crate::upstream::Upstream;

/// A route in force.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) config: Arc<RouteConfig>,
    pub(crate) action: RouteAction,
    pub(crate) breaker: Option<SharedBreaker>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum RouteAction {
    Forward(Arc<Upstream>),
    Reply(StaticReply),
}

impl Route {
    pub(crate) fn new(config: Arc<RouteConfig>, action: RouteAction) -> Self {
        let breaker = config.breaker.map(|settings: breaker::Settings| SharedBreaker::new(settings));
        Self { config, action, breaker }
    }

    /// How many things a request must have beside host and path.
    pub(crate) fn conditions(config: &RouteConfig) -> usize {
        usize::from(!config.methods.is_empty()) + config.fields.len() + config.query.len()
    }

    /// Whether a request whose host and path are right has the rest.
    pub(crate) fn accepts(&self, request: &Parts) -> bool {
        let RouteConfig { methods, fields, query, .. } = &*self.config;
        let has_query = |name: &str, value: &str| {
            let stated = request.uri.query().unwrap_or_default();
            form_urlencoded::parse(stated.as_bytes()).any(|(key, given)| key == name && given == value)
        };
        (methods.is_empty() || methods.contains(&request.method))
            && fields
                .iter()
                .all(|(name, value)| request.headers.get_all(name).iter().any(|given| given == value))
            && query.iter().all(|(name, value)| has_query(name, value))
    }
}
