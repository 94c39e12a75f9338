//! The decision service over HTTP.
//!
//! ```text
//!   request --> hot routes  (ratelimit, decisions, check)   bytes to bytes, no router
//!          `--> cold routes (everything else)               axum
//! ```
//!
//! The hot routes are matched by method and path alone and are functions from body bytes to reply
//! bytes, so that any server can call them. The cold ones are read far more often than they are
//! run: there the router, the extractors and the OpenAPI document are worth their cycles.
//!
//! Every error is a problem document (RFC 9457); [`reply`] is the one place that turns errors into
//! statuses.

mod auth;
mod check;
mod classic;
mod clients;
mod decisions;
mod documents;
mod explain;
mod explain_route;
mod openapi;
mod origin;
mod permits;
mod policies;
mod proxied;
mod quota;
mod reply;
mod schema;
mod service;
mod set_aside;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::middleware::Next;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response};

use tidegate_control::Configuration;
use tidegate_net::http::{Answered, Peer, Plain, Unwritten};
use tidegate_net::stats::Route;

use crate::credential::{Scope, TokensInForce};
use crate::engine::Engine;
pub(crate) use explain::of_policies as explained;
pub use explain_route::{ExplainRoute, NoExplanation};
pub use origin::TrustedOrigins;
pub use proxied::ProxyHeaders;
pub use quota::quota_fields;
pub use service::Service;

/// What the API needs to know beside the engine.
#[derive(Debug, Default)]
pub struct ApiSettings {
    /// Who may do what. A public bind without tokens is refused where settings are checked.
    pub tokens: TokensInForce,
    /// Which hosts and origins are trusted beside this machine's own.
    pub origins: TrustedOrigins,
    /// How many proxies in front of this service are trusted to append to `X-Forwarded-For`
    /// (fault 48). 0: the header is ignored.
    pub trusted_hops: usize,
    /// The header fields by which a proxy says which request it asks `/v1/check` about (fault 59).
    pub proxy_headers: ProxyHeaders,
    /// Whether replies also carry `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy_headers: bool,
    /// Who explains routes, if this process has any.
    pub routes: Option<Arc<dyn ExplainRoute>>,
}

/// The decision API.
#[derive(Clone, Debug)]
pub struct Api {
    shared: Arc<Shared>,
    cold: Router,
}

/// What the routes share.
#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    configuration: Configuration,
    settings: ApiSettings,
}

impl Api {
    /// The API over a configured engine.
    #[must_use]
    pub fn new(engine: Arc<Engine>, configuration: Configuration, settings: ApiSettings) -> Self {
        let shared = Arc::new(Shared { engine, configuration, settings });
        Self { cold: router(shared.clone()), shared }
    }

    /// The configuration behind the API.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        &self.shared.configuration
    }

    fn origins(&self) -> &TrustedOrigins {
        &self.shared.settings.origins
    }

    /// Answers one request whose body has been read. The first value is the route's template, for
    /// metrics.
    pub async fn respond(&self, head: Parts, body: Bytes, peer: &Peer) -> (&'static str, ApiReply) {
        let shared = &self.shared;
        let template = match (&head.method, head.uri.path()) {
            (&Method::POST, RATELIMIT) => RATELIMIT,
            (&Method::POST, DECISIONS) => DECISIONS,
            (_, CHECK) => CHECK,
            _ => {
                // In a box: the hot routes carry no room for a router.
                let reply = Box::pin(self.route(Request::from_parts(head, Body::from(body)))).await;
                let matched = reply.extensions().get::<MatchedPath>();
                let template =
                    TEMPLATES.iter().find(|known| matched.is_some_and(|path| path.as_str() == **known));
                return (template.unwrap_or(&OTHER), ApiReply::Routed(reply));
            }
        };
        let reply = match shared.admit(Scope::Decide, &head.uri, &head.headers) {
            Err(refusal) => reply::refuse(refusal),
            Ok(_) if template == RATELIMIT => classic::rate_limit(shared, &head, &body).await,
            Ok(_) if template == DECISIONS => decisions::decide(shared, &head, &body).await,
            Ok(_) => check::check(shared, &head, peer).await,
        };
        (template, ApiReply::Whole(reply))
    }

    /// As [`Api::respond`], at once and into `reply`, for the most frequent request; `None`: `respond` is to
    /// be asked. `route` is what a route's template counts as.
    pub fn respond_at_once(
        &self,
        request: &Plain<'_>,
        reply: Unwritten<'_>,
        route: impl FnOnce(&str) -> Route,
    ) -> Option<Answered> {
        match (request.method(), request.target()) {
            ("POST", RATELIMIT) if self.answers_plainly(request) => {
                classic::rate_limit_at_once(&self.shared, request, reply, route(RATELIMIT))
            }
            _ => None,
        }
    }

    /// Whether nothing but the decision itself goes into the reply.
    fn answers_plainly(&self, request: &Plain<'_>) -> bool {
        let shared = &self.shared;
        shared.may_decide(request.field("authorization"))
            && !shared.settings.origins.concerns(request.field("origin"))
    }

    async fn route(&self, request: Request<Body>) -> Response<Body> {
        // Invariant: a router never fails; its error type is uninhabited.
        let Ok(reply) = tower_service::Service::call(&mut self.cold.clone(), request).await;
        reply
    }
}

