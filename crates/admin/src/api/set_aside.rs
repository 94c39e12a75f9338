//! `/v1/set-aside`: what is configured and not in force, and why.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tidegate_access::schema::Problems;
use tidegate_control::Kind;
use utoipa::ToSchema;

use super::Shared;

/// What is configured and not in force.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NotInForce {
    /// Revision of the stored configuration.
    revision: u64,
    /// Documents that are not in force, or not as a whole. To mend one, put it again or delete it.
    set_aside: Vec<SetAsideDocument>,
    /// Stored documents that are in force and are not what was put: something else has altered the
    /// database. To mend one, put it again.
    altered: Vec<AlteredDocument>,
    /// Policies of the file that stored ones of the same name hide. Deleting the stored one puts the
    /// file's in force.
    hidden: Vec<HiddenPolicy>,
}

/// A document that is not in force, or not as a whole.
#[derive(Debug, Serialize, ToSchema)]
struct SetAsideDocument {
    /// What it describes: `policy`, `override`, `route` or `upstream`.
    #[schema(value_type = String)]
    kind: Kind,
    /// Its name.
    name: String,
    /// The revision that wrote it, if it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    /// What is wrong with it. Parts that are not named here are in force.
    mistakes: Vec<String>,
}

/// A stored document that is not what was put.
#[derive(Debug, Serialize, ToSchema)]
struct AlteredDocument {
    /// What it describes: `policy`, `override`, `route` or `upstream`.
    #[schema(value_type = String)]
    kind: Kind,
    /// Its name.
    name: String,
    /// The revision that wrote it.
    revision: u64,
    /// What was put then, as far as the audit log knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<String>,
}

/// A policy of the file that has no effect.
#[derive(Debug, Serialize, ToSchema)]
struct HiddenPolicy {
    /// Its name.
    name: String,
    /// The revision that wrote the stored one.
    stored_revision: u64,
}

/// Lists what is configured and not in force.
#[utoipa::path(
    get, path = "/v1/set-aside", tag = "configuration",
    responses(
        (status = 200, description = "All of it, and why.", body = NotInForce,
            example = json!({"revision": 7, "set_aside": [], "altered": [], "hidden": [{"name": "api", "stored_revision": 7}]})),
        Problems,
    )
)]
pub(super) async fn set_aside(State(shared): State<Arc<Shared>>) -> Json<NotInForce> {
    let parts = shared.configuration.parts();
    let set_aside = parts.set_aside().into_iter().map(|document| SetAsideDocument {
        kind: document.kind,
        name: document.name,
        revision: document.revision.map(|revision| revision.0),
        mistakes: document.mistakes.iter().map(ToString::to_string).collect(),
    });
    let altered = shared.configuration.control().altered().into_iter().map(|document| AlteredDocument {
        kind: document.kind,
        name: document.name.to_string(),
        revision: document.revision.0,
        recorded: document.recorded,
    });
    let hidden = shared.limits.hidden_policies().into_iter();
    let hidden = hidden
        .map(|(policy, revision)| HiddenPolicy { name: policy.to_string(), stored_revision: revision.0 });
    Json(NotInForce {
        revision: parts.documents().revision().0,
        set_aside: set_aside.collect(),
        altered: altered.collect(),
        hidden: hidden.collect(),
    })
}
