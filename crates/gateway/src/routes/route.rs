//! A route in force: its configuration, and what requests on it share.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderName, HeaderValue};

use crate::authentication::authority::Authority;
use crate::authentication::identity::Identity;
use crate::authentication::jwt::JwtVerifier;
use crate::config::{Action, Redirect, RouteConfig, StaticReply};
use crate::forwarding::mirror::Mirror;
use crate::observed::flow::Flow;
use crate::routes::hedge::Hedge;
use crate::routes::split::{SplitSide, has_cookie};
use crate::servers::breaker::SharedBreaker;
use crate::servers::upstream::Upstream;

/// A route in force.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) config: Arc<RouteConfig>,
    pub(crate) action: RouteAction,
    /// Where requests go that the action's upstream does not answer.
    pub(crate) fallback: Option<Arc<Upstream>>,
    /// Where the shares of its split go, in their order.
    pub(crate) shares: Vec<Arc<Upstream>>,
    /// Where copies go.
    pub(crate) mirror: Option<Arc<Mirror>>,
    /// A policy that it lists and that is not in force, if there is one.
    pub(crate) lacks: Option<Arc<str>>,
    /// Shared with its upstreams, whose checks let trials through.
    pub(crate) breaker: Option<Arc<SharedBreaker>>,
    /// How long its replies take, if late requests are sent twice.
    pub(crate) hedge: Option<Arc<Hedge>>,
    /// Verifies its tokens, if it asks for some.
    pub(crate) jwt: Option<JwtVerifier>,
    /// The service that says whose its requests are, if one does.
    pub(crate) authority: Option<Authority>,
    /// What is counted of its requests.
    pub(crate) flow: Arc<Flow>,
    /// Its number among all routes that this process has had in force.
    pub(crate) number: u64,
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum RouteAction {
    Forward(Arc<Upstream>),
    Redirect(Redirect),
    Reply(StaticReply),
}

impl Route {
    /// A route that takes requests, and has nothing to do for them.
    #[cfg(test)]
    pub(crate) fn judged_only(config: Arc<RouteConfig>) -> Self {
        let nothing =
            StaticReply { status: http::StatusCode::OK, fields: Vec::new(), body: bytes::Bytes::new() };
        Self {
            config,
            action: RouteAction::Reply(nothing),
            fallback: None,
            shares: Vec::new(),
            mirror: None,
            lacks: None,
            breaker: None,
            hedge: None,
            jwt: None,
            authority: None,
            flow: Arc::new(Flow::new(1)),
            number: 0,
        }
    }

    /// The upstreams that it uses.
    fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let action = match &self.action {
            RouteAction::Forward(upstream) => Some(upstream),
            RouteAction::Redirect(_) | RouteAction::Reply(_) => None,
        };
        let authority = self.authority.as_ref().map(|authority| &authority.upstream);
        let mirror = self.mirror.as_ref().map(|mirror| &mirror.upstream);
        [action, self.fallback.as_ref(), authority, mirror].into_iter().flatten().chain(&self.shares)
    }

    /// The upstreams that its breaker judges: its own, and those of its split.
    pub(crate) fn first_upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        let action = match &self.action {
            RouteAction::Forward(upstream) => Some(upstream),
            RouteAction::Redirect(_) | RouteAction::Reply(_) => None,
        };
        action.into_iter().chain(&self.shares)
    }

    /// Whether another one, made now, is this one, so that what it knows and counts can stay.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.config == other.config
            && self.lacks == other.lacks
            && self.upstreams().zip(other.upstreams()).all(|(one, other)| Arc::ptr_eq(one, other))
    }

    /// Whether requests under `config` go to upstreams of the same names, so that what is known of them holds there, too.
    pub(crate) fn asks_upstreams_of(&self, config: &RouteConfig) -> bool {
        first_names(&self.config).eq(first_names(config))
    }

    /// Where a request goes: to an upstream of the split, or to `main`, which gets what that leaves; and why, if there is one.
    pub(crate) fn side<'u>(
        &'u self,
        main: &'u Arc<Upstream>,
        request: &Parts,
        identity: Option<&Identity>,
        client: IpAddr,
    ) -> (&'u Arc<Upstream>, Option<SplitSide>) {
        let Some(split) = &self.config.split else { return (main, None) };
        let side = split.side_of(request, identity, client);
        (side.share.and_then(|share| self.shares.get(share)).unwrap_or(main), Some(side))
    }

    /// How many things a request must have beside host and path.
    pub(crate) fn conditions(config: &RouteConfig) -> usize {
        let others = config.fields.len() + config.cookies.len() + config.query.len();
        usize::from(!config.methods.is_empty()) + others
    }

    /// Whether a request whose host and path are right has the rest.
    pub(crate) fn accepts(&self, request: &Parts) -> bool {
        Self::takes(&self.config, request)
    }

    /// The same of a route that need not be in force.
    pub(crate) fn takes(config: &RouteConfig, request: &Parts) -> bool {
        accepts_method(config, request)
            && config.fields.iter().all(|(name, value)| has_field(request, name, value))
            && config.cookies.iter().all(|(name, value)| has_cookie(&request.headers, name, value))
            && config.query.iter().all(|(name, value)| has_parameter(request, name, value))
    }

    /// What a request whose host and path are right lacks, if it lacks something.
    pub(crate) fn mismatch(config: &RouteConfig, request: &Parts) -> Option<String> {
        if !accepts_method(config, request) {
            return Some("method".to_owned());
        }
        let lacking = config.fields.iter().find(|(name, value)| !has_field(request, name, value));
        if let Some((name, _)) = lacking {
            return Some(format!("header {name}"));
        }
        let lacking = config.cookies.iter().find(|(name, value)| !has_cookie(&request.headers, name, value));
        if let Some((name, _)) = lacking {
            return Some(format!("cookie {name}"));
        }
        let lacking = config.query.iter().find(|(name, value)| !has_parameter(request, name, value));
        lacking.map(|(name, _)| format!("query parameter {name}"))
    }
}

/// The names of a route's own upstream, and of those of its split.
fn first_names(config: &RouteConfig) -> impl Iterator<Item = &str> {
    let action = match &config.action {
        Action::Forward { upstream } => Some(&**upstream),
        Action::Redirect(_) | Action::Reply(_) => None,
    };
    let shares = config.split.iter().flat_map(|split| &split.shares);
    action.into_iter().chain(shares.map(|share| &*share.upstream))
}

fn accepts_method(config: &RouteConfig, request: &Parts) -> bool {
    config.methods.is_empty() || config.methods.contains(&request.method)
}

fn has_field(request: &Parts, name: &HeaderName, value: &HeaderValue) -> bool {
    request.headers.get_all(name).iter().any(|given| given == value)
}

fn has_parameter(request: &Parts, name: &str, value: &str) -> bool {
    let stated = request.uri.query().unwrap_or_default();
    form_urlencoded::parse(stated.as_bytes()).any(|(key, given)| key == name && given == value)
}