/// A reply of the API: whole in memory from the hot routes, a router's body from the others.
#[derive(Debug)]
pub enum ApiReply {
    /// Its bytes are at hand.
    Whole(Response<Bytes>),
    /// From the router.
    Routed(Response<Body>),
}

const RATELIMIT: &str = "/api/v1/ratelimit";
const DECISIONS: &str = "/v1/decisions";
const CHECK: &str = "/v1/check";
const OTHER: &str = "other";

/// Every route's template: the label values that metrics may use.
pub const TEMPLATES: [&str; 27] = [
    RATELIMIT,
    DECISIONS,
    CHECK,
    "/api/v1/health",
    "/api/v1/configure",
    "/api/v1/configure-client",
    "/api/v1/client-config/{client_id}",
    "/v1/refunds",
    "/v1/permits",
    "/v1/permits/{permit}",
    "/v1/permits/{permit}/renew",
    "/v1/explain",
    "/v1/explain/route",
    "/v1/policies",
    "/v1/policies/{name}",
    "/v1/routes",
    "/v1/routes/{name}",
    "/v1/upstreams",
    "/v1/upstreams/{name}",
    "/v1/clients/{client_id}/limits",
    "/v1/audit",
    "/v1/set-aside",
    "/v1/denied-clients",
    "/v1/nearest-clients",
    "/v1/clients",
    "/v1/clients/{client_id}/usage",
    "/openapi.json",
];

/// Lets a request to a route through that may have it, with who makes it. Leaves the matched template
/// on the reply, where [`Api::respond`] finds it.
async fn admit(
    State(shared): State<Arc<Shared>>,
    path: MatchedPath,
    mut request: axum::extract::Request,
    next: Next,
) -> Response<Body> {
    let admitted = auth::needed(path.as_str(), request.method())
        .map(|scope| shared.admit(scope, request.uri(), request.headers()));
    let mut reply = match admitted.transpose() {
        Err(refusal) => refusal.into_response(),
        Ok(actor) => {
            if let Some(actor) = actor {
                request.extensions_mut().insert(actor);
            }
            next.run(request).await
        }
    };
    reply.extensions_mut().insert(path);
    reply
}

fn router(shared: Arc<Shared>) -> Router {
    use axum::routing::{delete, get, post};
    Router::new()
        .route("/api/v1/health", get(classic::health))
        // POST is answered before the router is asked; here so that other methods get 405 and `Allow`.
        .route(RATELIMIT, post(reply::no_such_path))
        .route(DECISIONS, post(reply::no_such_path))
        .route("/api/v1/configure", post(classic::configure))
        .route("/api/v1/configure-client", post(classic::configure_client))
        .route(
            "/api/v1/client-config/{client_id}",
            get(classic::client_config).delete(classic::delete_client_config),
        )
        .route("/v1/refunds", post(decisions::refund))
        .route("/v1/permits", post(permits::acquire))
        .route("/v1/permits/{permit}", delete(permits::release))
        .route("/v1/permits/{permit}/renew", post(permits::renew))
        .route("/v1/explain", get(explain::explain))
        .route("/v1/explain/route", get(explain_route::explain_route))
        .route("/v1/policies", get(policies::list))
        .route("/v1/policies/{name}", get(policies::read_policy).put(policies::put).delete(policies::delete))
        .route("/v1/routes", get(documents::list_routes))
        .route(
            "/v1/routes/{name}",
            get(documents::read_route).put(documents::put_route).delete(documents::delete_route),
        )
        .route("/v1/upstreams", get(documents::list_upstreams))
        .route(
            "/v1/upstreams/{name}",
            get(documents::read_upstream).put(documents::put_upstream).delete(documents::delete_upstream),
        )
        .route("/v1/clients/{client_id}/limits", get(clients::read).put(clients::put).delete(clients::delete))
        .route("/v1/audit", get(policies::audit))
        .route("/v1/set-aside", get(set_aside::set_aside))
        .route("/v1/denied-clients", get(policies::denied_clients))
        .route("/v1/nearest-clients", get(usage::nearest))
        .route("/v1/clients", get(clients::list))
        .route("/v1/clients/{client_id}/usage", delete(usage::reset))
        .route("/openapi.json", get(openapi::document))
        .route_layer(axum::middleware::from_fn_with_state(shared.clone(), admit))
        .fallback(reply::no_such_path)
        .method_not_allowed_fallback(reply::no_such_method)
        .with_state(shared)
}
