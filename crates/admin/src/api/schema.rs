//! Bodies that the OpenAPI document describes where the code reads or writes them without a type of
//! their own.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tidegate_algorithms::policy::{Algorithm, Mode, OnStoreFailure};
use utoipa::ToSchema;

/// The policies in force.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes documents::Listed in the OpenAPI document")]
pub(super) struct PolicyList {
    /// Revision of the stored configuration.
    revision: u64,
    /// In the order in which they are checked.
    policies: Vec<ListedPolicy>,
    /// The `after` of the next page, of a list in pages that has one.
    next: Option<String>,
}

/// One policy in a list.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes documents::DocumentInList in the OpenAPI document")]
pub(super) struct ListedPolicy {
    /// `built-in`, `file` or `stored`.
    origin: String,
    /// Its entity tag.
    etag: String,
    /// Its document.
    #[schema(value_type = Object)]
    policy: Value,
    /// Whether a request that spends has met this version of it at this node: since its last change, or since the
    /// process began.
    asked_since_change: bool,
}

/// Documents in force.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes documents::Listed in the OpenAPI document")]
pub(super) struct DocumentList {
    /// Revision of the stored configuration.
    revision: u64,
    /// The file's in its order, then the stored ones by name.
    documents: Vec<ListedDocument>,
    /// The `after` of the next page, of a list in pages that has one.
    next: Option<String>,
}

/// One document in a list.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes documents::DocumentInList in the OpenAPI document")]
pub(super) struct ListedDocument {
    /// `file` or `stored`.
    origin: String,
    /// Its entity tag.
    etag: String,
    /// The document.
    #[schema(value_type = Object)]
    document: Value,
}

/// A policy as it is put; the bounds are those of `docs/algorithms.md`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes algorithms::policy::parse in the OpenAPI document")]
pub(super) struct PolicyDocument {
    /// The name in the path, or absent.
    name: Option<String>,
    /// Attribute to pattern.
    r#match: Option<BTreeMap<String, PatternSchema>>,
    /// Attributes that name a counter; `["client_id"]` if absent.
    key: Option<Vec<String>>,
    /// `sliding_log` if absent.
    #[schema(value_type = Option<String>)]
    algorithm: Option<Algorithm>,
    /// Units per window or period, or permits at once. 0 denies everything.
    #[schema(maximum = 1_000_000_000)]
    limit: u64,
    /// Length of the window in seconds.
    #[schema(minimum = 1, maximum = 7_776_000)]
    window_seconds: Option<u64>,
    /// Units at once, buckets only.
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    burst: Option<u64>,
    /// Lease of a permit in seconds, concurrency only.
    #[schema(minimum = 1, maximum = 86_400)]
    lease_seconds: Option<u64>,
    /// `day` or `month`, calendar only.
    period: Option<String>,
    /// IANA time zone, calendar only.
    time_zone: Option<String>,
    /// Numbers of tiers that differ, by the value of the attribute `tier`.
    #[schema(value_type = Option<Object>)]
    tiers: Option<BTreeMap<String, Value>>,
    /// Policies that are left out of every request to which this one applies.
    replaces: Option<Vec<String>>,
    /// `enforce` if absent, or `shadow`.
    #[schema(value_type = Option<String>)]
    mode: Option<Mode>,
    /// `local` if absent, `open` or `closed`.
    #[schema(value_type = Option<String>)]
    on_store_failure: Option<OnStoreFailure>,
}

/// Says which fields of a [`PolicyDocument`] are demanded by its algorithm: a window by all but two.
pub(super) fn require_by_algorithm(policy: &mut Value) {
    let algorithm =
        |name: &str| json!({"properties": {"algorithm": {"const": name}}, "required": ["algorithm"]});
    policy["if"] = algorithm("calendar");
    policy["then"] = json!({"required": ["period", "time_zone"]});
    policy["else"] = json!({"if": algorithm("concurrency"), "else": {"required": ["window_seconds"]}});
}

/// The values of an attribute that match.
#[derive(ToSchema)]
#[schema(as = Pattern)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes algorithms::policy::parse in the OpenAPI document")]
pub(super) enum PatternSchema {
    /// Exactly this, what begins like `prefix*`, or with `*` anything.
    One(String),
    /// Any of up to 64.
    AnyOf(Vec<String>),
    /// With `like`, something for each `*`, wherever it stands. With `not`, anything but these.
    Like {
        /// The text with its `*`.
        like: Option<String>,
        /// Up to 256 texts, or texts with their `*`.
        not: Option<Vec<NotSchema>>,
    },
}

/// The values of an attribute that do not match.
#[derive(ToSchema)]
#[schema(as = PatternToAvoid)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes algorithms::policy::parse in the OpenAPI document")]
pub(super) enum NotSchema {
    /// Exactly this.
    One(String),
    /// A text with something for each `*`.
    Like {
        /// The text with its `*`.
        like: String,
    },
}

/// A client's own numbers, by policy name.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes algorithms::policy::parse_quota in the OpenAPI document")]
pub(super) struct ClientLimits(BTreeMap<String, Map<String, Value>>);
