//! Problem details (RFC 9457, `application/problem+json`).
//!
//! One shape for every error that a service answers over HTTP: what kind, which status, one
//! sentence, and - for a document - every mistake with its place.

use serde::Serialize;

/// The media type.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Registered problem types, and the generic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Type {
    /// No more than the status says.
    #[serde(rename = "about:blank")]
    Blank,
    /// A quota is used up: 429.
    #[serde(rename = "https://iana.org/assignments/http-problem-types#quota-exceeded")]
    QuotaExceeded,
    /// Capacity is reduced for now: 503.
    #[serde(rename = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity")]
    TemporaryReducedCapacity,
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: Type,
    /// The status's phrase, or the type's title.
    pub title: &'static str,
    /// The HTTP status, repeated.
    pub status: u16,
    /// One sentence on this occurrence.
    pub detail: String,
    /// Mistakes in the document that was sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Names of the policies that denied.
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    pub violated_policies: Vec<String>,
}

/// One mistake in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Where, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
    /// What would be right.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub accepted: String,
}

impl Problem {
    /// A problem that is told by its status.
    #[must_use]
    pub fn new(status: u16, title: &'static str, detail: impl Into<String>) -> Self {
        Self {
            kind: Type::Blank,
            title,
            status,
            detail: detail.into(),
            errors: Vec::new(),
            violated_policies: Vec::new(),
        }
    }

    /// The sentence on the occurrence in a document's bytes, whoever has written it; its title, if it has none.
    #[must_use]
    pub fn said_in(document: &[u8]) -> Option<String> {
        /// What is read of it.
        #[derive(serde::Deserialize)]
        struct Said {
            detail: Option<String>,
            title: Option<String>,
        }
        let said: Said = serde_json::from_slice(document).ok()?;
        said.detail.or(said.title)
    }

    /// The document's bytes.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Invariant: strings, integers and lists of them always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }
}
