//! The simple API's decisions: `POST /api/v1/ratelimit`.
//!
//! Its shapes are fixed by the clients that speak it: a denial is a 200 with `"allowed":false` and
//! `retry_after` in whole seconds, rounded up, at least 1.

use axum::Json;
use bytes::Bytes;
use http::request::Parts;
use serde::Serialize;
use tidegate_access::schema::Problems;
use tidegate_algorithms::policy::Attributes;
use tidegate_net::http::{Answered, Plain, Unwritten};
use tidegate_net::stats::Route;
use tidegate_wire::bodies::{RateLimitBody, read};
use utoipa::ToSchema;

use super::ApiState;
use super::quota::{describe, put_number};
use super::reply::{Refusal, Reply, Stated, bytes, decided, empty, expect_json, is_json};
use crate::answers::Door;
use crate::decision::Decision;
use crate::engine::Ask;
use crate::policy_set::CLIENT_ID;

/// The reply to `GET /api/v1/health`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// Always `ok`: a process that answers is healthy.
    #[schema(example = "ok")]
    status: &'static str,
}

/// The reply to `POST /api/v1/ratelimit`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RateLimitReply {
    /// Whether the request may go ahead.
    allowed: bool,
    /// What the client can still spend; absent where no enforced policy applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// True where no policy applies to the request: then `on_no_match` in the configuration decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_match: Option<bool>,
    /// Seconds to wait, denials only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    retry_after: Option<u64>,
}

/// Says that the process answers.
#[utoipa::path(get, path = "/api/v1/health", tag = "simple", responses((status = 200, description = "It does.", body = Health,
            example = json!({"status": "ok"}))))]
pub(super) async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Asks whether a client may go ahead, and charges it if so.
#[utoipa::path(
    post, path = "/api/v1/ratelimit", tag = "simple",
    request_body(content = RateLimitBody<'_>, example = json!({"client_id": "user123", "resource": "api"})),
    responses(
        (status = 200, description = "The question was answered, also by a denial.", body = RateLimitReply,
            example = json!({"allowed": false, "remaining": 0, "retry_after": 60})),
        Problems,
    )
)]
pub(super) async fn rate_limit(shared: &ApiState, head: &Parts, body: &[u8]) -> Reply {
    match decide(shared, head, body).await {
        Ok(decision) => {
            let mut text = Vec::with_capacity(64);
            put_text(&decision, &mut text);
            let mut reply = bytes(200, Bytes::from(text));
            describe(shared, &decision, reply.headers_mut());
            reply
        }
        Err(refusal) => refusal.reply(),
    }
}

async fn decide(shared: &ApiState, head: &Parts, body: &[u8]) -> Result<Decision, Refusal> {
    expect_json(&head.headers)?;
    let body: RateLimitBody<'_> = read(body)?;
    for (place, value) in [("/client_id", &body.client_id), ("/resource", &body.resource)] {
        if value.is_empty() {
            return Err(empty(place));
        }
    }
    shared.engine.decide(&ask(&attributes(&body))).await.map_err(Stated::Flat.refusal())
}

/// As [`rate_limit`], from the buffer that the request was read into to the one that the reply leaves
/// from: this is the most frequent request of all. `None`, without a trace, for everything but a decision.
pub(super) fn rate_limit_at_once(
    shared: &ApiState,
    request: &Plain<'_>,
    reply: Unwritten<'_>,
    route: Route,
) -> Option<Answered> {
    if !is_json(request.field("content-type"), request.field("content-encoding")) {
        return None;
    }
    let body: RateLimitBody<'_> = read(request.body()).ok()?;
    if body.client_id.is_empty() || body.resource.is_empty() {
        return None;
    }
    let decision = shared.engine.decide_now(&ask(&attributes(&body)))?;
    Some(decided(shared, &decision, reply, route, |body| put_text(&decision, body)))
}

fn attributes<'a>(body: &'a RateLimitBody<'_>) -> [(&'a str, &'a [u8]); 2] {
    [(CLIENT_ID, body.client_id.as_bytes()), ("resource", body.resource.as_bytes())]
}

fn ask<'a>(pairs: &'a [(&'a str, &'a [u8])]) -> Ask<'a> {
    Ask { attributes: Attributes::new(pairs), cost: 1, peek: false, can_release: false, door: Door::Http }
}

/// Appends a [`RateLimitReply`], written by hand.
fn put_text(decision: &Decision, text: &mut Vec<u8>) {
    text.extend_from_slice(if decision.allowed { b"{\"allowed\":true" } else { b"{\"allowed\":false" });
    if decision.no_match() {
        text.extend_from_slice(b",\"no_match\":true");
    }
    if let Some(part) = decision.deciding() {
        text.extend_from_slice(b",\"remaining\":");
        put_number(text, part.verdict.remaining);
    }
    if let Some(seconds) = decision.retry_after_seconds() {
        text.extend_from_slice(b",\"retry_after\":");
        put_number(text, seconds);
    }
    text.push(b'}');
}
