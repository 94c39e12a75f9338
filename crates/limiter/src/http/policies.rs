//! `/v1/policies` and `/v1/audit`: the configuration as resources.
//!
//! A policy's entity tag is the revision that wrote it, `"0"` if it is not stored but built in or
//! from the file. `If-Match` makes a change conditional (fault 20): with it, of two administrators
//! who edit the same policy the second is told (412) instead of undoing the first one's work.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tidegate_control::{Author, Change, ChangeError, Kind, Parts, Precondition, Revision};
use tidegate_net::clock;
use tidegate_wire::bodies::{UniqueJson, read};
use utoipa::ToSchema;

use super::Shared;
use super::auth::Actor;
use super::explain::origin_word;
use super::reply::{JsonBytes, Refusal};
use super::schema::{PolicyDocument, Problems};
use crate::documents::Policies;
use crate::policy_set::{InForce, Origin, POLICY};

/// A document with its entity tag.
pub(super) type Tagged<T> = ([(http::HeaderName, String); 1], Json<T>);

/// The policies in force.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PolicyList {
    /// Revision of the stored configuration.
    revision: u64,
    /// In the order in which they are checked.
    policies: Vec<ListedPolicy>,
}

/// One policy in a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ListedPolicy {
    /// `built-in`, `file` or `stored`.
    #[schema(value_type = String)]
    origin: &'static str,
    /// Its entity tag.
    etag: String,
    /// Its document.
    #[schema(value_type = Object)]
    policy: Value,
}

/// One change in the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditEntry {
    /// The revision it made.
    revision: u64,
    /// When, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// Who.
    actor: String,
    /// `put` or `delete`.
    #[schema(value_type = String)]
    action: tidegate_control::Action,
    /// `policy`, `override`, `route` or `upstream`.
    #[schema(value_type = String)]
    kind: Kind,
    /// The document's name.
    name: String,
    /// The document before, `null` if there was none.
    #[schema(value_type = Option<Object>, required = true)]
    before: Option<Value>,
    /// The document after, `null` if there is none.
    #[schema(value_type = Option<Object>, required = true)]
    after: Option<Value>,
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
}

/// Lists the clients that were denied most often.
#[utoipa::path(
    get, path = "/v1/denied-clients", tag = "decisions",
    responses(
        (status = 200, description = "The heaviest first.", body = Vec<DeniedClient>,
            example = json!([{"client_id": "user123", "denied": 420, "error": 0}])),
        Problems,
    )
)]
pub(super) async fn denied_clients(
    State(shared): State<Arc<Shared>>,
) -> Result<Json<Vec<DeniedClient>>, Refusal> {
    let clients = shared.engine.denied_clients().heaviest().into_iter().map(|counter| DeniedClient {
        client_id: String::from_utf8_lossy(&counter.key).into_owned(),
        denied: counter.count,
        error: counter.error,
    });
    Ok(Json(clients.collect()))
}

/// Lists the policies in force.
#[utoipa::path(
    operation_id = "list_policies", get, path = "/v1/policies", tag = "configuration",
    responses(
        (status = 200, description = "In the order in which they are checked.", body = PolicyList,
            example = json!({"revision": 7, "policies": [{"origin": "stored", "etag": "\"7\"", "policy": {"name": "api", "limit": 100, "window_seconds": 60}}]})),
        Problems,
    )
)]
pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Tagged<PolicyList>, Refusal> {
    let set = shared.engine.set();
    let policies = set.policies().iter().map(|in_force| ListedPolicy {
        origin: origin_word(in_force.origin),
        etag: etag(stored_at(in_force)),
        policy: in_force.policy.document(),
    });
    let revision = set.revision();
    Ok(tagged(revision, PolicyList { revision: revision.0, policies: policies.collect() }))
}

