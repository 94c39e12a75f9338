//! `GET /v1/warnings`: the last warnings and errors of the process.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;

use super::Shared;

/// The keeper of the last warnings.
pub trait LastWarnings: Debug + Send + Sync {
    /// The last warnings, the newest first, and the number of all.
    fn last(&self) -> Value;
}

/// The last 1,000 warnings and errors of the process's log, the newest first, as far as `log.level` lets them through. What is said
/// again, with other numbers at most, is one of them, as it was said last: `times` is how often, `first_at_unix_ms` when first.
#[utoipa::path(
    operation_id = "list_warnings", get, path = "/v1/warnings", tag = "operation",
    responses(
        (status = 200, description = "The last ones, and how many there were since the process began.", body = Object,
            example = json!({"errors": 0, "warnings": 1, "last": [{"at_unix_ms": 1, "first_at_unix_ms": 1, "times": 1, "level": "warn", "target": "tidegate::serve::trace", "message": "request failed", "fields": "status=503"}]})),
        Problems,
    )
)]
pub(super) async fn warnings(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    let kept = shared.explainers.warnings.as_ref();
    kept.map(|kept| Json(kept.last())).ok_or_else(|| Refusal::not_found("log that is kept in this process"))
}
