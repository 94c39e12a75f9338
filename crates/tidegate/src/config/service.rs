//! What a service brings to the configuration, as one value. `services.rs` lists those of this program.

use serde_json::{Value as Json, json};

use super::Config;
use super::checker::Checker;
use super::listener::ServiceListener;
use crate::serve::Standalone;

/// What a service brings to the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// What is its own in the file and no setting.
    pub tables: &'static [Table],
    /// Reads these tables into the configuration, whose settings are there already. A table with a mistake is left out.
    pub check: fn(&mut Checker<'_>, &mut Config),
    /// Its listeners, those too that are off.
    pub listeners: fn(&Config) -> Vec<ServiceListener<'_>>,
    /// What is not wrong but looks like a mistake.
    pub warnings: fn(&Config) -> Vec<String>,
    /// What serves it, if it asks nothing of the other services. Services that do ask others are wired in
    /// `serve/mod.rs`.
    pub serve: Option<MakeStandalone>,
}

/// Makes what serves a service.
pub type MakeStandalone = fn(&Config) -> Box<dyn Standalone>;

/// A table of the file, or a list of tables, that is no setting.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, as `route`, or the group of settings beside which it stands and its name: `gateway.listener`.
    pub path: &'static str,
    /// Its JSON schema.
    pub schema: fn() -> Json,
}

/// The JSON schema of a list of up to `most` tables with these keys. What each accepts is said by `tidegate check`, and
/// on the reference page.
pub(super) fn list_schema(keys: &[&str], most: usize, required: &[&str]) -> Json {
    let properties: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect();
    json!({
        "type": "array",
        "maxItems": most,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": required,
            "properties": properties,
        },
    })
}
