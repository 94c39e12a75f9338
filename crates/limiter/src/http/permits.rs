//! Permits of concurrency limits: acquire, renew, release.
//!
//! A permit's text is `<id>.<attributes>`: the id that the limit knows it by, and those attributes
//! of the request that the concurrency limits in force match on or are keyed on. So any node can
//! find the counters again without a table of its own. It is not a secret and not signed: the id
//! is 64 unguessable bits, and without it the attributes release nothing.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::Serialize;
use tidegate_algorithms::limit::PermitId;
use tidegate_algorithms::policy::{Algorithm, Attributes};
use tidegate_wire::bodies::{AttributesBody, DecisionBody};
use utoipa::ToSchema;

use super::Shared;
use super::decisions::{DecisionReply, decide_one, millis, pairs, read_one};
use super::reply::{JsonBytes, Refusal};

/// The reply to a renewal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Renewed {
    /// Milliseconds until the permit lapses.
    lease_ms: u64,
}

/// `POST /v1/permits`: a decision that must meet a concurrency limit.
#[utoipa::path(
    post, path = "/v1/permits", tag = "permits", request_body = DecisionBody<'_>,
    responses(
        (status = 200, body = DecisionReply),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn acquire(
    State(shared): State<Arc<Shared>>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<DecisionReply>, Refusal> {
    let body = read_one(&body)?;
    let known = pairs(&body.attributes);
    let attributes = Attributes::new(&known);
    let set = shared.engine.set();
    let limited = set.policies().iter().any(|in_force| {
        in_force.policy.quota.spec.algorithm == Algorithm::Concurrency
            && in_force.policy.applies_to(&attributes)
    });
    if !limited {
        return Err(Refusal::NotFound("concurrency policy that applies to these attributes".to_owned()));
    }
    let decision = decide_one(&shared, &body).await?;
    Ok(Json(DecisionReply::new(&shared, &decision, &body.attributes)))
}

/// `POST /v1/permits/{permit}/renew`
#[utoipa::path(
    post, path = "/v1/permits/{permit}/renew", tag = "permits", params(("permit" = String, Path)),
    responses(
        (status = 200, body = Renewed),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn renew(
    State(shared): State<Arc<Shared>>,
    Path(permit): Path<String>,
) -> Result<Json<Renewed>, Refusal> {
    let (id, attributes) = parse(&permit)?;
    let known = pairs(&attributes);
    match shared.engine.renew(Attributes::new(&known), id).await? {
        Some(lease) => Ok(Json(Renewed { lease_ms: millis(lease) })),
        None => Err(not_held()),
    }
}

/// `DELETE /v1/permits/{permit}`
#[utoipa::path(
    delete, path = "/v1/permits/{permit}", tag = "permits", params(("permit" = String, Path)),
    responses(
        (status = 204),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn release(
    State(shared): State<Arc<Shared>>,
    Path(permit): Path<String>,
) -> Result<StatusCode, Refusal> {
    let (id, attributes) = parse(&permit)?;
    let known = pairs(&attributes);
    if shared.engine.release(Attributes::new(&known), id).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(not_held())
    }
}

/// The text of a permit that was handed out for a request with these attributes.
pub(super) fn permit_text(shared: &Shared, id: PermitId, attributes: &AttributesBody<'_>) -> String {
    let set = shared.engine.set();
    let concurrent = set
        .policies()
        .iter()
        .map(|in_force| &in_force.policy)
        .filter(|policy| policy.quota.spec.algorithm == Algorithm::Concurrency);
    let needed: Vec<&str> = concurrent
        .flat_map(|policy| policy.matches.iter().map(|(name, _)| name).chain(&policy.key))
        .map(String::as_str)
        .chain([crate::policy_set::CLIENT_ID])
        .collect();
    let kept: Vec<(&str, &str)> = attributes
        .0
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .filter(|(name, _)| needed.contains(name))
        .collect();
    // Invariant: a list of pairs of strings always serialises.
    let kept = serde_json::to_vec(&kept).unwrap_or_default();
    format!("{:016x}.{}", id.0, URL_SAFE_NO_PAD.encode(kept))
}

fn parse(text: &str) -> Result<(PermitId, AttributesBody<'static>), Refusal> {
    let parsed = text.split_once('.').and_then(|(id, attributes)| {
        let id = u64::from_str_radix(id, 16).ok()?;
        let attributes = URL_SAFE_NO_PAD.decode(attributes).ok()?;
        let pairs: Vec<(String, String)> = serde_json::from_slice(&attributes).ok()?;
        let pairs = pairs.into_iter().map(|(name, value)| (Cow::Owned(name), Cow::Owned(value))).collect();
        Some((PermitId(id), AttributesBody(pairs)))
    });
    parsed.ok_or_else(|| Refusal::Field {
        place: "/permit".to_owned(),
        problem: "is not a permit".to_owned(),
        accepted: "the text that a decision handed out",
    })
}

fn not_held() -> Refusal {
    Refusal::NotFound("such permit: it was released or its lease ended".to_owned())
}
