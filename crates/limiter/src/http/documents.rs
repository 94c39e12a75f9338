//! `/v1/routes` and `/v1/upstreams`: the gateway's configuration as resources.
//!
//! They are documents of another service. What they mean, and whether one may be changed, that service says
//! through the configuration ([`tidegate_control::Configuration`]); here they are JSON with a name. Entity tags and
//! preconditions are those of policies.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tidegate_control::{Author, Change, ChangeError, Kind, Parts, Revision};
use tidegate_net::clock;
use utoipa::ToSchema;

use super::Shared;
use super::auth::Actor;
use super::policies::{Tagged, as_sent, change_document, named, precondition, tagged};
use super::reply::{JsonBytes, Refusal};
use super::schema::Problems;

const ROUTE: Kind = Kind::new("route");
const UPSTREAM: Kind = Kind::new("upstream");

/// Documents in force.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DocumentList {
    /// Revision of the stored configuration.
    revision: u64,
    /// The file's in its order, then the stored ones by name.
    documents: Vec<ListedDocument>,
}

/// One document in a list.
#[derive(Debug, Serialize, ToSchema)]
struct ListedDocument {
    /// `file` or `stored`.
    #[schema(value_type = String)]
    origin: &'static str,
    /// Its entity tag.
    etag: String,
    /// The document.
    #[schema(value_type = Object)]
    document: Value,
}

/// The document in force, and the revision that it was stored at: 0 if it stands in the file.
fn in_force(parts: &Parts, kind: Kind, name: &str) -> Option<(Value, Revision)> {
    let document = parts.document(kind, name)?;
    let stored = parts.documents().get(kind, name);
    // One that is set aside leaves the file's in force.
    let is_it = |body: &str| serde_json::from_str::<Value>(body).is_ok_and(|stored| stored == document);
    let revision = stored.filter(|stored| is_it(&stored.body)).map_or(Revision(0), |stored| stored.revision);
    Some((document, revision))
}

fn list(shared: &Shared, kind: Kind) -> Tagged<DocumentList> {
    let parts = shared.configuration.parts();
    let names = parts.names(kind);
    let documents = names.iter().filter_map(|name| {
        let (document, revision) = in_force(&parts, kind, name)?;
        let origin = if revision == Revision(0) { "file" } else { "stored" };
        Some(ListedDocument { origin, etag: format!("\"{revision}\""), document })
    });
    let revision = parts.documents().revision();
    tagged(revision, DocumentList { revision: revision.0, documents: documents.collect() })
}

fn read(shared: &Shared, kind: Kind, name: &str) -> Result<Tagged<Value>, Refusal> {
    let found = in_force(&shared.configuration.parts(), kind, name);
    let (document, revision) = found.ok_or_else(|| Refusal::NotFound(format!("{kind} {name:?}")))?;
    Ok(tagged(revision, document))
}

async fn put(
    shared: &Shared,
    actor: &Actor,
    headers: &HeaderMap,
    kind: Kind,
    name: &str,
    body: &[u8],
) -> Result<Tagged<Value>, Refusal> {
    let document = named(body, name)?;
    let change = Change::put(kind, name, document.to_string());
    let revision = change_document(shared, actor, change, headers).await?;
    Ok(tagged(revision, document))
}

async fn delete(
    shared: &Shared,
    actor: &Actor,
    headers: &HeaderMap,
    kind: Kind,
    name: String,
) -> Result<StatusCode, Refusal> {
    let delete = Change::delete(kind, name.as_str()).when(precondition(headers)?);
    let author = Author { actor: actor.name().to_owned(), at: clock::wall() };
    let wanted = name.clone();
    let edit = move |parts: &Parts| {
        if parts.documents().get(kind, &wanted).is_none() && parts.has(kind, &wanted) {
            return Err(ChangeError::DeclaredInFile { kind, name: wanted.clone() });
        }
        Ok(Some(delete.clone()))
    };
    let deleted = shared.configuration.edit(author, edit).await;
    deleted.map_err(|error| as_sent(error, kind, &name, str::to_owned))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the routes in force.
#[utoipa::path(
    operation_id = "list_routes", get, path = "/v1/routes", tag = "gateway",
    responses(
        (status = 200, description = "The file's, then the stored ones.", body = DocumentList,
            example = json!({"revision": 7, "documents": [{"origin": "stored", "etag": "\"7\"", "document": {"name": "app", "upstream": "app"}}]})),
        Problems,
    )
)]
pub(super) async fn list_routes(State(shared): State<Arc<Shared>>) -> Result<Tagged<DocumentList>, Refusal> {
    Ok(list(&shared, ROUTE))
}

