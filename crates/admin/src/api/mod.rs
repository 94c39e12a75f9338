//! The admin API: the configuration as resources, who is near a limit, and why a request would be denied.
//!
//! ```text
//!   request ── access: guard, routes ──> a file per resource ──> control::Configuration   documents, changes
//!                                                           `──> Limits, ExplainRoute, Breakers: of the binary
//! ```
//!
//! It shares a listener with the decision API or has its own (`admin.listen`). It knows no other service:
//! what it shows and changes of one comes as a value of a trait ([`Limits`], [`ExplainRoute`], [`Breakers`]).

mod analytics;
mod audit;
mod breakers;
mod candidate;
mod capacity;
mod certificates;
mod changes;
mod clients;
pub mod documents;
mod events;
mod explain;
mod explain_edge;
mod history;
mod intake;
mod key_targets;
mod keys;
mod limits;
mod nodes;
mod playground;
mod query;
mod revert;
mod saturation;
mod schema;
mod session;
mod set_aside;
mod settings;
mod simple;
mod traces;
mod usage;
mod warnings;

use std::sync::Arc;

use axum::Router;
use serde_json::Value;
use tidegate_access::guard::Guard;
use tidegate_access::keys::ApiKeys;
use tidegate_access::routes::ApiRoutes;
use tidegate_control::Configuration;
use utoipa::OpenApi;

pub use analytics::{CountedAnswer, CountedRequests, NoAnswer};
pub use breakers::JudgedBreakers;
pub use candidate::{Candidates, StoredCandidate};
pub use capacity::{AcceptedCapacity, CapacityReports};
pub use certificates::ShownCertificates;
pub use events::{BreakerState, Breakers, Events, MAX_LISTED, MAX_QUEUED, MAX_READERS, PATIENCE};
pub use explain::{ExplainRoute, NoExplanation};
pub use history::KeptHistory;
pub use intake::{ReadIntake, ReaderGroup};
pub use limits::{Answer, Denied, Limits, Near, OwnLimits, Pairs, Resettable, Usage};
pub use saturation::{NotStarted, SaturationRuns, WantedRun};
pub use session::SessionCount;
pub use settings::ShownSetting;
pub use traces::LastTraces;
pub use warnings::LastWarnings;

/// What the routes share.
#[derive(Debug)]
struct Shared {
    guard: Arc<Guard>,
    configuration: Configuration,
    limits: Arc<dyn Limits>,
    keys: Arc<ApiKeys>,
    explainers: Explainers,
    events: Events,
}

/// The sources of explanations, as values of the binary.
#[derive(Clone, Debug, Default)]
pub struct Explainers {
    /// Routes of a gateway.
    pub routes: Option<Arc<dyn ExplainRoute>>,
    /// Placements of an edge.
    pub edge: Option<Arc<dyn ExplainRoute>>,
    /// The last of them.
    pub edge_decisions: Option<Arc<dyn ExplainRoute>>,
    /// Requests of a gateway, counted.
    pub requests: Option<Arc<dyn CountedRequests>>,
    /// The last requests of a gateway.
    pub traces: Option<Arc<dyn LastTraces>>,
    /// The breakers of a gateway.
    pub breakers: Option<Arc<dyn JudgedBreakers>>,
    /// What a gateway's candidate is, and what was found of it.
    pub candidates: Option<Arc<dyn Candidates>>,
    /// Reports of what can be kept up, and the load.
    pub capacity: Option<Arc<dyn CapacityReports>>,
    /// The tester.
    pub saturation: Option<Arc<dyn SaturationRuns>>,
    /// The lines of a metrics intake.
    pub intake: Option<Arc<dyn ReadIntake>>,
    /// The last hour of the metrics page.
    pub history: Option<Arc<dyn KeptHistory>>,
    /// The last lines of the log.
    pub warnings: Option<Arc<dyn LastWarnings>>,
    /// The certificates that listeners show.
    pub certificates: Option<Arc<dyn ShownCertificates>>,
    /// The settings that the process started with.
    pub settings: Arc<[ShownSetting]>,
}

/// The documents of the services that every process has.
pub static DOCUMENTS: [&documents::Resource; 5] = [
    &documents::POLICIES,
    &documents::ROUTES,
    &documents::UPSTREAMS,
    &documents::EDGE_BACKENDS,
    &documents::EDGE_PLACES,
];

/// Every route's template but for those of documents: the label values that metrics may use.
pub const TEMPLATES: [&str; 41] = [
    "/v1/analytics",
    "/v1/session",
    "/v1/events",
    "/api/v1/configure",
    "/api/v1/configure-client",
    "/api/v1/client-config/{client_id}",
    "/v1/explain",
    "/v1/explain/route",
    "/v1/explain/edge",
    "/v1/edge/decisions",
    "/v1/gateway/breakers",
    "/v1/gateway/traces",
    "/v1/gateway/traces/{id}",
    "/v1/intake/query",
    "/v1/intake/oldest",
    "/v1/intake/groups",
    "/v1/intake/groups/{name}",
    "/v1/warnings",
    "/v1/certificates",
    "/v1/nodes",
    "/v1/history",
    "/v1/candidate",
    "/v1/candidate/promote",
    "/v1/capacity",
    "/v1/saturation",
    "/v1/saturation/preflight",
    "/v1/saturation/run",
    "/v1/saturation/reports/{name}",
    "/v1/clients/{client_id}/limits",
    "/v1/audit",
    "/v1/revert",
    "/v1/set-aside",
    "/v1/settings",
    "/v1/denied-clients",
    "/v1/nearest-clients",
    "/v1/playground",
    "/v1/clients",
    "/v1/clients/{client_id}/usage",
    "/v1/keys",
    "/v1/keys/{id}",
    "/v1/keys/{id}/rotation",
];

