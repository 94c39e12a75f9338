//! `/v1/keys`: API keys, issued, listed, rotated, moved between tiers and revoked.
//!
//! The text of a key is in the reply that issues or rotates it and nowhere else; no cache may keep that reply. The
//! document has a digest only ([`tidegate_access::keys`]). Revoking deletes: the key is unknown from then on, at all
//! nodes within a second, and the audit log says who did it.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::{CACHE_CONTROL, ETAG};
use http::{HeaderMap, StatusCode};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use serde_json::Value;
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::keys::{
    ApiKey, CHANCE_BYTES, KEY, KeyDocument, KeyText, MAX_LIFETIME_SECONDS, Secret, read_consumer,
    read_routes, read_scopes, read_tier, shown_time,
};
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_algorithms::document::DocumentReader;
use tidegate_algorithms::policy::TIER;
use tidegate_algorithms::time::{SECOND, Wall};
use tidegate_control::{Change, ChangeError, Edit, Error, Precondition};
use tidegate_net::clock::wall;
use tidegate_wire::bodies::{UniqueJson, read as read_body};
use tidegate_wire::problem::Problem;
use utoipa::ToSchema;

use super::Shared;
use super::changes::{edit, etag, field_error, precondition};
use super::key_targets::{OPENED, expect_routes, expect_tier};
use super::query;

/// The field of a key's scopes.
const SCOPES: &str = "scopes";

/// Most keys in one page.
const MAX_PAGE: usize = 1_000;

/// How long a rotated key's old secret is good, unless the request says something else.
const OVERLAP_SECONDS: u64 = 86_400;

/// A key.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ShownKey {
    /// Its id, which is not secret: the attribute `api_key`.
    id: String,
    /// How it begins.
    masked: String,
    /// Who uses it.
    consumer: String,
    /// Its tier; absent: the general numbers of policies hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    /// The routes that it opens; absent: all that ask for keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<Vec<String>>,
    /// Its scopes; absent: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    scopes: Vec<String>,
    /// When it was issued.
    created: String,
    /// When it ends; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// Until when the secret before the last rotation is good, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    old_secret_until: Option<String>,
    /// When a node was last asked with it: this one, or another, as far as it was written, which is every five seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<String>,
    /// The version, for `if-match`.
    etag: String,
}

/// A key and its text, which nobody can learn later.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IssuedKey {
    /// The whole text, for the key's owner.
    key: String,
    /// The same as lists show it.
    #[serde(flatten)]
    shown: ShownKey,
}

/// What a key is issued with.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what `issue` reads in the OpenAPI document")]
pub(super) struct KeyRequest {
    /// Who uses it: 1 to 128 printable ASCII characters.
    consumer: String,
    /// The tier, which some policy must have numbers for.
    tier: Option<String>,
    /// The routes that it opens, at most 100; all that ask for keys if absent.
    routes: Option<Vec<String>>,
    /// Its scopes, at most 100, which routes ask for by `key_scope`.
    scopes: Option<Vec<String>>,
    /// How long it lasts; for ever if absent.
    #[schema(minimum = 1, maximum = 315_360_000)]
    lifetime_seconds: Option<u64>,
}

/// What a key is changed to: what is absent stays as it is.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what `change` reads in the OpenAPI document")]
pub(super) struct KeyChange {
    /// The tier, which some policy must have numbers for; `null`: none.
    tier: Option<String>,
    /// The routes that it opens, at most 100; `null`: all that ask for keys.
    routes: Option<Vec<String>>,
    /// Its scopes, at most 100; `null`: none.
    scopes: Option<Vec<String>>,
}

impl ShownKey {
    fn of(key: &ApiKey) -> Self {
        let document = key.document();
        Self {
            id: key.id().to_owned(),
            masked: KeyText::masked(key.id()),
            consumer: key.consumer().to_owned(),
            tier: key.tier().map(str::to_owned),
            routes: document.routes.as_deref().map(texts),
            scopes: texts(&document.scopes),
            created: shown_time(document.created),
            expires: document.expires.map(shown_time),
            old_secret_until: document.secrets.iter().find_map(|secret| secret.until).map(shown_time),
            last_used: key.last_used().map(shown_time),
            etag: etag(key.revision()),
        }
    }
}

/// Lists API keys.
#[utoipa::path(
    operation_id = "list_keys", get, path = "/v1/keys", tag = "keys",
    params(
        ("after" = Option<String>, Query, description = "the last id of the page before", example = "mzxw6ytboimzxw6y"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1_000, description = "at most so many, 100 if absent", example = 100),
    ),
    responses(
        (status = 200, description = "In the order of their ids, without their secrets.", body = Vec<ShownKey>,
            example = json!([{"id": "mzxw6ytboimzxw6y", "masked": "tgk_mzxw6ytboimzxw6y_...", "consumer": "acme", "tier": "pro",
                "created": "2026-11-23T08:00:00Z", "etag": "\"7\""}])),
        Problems,
    )
)]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<ShownKey>>, Refusal> {
    let query = query.unwrap_or_default();
    let after = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "after");
    let after = after.map_or_else(String::new, |(_, text)| text.into_owned());
    let limit = query::page(&query, MAX_PAGE)?;
    Ok(Json(shared.keys.after(&after, limit).iter().map(|key| ShownKey::of(key)).collect()))
}

