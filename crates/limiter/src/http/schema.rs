//! Bodies that the OpenAPI document describes where the code reads or writes them without a type of
//! their own.

use std::collections::BTreeMap;

use tidegate_algorithms::policy::{Algorithm, Mode, OnStoreFailure};
use utoipa::ToSchema;

/// A problem document (RFC 9457).
#[derive(ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "it describes wire::problem::Problem in the OpenAPI document")]
pub(super) struct ProblemSchema {
    /// Its kind, a URI.
    r#type: String,
    /// The kind's or the status's title.
    title: String,
    /// The HTTP status.
    status: u16,
    /// One sentence on this occurrence.
    detail: String,
    /// Mistakes in what was sent.
    errors: Option<Vec<FieldErrorSchema>>,
    /// Names of the policies that denied.
    #[schema(rename = "violated-policies")]
    violated_policies: Option<Vec<String>>,
}

/// One mistake.
#[derive(ToSchema)]
#[schema(as = FieldError)]
#[expect(dead_code, reason = "it describes wire::problem::FieldError in the OpenAPI document")]
pub(super) struct FieldErrorSchema {
    /// Where, as a JSON pointer.
    pointer: String,
    /// What is wrong.
    detail: String,
    /// What would be right.
    accepted: Option<String>,
}

/// A policy as it is put; the bounds are those of `docs/algorithms.md`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes algorithms::policy::parse in the OpenAPI document")]
pub(super) struct PolicyDocument {
    /// The name in the path, or absent.
    name: Option<String>,
    /// Attribute to pattern: a string, `prefix*`, `*`, or a list of them.
    r#match: Option<BTreeMap<String, String>>,
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
    /// `enforce` if absent, or `shadow`.
    #[schema(value_type = Option<String>)]
    mode: Option<Mode>,
    /// `local` if absent, `open` or `closed`.
    #[schema(value_type = Option<String>)]
    on_store_failure: Option<OnStoreFailure>,
}

/// A client's own numbers, by policy name.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes algorithms::policy::parse_quota in the OpenAPI document")]
pub(super) struct ClientLimits(BTreeMap<String, serde_json::Map<String, serde_json::Value>>);
