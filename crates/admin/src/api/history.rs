//! `GET /v1/history`: the last hour of some numbers of the metrics page.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;

use super::Shared;

/// The keeper of the last hour.
pub trait KeptHistory: Debug + Send + Sync {
    /// What it has kept.
    fn last_hour(&self) -> Value;
}

/// The last hour of what requests were answered, how long decisions took, what the intake took, what the gateway answered and what
/// the edge passed on, of this process: numbers of the metrics page, every ten seconds, each a sum since the process began. Of the
/// edge's listeners there is one sum. Series that are 0 all the time are left out.
#[utoipa::path(
    operation_id = "get_history", get, path = "/v1/history", tag = "operation",
    responses(
        (status = 200, description = "The times, and of each series a number for each of them.", body = Object,
            example = json!({"at_unix_ms": [1_796_000_000_000_u64, 1_796_000_010_000_u64], "series": [{"series": "tidegate_requests_decided_total{protocol=\"http\",result=\"allowed\"}", "numbers": [10, 25]}]})),
        Problems,
    )
)]
pub(super) async fn history(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    let kept = shared.explainers.history.as_ref();
    kept.map(|kept| Json(kept.last_hour())).ok_or_else(|| Refusal::not_found("history in this process"))
}
