//! `/v1/audit`: the audit log, with the author, time, origin, old and new document of each change.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use serde::Serialize;
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Action, Kind, MAX_AUDIT_PAGE, Revision};
use utoipa::ToSchema;

use super::Shared;
use super::changes::refusal;
use super::query;

/// One change in the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditEntry {
    /// The revision it made.
    revision: u64,
    /// When, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// The author.
    actor: String,
    /// From where: the address at the other end of the connection; of a change of the file, the name of the machine. `null` where
    /// nobody asked, as when a backend's heartbeats end, and for changes that an earlier version made.
    #[schema(value_type = Option<String>, required = true)]
    from: Option<Arc<str>>,
    /// `put` or `delete`.
    #[schema(value_type = String)]
    action: Action,
    /// What it describes: `policy`, `override`, `route`, `upstream`; `usage` is a client's counters.
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

/// Lists changes of the configuration, oldest first.
#[utoipa::path(
    get, path = "/v1/audit", tag = "configuration",
    params(
        ("after" = Option<u64>, Query, description = "only changes after this revision"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000, description = "at most so many, 100 if absent"),
    ),
    responses(
        (status = 200, description = "The changes.", body = Vec<AuditEntry>,
            example = json!([{"revision": 7, "at_ms": 1_790_000_000_000_u64, "actor": "admin", "from": "192.0.2.7", "action": "put", "kind": "policy", "name": "api", "before": null, "after": {"limit": 100}}])),
        Problems,
    )
)]
pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Vec<AuditEntry>>, Refusal> {
    let query = query.unwrap_or_default();
    let after = Revision(query::number(&query, "after", 0)?);
    let limit = query::page(&query, MAX_AUDIT_PAGE)?;
    let control = shared.configuration.control();
    let rows = control.run(move |control| control.audit(after, limit)).await;
    let entries = rows.map_err(|error| refusal(error.into()))?.into_iter().map(|row| AuditEntry {
        revision: row.revision.0,
        at_ms: row.author.at.0 / 1_000_000,
        actor: row.author.actor,
        from: row.author.from,
        action: row.action,
        kind: row.kind,
        name: row.name,
        before: row.before.and_then(|body| serde_json::from_str(&body).ok()),
        after: row.after.and_then(|body| serde_json::from_str(&body).ok()),
    });
    Ok(Json(entries.collect()))
}
