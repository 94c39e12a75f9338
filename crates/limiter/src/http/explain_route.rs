//! `GET /v1/explain/route?host=...&path=...&client_ip=...`: which way would a request take, and why?
//!
//! The gateway answers it, as a value from the binary; here are its address, its rights and its document.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use serde_json::Value;

use super::Shared;
use super::reply::Refusal;
use super::schema::Problems;

/// Who explains routes.
pub trait ExplainRoute: Debug + Send + Sync {
    /// What would become of the request that these parameters describe.
    fn explain<'a>(
        &'a self,
        parameters: &'a [(String, String)],
    ) -> Pin<Box<dyn Future<Output = Result<Value, NoExplanation>> + Send + 'a>>;
}

/// What is wrong with a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoExplanation {
    /// Its name.
    pub parameter: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub accepted: &'static str,
}

/// Says which route a request would take and why not the others, what its limits would say, and which server would
/// get it, with every candidate's score. Charges and sends nothing.
#[utoipa::path(
    get, path = "/v1/explain/route", tag = "gateway",
    params(
        ("host" = Option<String>, Query, description = "the request's host", example = "shop.example"),
        ("path" = Option<String>, Query, description = "its path, with its query if it has one; / if absent", example = "/api/users/7"),
        ("method" = Option<String>, Query, description = "its method; GET if absent", example = "GET"),
        ("client_ip" = Option<String>, Query, description = "the client's address; 127.0.0.1 if absent. A parameter header.NAME is a header field", example = "203.0.113.7"),
    ),
    responses(
        (status = 200, description = "What would happen.", body = Object,
            example = json!({"host": "shop.example", "path": "/api/users/7", "client": "203.0.113.7", "route": "api", "considered": [{"route": "api", "matches": "shop.example /api/* -> upstream app", "taken": true}], "action": {"forward": {"upstream": "app", "balance": "least_requests", "next": "127.0.0.1:3000"}}})),
        Problems,
    )
)]
pub(super) async fn explain_route(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let Some(routes) = &shared.settings.routes else {
        return Err(Refusal::NotFound("route in this process".to_owned()));
    };
    let query = query.unwrap_or_default();
    let parameters: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let explained = routes.explain(&parameters).await;
    explained.map(Json).map_err(|NoExplanation { parameter, problem, accepted }| Refusal::Field {
        place: format!("/{parameter}"),
        problem,
        accepted,
    })
}
