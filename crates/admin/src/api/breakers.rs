//! `GET /v1/gateway/breakers`: what the breakers of upstreams and routes judge by now.
//!
//! The [events](super::events) tell each change of a breaker's state as it comes; the calls that led to it change with
//! every request, and are there for who asks.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;

use super::Shared;

/// The breakers of a gateway, with what they judge by.
pub trait JudgedBreakers: Debug + Send + Sync {
    /// All of them, each with its rule.
    fn judged(&self) -> Value;
}

/// The breakers of upstreams and of routes: the calls that each judges, its rule, and when it tries again. `calls`, `failed`
/// and `slow` are those in its window; open, those that opened it; half open, the trials that have ended. The window is
/// the last `window_calls`, or the calls of the last `window_seconds`. It is open for `first_open_seconds`, then for twice as long with
/// each round of trials that fails, up to `open_seconds`; `pause_seconds` is the pause that it is in, or whose trials are under way.
#[utoipa::path(
    operation_id = "list_breakers", get, path = "/v1/gateway/breakers", tag = "gateway",
    responses(
        (status = 200, description = "All of them, upstreams first.", body = Object,
            example = json!({"breakers": [{"of": "upstream", "name": "app", "state": "open", "calls": 20, "failed": 14, "slow": 0, "retry_ms": 41000, "window_calls": 100, "minimum_calls": 20, "failure_percent": 50, "slow_percent": 50, "slow_ms": 3000, "first_open_seconds": 1.0, "open_seconds": 60.0, "pause_seconds": 60.0, "trials": 10}]})),
        Problems,
    )
)]
pub(super) async fn breakers(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    let known = shared.explainers.breakers.as_ref();
    known.map(|known| Json(known.judged())).ok_or_else(|| Refusal::not_found("gateway in this process"))
}
