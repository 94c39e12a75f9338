//! `/v1/clients/{client_id}/limits`: a client's own numbers, by policy.

use std::sync::Arc;

use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use tidegate_control::Change;
use tidegate_wire::bodies::{UniqueJson, read as read_body};

use super::Shared;
use super::classic::client_id;
use super::policies::{Tagged, change_document, tagged};
use super::reply::{JsonBytes, Refusal};
use crate::policy_set::OVERRIDE;

/// `GET /v1/clients/{client_id}/limits`
#[utoipa::path(
    get, path = "/v1/clients/{client_id}/limits", tag = "configuration", security((), ("admin" = [])),
    params(("client_id" = String, Path, min_length = 1, max_length = 512)),
    responses(
        (status = 200, body = Object, headers(("etag" = String))),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn read(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Path(client): Path<String>,
) -> Result<Tagged<Value>, Refusal> {
    shared.admin(&headers)?;
    let client = client_id(&client)?;
    let set = shared.engine.set();
    let stored = set.documents().get(OVERRIDE, client);
    let document = stored.ok_or_else(|| Refusal::NotFound(format!("limit of client {client:?} alone")))?;
    // Invariant: only documents that parse are stored.
    Ok(tagged(document.revision, serde_json::from_str(&document.body).unwrap_or_default()))
}

/// `PUT /v1/clients/{client_id}/limits`
#[utoipa::path(
    put, path = "/v1/clients/{client_id}/limits", tag = "configuration", security((), ("admin" = [])),
    params(("client_id" = String, Path, min_length = 1, max_length = 512), ("if-match" = Option<String>, Header)),
    request_body = super::schema::ClientLimits,
    responses(
        (status = 200, body = Object, headers(("etag" = String))),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
        (status = "5XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Path(client): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<Value>, Refusal> {
    let actor = shared.admin(&headers)?;
    let client = client_id(&client)?;
    let UniqueJson(document) = read_body(&body)?;
    let change = Change::put(OVERRIDE, client, document.to_string());
    let revision = change_document(&shared, actor, change, &headers).await?;
    Ok(tagged(revision, document))
}

/// `DELETE /v1/clients/{client_id}/limits`
#[utoipa::path(
    delete, path = "/v1/clients/{client_id}/limits", tag = "configuration", security((), ("admin" = [])),
    params(("client_id" = String, Path, min_length = 1, max_length = 512), ("if-match" = Option<String>, Header)),
    responses(
        (status = 204, description = "the client has everyone's limits again"),
        (status = "4XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
        (status = "5XX", body = super::schema::ProblemSchema, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Path(client): Path<String>,
) -> Result<StatusCode, Refusal> {
    let actor = shared.admin(&headers)?;
    let client = client_id(&client)?;
    change_document(&shared, actor, Change::delete(OVERRIDE, client), &headers).await?;
    Ok(StatusCode::NO_CONTENT)
}
