//! `/v1/revert`: puts the documents of an earlier revision in force again.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::keys::KEY;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Action, Kind, PreviewedChange, Revert, Revision};
use tidegate_wire::bodies::{UniqueJson, read};
use utoipa::ToSchema;

use super::Shared;
use super::changes::{Tagged, author, refusal, tagged};
use super::keys::{reader, refused};

/// Kinds that stay as they are: a revoked key must not come back, and one that was issued since must not vanish; a backend that
/// registers says itself whether it is there.
const STAYS: [Kind; 2] = [KEY, Kind::new("edge_registration")];

/// What is wanted.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what `revert` reads in the OpenAPI document")]
pub(super) struct RevertRequest {
    /// What was stored at this revision is in force again.
    revision: u64,
    /// Only if this is the newest revision: 412 if something has changed since. Not checked if absent.
    if_newest: Option<u64>,
    /// Whether only to say what would change, with each document as it is and as it would be. Nothing is changed then.
    preview: Option<bool>,
}

/// What went back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RevertedTo {
    /// The newest revision now.
    revision: u64,
    /// What was asked for.
    reverted_to: u64,
    /// Whether it is only what would change: the revision is what `if_newest` has to be for just this to be done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    preview: bool,
    /// Documents that were put or deleted for it; empty if there was nothing to change.
    changes: Vec<RevertedDocument>,
}

/// A document that went back.
#[derive(Debug, Serialize, ToSchema)]
struct RevertedDocument {
    /// What it describes: `policy`, `override`, `route`, `upstream`, `candidate`, `edge_backend`, `edge_place`.
    #[schema(value_type = String)]
    kind: Kind,
    /// Its name.
    #[schema(value_type = String)]
    name: Arc<str>,
    /// `put` or `delete`.
    #[schema(value_type = String)]
    action: Action,
    /// The document as it is and as it would be, in a preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<DocumentDifference>,
}

/// A document as it is and as it would be.
#[derive(Debug, Serialize, ToSchema)]
struct DocumentDifference {
    /// As it is, `null` if there is none.
    #[schema(value_type = Option<Object>, required = true)]
    before: Option<Value>,
    /// As it would be, `null` if it would be deleted.
    #[schema(value_type = Option<Object>, required = true)]
    after: Option<Value>,
}

/// Puts what was stored at an earlier revision in force again: policies, clients' limits, routes, upstreams, the candidate,
/// and the edge's backends and places. All of it is one change, or nothing changes. API keys, registrations and the file's
/// documents stay as they are, so that no revoked key comes back.
#[utoipa::path(
    operation_id = "revert", post, path = "/v1/revert", tag = "configuration",
    request_body(content = RevertRequest, example = json!({"revision": 7, "if_newest": 9})),
    responses(
        (status = 200, description = "It is in force at this node, at the others within a second. Each document that went back has an entry in the audit log.", body = RevertedTo,
            example = json!({"revision": 11, "reverted_to": 7, "changes": [{"kind": "route", "name": "new", "action": "delete"}, {"kind": "policy", "name": "api", "action": "put"}]})),
        Problems,
    )
)]
pub(super) async fn revert(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<RevertedTo>, Refusal> {
    let UniqueJson(sent) = read(&body)?;
    let mut reader = reader(&sent, &["revision", "if_newest", "preview"])?;
    let to = reader.number("revision", 0, u64::MAX);
    let expected = reader.number("if_newest", 0, u64::MAX).map(Revision);
    let is_preview = reader.flag("preview").unwrap_or(false);
    if to.is_none() && reader.field("revision").is_none() {
        reader.mistake("revision", "is missing", "a revision of GET /v1/audit, or 0");
    }
    let Some(to) = to.map(Revision).filter(|_| reader.mistakes.is_empty()) else {
        return Err(refused(reader));
    };
    let wanted = Revert { to, expected, stays: &STAYS };
    let (revision, changes) = if is_preview {
        let previewed = shared.configuration.preview(wanted).await.map_err(refusal)?;
        (previewed.revision, previewed.changes.into_iter().map(would_go_back).collect())
    } else {
        let reverted = shared.configuration.revert(wanted, author(&actor)).await.map_err(refusal)?;
        let shown = |(kind, name, action)| RevertedDocument { kind, name, action, difference: None };
        (reverted.revision, reverted.changes.into_iter().map(shown).collect())
    };
    Ok(tagged(revision, RevertedTo { revision: revision.0, reverted_to: to.0, preview: is_preview, changes }))
}

fn would_go_back(change: PreviewedChange) -> RevertedDocument {
    let PreviewedChange { kind, name, now, then } = change;
    let action = if then.is_some() { Action::Put } else { Action::Delete };
    let value = |body: Option<Arc<str>>| body.and_then(|body| serde_json::from_str(&body).ok());
    let difference = Some(DocumentDifference { before: value(now), after: value(then) });
    RevertedDocument { kind, name, action, difference }
}
