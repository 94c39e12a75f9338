//! Why a request gets no answer of its own kind, as a problem document.
//!
//! Services turn their own errors into a [`Refusal`] by `From`, each in one file; what any HTTP API may have
//! to refuse is here.

use axum::response::IntoResponse;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use tidegate_wire::bodies::BodyError;
use tidegate_wire::problem::{self, FieldError, Problem};

use crate::origins::ForeignPage;
use crate::reply::{Reply, bytes};
use crate::tokens::Denial;

/// How many characters of a foreign host or origin a reply repeats.
const MAX_SHOWN: usize = 80;

/// A refused request: what it is told.
#[derive(Clone, Debug)]
pub struct Refusal(pub Problem);

impl Refusal {
    /// A field of a document is wrong; `place` is a JSON pointer, or `/name` of a query parameter, header field
    /// or segment of the path.
    #[must_use]
    pub fn field(place: impl Into<String>, problem: impl Into<String>, accepted: impl Into<String>) -> Self {
        let error = FieldError { pointer: place.into(), detail: problem.into(), accepted: accepted.into() };
        Self::fields("a field is wrong", vec![error])
    }

    /// Several fields of the body are wrong.
    #[must_use]
    pub fn fields(detail: &str, errors: Vec<FieldError>) -> Self {
        Self(Problem { errors, ..Problem::new(422, "Unprocessable Content", detail) })
    }

    /// There is nothing of that name: "there is no " and `what`.
    #[must_use]
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self(Problem::new(404, "Not Found", format!("there is no {what}")))
    }

    /// The body is of another type than JSON, or encoded.
    #[must_use]
    pub fn not_json() -> Self {
        let detail = "send content-type: application/json without a content-encoding";
        Self(Problem::new(415, "Unsupported Media Type", detail))
    }

    /// The reply.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let Self(problem) = self;
        let mut reply = bytes(problem.status, Bytes::from(problem.to_json()));
        let fields = reply.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        match problem.status {
            401 => {
                fields.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            503 => {
                fields.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        reply
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Syntax(detail) => Self(Problem::new(400, "Bad Request", detail)),
            BodyError::Field(error) => Self::fields("a field is wrong", vec![error]),
        }
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self(match denial {
            Denial::Unknown => {
                Problem::new(401, "Unauthorized", format!("{denial}: authorization: Bearer ..."))
            }
            Denial::Scope(_) => Problem::new(403, "Forbidden", denial.to_string()),
        })
    }
}

impl From<ForeignPage> for Refusal {
    fn from(page: ForeignPage) -> Self {
        let (what, value, setting) = match page {
            ForeignPage::Host(host) => ("host", host, "http.allowed_hosts"),
            ForeignPage::Origin(origin) => ("origin", origin, "http.cors_origins"),
            ForeignPage::Session(origin) => {
                let origin: String = origin.chars().take(MAX_SHOWN).collect();
                let detail = format!(
                    "a session is for pages of this server, and the origin here is {origin:?}: send a token instead"
                );
                return Self(Problem::new(403, "Forbidden", detail));
            }
        };
        let value: String = value.chars().take(MAX_SHOWN).collect();
        let detail = format!(
            "without a token, the configuration is for this machine's own pages, and the {what} here is \
             {value:?}: list it in {setting}, or configure admin.token"
        );
        Self(Problem::new(403, "Forbidden", detail))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        self.reply().map(axum::body::Body::from)
    }
}