/// Issues a key.
#[utoipa::path(
    operation_id = "issue_key", post, path = "/v1/keys", tag = "keys",
    request_body(content = KeyRequest, example = json!({"consumer": "acme", "tier": "pro"})),
    responses(
        (status = 201, description = "It is stored and in force. Its text is in this reply and nowhere else.", body = IssuedKey,
            headers(("etag" = String, description = "the version, for if-match")),
            example = json!({"key": "tgk_mzxw6ytboimzxw6y_...", "id": "mzxw6ytboimzxw6y", "masked": "tgk_mzxw6ytboimzxw6y_...",
                "consumer": "acme", "tier": "pro", "created": "2026-11-23T08:00:00Z", "etag": "\"7\""})),
        Problems,
    )
)]
pub(super) async fn issue(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Refusal> {
    let UniqueJson(sent) = read_body(&body)?;
    let created = wall();
    let mut reader = reader(&sent, &["consumer", TIER, OPENED, SCOPES, "lifetime_seconds"])?;
    let consumer = read_consumer(&mut reader);
    let tier = read_tier(&mut reader);
    let (routes, scopes) = (read_routes(&mut reader), read_scopes(&mut reader));
    let lifetime = reader.number("lifetime_seconds", 1, MAX_LIFETIME_SECONDS);
    let Some(consumer) = consumer.filter(|_| reader.mistakes.is_empty()) else { return Err(refused(reader)) };
    expect_tier(&shared.configuration.parts(), tier.as_deref())?;
    expect_routes(&shared.configuration.parts(), routes.as_deref())?;
    let text = KeyText::new(&chance()?);
    let secrets = vec![Secret { digest: shared.keys.digest(text.expose().as_bytes()), until: None }];
    let expires = lifetime.map(|seconds| after(created, seconds));
    let document = KeyDocument { consumer, tier, routes, scopes, secrets, created, expires };
    let put = Change::put(KEY, text.name(), document.write(text.name()).to_string());
    let put = put.when(Precondition::IfNoneMatch);
    let stored: Edit = Box::new(move |_| Ok(Some(put.clone())));
    edit(&shared.configuration, &actor, (KEY, text.name()), stored, str::to_owned).await?;
    issued(&shared, &text, StatusCode::CREATED)
}

/// Reads a key.
#[utoipa::path(
    operation_id = "get_key", get, path = "/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "the key's id", example = "mzxw6ytboimzxw6y")),
    responses(
        (status = 200, description = "The key, without its secret.", body = ShownKey, headers(("etag" = String, description = "the version, for if-match"))),
        Problems,
    )
)]
pub(super) async fn read(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    shown(&shared, &id)
}

/// Moves a key to another tier, or to none, or changes its routes or scopes. What it has used stays used.
#[utoipa::path(
    operation_id = "change_key", patch, path = "/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "the key's id", example = "mzxw6ytboimzxw6y"), ("if-match" = Option<String>, Header, description = "change only this version", example = "\"7\"")),
    request_body(content = KeyChange, example = json!({"tier": "enterprise", "routes": ["orders"], "scopes": ["read"]})),
    responses(
        (status = 200, description = "It is stored and in force.", body = ShownKey, headers(("etag" = String, description = "the version, for if-match"))),
        Problems,
    )
)]
pub(super) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(id): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Refusal> {
    let UniqueJson(sent) = read_body(&body)?;
    let mut reader = reader(&sent, &[TIER, OPENED, SCOPES])?;
    let is_null = |field: &str| sent.get(field) == Some(&Value::Null);
    let tier = if is_null(TIER) { None } else { read_tier(&mut reader) };
    let routes = if is_null(OPENED) { None } else { read_routes(&mut reader) };
    let scopes = if is_null(SCOPES) { Vec::new() } else { read_scopes(&mut reader) };
    let [says_tier, says_routes, says_scopes] =
        [TIER, OPENED, SCOPES].map(|field| reader.field(field).is_some());
    if !(says_tier || says_routes || says_scopes) {
        reader.mistake(TIER, "is missing", "the name of a tier, or null for none; or routes, or scopes");
    }
    if !reader.mistakes.is_empty() {
        return Err(refused(reader));
    }
    expect_tier(&shared.configuration.parts(), tier.as_deref())?;
    expect_routes(&shared.configuration.parts(), routes.as_deref())?;
    replace(&shared, &actor, &headers, &id, move |before| KeyDocument {
        tier: if says_tier { tier.clone() } else { before.tier },
        routes: if says_routes { routes.clone() } else { before.routes },
        scopes: if says_scopes { scopes.clone() } else { before.scopes },
        ..before
    })
    .await?;
    shown(&shared, &id)
}

