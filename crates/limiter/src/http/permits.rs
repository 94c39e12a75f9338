//! Permits of concurrency limits: acquire, renew, release.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Serialize;
use tidegate_access::schema::Problems;
use tidegate_algorithms::policy::Attributes;
use tidegate_wire::bodies::DecisionBody;
use utoipa::ToSchema;

use super::ApiState;
use super::decisions::{DecisionReply, decide_one, millis, read_one};
use super::permit_text::{Parsed, pairs};
use super::reply::{JsonBytes, Refusal};
use crate::engine::HeldPermit;

/// The reply to a renewal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Renewed {
    /// Milliseconds until the permit lapses.
    lease_ms: u64,
}

/// Acquires a permit of a concurrency limit.
#[utoipa::path(
    operation_id = "acquire_permit", post, path = "/v1/permits", tag = "permits",
    request_body(content = DecisionBody<'_>, example = json!({"attributes": {"path": "/reports"}})),
    responses(
        (status = 200, description = "The question was answered: with a permit, or by a denial.", body = DecisionReply,
            example = json!({"allowed": true, "policy": "slots", "limit": 2, "remaining": 1, "permit": "00c5a1d09f3e7b42.W10", "policies": []})),
        Problems,
    )
)]
pub(super) async fn acquire(
    State(shared): State<Arc<ApiState>>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<DecisionReply>, Refusal> {
    let body = read_one(&shared, &body)?;
    if body.limits.is_some() {
        let accepted = "none: a permit is of a concurrency policy, whose limit decides";
        return Err(Refusal::field("/limits", "is not for permits", accepted));
    }
    let known = pairs(&body.attributes);
    let attributes = Attributes::new(&known);
    let set = shared.engine.set();
    let limited = set
        .policies()
        .iter()
        .any(|in_force| in_force.is_concurrent() && in_force.policy.applies_to(&attributes));
    if !limited {
        return Err(Refusal::not_found("concurrency policy that applies to these attributes"));
    }
    let decision = decide_one(&shared, &body, None).await?;
    Ok(Json(DecisionReply::new(&shared, &decision, &body.attributes)))
}

/// Renews a permit, so that it lasts for another lease.
#[utoipa::path(
    operation_id = "renew_permit", post, path = "/v1/permits/{permit}/renew", tag = "permits", params(("permit" = String, Path, description = "as the decision handed it out", example = "00c5a1d09f3e7b42.W10")),
    responses(
        (status = 200, description = "It is renewed.", body = Renewed,
            example = json!({"lease_ms": 30000})),
        Problems,
    )
)]
pub(super) async fn renew(
    State(shared): State<Arc<ApiState>>,
    Path(permit): Path<String>,
) -> Result<Json<Renewed>, Refusal> {
    let permit = Parsed::of(&permit)?;
    let (policies, known) = permit.contents();
    let held = HeldPermit { id: permit.id, policies: &policies, attributes: Attributes::new(&known) };
    match shared.engine.renew(&held).await? {
        Some(lease) => Ok(Json(Renewed { lease_ms: millis(lease) })),
        None => Err(not_held()),
    }
}

/// Releases a permit.
#[utoipa::path(
    operation_id = "release_permit", delete, path = "/v1/permits/{permit}", tag = "permits", params(("permit" = String, Path, description = "as the decision handed it out", example = "00c5a1d09f3e7b42.W10")),
    responses(
        (status = 204, description = "It is released."),
        Problems,
    )
)]
pub(super) async fn release(
    State(shared): State<Arc<ApiState>>,
    Path(permit): Path<String>,
) -> Result<StatusCode, Refusal> {
    let permit = Parsed::of(&permit)?;
    let (policies, known) = permit.contents();
    let held = HeldPermit { id: permit.id, policies: &policies, attributes: Attributes::new(&known) };
    if shared.engine.release(&held).await? { Ok(StatusCode::NO_CONTENT) } else { Err(not_held()) }
}

fn not_held() -> Refusal {
    Refusal::not_found("such permit: it was released or its lease ended")
}
