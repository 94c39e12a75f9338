//! `/v1/clients` and `/v1/clients/{client_id}/limits`: clients' own numbers, by policy.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::Change;
use tidegate_wire::bodies::{UniqueJson, read as read_body};
use utoipa::ToSchema;

use super::Shared;
use super::changes::{Tagged, change, etag, tagged};
use super::documents::OVERRIDE;
use super::limits::OwnLimits;
use super::query::{self, client_id};
use super::schema::ClientLimits;

/// Most clients in one page.
const MAX_PAGE: usize = 1_000;

/// A client that has numbers of its own.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ListedClient {
    /// The client.
    client_id: String,
    /// Its numbers, by policy; stored numbers come before those of the file.
    #[schema(value_type = Object)]
    limits: Map<String, Value>,
    /// The entity tag of the stored numbers; absent if the file alone declares numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

/// Lists the clients that have limits of their own.
#[utoipa::path(
    operation_id = "list_clients", get, path = "/v1/clients", tag = "configuration",
    params(
        ("after" = Option<String>, Query, description = "the last client of the page before", example = "user122"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1_000, description = "at most so many, 100 if absent", example = 100),
    ),
    responses(
        (status = 200, description = "In the byte order of their names.", body = Vec<ListedClient>,
            example = json!([{"client_id": "user123", "limits": {"default": {"limit": 500}}, "etag": "\"7\""}])),
        Problems,
    )
)]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<ListedClient>>, Refusal> {
    let query = query.unwrap_or_default();
    let after = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "after");
    let after = after.map_or_else(String::new, |(_, text)| text.into_owned());
    let limit = query::page(&query, MAX_PAGE)?;
    let page = shared.limits.clients(&after, limit).into_iter().map(|own| {
        let OwnLimits { client_id, limits, stored_at } = own;
        ListedClient { client_id, limits, etag: stored_at.map(etag) }
    });
    Ok(Json(page.collect()))
}

/// Reads a client's own limits, by policy.
#[utoipa::path(
    operation_id = "get_client_limits", get, path = "/v1/clients/{client_id}/limits", tag = "configuration",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "the client", example = "user123")),
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
    let parts = shared.configuration.parts();
    let stored = parts.documents().get(OVERRIDE, client);
    let missing = || Refusal::not_found(format_args!("limit of client {client:?} alone"));
    let document = stored.ok_or_else(missing)?;
    // Invariant: only documents that parse are stored.
    Ok(tagged(document.revision, serde_json::from_str(&document.body).unwrap_or_default()))
}

/// Sets a client's own limits, by policy.
#[utoipa::path(
    operation_id = "put_client_limits", put, path = "/v1/clients/{client_id}/limits", tag = "configuration",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "the client", example = "user123"), ("if-match" = Option<String>, Header, description = "change only this version; \"0\": only if it is not stored yet", example = "\"7\"")),

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
    let put = Change::put(OVERRIDE, client, document.to_string());
    let revision = change(&shared.configuration, &actor, put, &headers).await?;
    Ok(tagged(revision, document))
}

/// Takes all of a client's own limits away.
#[utoipa::path(
    operation_id = "delete_client_limits", delete, path = "/v1/clients/{client_id}/limits", tag = "configuration",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "the client", example = "user123"), ("if-match" = Option<String>, Header, description = "change only this version; \"0\": only if it is not stored yet", example = "\"7\"")),
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
    change(&shared.configuration, &actor, Change::delete(OVERRIDE, client), &headers).await?;
    Ok(StatusCode::NO_CONTENT)
}
