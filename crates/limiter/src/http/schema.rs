//! Bodies that the OpenAPI document describes where the code reads or writes them without a type of
//! their own.

use std::collections::BTreeMap;

use tidegate_algorithms::policy::{Algorithm, Mode, OnStoreFailure};
use utoipa::{IntoResponses, ToSchema};

/// What any operation may answer instead of its own reply.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes replies in the OpenAPI document")]
pub(super) enum Problems {
    /// The request is wrong, or may not do this. Nothing was charged or changed.
    #[response(status = "4XX", content_type = "application/problem+json")]
    Refused(ProblemSchema),
    /// The store or the disk gave no answer. Try again.
    #[response(status = "5XX", content_type = "application/problem+json")]
    Failed(ProblemSchema),
}

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
    /// Policies that are left out of every request to which this one applies.
    replaces: Option<Vec<String>>,
    /// `enforce` if absent, or `shadow`.
    #[schema(value_type = Option<String>)]
    mode: Option<Mode>,
    /// `local` if absent, `open` or `closed`.
    #[schema(value_type = Option<String>)]
    on_store_failure: Option<OnStoreFailure>,
}

/// What an attribute has to be.
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

/// What an attribute must not be.
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
pub(super) struct ClientLimits(BTreeMap<String, serde_json::Map<String, serde_json::Value>>);
