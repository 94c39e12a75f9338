//! What clients have used: reset of one client's counters, and who is nearest to a limit.
//!
//! A reset touches only policies that are keyed on the client. One that is keyed on more (a path, say) needs
//! that too, as further query parameters; without them it is named in the reply and left alone.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::json;
use tidegate_algorithms::policy::Attributes;
use tidegate_control::{Author, Change, Kind};
use tidegate_net::clock;
use utoipa::ToSchema;

use super::Shared;
use super::auth::Actor;
use super::classic::client_id;
use super::reply::Refusal;
use super::schema::Problems;
use crate::policy_set::CLIENT_ID;

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
    /// The most that it can spend at once.
    limit: u64,
    /// What it could still spend when it was last seen.
    remaining: u64,
    /// Milliseconds since then.
    seen_ms_ago: u64,
}

/// Lets a client start anew under one policy or all.
#[utoipa::path(
    operation_id = "reset_client_usage", delete, path = "/v1/clients/{client_id}/usage", tag = "decisions",
    params(
        ("client_id" = String, Path, min_length = 1, max_length = 512, description = "whose", example = "user123"),
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
    let attributes = Attributes::new(&pairs);
    let outcome = shared.engine.resettable(&attributes, named.as_deref())?;
    if let (true, Some(named)) = (outcome.is_empty(), &named) {
        return Err(Refusal::NotFound(format!("policy {named:?} that is keyed on {CLIENT_ID}")));
    }
    if !outcome.reset.is_empty() {
        // Recorded first: what is reset is then never without its line in the audit log.
        let what = json!({ "policies": outcome.reset }).to_string();
        let author = Author { actor: actor.name().to_owned(), at: clock::wall() };
        shared.configuration.change(Change::record_removal(USAGE, client, what), author).await?;
        shared.engine.reset(&attributes, named.as_deref()).await?;
    }
    let not_reset = outcome.not_reset.into_iter();
    Ok(Json(ResetReply {
        reset: outcome.reset,
        not_reset: not_reset.map(|(policy, because_of)| NotReset { policy, because_of }).collect(),
    }))
}

/// Lists the clients that are nearest to a limit.
#[utoipa::path(
    operation_id = "nearest_clients", get, path = "/v1/nearest-clients", tag = "decisions",
    responses(
        (status = 200, description = "At most 128 that have used half of a limit or more, the nearest first.", body = Vec<NearLimit>,
            example = json!([{"client_id": "user123", "policy": "default", "limit": 100, "remaining": 3, "seen_ms_ago": 250}])),
        Problems,
    )
)]
pub(super) async fn nearest(State(shared): State<Arc<Shared>>) -> Result<Json<Vec<NearLimit>>, Refusal> {
    let now = shared.engine.clock().tick();
    let near = shared.engine.nearest_clients().list(now).into_iter().map(|near| NearLimit {
        client_id: String::from_utf8_lossy(&near.client).into_owned(),
        policy: near.policy,
        limit: near.limit,
        remaining: near.remaining,
        seen_ms_ago: now.since(near.seen) / 1_000_000,
    });
    Ok(Json(near.collect()))
}
