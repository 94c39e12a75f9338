//! The simple API's configuration under `/api/v1`: two numbers for everyone or for one client.
//!
//! The decision service makes policies of the numbers. This file has their addresses and their shapes, which existing
//! clients fix.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde::Serialize;
use tidegate_access::guard::Actor;
use tidegate_access::json_body::JsonBytes;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_control::{Edit, Kind};
use tidegate_wire::bodies::{ConfigureBody, ConfigureClientBody, read};
use utoipa::ToSchema;

use super::Shared;
use super::changes;
use super::documents::{OVERRIDE, POLICY};
use super::query::client_id;

/// The policy that the simple API configures.
const DEFAULT_POLICY: &str = "default";

/// A client's numbers under the policy `default`.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ClientConfig {
    /// The client.
    client_id: String,
    /// Length of the window in seconds.
    window_seconds: u64,
    /// Requests per window.
    request_per_window: u64,
    /// Whether they are the client's own, or everyone's.
    custom: bool,
}

/// The reply to a change.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Changed {
    /// Always `ok`.
    #[schema(example = "ok")]
    status: &'static str,
    /// The configuration's revision after the change.
    revision: u64,
}

/// Sets the numbers of the policy `default`, which hold for everyone without their own.
#[utoipa::path(
    post, path = "/api/v1/configure", tag = "simple",
    request_body(content = ConfigureBody, example = json!({"window_seconds": 60, "request_per_window": 100})),
    responses(
        (status = 200, description = "They are stored and in force.", body = Changed,
            example = json!({"status": "ok", "revision": 7})),
        Problems,
    )
)]
pub(super) async fn configure(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Changed>, Refusal> {
    let numbers: ConfigureBody = read(&body)?;
    edit(&shared, &actor, (POLICY, DEFAULT_POLICY), shared.limits.configure(numbers)).await
}

/// Sets a client's own numbers under the policy `default`.
#[utoipa::path(
    post, path = "/api/v1/configure-client", tag = "simple",
    request_body(content = ConfigureClientBody<'_>, example = json!({"client_id": "vip_user", "window_seconds": 60, "request_per_window": 500})),
    responses(
        (status = 200, description = "They are stored and in force.", body = Changed,
            example = json!({"status": "ok", "revision": 8})),
        Problems,
    )
)]
pub(super) async fn configure_client(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Changed>, Refusal> {
    let ConfigureClientBody { client_id: client, window_seconds, request_per_window } = read(&body)?;
    let client = client_id(&client)?;
    let numbers = ConfigureBody { window_seconds, request_per_window };
    edit(&shared, &actor, (OVERRIDE, client), shared.limits.configure_client(client, numbers)).await
}

/// Reads a client's numbers under the policy `default`.
#[utoipa::path(
    operation_id = "get_client_config", get, path = "/api/v1/client-config/{client_id}", tag = "simple",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "the client", example = "user123")),
    responses(
        (status = 200, description = "Its own, or everyone's.", body = ClientConfig,
            example = json!({"client_id": "vip_user", "window_seconds": 60, "request_per_window": 500, "custom": true})),
        Problems,
    )
)]
pub(super) async fn client_config(
    State(shared): State<Arc<Shared>>,
    Path(client): Path<String>,
) -> Result<Json<ClientConfig>, Refusal> {
    let client = client_id(&client)?;
    let Some((numbers, custom)) = shared.limits.client_config(client) else {
        return Err(Refusal::not_found(format_args!("policy \"{DEFAULT_POLICY}\"")));
    };
    let ConfigureBody { window_seconds, request_per_window } = numbers;
    Ok(Json(ClientConfig { client_id: client.to_owned(), window_seconds, request_per_window, custom }))
}

/// Takes a client's own numbers under the policy `default` away.
#[utoipa::path(
    delete, path = "/api/v1/client-config/{client_id}", tag = "simple",
    params(("client_id" = String, Path, min_length = 1, max_length = 512, description = "the client", example = "user123")),
    responses(
        (status = 200, description = "It has everyone's numbers, now or already before.", body = Changed,
            example = json!({"status": "ok", "revision": 9})),
        Problems,
    )
)]
pub(super) async fn delete_client_config(
    State(shared): State<Arc<Shared>>,
    Extension(actor): Extension<Actor>,
    Path(client): Path<String>,
) -> Result<Json<Changed>, Refusal> {
    let client = client_id(&client)?;
    edit(&shared, &actor, (OVERRIDE, client), shared.limits.delete_client_config(client)).await
}

async fn edit(
    shared: &Shared,
    actor: &Actor,
    document: (Kind, &str),
    edit: Edit,
) -> Result<Json<Changed>, Refusal> {
    // The document was made here, of fields with other names.
    let sent = |pointer: &str| match pointer.rsplit('/').next() {
        Some("limit") => "/request_per_window".to_owned(),
        Some("window_seconds") => "/window_seconds".to_owned(),
        _ => String::new(),
    };
    let revision = changes::edit(&shared.configuration, actor, document, edit, sent).await?;
    Ok(Json(Changed { status: "ok", revision: revision.0 }))
}
