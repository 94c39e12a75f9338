//! A route in force: its configuration, and what requests on it share.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use tidegate_algorithms::breaker;

use crate::breaker::SharedBreaker;
use crate::config::{RouteConfig, StaticReply};
use crate::jwt::JwtVerifier;
use crate::upstream::Upstream;

/// A route in force.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) config: Arc<RouteConfig>,
    pub(crate) action: RouteAction,
    /// Where requests go that the action's upstream does not answer.
    pub(crate) fallback: Option<Arc<Upstream>>,
    /// A policy that it lists and that is not in force, if there is one.
    pub(crate) lacks: Option<Arc<str>>,
    pub(crate) breaker: Option<SharedBreaker>,
    /// Verifies its tokens, if it asks for some.
    pub(crate) jwt: Option<JwtVerifier>,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum RouteAction {
    Forward(Arc<Upstream>),
    Reply(StaticReply),
}

impl Route {
    pub(crate) fn new(
        config: Arc<RouteConfig>,
        action: RouteAction,
        fallback: Option<Arc<Upstream>>,
        lacks: Option<Arc<str>>,
        jwt: Option<JwtVerifier>,
    ) -> Self {
        let breaker = config.breaker.map(|settings: breaker::Settings| SharedBreaker::new(settings));
        Self { config, action, fallback, lacks, breaker, jwt }
    }

    /// How many things a request must have beside host and path.
    pub(crate) fn conditions(config: &RouteConfig) -> usize {
        usize::from(!config.methods.is_empty()) + config.fields.len() + config.query.len()
    }

    /// Whether a request whose host and path are right has the rest.
    pub(crate) fn accepts(&self, request: &Parts) -> bool {
        accepts_method(&self.config, request)
            && self.config.fields.iter().all(|field| has_field(request, field))
            && self.config.query.iter().all(|parameter| has_parameter(request, parameter))
    }

    /// What a request whose host and path are right lacks, if it lacks something.
    pub(crate) fn mismatch(config: &RouteConfig, request: &Parts) -> Option<String> {
        if !accepts_method(config, request) {
            return Some("method".to_owned());
        }
        if let Some((name, _)) = config.fields.iter().find(|field| !has_field(request, field)) {
            return Some(format!("header {name}"));
        }
        let lacking = config.query.iter().find(|parameter| !has_parameter(request, parameter));
        lacking.map(|(name, _)| format!("query parameter {name}"))
    }
}

fn accepts_method(config: &RouteConfig, request: &Parts) -> bool {
    config.methods.is_empty() || config.methods.contains(&request.method)
}

fn has_field(request: &Parts, (name, value): &(HeaderName, HeaderValue)) -> bool {
    request.headers.get_all(name).iter().any(|given| given == value)
}

fn has_parameter(request: &Parts, (name, value): &(Box<str>, Box<str>)) -> bool {
    let stated = request.uri.query().unwrap_or_default();
    form_urlencoded::parse(stated.as_bytes()).any(|(key, given)| *key == **name && *given == **value)
}
