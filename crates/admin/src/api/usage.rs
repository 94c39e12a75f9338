//! Usage of clients: reset of one client's counters, the clients nearest to a limit, and the clients that were denied.
//!
//! A reset touches only policies that are keyed on the client. A policy that is keyed on more (a path, say) needs
//! these attributes as query parameters; without them the reply names the policy, and its counters stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::json;
use tidegate_access::guard::Actor;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_algorithms::policy::Mode;
use tidegate_control::{Change, Kind};
use utoipa::ToSchema;

use super::Shared;
use super::changes::{author, refusal};
use super::limits::{Denied, Near, Resettable, Usage};
use super::query::client_id;

/// The attribute that clients go by.
const CLIENT_ID: &str = "client_id";

/// What the audit log calls a client's counters.
const USAGE: Kind = Kind::new("usage");

/// The reply to a reset.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResetReply {
    /// The policies under which the client starts anew.
    #[schema(value_type = Vec<String>)]
    reset: Vec<Arc<str>>,
    /// The policies whose counters could not be found, since they are keyed on an attribute that was not given.
    not_reset: Vec<NotReset>,
}

/// A policy whose counter could not be found.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NotReset {
    /// Its name.
    #[schema(value_type = String)]
    policy: Arc<str>,
    /// The attribute that is missing.
    because_of: String,
}

/// A client that has used up much of a limit.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NearLimit {
    /// The client.
    client_id: String,
    /// The policy.
    #[schema(value_type = String)]
    policy: Arc<str>,
    /// `enforce`, or `shadow`: counted, and nobody is denied.
    #[schema(value_type = String)]
    mode: Mode,
    /// The most that it can spend at once.
    limit: u64,
    /// What it could still spend when it was last seen.
    remaining: u64,
    /// Milliseconds since then.
    seen_ms_ago: u64,
}

/// A client in the list of the most denied.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeniedClient {
    /// Its `client_id`; bytes that are not text are replaced.
    client_id: String,
    /// Denials, at most.
    denied: u64,
    /// By how much `denied` may be too high.
    error: u64,
    /// The policy that denied it last, or the name of the limit that came with the request. Absent: no policy applied,
    /// and `on_no_match` denied it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    policy: Option<Arc<str>>,
    /// What that policy looks at in the request that was denied, beside `client_id`: with it `GET /v1/explain` is asked
    /// about the same request. Absent: it is too long to be kept, is not UTF-8, or has a credential: what comes from a
    /// cookie or from the fields `Authorization`, `Proxy-Authorization`, `Cookie` and `X-Api-Key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<BTreeMap<String, String>>,
    /// Milliseconds since the last denial.
    seen_ms_ago: u64,
    /// Its requests of the last minute, or since its first denial if that was later. Absent: they are not counted,
    /// since too many other clients are denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_minute: Option<LastMinute>,
}

/// A client's requests of the last minute.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LastMinute {
    /// Those that were allowed.
    allowed: u64,
    /// Those that were denied.
    denied: u64,
}

/// Lets a client start anew under one policy or all.
#[utoipa::path(
    operation_id = "reset_client_usage", delete, path = "/v1/clients/{client_id}/usage", tag = "decisions",
    params(
        ("client_id" = String, Path, min_length = 1, max_length = 512, description = "the client", example = "user123"),
        ("policy" = Option<String>, Query, description = "the only policy to reset; all that are keyed on the client if absent. Any other parameter is an attribute that policies are keyed on", example = "default"),
    ),
    responses(
        (status = 200, description = "The client starts anew under these policies.", body = ResetReply,
            example = json!({"reset": ["default"], "not_reset": [{"policy": "per-path", "because_of": "path"}]})),
        Problems,
    )
)]
pub(super) async fn reset(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    Path(client): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<ResetReply>, Refusal> {
    let client = client_id(&client)?;
    let query = query.unwrap_or_default();
    let mut parameters: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let named = parameters.iter().position(|(name, _)| name == "policy").map(|at| parameters.remove(at).1);
    // The first of a name counts, so that the path's client cannot be another in the query.
    let known = parameters.iter().map(|(name, value)| (&**name, value.as_bytes()));
    let pairs: Vec<(&str, &[u8])> = std::iter::once((CLIENT_ID, client.as_bytes())).chain(known).collect();
    let usage = Usage { attributes: &pairs, policy: named.as_deref() };
    let (Resettable { reset, not_reset }, resetting) = shared.limits.reset(&usage);
    if let (true, true, Some(named)) = (reset.is_empty(), not_reset.is_empty(), usage.policy) {
        return Err(Refusal::not_found(format_args!("policy {named:?} that is keyed on {CLIENT_ID}")));
    }
    if !reset.is_empty() {
        // Recorded first: what is reset is then never without its line in the audit log.
        let record = Change::record_removal(USAGE, client, json!({ "policies": reset }).to_string());
        shared.configuration.change(record, author(&actor)).await.map_err(refusal)?;
        resetting.await.map_err(Refusal)?;
    }
    let not_reset = not_reset.into_iter().map(|(policy, because_of)| NotReset { policy, because_of });
    Ok(Json(ResetReply { reset, not_reset: not_reset.collect() }))
}

/// Lists the clients that are nearest to a limit.
#[utoipa::path(
    operation_id = "nearest_clients", get, path = "/v1/nearest-clients", tag = "decisions",
    responses(
        (status = 200, description = "At most 128 that have used half of a limit or more, the nearest first.", body = Vec<NearLimit>,
            example = json!([{"client_id": "user123", "policy": "default", "mode": "enforce", "limit": 100, "remaining": 3, "seen_ms_ago": 250}])),
        Problems,
    )
)]
pub(super) async fn nearest(State(shared): State<Arc<Shared>>) -> Json<Vec<NearLimit>> {
    let near = shared.limits.nearest_clients().into_iter().map(|near| {
        let Near { client_id, policy, mode, limit, remaining, seen_ms_ago } = near;
        NearLimit { client_id, policy, mode, limit, remaining, seen_ms_ago }
    });
    Json(near.collect())
}

/// Lists the clients that were denied most often.
#[utoipa::path(
    operation_id = "denied_clients", get, path = "/v1/denied-clients", tag = "decisions",
    responses(
        (status = 200, description = "The heaviest first.", body = Vec<DeniedClient>,
            example = json!([{"client_id": "user123", "denied": 420, "error": 0, "policy": "per-path", "attributes": {"path": "/v1/pay"}, "seen_ms_ago": 250, "last_minute": {"allowed": 100, "denied": 300}}])),
        Problems,
    )
)]
pub(super) async fn denied(State(shared): State<Arc<Shared>>) -> Json<Vec<DeniedClient>> {
    let denied = shared.limits.denied_clients().into_iter().map(|denied| {
        let Denied { client_id, denied, error, policy, attributes, seen_ms_ago, last_minute } = denied;
        let pairs = |query: String| form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let last_minute = last_minute.map(|(allowed, denied)| LastMinute { allowed, denied });
        let attributes = attributes.map(pairs);
        DeniedClient { client_id, denied, error, policy, attributes, seen_ms_ago, last_minute }
    });
    Json(denied.collect())
}
