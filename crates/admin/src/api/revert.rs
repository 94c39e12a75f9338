//! `/v1/revert`: what was in force at an earlier revision, again.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use serde::Serialize;
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::keys::KEY;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Action, Kind, Revert, Revision};
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
    /// Only if this is the newest revision: 412 if somebody has changed something since. As it is, if absent.
    if_newest: Option<u64>,
}

/// What went back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RevertedTo {
    /// The newest revision now.
    revision: u64,
    /// What was asked for.
    reverted_to: u64,
    /// Documents that were put or deleted for it; none, if everything was so already.
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
}

/// Puts what was stored at an earlier revision in force again: policies, clients' limits, routes, upstreams, the candidate,
/// and the edge's backends and places. All of it in one change, or nothing. API keys stay as they are, so that no revoked key
/// comes back, as do registrations and what the file declares.
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
    let mut reader = reader(&sent, &["revision", "if_newest"])?;
    let to = reader.number("revision", 0, u64::MAX);
    let expected = reader.number("if_newest", 0, u64::MAX).map(Revision);
    if to.is_none() && reader.field("revision").is_none() {
        reader.mistake("revision", "is missing", "a revision of GET /v1/audit, or 0");
    }
    let Some(to) = to.map(Revision).filter(|_| reader.mistakes.is_empty()) else {
        return Err(refused(reader));
    };
    let reverted = shared.configuration.revert(Revert { to, expected, stays: &STAYS }, author(&actor)).await;
    let reverted = reverted.map_err(refusal)?;
    let shown = |(kind, name, action)| RevertedDocument { kind, name, action };
    let revision = reverted.revision;
    let changes = reverted.changes.into_iter().map(shown).collect();
    Ok(tagged(revision, RevertedTo { revision: revision.0, reverted_to: to.0, changes }))
}
