//! `/v1/clients/{client_id}/limits`: a client's own numbers, by policy.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tidegate_control::Change;
use tidegate_wire::bodies::{UniqueJson, read as read_body};

use super::Shared;
use super::auth::Actor;
use super::classic::client_id;
use super::policies::{Tagged, change_document, tagged};
use super::reply::{JsonBytes, Refusal};
use super::schema::{ClientLimits, Problems};
use crate::policy_set::OVERRIDE;

/// Reads a client's own limits, by policy.
#[utoipa::path(
    operation_id = "get_client_limits", get, path = "/v1/clients/{client_id}/limits", tag = "configuration",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "whose", example = "user123")),
    responses(
        (status = 200, description = "Its own limits.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"default": {"limit": 500}})),
        Problems,
    )
)]
pub(super) async fn read(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
) -> Result<Tagged<Value>, Refusal> {
    let client = client_id(&client)?;
    let set = shared.engine.set();
    let stored = set.documents().get(OVERRIDE, client);
    let document = stored.ok_or_else(|| Refusal::NotFound(format!("limit of client {client:?} alone")))?;
    // Invariant: only documents that parse are stored.
    Ok(tagged(document.revision, serde_json::from_str(&document.body).unwrap_or_default()))
}

/// Sets a client's own limits, by policy.
#[utoipa::path(
    operation_id = "put_client_limits", put, path = "/v1/clients/{client_id}/limits", tag = "configuration",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "whose", example = "user123"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),

    request_body(content = ClientLimits, example = json!({"default": {"limit": 500}})),
    responses(
        (status = 200, description = "They are stored and in force.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"default": {"limit": 500}})),
        Problems,
    )
)]
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(client): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<Value>, Refusal> {
    let client = client_id(&client)?;
    let UniqueJson(document) = read_body(&body)?;
    let change = Change::put(OVERRIDE, client, document.to_string());
    let revision = change_document(&shared, &actor, change, &headers).await?;
    Ok(tagged(revision, document))
}

/// Takes all of a client's own limits away.
#[utoipa::path(
    operation_id = "delete_client_limits", delete, path = "/v1/clients/{client_id}/limits", tag = "configuration",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "whose", example = "user123"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),
    responses(
        (status = 204, description = "the client has everyone's limits again"),
        Problems,
    )
)]
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(client): Path<String>,
) -> Result<StatusCode, Refusal> {
    let client = client_id(&client)?;
    change_document(&shared, &actor, Change::delete(OVERRIDE, client), &headers).await?;
    Ok(StatusCode::NO_CONTENT)
}