/// Reads a policy in force.
#[utoipa::path(
    operation_id = "get_policy", get, path = "/v1/policies/{name}", tag = "configuration",
    params(("name" = String, Path, description = "the policy's name", example = "api")),
    responses(
        (status = 200, description = "Its document.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"name": "api", "limit": 100, "window_seconds": 60})),
        Problems,
    )
)]
pub(super) async fn read_policy(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
) -> Result<Tagged<Value>, Refusal> {
    let set = shared.engine.set();
    let in_force = set.policy(&name).ok_or_else(|| Refusal::NotFound(format!("policy {name:?}")))?;
    Ok(tagged(stored_at(in_force), in_force.policy.document()))
}

/// Creates or replaces a policy.
#[utoipa::path(
    operation_id = "put_policy", put, path = "/v1/policies/{name}", tag = "configuration",
    params(("name" = String, Path, description = "the policy's name", example = "api"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),

    request_body(content = PolicyDocument, example = json!({"algorithm": "token_bucket", "limit": 100, "window_seconds": 60, "burst": 20, "key": ["client_id"], "match": {"path": "/v1/*"}})),
    responses(
        (status = 200, description = "It is stored and in force.", body = Object, headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"name": "api", "limit": 100, "window_seconds": 60})),
        Problems,
    )
)]
pub(super) async fn put(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<Value>, Refusal> {
    let document = named(&body, &name)?;
    let change = Change::put(POLICY, name.as_str(), document.to_string());
    let revision = change_document(&shared, &actor, change, &headers).await?;
    let set = shared.engine.set();
    let document = set.policy(&name).map_or(document, |in_force| in_force.policy.document());
    Ok(tagged(revision, document))
}

/// Deletes a stored policy.
#[utoipa::path(
    operation_id = "delete_policy", delete, path = "/v1/policies/{name}", tag = "configuration",
    params(("name" = String, Path, description = "the policy's name", example = "api"), ("if-match" = Option<String>, Header, description = "change only this version, \"0\" what is not stored", example = "\"7\"")),
    responses(
        (status = 204, description = "it is gone; a policy of the file or the built-in one of the same name is in force again"),
        Problems,
    )
)]
pub(super) async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let delete = Change::delete(POLICY, name.as_str()).when(precondition(&headers)?);
    let author = Author { actor: actor.name().to_owned(), at: clock::wall() };
    let edit = move |parts: &Parts| {
        let set = parts.of::<Policies>();
        let is_stored = set.documents().get(POLICY, &name).is_some();
        if !is_stored && set.policy(&name).is_some() {
            return Err(ChangeError::DeclaredInFile { kind: POLICY, name: name.clone() });
        }
        Ok(Some(delete.clone()))
    };
    shared.configuration.edit(author, edit).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists changes of the configuration, oldest first.
#[utoipa::path(
    get, path = "/v1/audit", tag = "configuration",
    params(
        ("after" = Option<u64>, Query, description = "only changes after this revision"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "at most so many, 100 if absent"),
    ),
    responses(
        (status = 200, description = "The changes.", body = Vec<AuditEntry>,
            example = json!([{"revision": 7, "at_ms": 1_790_000_000_000_u64, "actor": "admin", "action": "put", "kind": "policy", "name": "api", "before": null, "after": {"limit": 100}}])),
        Problems,
    )
)]
pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<AuditEntry>>, Refusal> {
    let query = query.unwrap_or_default();
    let after = Revision(parameter(&query, "after", 0)?);
    let limit = usize::try_from(parameter(&query, "limit", 100)?).unwrap_or(usize::MAX);
    if !(1..=tidegate_control::MAX_AUDIT_PAGE).contains(&limit) {
        return Err(number_refusal("limit", &limit.to_string()));
    }
    let control = shared.configuration.control();
    let rows = control.run(move |control| control.audit(after, limit)).await.map_err(ChangeError::from)?;
    let entries = rows.into_iter().map(|row| AuditEntry {
        revision: row.revision.0,
        at_ms: row.author.at.0 / 1_000_000,
        actor: row.author.actor,
        action: row.action,
        kind: row.kind,
        name: row.name,
        before: row.before.and_then(|body| serde_json::from_str(&body).ok()),
        after: row.after.and_then(|body| serde_json::from_str(&body).ok()),
    });
    Ok(Json(entries.collect()))
}

