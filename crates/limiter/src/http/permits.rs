//! Permits of concurrency limits: acquire, renew, release.
//!
//! A permit's text is `<id>.<contents>`: the id that the limits know it by, the policies that granted it, and
//! the attributes that these are keyed on. So any node finds the counters again without a table of its own,
//! and asks only those that hold it. It is not a secret and not signed: the id is 64 unguessable bits, and
//! without it the contents release nothing.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::Serialize;
use tidegate_access::schema::Problems;
use tidegate_algorithms::limit::PermitId;
use tidegate_algorithms::policy::{Attributes, counted};
use tidegate_wire::bodies::{AttributesBody, DecisionBody};
use utoipa::ToSchema;

use super::Shared;
use super::decisions::{DecisionReply, decide_one, millis, pairs, read_one};
use super::reply::{JsonBytes, Refusal};
use crate::decision::Decision;
use crate::engine::HeldPermit;
use crate::error::{AskError, MAX_PERMIT_BYTES};
use crate::policy_set::{CLIENT_ID, InForce, PolicySet};

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
    State(shared): State<Arc<Shared>>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<DecisionReply>, Refusal> {
    let body = read_one(&shared, &body)?;
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
    let decision = decide_one(&shared, &body).await?;
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
    State(shared): State<Arc<Shared>>,
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
    State(shared): State<Arc<Shared>>,
    Path(permit): Path<String>,
) -> Result<StatusCode, Refusal> {
    let permit = Parsed::of(&permit)?;
    let (policies, known) = permit.contents();
    let held = HeldPermit { id: permit.id, policies: &policies, attributes: Attributes::new(&known) };
    if shared.engine.release(&held).await? { Ok(StatusCode::NO_CONTENT) } else { Err(not_held()) }
}

/// Refuses a request whose permit could not be named in a request's target, before anything is charged.
pub(super) fn permit_fits(set: &PolicySet, attributes: &Attributes<'_>) -> Result<(), AskError> {
    let mut found = Vec::new();
    let candidates = set.candidates(attributes, &mut found).map(|(_, in_force)| in_force);
    let granting = candidates.filter(|it| it.is_concurrent() && it.policy.applies_to(attributes));
    let granting: Vec<&InForce> = granting.collect();
    if granting.is_empty() {
        return Ok(());
    }
    let bytes = carried(&granting, attributes).len();
    if bytes > MAX_PERMIT_BYTES { Err(AskError::PermitTooLong(bytes)) } else { Ok(()) }
}

/// The text of a permit that a decision on these attributes handed out.
pub(super) fn permit_text(
    shared: &Shared,
    decision: &Decision,
    id: PermitId,
    attributes: &AttributesBody<'_>,
) -> String {
    let set = shared.engine.set();
    let granting: Vec<&InForce> = decision
        .parts
        .iter()
        .filter(|part| part.grants())
        .filter_map(|part| set.policy(&part.policy))
        .collect();
    let carried = carried(&granting, &Attributes::new(&pairs(attributes)));
    format!("{:016x}.{}", id.0, URL_SAFE_NO_PAD.encode(carried))
}

/// What a permit of these policies carries: how many they are, their names, then the names and values of the
/// attributes that they are keyed on and of the client's name, by which its own numbers are found. Each has
/// its length before it, in two bytes.
fn carried(granting: &[&InForce], attributes: &Attributes<'_>) -> Vec<u8> {
    let mut text = Vec::with_capacity(128);
    put(&mut text, &u16::try_from(granting.len()).unwrap_or(u16::MAX).to_be_bytes());
    for in_force in granting {
        put(&mut text, in_force.policy.name.as_bytes());
    }
    let keys = granting.iter().flat_map(|in_force| &in_force.policy.key).map(String::as_str);
    let mut names: Vec<&str> = keys.chain([CLIENT_ID]).collect();
    names.sort_unstable();
    names.dedup();
    for (name, value) in names.iter().filter_map(|name| Some((name, attributes.value(name)?))) {
        put(&mut text, name.as_bytes());
        put(&mut text, &counted(value));
    }
    text
}

fn put(text: &mut Vec<u8>, part: &[u8]) {
    // Invariant: names and counted values are far shorter.
    text.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
    text.extend_from_slice(part);
}

/// A permit's text, read.
struct Parsed {
    id: PermitId,
    /// The parts of what it carries.
    parts: Vec<Vec<u8>>,
    /// How many of them, after the first, are policies.
    policies: usize,
}

impl Parsed {
    fn of(text: &str) -> Result<Self, Refusal> {
        Self::read(text).ok_or_else(|| {
            Refusal::field("/permit", "is not a permit", "the text that a decision handed out")
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (id, carried) = text.split_once('.')?;
        let id = PermitId(u64::from_str_radix(id, 16).ok()?);
        let carried = URL_SAFE_NO_PAD.decode(carried).ok()?;
        let (mut rest, mut parts) = (&carried[..], Vec::new());
        while let Some((length, after)) = rest.split_first_chunk() {
            let (part, after) = after.split_at_checked(u16::from_be_bytes(*length).into())?;
            parts.push(part.to_vec());
            rest = after;
        }
        let count = parts.first()?.as_slice().try_into().ok()?;
        let policies = usize::from(u16::from_be_bytes(count));
        let pairs = parts.len().checked_sub(1 + policies)?;
        let mut names = parts[1..=policies].iter().chain(parts[1 + policies..].iter().step_by(2));
        let is_whole = rest.is_empty() && pairs % 2 == 0;
        let is_whole = is_whole && names.all(|name| str::from_utf8(name).is_ok());
        is_whole.then_some(Self { id, parts, policies })
    }

    /// Names of policies, and pairs of attributes, as the engine takes them.
    fn contents(&self) -> (Vec<&str>, Vec<(&str, &[u8])>) {
        // Invariant: names are texts, or it would not have been read.
        fn text(part: &[u8]) -> &str {
            str::from_utf8(part).unwrap_or_default()
        }
        let (policies, pairs) = self.parts[1..].split_at(self.policies);
        let pairs = pairs.chunks_exact(2).map(|pair| (text(&pair[0]), &pair[1][..]));
        (policies.iter().map(|name| text(name)).collect(), pairs.collect())
    }
}

fn not_held() -> Refusal {
    Refusal::not_found("such permit: it was released or its lease ended")
}
