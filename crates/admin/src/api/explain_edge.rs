//! `GET /v1/explain/edge?client_ip=...` and `GET /v1/edge/decisions`: where would a connection go, where did the last
//! ones go, and why?

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;

use super::Shared;
use super::explain::answer;

/// Says which backend of the edge a connection would get, every backend's score, and why the others would not get
/// it. Connects to nothing.
#[utoipa::path(
    get, path = "/v1/explain/edge", tag = "edge",
    params(
        ("client_ip" = Option<String>, Query, description = "the client's address; 127.0.0.1 if absent", example = "127.1.0.1"),
        ("listener" = Option<String>, Query, description = "the listener's address; the first one's if absent", example = "127.0.0.1:8080"),
        ("server_name" = Option<String>, Query, description = "the server name that TLS would ask for", example = "shop.example"),
    ),
    responses(
        (status = 200, description = "What would happen.", body = Object,
            example = json!({"client": "127.1.0.1", "country": "BR", "region": "sa", "known_by": "network", "app": "default", "backends": [{"backend": "rio", "tier": "country", "tier_by": "place", "score": 0.0, "connections": 0, "hard_limit": 150, "round_trip_ms": 31.4}], "next": "rio", "why": "it has the lowest score"})),
        Problems,
    )
)]
pub(super) async fn explain_edge(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    answer(shared.explainers.edge.as_ref(), "edge in this process", query).await
}

/// The last 1,000 connections of the edge, the newest first: where each went, or why nowhere.
#[utoipa::path(
    get, path = "/v1/edge/decisions", tag = "edge",
    responses(
        (status = 200, description = "The last placements.", body = Object,
            example = json!({"decisions": [{"at_unix_ms": 1, "listener": "127.0.0.1:8080", "app": "default", "client": "127.1.0.1", "country": "BR", "region": "sa", "known_by": "network", "attempts": 1, "backend": "rio", "tier": "country", "tier_by": "place", "score": 0.0, "affine": false}]})),
        Problems,
    )
)]
pub(super) async fn edge_decisions(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    answer(shared.explainers.edge_decisions.as_ref(), "edge in this process", query).await
}
