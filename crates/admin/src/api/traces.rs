//! `GET /v1/gateway/traces`, `/v1/gateway/traces/{id}`: the gateway's last requests, and what was done for one of them.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;

use super::Shared;

/// The last requests, with what was done for each.
pub trait LastTraces: Debug + Send + Sync {
    /// All that are kept, the newest first, without their steps. Requests are kept for a while after somebody asked.
    fn last(&self) -> Value;

    /// One of them with its steps.
    fn find(&self, id: &str) -> Option<Value>;
}

/// The gateway's last requests, the newest first: 100 that were answered and 100 that were turned away or failed.
/// They are kept for a minute after each time that somebody asks.
#[utoipa::path(
    operation_id = "list_traces", get, path = "/v1/gateway/traces", tag = "gateway",
    responses(
        (status = 200, description = "The last requests.", body = Object,
            example = json!({"watched_seconds": 60, "traces": [{"id": "19ab0c3d2e1-7", "at_unix_ms": 1, "client": "127.0.0.1", "method": "GET", "host": "shop.example", "path": "/api/users/7", "route": "api", "attempts": 0, "status": 429, "bytes": 210, "duration_ms": 0.2, "end": "complete", "because": "quota", "request_id": ""}]})),
        Problems,
    )
)]
pub(super) async fn traces(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    kept(&shared).map(|traces| Json(traces.last()))
}

/// What was done for one of the gateway's last requests, step by step.
#[utoipa::path(
    operation_id = "get_trace", get, path = "/v1/gateway/traces/{id}", tag = "gateway",
    params(("id" = String, Path, description = "its id in the list", example = "19ab0c3d2e1-7")),
    responses(
        (status = 200, description = "The request with its steps.", body = Object,
            example = json!({"id": "19ab0c3d2e1-7", "path": "/api/users/7", "status": 429, "because": "quota", "steps": ["normalise;us=4", "route;name=\"api\";us=2", "limit;us=31", "respond;status=429;because=quota;us=6"]})),
        Problems,
    )
)]
pub(super) async fn trace(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let found = kept(&shared)?.find(&id);
    found.map(Json).ok_or_else(|| Refusal::not_found(format_args!("trace {id:?} any more")))
}

fn kept(shared: &Shared) -> Result<&Arc<dyn LastTraces>, Refusal> {
    shared.explainers.traces.as_ref().ok_or_else(|| Refusal::not_found("gateway in this process"))
}
