//! The simple API under `/api/v1`: one policy, keyed by client, with per-client numbers.
//!
//! Its shapes are fixed by the clients that speak it: a denial is a 200 with `"allowed":false` and
//! `retry_after` in whole seconds, rounded up, at least 1. Everything else is the general API under
//! another name: `configure` puts the policy `default`, `configure-client` an override of it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate_algorithms::limit::sliding_log::MAX_ENTRIES;
use tidegate_algorithms::policy::{Algorithm, Attributes, Policy};
use tidegate_control::{Author, Change, ChangeError, Kind};
use tidegate_net::clock;
use tidegate_net::http::{Answered, Plain, Unwritten};
use tidegate_net::stats::Route;
use tidegate_wire::bodies::{ConfigureBody, ConfigureClientBody, RateLimitBody, read};
use utoipa::ToSchema;

use super::Shared;
use super::auth::Actor;
use super::policies::as_sent;
use super::quota::{describe, put_number};
use super::reply::{JSON, JsonBytes, Refusal, Reply, Stated, bytes, expect_json, is_json, refuse};
use super::schema::Problems;
use crate::decision::Decision;
use crate::documents::Policies;
use crate::engine::Ask;
use crate::policy_set::{CLIENT_ID, DEFAULT_POLICY, OVERRIDE, POLICY, PolicySet, is_client_id};

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

/// A client's numbers under the policy `default`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClientConfig {
    /// Whose.
    client_id: String,
    /// Length of the window in seconds.
    window_seconds: u64,
    /// Requests per window.
    request_per_window: u64,
    /// Whether they are the client's own, or everyone's.
    custom: bool,
}

/// The reply to a change.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Changed {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
    /// The configuration's revision after the change.
    revision: u64,
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
pub(super) async fn rate_limit(shared: &Shared, head: &Parts, body: &[u8]) -> Reply {
    match decide(shared, head, body).await {
        Ok(decision) => {
            let mut reply = bytes(200, Bytes::from(text_of(&decision)));
            describe(shared, &decision, reply.headers_mut());
            reply
        }
        Err(refusal) => refuse(refusal),
    }
}

async fn decide(shared: &Shared, head: &Parts, body: &[u8]) -> Result<Decision, Refusal> {
    expect_json(&head.headers)?;
    let body: RateLimitBody<'_> = read(body)?;
    for (place, value) in [("/client_id", &body.client_id), ("/resource", &body.resource)] {
        if value.is_empty() {
            return Err(Refusal::Empty(place));
        }
    }
    shared.engine.decide(&ask(&attributes(&body))).await.map_err(Stated::Flat.refusal())
}

/// As [`rate_limit`], from the buffer that the request was read into to the one that the reply leaves
/// from: this is the most frequent request of all. `None`, without a trace, for everything but a decision.
pub(super) fn rate_limit_at_once(
    shared: &Shared,
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
    let mut head = reply.head(StatusCode::OK);
    head.field(&CONTENT_TYPE, |value| value.extend_from_slice(JSON.as_bytes()));
    describe(shared, &decision, &mut head);
    Some(head.end(&text_of(&decision), route))
}

fn attributes<'a>(body: &'a RateLimitBody<'_>) -> [(&'a str, &'a [u8]); 2] {
    [(CLIENT_ID, body.client_id.as_bytes()), ("resource", body.resource.as_bytes())]
}

fn ask<'a>(pairs: &'a [(&'a str, &'a [u8])]) -> Ask<'a> {
    Ask { attributes: Attributes::new(pairs), cost: 1, peek: false, can_release: false }
}