/// Gives a key another secret. The old secret is good for a while longer.
#[utoipa::path(
    operation_id = "rotate_key", post, path = "/v1/keys/{id}/rotation", tag = "keys",
    params(("id" = String, Path, description = "the key's id", example = "mzxw6ytboimzxw6y"), ("if-match" = Option<String>, Header, description = "change only this version", example = "\"7\"")),
    request_body(content = Object, description = "`overlap_seconds`: how long the secret before is good; a day if absent, 0: it ends at once.",
        example = json!({"overlap_seconds": 3_600})),
    responses(
        (status = 200, description = "It is stored and in force. The new text is in this reply and nowhere else.", body = IssuedKey,
            headers(("etag" = String, description = "the version, for if-match"))),
        Problems,
    )
)]
pub(super) async fn rotate(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(id): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Refusal> {
    let UniqueJson(sent) = read_body(&body)?;
    let mut reader = reader(&sent, &["overlap_seconds"])?;
    let overlap = reader.number("overlap_seconds", 0, MAX_LIFETIME_SECONDS).unwrap_or(OVERLAP_SECONDS);
    if !reader.mistakes.is_empty() {
        return Err(refused(reader));
    }
    let text = KeyText::again(&id, &chance()?);
    let (now, digest) = (wall(), shared.keys.digest(text.expose().as_bytes()));
    let until = after(now, overlap);
    replace(&shared, &actor, &headers, &id, move |before| before.rotated(digest, now, until)).await?;
    issued(&shared, &text, StatusCode::OK)
}

/// Revokes a key.
#[utoipa::path(
    operation_id = "revoke_key", delete, path = "/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "the key's id", example = "mzxw6ytboimzxw6y"), ("if-match" = Option<String>, Header, description = "only this version", example = "\"7\"")),
    responses(
        (status = 204, description = "No node that is in touch with the configuration takes it a second later."),
        Problems,
    )
)]
pub(super) async fn revoke(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let delete = Change::delete(KEY, id.as_str()).when(precondition(&headers)?);
    let deletion: Edit = Box::new(move |_| Ok(Some(delete.clone())));
    edit(&shared.configuration, &actor, (KEY, &id), deletion, str::to_owned).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Stores what `next` makes of a key's document.
async fn replace(
    shared: &Shared,
    actor: &Actor,
    headers: &HeaderMap,
    id: &str,
    next: impl Fn(KeyDocument) -> KeyDocument + Send + 'static,
) -> Result<(), Refusal> {
    let (condition, name) = (precondition(headers)?, id.to_owned());
    let changed: Edit = Box::new(move |parts| {
        let stored = parts.document(KEY, &name);
        let before = stored.and_then(|document| KeyDocument::read(&document, "").ok());
        let missing = || ChangeError::from(Error::NotFound { kind: KEY, name: name.clone() });
        let document = next(before.ok_or_else(missing)?).write(&name);
        Ok(Some(Change::put(KEY, name.as_str(), document.to_string()).when(condition)))
    });
    edit(&shared.configuration, actor, (KEY, id), changed, str::to_owned).await.map(drop)
}

fn texts(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

pub(super) fn reader<'a>(sent: &'a Value, keys: &[&str]) -> Result<DocumentReader<'a>, Refusal> {
    let wrong = |mistakes: Vec<_>| {
        Refusal::fields("a field is wrong", mistakes.into_iter().map(field_error).collect())
    };
    DocumentReader::new(sent, "", keys).map_err(wrong)
}

pub(super) fn refused(reader: DocumentReader<'_>) -> Refusal {
    Refusal::fields("a field is wrong", reader.mistakes.into_iter().map(field_error).collect())
}

fn after(now: Wall, seconds: u64) -> Wall {
    Wall(now.0.saturating_add(seconds.saturating_mul(SECOND)))
}

fn chance() -> Result<[u8; CHANCE_BYTES], Refusal> {
    let mut bytes = [0; CHANCE_BYTES];
    if getrandom(&mut bytes, GetRandomFlags::empty()) == Ok(CHANCE_BYTES) {
        return Ok(bytes);
    }
    let detail = "the system has no random numbers; try again";
    Err(Refusal(Problem::new(503, "Service Unavailable", detail)))
}

/// A key that was just changed; another request may have revoked it since.
fn in_force(shared: &Shared, id: &str) -> Result<ShownKey, Refusal> {
    let key = shared.keys.get(id).ok_or_else(|| Refusal::not_found(format_args!("key {id:?}")))?;
    Ok(ShownKey::of(&key))
}

fn shown(shared: &Shared, id: &str) -> Result<Response, Refusal> {
    let shown = in_force(shared, id)?;
    Ok(([(ETAG, shown.etag.clone())], Json(shown)).into_response())
}

fn issued(shared: &Shared, text: &KeyText, status: StatusCode) -> Result<Response, Refusal> {
    let shown = in_force(shared, text.name())?;
    let fields = [(ETAG, shown.etag.clone()), (CACHE_CONTROL, "no-store".to_owned())];
    Ok((status, fields, Json(IssuedKey { key: text.expose().to_owned(), shown })).into_response())
}