pub(super) fn parameter(query: &str, name: &str, default: u64) -> Result<u64, Refusal> {
    match form_urlencoded::parse(query.as_bytes()).find(|(other, _)| other == name) {
        Some((_, text)) => text.parse().map_err(|_| number_refusal(name, &text)),
        None => Ok(default),
    }
}

pub(super) fn number_refusal(name: &str, text: &str) -> Refusal {
    Refusal::Field {
        place: format!("/{name}"),
        problem: format!("is {text:?}"),
        accepted: "a whole number; limit from 1 to 1000",
    }
}

/// The document in a body, under the name that the path says.
pub(super) fn named(body: &[u8], name: &str) -> Result<Value, Refusal> {
    let UniqueJson(mut document) = read(body)?;
    if let Some(fields) = document.as_object_mut() {
        let stated = fields.entry("name").or_insert_with(|| Value::from(name));
        if stated != name {
            return Err(Refusal::Field {
                place: "/name".to_owned(),
                problem: format!("is {stated}, but the path says {name:?}"),
                accepted: "the name in the path, or none",
            });
        }
    }
    Ok(document)
}

/// Makes a change under the preconditions that the headers state.
pub(super) async fn change_document(
    shared: &Shared,
    actor: &Actor,
    change: Change,
    headers: &HeaderMap,
) -> Result<Revision, Refusal> {
    let change = change.when(precondition(headers)?);
    let author = Author { actor: actor.name().to_owned(), at: clock::wall() };
    let (kind, name) = (change.kind, change.name.clone());
    let changed = shared.configuration.change(change, author).await;
    Ok(changed.map_err(|error| as_sent(error, kind, &name, str::to_owned))?)
}

/// Lets mistakes point into what the client sent, which is this document or, by `sent`, became it. One in
/// another document, which does not go with this one, says in words where it is.
pub(super) fn as_sent(
    error: ChangeError,
    kind: Kind,
    name: &str,
    sent: impl Fn(&str) -> String,
) -> ChangeError {
    let ChangeError::Mistakes(mut mistakes) = error else { return error };
    let document = format!("/{kind}/{name}");
    for mistake in &mut mistakes {
        match mistake.pointer.strip_prefix(&document) {
            Some(within) if within.is_empty() || within.starts_with('/') => mistake.pointer = sent(within),
            _ => {
                mistake.problem = format!("{} {}", mistake.pointer, mistake.problem);
                mistake.pointer = String::new();
            }
        }
    }
    ChangeError::Mistakes(mistakes)
}

/// `If-Match: "7"`, `If-Match: "0"` (not stored), `If-None-Match: *`, or none of them.
pub(super) fn precondition(headers: &HeaderMap) -> Result<Precondition, Refusal> {
    let refusal = |place: &str, value: &http::HeaderValue| Refusal::Field {
        place: place.to_owned(),
        problem: format!("is {value:?}"),
        accepted: "one entity tag as it was given: if-match: \"7\"; or if-none-match: *",
    };
    if let Some(value) = headers.get(IF_MATCH) {
        let tag = value.to_str().ok().and_then(|text| text.trim().strip_prefix('"')?.strip_suffix('"'));
        return match tag.and_then(|tag| tag.parse().ok()) {
            Some(0) => Ok(Precondition::IfNoneMatch),
            Some(revision) => Ok(Precondition::IfMatch(Revision(revision))),
            None => Err(refusal("/if-match", value)),
        };
    }
    match headers.get(IF_NONE_MATCH) {
        Some(value) if value == "*" => Ok(Precondition::IfNoneMatch),
        Some(value) => Err(refusal("/if-none-match", value)),
        None => Ok(Precondition::None),
    }
}

/// A document with its entity tag.
pub(super) fn tagged<T>(revision: Revision, document: T) -> Tagged<T> {
    ([(ETAG, etag(revision))], Json(document))
}

fn etag(revision: Revision) -> String {
    format!("\"{revision}\"")
}

fn stored_at(in_force: &InForce) -> Revision {
    match in_force.origin {
        Origin::Stored(revision) => revision,
        Origin::BuiltIn | Origin::File => Revision(0),
    }
}