/// Reads a route in force.
#[utoipa::path(
    operation_id = "get_route", get, path = "/v1/routes/{name}", tag = "gateway",
    params(("name" = String, Path, description = "the route's name", example = "app")),
    responses(
        (status = 200, description = "Its document.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"name": "app", "upstream": "app"})),
        Problems,
    )
)]
pub(super) async fn read_route(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Tagged<Value>, Refusal> {
    read(&shared, ROUTE, &name)
}

/// Creates or replaces a route, in force when this is answered.
#[utoipa::path(
    operation_id = "put_route", put, path = "/v1/routes/{name}", tag = "gateway",
    params(("name" = String, Path, description = "the route's name", example = "app"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),
    request_body(content = Object, description = "The keys of [[route]] in the file.", example = json!({"host": "shop.example", "path": "/api/*", "upstream": "app", "policies": ["per-client"]})),
    responses(
        (status = 200, description = "It is stored and in force.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"name": "app", "host": "shop.example", "path": "/api/*", "upstream": "app"})),
        Problems,
    )
)]
pub(super) async fn put_route(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<Value>, Refusal> {
    put(&shared, &actor, &headers, ROUTE, &name, &body).await
}

/// Deletes a stored route.
#[utoipa::path(
    operation_id = "delete_route", delete, path = "/v1/routes/{name}", tag = "gateway",
    params(("name" = String, Path, description = "the route's name", example = "app"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),
    responses(
        (status = 204, description = "it is gone; a route of the file of the same name is in force again"),
        Problems,
    )
)]
pub(super) async fn delete_route(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    delete(&shared, &actor, &headers, ROUTE, name).await
}

/// Lists the upstreams in force.
#[utoipa::path(
    operation_id = "list_upstreams", get, path = "/v1/upstreams", tag = "gateway",
    responses(
        (status = 200, description = "The file's, then the stored ones.", body = DocumentList,
            example = json!({"revision": 7, "documents": [{"origin": "file", "etag": "\"0\"", "document": {"name": "app", "servers": ["http://127.0.0.1:3000"]}}]})),
        Problems,
    )
)]
pub(super) async fn list_upstreams(
    State(shared): State<Arc<Shared>>,
) -> Result<Tagged<DocumentList>, Refusal> {
    Ok(list(&shared, UPSTREAM))
}

/// Reads an upstream in force.
#[utoipa::path(
    operation_id = "get_upstream", get, path = "/v1/upstreams/{name}", tag = "gateway",
    params(("name" = String, Path, description = "the upstream's name", example = "app")),
    responses(
        (status = 200, description = "Its document.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"name": "app", "servers": ["http://127.0.0.1:3000"]})),
        Problems,
    )
)]
pub(super) async fn read_upstream(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Tagged<Value>, Refusal> {
    read(&shared, UPSTREAM, &name)
}

/// Creates or replaces an upstream, in force when this is answered.
#[utoipa::path(
    operation_id = "put_upstream", put, path = "/v1/upstreams/{name}", tag = "gateway",
    params(("name" = String, Path, description = "the upstream's name", example = "app"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),
    request_body(content = Object, description = "The keys of [[upstream]] in the file.", example = json!({"servers": ["http://127.0.0.1:3000", "http://127.0.0.1:3001"]})),
    responses(
        (status = 200, description = "It is stored and in force.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"name": "app", "servers": ["http://127.0.0.1:3000", "http://127.0.0.1:3001"]})),
        Problems,
    )
)]
pub(super) async fn put_upstream(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<Value>, Refusal> {
    put(&shared, &actor, &headers, UPSTREAM, &name, &body).await
}

/// Deletes a stored upstream, which no route may name any more.
#[utoipa::path(
    operation_id = "delete_upstream", delete, path = "/v1/upstreams/{name}", tag = "gateway",
    params(("name" = String, Path, description = "the upstream's name", example = "app"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),
    responses(
        (status = 204, description = "it is gone; an upstream of the file of the same name is in force again"),
        Problems,
    )
)]
pub(super) async fn delete_upstream(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    delete(&shared, &actor, &headers, UPSTREAM, name).await
}
