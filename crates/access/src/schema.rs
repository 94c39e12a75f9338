//! Replies that every operation may give, for the OpenAPI document.

use utoipa::{IntoResponses, ToSchema};

/// What any operation may answer instead of its own reply.
#[derive(IntoResponses)]
pub enum Problems {
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
pub struct ProblemSchema {
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
pub struct FieldErrorSchema {
    /// Where, as a JSON pointer.
    pointer: String,
    /// What is wrong.
    detail: String,
    /// What would be right.
    accepted: Option<String>,
}
