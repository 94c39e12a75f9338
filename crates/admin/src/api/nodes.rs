//! `GET /v1/nodes`: the nodes that share the configuration, by name.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use tidegate_access::schema::Problems;
use tidegate_control::{KnownNode, NodeList};

use super::Shared;

/// The nodes that share the configuration's database, by name: those that are there, and those that are gone for less than a day.
/// A node alone with its data directory is listed alone.
///
/// `number` tells nodes of one name apart, and is drawn anew at each start; `same_name` says that another node that is there has
/// the name, too. `last_seen_unix_ms` is by the database's clock. `api` is missing where the admin API listens on all addresses of
/// its machine. A node of an earlier version has a number alone. While the database does not answer, `current` is false: the list
/// is as it was when it last did.
#[utoipa::path(
    operation_id = "list_nodes", get, path = "/v1/nodes", tag = "operation",
    responses(
        (status = 200, description = "Those that are there before those that are gone.", body = Object,
            example = json!({"shared": true, "current": true, "nodes": [
                {"number": 1_183_462_111, "name": "tidegate-0", "version": "0.1.0", "started_unix_ms": 1_790_000_000_000_u64, "api": "http://10.0.0.7:4000", "self": true, "present": true, "last_seen_unix_ms": 1_790_000_300_000_u64, "same_name": false},
                {"number": 204_867_530, "name": "tidegate-1", "version": "0.1.0", "started_unix_ms": 1_790_000_001_000_u64, "api": "http://10.0.0.8:4000", "self": false, "present": false, "last_seen_unix_ms": 1_790_000_200_000_u64, "same_name": false}
            ]})),
        Problems,
    )
)]
pub(super) async fn nodes(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let control = shared.configuration.control();
    let (NodeList { nodes, is_current }, own) = (control.nodes(), control.node());
    let nodes: Vec<Value> = nodes.iter().map(|node| shown(node, own)).collect();
    Json(json!({ "shared": control.is_shared(), "current": is_current, "nodes": nodes }))
}

fn shown(node: &KnownNode, own: u32) -> Value {
    let mut shown = json!({
        "number": node.number,
        "self": node.number == own,
        "present": node.is_present,
        "same_name": node.shares_name,
    });
    if let Some(identity) = &node.identity {
        shown["name"] = identity.name.as_str().into();
        shown["version"] = identity.version.as_str().into();
        shown["started_unix_ms"] = identity.started_unix_ms.into();
        if let Some(api) = &identity.api {
            shown["api"] = api.as_str().into();
        }
    }
    if let Some(seen) = node.last_seen_unix_ms {
        shown["last_seen_unix_ms"] = seen.into();
    }
    shown
}