/// [`RateLimitReply`], written by hand.
fn text_of(decision: &Decision) -> Vec<u8> {
    let mut text = Vec::with_capacity(64);
    text.extend_from_slice(if decision.allowed { b"{\"allowed\":true" } else { b"{\"allowed\":false" });
    if decision.no_match() {
        text.extend_from_slice(b",\"no_match\":true");
    }
    if let Some(part) = decision.deciding() {
        text.extend_from_slice(b",\"remaining\":");
        put_number(&mut text, part.verdict.remaining);
    }
    if let Some(seconds) = decision.retry_after_seconds() {
        text.extend_from_slice(b",\"retry_after\":");
        put_number(&mut text, seconds);
    }
    text.push(b'}');
    text
}

/// Sets the numbers of the policy `default`, which hold for everyone without their own.
#[utoipa::path(
    post, path = "/api/v1/configure", tag = "simple",
    request_body(content = ConfigureBody, example = json!({"window_seconds": 60, "request_per_window": 100})),
    responses(
        (status = 200, description = "They are stored and in force.", body = Changed,
            example = json!({"status": "ok", "revision": 7})),
        Problems,
    )
)]
pub(super) async fn configure(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Changed>, Refusal> {
    let body: ConfigureBody = read(&body)?;
    edit(&shared, &actor, (POLICY, DEFAULT_POLICY), move |set| {
        Ok(Some(Change::put(POLICY, DEFAULT_POLICY, configured(set, body).to_string())))
    })
    .await
}

/// The policy `default` with these numbers.
fn configured(set: &PolicySet, body: ConfigureBody) -> Value {
    let policy = set.policy(DEFAULT_POLICY).map_or_else(Policy::default_per_client, |it| it.policy.clone());
    let mut document = policy.document();
    if let Some(fields) = document.as_object_mut() {
        // A burst that was the whole limit stays the whole limit.
        if fields.get("burst") == fields.get("limit") {
            fields.remove("burst");
        }
        fields.insert("limit".to_owned(), Value::from(body.request_per_window));
        fields.insert("window_seconds".to_owned(), Value::from(body.window_seconds));
        let declared = set.file().policies.iter().find(|policy| *policy.name == *DEFAULT_POLICY);
        let declared = declared.map_or(Algorithm::SlidingLog, |policy| policy.quota.spec.algorithm);
        // The log keeps every request, so it has a bound; above it, the counter does. Back below it, what
        // the file says.
        let algorithm = match policy.quota.spec.algorithm {
            Algorithm::SlidingLog if body.request_per_window > MAX_ENTRIES => "sliding_counter",
            Algorithm::SlidingCounter
                if declared == Algorithm::SlidingLog && body.request_per_window <= MAX_ENTRIES =>
            {
                "sliding_log"
            }
            _ => return document,
        };
        fields.insert("algorithm".to_owned(), Value::from(algorithm));
    }
    document
}

/// Sets a client's own numbers under the policy `default`.
#[utoipa::path(
    post, path = "/api/v1/configure-client", tag = "simple",
    request_body(content = ConfigureClientBody<'_>, example = json!({"client_id": "vip_user", "window_seconds": 60, "request_per_window": 500})),
    responses(
        (status = 200, description = "They are stored and in force.", body = Changed,
            example = json!({"status": "ok", "revision": 8})),
        Problems,
    )
)]
pub(super) async fn configure_client(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Changed>, Refusal> {
    let body: ConfigureClientBody<'_> = read(&body)?;
    let client = client_id(&body.client_id)?.to_owned();
    let own = json!({"limit": body.request_per_window, "window_seconds": body.window_seconds});
    let is_too_many_for_a_log = body.request_per_window > MAX_ENTRIES;
    let name = client.clone();
    edit(&shared, &actor, (OVERRIDE, &name), move |set| {
        let mut own = own.clone();
        let general = set.policy(DEFAULT_POLICY).map(|in_force| in_force.policy.quota.spec.algorithm);
        if is_too_many_for_a_log && matches!(general, Some(Algorithm::SlidingLog | Algorithm::SlidingCounter))
        {
            own["algorithm"] = Value::from("sliding_counter");
        }
        let mut document = stored_limits(set, &client);
        document.insert(DEFAULT_POLICY.to_owned(), own);
        Ok(Some(Change::put(OVERRIDE, client.as_str(), Value::Object(document).to_string())))
    })
    .await
}

/// Reads a client's numbers under the policy `default`.
#[utoipa::path(
    operation_id = "get_client_config", get, path = "/api/v1/client-config/{client_id}", tag = "simple",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "whose", example = "user123")),
    responses(
        (status = 200, description = "Its own, or everyone's.", body = ClientConfig,
            example = json!({"client_id": "vip_user", "window_seconds": 60, "request_per_window": 500, "custom": true})),
        Problems,
    )
)]
pub(super) async fn client_config(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
) -> Result<Json<ClientConfig>, Refusal> {
    let client = client_id(&client)?;
    let set = shared.engine.set();
    let Some((quota, custom)) = set.client_quota(client, DEFAULT_POLICY) else {
        return Err(Refusal::NotFound(format!("policy \"{DEFAULT_POLICY}\"")));
    };
    Ok(Json(ClientConfig {
        client_id: client.to_owned(),
        window_seconds: quota.spec.stated_window_seconds(),
        request_per_window: quota.spec.limit,
        custom,
    }))
}