/// The routes of the admin API over `configuration`, each of which may be had as `guard` says.
#[must_use]
pub fn routes(
    guard: &Arc<Guard>,
    configuration: Configuration,
    (limits, keys): (Arc<dyn Limits>, Arc<ApiKeys>),
    explainers: Explainers,
    events: Events,
) -> ApiRoutes {
    let shared = Arc::new(Shared { guard: guard.clone(), configuration, limits, keys, explainers, events });
    let documents = documents::routes_of(guard, &shared.configuration, &DOCUMENTS);
    ApiRoutes::new(router(shared), &TEMPLATES, guard).with(documents)
}

fn router(shared: Arc<Shared>) -> Router {
    use axum::routing::{delete, get, post};
    let client_config = get(simple::client_config).delete(simple::delete_client_config);
    Router::new()
        .route("/api/v1/configure", post(simple::configure))
        .route("/api/v1/configure-client", post(simple::configure_client))
        .route("/api/v1/client-config/{client_id}", client_config)
        .route("/v1/session", get(session::read).post(session::begin).delete(session::end))
        .route("/v1/events", get(events::events))
        .route("/v1/explain", get(explain::explain))
        .route("/v1/explain/route", get(explain::explain_route))
        .route("/v1/explain/edge", get(explain_edge::explain_edge))
        .route("/v1/edge/decisions", get(explain_edge::edge_decisions))
        .route("/v1/gateway/breakers", get(breakers::breakers))
        .route("/v1/gateway/traces", get(traces::traces))
        .route("/v1/gateway/traces/{id}", get(traces::trace))
        .route("/v1/intake/query", get(intake::query))
        .route("/v1/intake/oldest", get(intake::oldest))
        .route("/v1/intake/groups", get(intake::groups))
        .route("/v1/intake/groups/{name}", delete(intake::remove_group))
        .route("/v1/warnings", get(warnings::warnings))
        .route("/v1/certificates", get(certificates::certificates))
        .route("/v1/nodes", get(nodes::nodes))
        .route("/v1/history", get(history::history))
        .route("/v1/saturation", get(saturation::state))
        .route("/v1/saturation/preflight", get(saturation::preflight))
        .route("/v1/saturation/run", post(saturation::start).delete(saturation::cancel))
        .route("/v1/saturation/reports/{name}", get(saturation::report))
        .route("/v1/capacity", get(capacity::read).post(capacity::accept).delete(capacity::forget))
        .route("/v1/candidate", get(candidate::read).put(candidate::put).delete(candidate::delete))
        .route("/v1/candidate/promote", post(candidate::promote))
        .route("/v1/clients/{client_id}/limits", get(clients::read).put(clients::put).delete(clients::delete))
        .route("/v1/analytics", get(analytics::analytics))
        .route("/v1/audit", get(audit::audit))
        .route("/v1/revert", post(revert::revert))
        .route("/v1/set-aside", get(set_aside::set_aside))
        .route("/v1/settings", get(settings::settings))
        .route("/v1/denied-clients", get(usage::denied))
        .route("/v1/nearest-clients", get(usage::nearest))
        .route("/v1/playground", post(playground::try_policies))
        .route("/v1/clients", get(clients::list))
        .route("/v1/clients/{client_id}/usage", delete(usage::reset))
        .route("/v1/keys", get(keys::list).post(keys::issue))
        .route("/v1/keys/{id}", get(keys::read).patch(keys::change).delete(keys::revoke))
        .route("/v1/keys/{id}/rotation", post(keys::rotate))
        .with_state(shared)
}

/// What the OpenAPI document says of the admin API: of its documents, and of the rest.
#[must_use]
pub fn described() -> [Value; 2] {
    #[derive(OpenApi)]
    #[openapi(
        paths(
            simple::configure,
            simple::configure_client,
            simple::client_config,
            simple::delete_client_config,
            session::begin,
            session::read,
            session::end,
            events::events,
            explain::explain,
            explain::explain_route,
            explain_edge::explain_edge,
            explain_edge::edge_decisions,
            analytics::analytics,
            breakers::breakers,
            traces::traces,
            traces::trace,
            intake::query,
            intake::oldest,
            intake::groups,
            intake::remove_group,
            warnings::warnings,
            certificates::certificates,
            nodes::nodes,
            history::history,
            candidate::read,
            candidate::put,
            candidate::delete,
            candidate::promote,
            capacity::read,
            capacity::accept,
            capacity::forget,
            saturation::state,
            saturation::report,
            saturation::preflight,
            saturation::start,
            saturation::cancel,
            audit::audit,
            revert::revert,
            set_aside::set_aside,
            settings::settings,
            usage::denied,
            usage::nearest,
            usage::reset,
            playground::try_policies,
            clients::list,
            clients::read,
            clients::put,
            clients::delete,
            keys::list,
            keys::issue,
            keys::read,
            keys::change,
            keys::rotate,
            keys::revoke,
        ),
        components(schemas(schema::PolicyList, schema::DocumentList, schema::PolicyDocument))
    )]
    struct Document;
    // Invariant: a document is made of maps with strings as keys, which always serialise.
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    schema::require_by_algorithm(&mut document["components"]["schemas"]["PolicyDocument"]);
    [documents::described(&DOCUMENTS), document]
}
