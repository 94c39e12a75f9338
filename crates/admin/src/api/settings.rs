//! `/v1/settings`: the settings that the process started with, and where each came from.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tidegate_access::schema::Problems;
use utoipa::ToSchema;

use super::Shared;

/// A setting as the process started with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ShownSetting {
    /// Its place in the file.
    pub path: String,
    /// Its value in words; of a secret, whether there is one.
    pub value: String,
    /// The layer that it came from, with the place in it.
    pub origin: String,
}

/// The settings, in the order of the documentation.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SettingList {
    #[schema(value_type = Vec<ShownSetting>)]
    settings: Arc<[ShownSetting]>,
}

/// Lists the settings that the process started with, and where each came from.
#[utoipa::path(
    operation_id = "list_settings", get, path = "/v1/settings", tag = "configuration",
    responses(
        (status = 200, description = "All of them; secrets are not shown.", body = SettingList,
            example = json!({"settings": [{"path": "http.listen", "value": "127.0.0.1:4000", "origin": "default"}]})),
        Problems,
    )
)]
pub(super) async fn settings(State(shared): State<Arc<Shared>>) -> Json<SettingList> {
    Json(SettingList { settings: shared.explainers.settings.clone() })
}