/// Takes a client's own numbers under the policy `default` away.
#[utoipa::path(
    delete, path = "/api/v1/client-config/{client_id}", tag = "simple",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "whose", example = "user123")),
    responses(
        (status = 200, description = "It has everyone's numbers, now or already before.", body = Changed,
            example = json!({"status": "ok", "revision": 9})),
        Problems,
    )
)]
pub(super) async fn delete_client_config(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    Path(client): Path<String>,
) -> Result<Json<Changed>, Refusal> {
    let client = client_id(&client)?;
    let (name, client) = (client.to_owned(), client.to_owned());
    edit(&shared, &actor, (OVERRIDE, &name), move |set| {
        let mut document = stored_limits(set, &client);
        // Nothing of its own: the client has everyone's numbers already.
        Ok(document.remove(DEFAULT_POLICY).map(|_| match document.is_empty() {
            true => Change::delete(OVERRIDE, client.as_str()),
            false => Change::put(OVERRIDE, client.as_str(), Value::Object(document).to_string()),
        }))
    })
    .await
}

async fn edit(
    shared: &Shared,
    actor: &Actor,
    (kind, name): (Kind, &str),
    edit: impl Fn(&PolicySet) -> Result<Option<Change>, ChangeError> + Send + 'static,
) -> Result<Json<Changed>, Refusal> {
    let author = Author { actor: actor.name().to_owned(), at: clock::wall() };
    let edited = shared.configuration.edit(author, move |parts| edit(parts.of::<Policies>())).await;
    let revision = edited.map_err(|error| {
        // The document was made here, of fields with other names.
        as_sent(error, kind, name, |pointer| match pointer.rsplit('/').next() {
            Some("limit") => "/request_per_window".to_owned(),
            Some("window_seconds") => "/window_seconds".to_owned(),
            _ => String::new(),
        })
    })?;
    Ok(Json(Changed { status: "ok", revision: revision.0 }))
}

/// A client's own limits by policy, empty if it has none.
fn stored_limits(set: &PolicySet, client: &str) -> Map<String, Value> {
    let stored = set.documents().get(OVERRIDE, client);
    stored.and_then(|document| serde_json::from_str(&document.body).ok()).unwrap_or_default()
}

/// A client's name, or the refusal that says what a name is.
pub(super) fn client_id(text: &str) -> Result<&str, Refusal> {
    if is_client_id(text) { Ok(text) } else { Err(client_id_refusal("/client_id", text)) }
}

fn client_id_refusal(place: &str, text: &str) -> Refusal {
    Refusal::Field {
        place: place.to_owned(),
        problem: format!("has {} bytes", text.len()),
        accepted: "1 to 512 bytes",
    }
}
