//! The decision service over HTTP.
//!
//! ```text
//!   request --> hot routes  (ratelimit, decisions, check)   bytes to bytes, no router
//!          `--> the others, with those of other services    access::routes, axum
//! ```
//!
//! The hot routes are matched by method and path alone and are functions from body bytes to reply
//! bytes, so that any server can call them. The others are read far more often than they are
//! run: there the router, the extractors and the OpenAPI document are worth their cycles.
//!
//! Every error is a problem document (RFC 9457); [`reply`] is the one place that turns this service's errors
//! into statuses.

mod attributes;
mod check;
mod decisions;
mod own_limits;
mod permit_text;
mod permits;
mod proxied;
mod quota;
mod refunds;
mod reply;
mod service;
mod simple;

use std::sync::Arc;

use axum::Router;
use http::Method;
use serde_json::Value;
use tidegate_access::guard::Guard;
use tidegate_access::routes::{ApiRoutes, Arrived};
use tidegate_access::tokens::Scope;
use tidegate_net::http::{Answered, Peer, Plain, Unwritten};
use tidegate_net::stats::Route;
use tidegate_net::untrusted_proxy::UntrustedProxy;
use utoipa::OpenApi;

use crate::engine::Engine;
pub use attributes::DecidedAttributes;
pub use decisions::PartReply;
use own_limits::OwnCounters;
pub(crate) use own_limits::{limit_of, same_counters, value_of};
pub use proxied::ProxyHeaders;
pub use quota::quota_fields;
pub use reply::{Stated, problem_of};
pub use service::Service;

/// What the API needs to know beside the engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiSettings {
    /// How many proxies in front of this service are trusted to append to `X-Forwarded-For`
    /// (fault 48). 0: the header is ignored.
    pub trusted_hops: usize,
    /// The header fields by which a proxy says which request it asks `/v1/check` about (fault 59).
    pub proxy_headers: ProxyHeaders,
    /// Whether replies also carry `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub legacy_headers: bool,
}

/// The decision API.
#[derive(Clone, Debug)]
pub struct Decisions {
    shared: Arc<ApiState>,
}

/// What the routes share.
#[derive(Debug)]
struct ApiState {
    engine: Arc<Engine>,
    guard: Arc<Guard>,
    settings: ApiSettings,
    untrusted: UntrustedProxy,
    own: OwnCounters,
}

impl Decisions {
    /// The API over a configured engine.
    #[must_use]
    pub fn new(engine: Arc<Engine>, guard: Arc<Guard>, settings: ApiSettings) -> Self {
        let (untrusted, own) = (UntrustedProxy::default(), OwnCounters::default());
        Self { shared: Arc::new(ApiState { engine, guard, settings, untrusted, own }) }
    }

    /// All its routes, those among them that [`Service`] answers without the router.
    #[must_use]
    pub fn routes(&self) -> ApiRoutes {
        ApiRoutes::new(router(self.shared.clone()), &TEMPLATES, &self.shared.guard)
    }

    /// The reply to a request for one of the hot routes, with the route's template.
    async fn respond(&self, request: &Arrived, peer: &Peer) -> Option<(&'static str, reply::Reply)> {
        let (shared, Arrived { head, body, .. }) = (&self.shared, request);
        let template = match (&head.method, head.uri.path()) {
            (&Method::POST, RATELIMIT) => RATELIMIT,
            (&Method::POST, DECISIONS) => DECISIONS,
            (_, CHECK) => CHECK,
            _ => return None,
        };
        let reply = match shared.guard.admit(Scope::Decide, &head.uri, &head.headers) {
            Err(refusal) => refusal.reply(),
            Ok(_) if template == RATELIMIT => simple::rate_limit(shared, head, body).await,
            Ok(_) if template == DECISIONS => decisions::decide(shared, head, body).await,
            Ok(_) => check::check(shared, head, peer).await,
        };
        Some((template, reply))
    }

    /// As [`Decisions::respond`], at once and into `reply`, for the most frequent requests; `None`: `respond` is
    /// to be asked. `route` is what a route's template counts as.
    fn respond_at_once(
        &self,
        request: &Plain<'_>,
        peer: &Peer,
        reply: Unwritten<'_>,
        route: impl FnOnce(&str) -> Route,
    ) -> Option<Answered> {
        let shared = &self.shared;
        match (request.method(), request.target()) {
            ("POST", RATELIMIT) if self.answers_plainly(request) => {
                simple::rate_limit_at_once(shared, request, reply, route(RATELIMIT))
            }
            ("POST", DECISIONS) if self.answers_plainly(request) => {
                decisions::decide_at_once(shared, request, reply, route(DECISIONS))
            }
            ("GET", CHECK) if self.answers_plainly(request) => {
                check::check_at_once(shared, request, peer, reply, route(CHECK))
            }
            _ => None,
        }
    }

    /// Whether nothing but the decision itself goes into the reply.
    fn answers_plainly(&self, request: &Plain<'_>) -> bool {
        let guard = &self.shared.guard;
        guard.may_decide(request.field("authorization"))
            && !guard.origins.concerns(request.method(), request.field("origin"))
    }
}

const RATELIMIT: &str = "/api/v1/ratelimit";
const DECISIONS: &str = "/v1/decisions";
const CHECK: &str = "/v1/check";

/// Every route's template: the label values that metrics may use.
pub const TEMPLATES: [&str; 8] = [
    RATELIMIT,
    DECISIONS,
    CHECK,
    "/api/v1/health",
    "/v1/refunds",
    "/v1/permits",
    "/v1/permits/{permit}",
    "/v1/permits/{permit}/renew",
];

fn router(shared: Arc<ApiState>) -> Router {
    use axum::routing::{delete, get, post};
    Router::new()
        .route("/api/v1/health", get(simple::health))
        // POST is answered before the router is asked; here so that other methods get 405 and `Allow`.
        .route(RATELIMIT, post(reply::answered_before))
        .route(DECISIONS, post(reply::answered_before))
        .route("/v1/refunds", post(refunds::refund))
        .route("/v1/permits", post(permits::acquire))
        .route("/v1/permits/{permit}", delete(permits::release))
        .route("/v1/permits/{permit}/renew", post(permits::renew))
        .with_state(shared)
}

/// What the OpenAPI document says of the decision API.
#[must_use]
pub fn described() -> Value {
    #[derive(OpenApi)]
    #[openapi(
        paths(
            simple::health,
            simple::rate_limit,
            decisions::decide,
            refunds::refund,
            check::check,
            permits::acquire,
            permits::renew,
            permits::release,
        ),
        components(schemas(crate::explain::Explanation))
    )]
    struct LimiterOpenApi;
    // Invariant: a document is made of maps with strings as keys, which always serialise.
    serde_json::to_value(LimiterOpenApi::openapi()).unwrap_or_default()
}
