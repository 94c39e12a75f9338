//! `forward_auth` of a route: which service says whose a request is, what it is told, and what of its answer counts.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::header::{
    AUTHORIZATION, CONTENT_TYPE, COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use http::uri::PathAndQuery;
use tidegate_algorithms::document::DocumentReader;
use tidegate_algorithms::time::SECOND;

use super::jwt::attribute_pairs;
use super::pairs::free_field;
use super::part::KeyReader;

/// Longest value of `on_error` that is compared with its words.
const MAX_WORD: usize = 64;

/// Another service says whose a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Where it is.
    pub upstream: Arc<str>,
    /// What it is asked for, by GET.
    pub path: PathAndQuery,
    /// How long its answer may take.
    pub timeout: Duration,
    /// Fields of the request that it is sent.
    pub send: Vec<HeaderName>,
    /// Fields of an answer that admits which the request's server is sent.
    pub fields: Vec<HeaderName>,
    /// Attributes, and the fields of such an answer that they are.
    pub attributes: Vec<(Arc<str>, HeaderName)>,
    /// Fields of an answer that refuses which the client is sent.
    pub pass_back: Vec<HeaderName>,
    /// For how many nanoseconds it is not asked again about the same; 0: it always is.
    pub cache: u64,
    /// What makes two requests the same to it.
    pub cache_by: Vec<CachedBy>,
    /// Whether requests pass while it gives no answer.
    pub allows_on_error: bool,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedBy {
    /// Its method.
    Method,
    /// Its host.
    Host,
    /// Its path, in normal form.
    Path,
    /// A field.
    Field(HeaderName),
}

pub(super) fn forward_auth(reader: &mut KeyReader<'_>) -> Option<ForwardAuth> {
    let upstream = reader.text("upstream");
    if reader.field("upstream").is_none() {
        reader.mistake("upstream", "is missing", "the name of an upstream");
    }
    let path = reader.text("path").unwrap_or("/");
    let path = path.parse::<PathAndQuery>().ok().filter(|_| path.starts_with('/'));
    if path.is_none() {
        reader.mistake("path", "is no path", "a path, as in \"/verify\"");
    }
    let timeout = reader.seconds("timeout_seconds").unwrap_or(SECOND);
    let send = names(reader, "send", &[AUTHORIZATION, COOKIE], any_field);
    let fields = names(reader, "fields", &[], free_field);
    let back = [WWW_AUTHENTICATE, LOCATION, SET_COOKIE, CONTENT_TYPE, RETRY_AFTER];
    let pass_back = names(reader, "pass_back", &back, any_field);
    let mut attributes = Vec::new();
    for (name, field) in attribute_pairs(reader) {
        match any_field(&field) {
            Some(field) => attributes.push((Arc::from(name), field)),
            None => reader.mistake(&format!("attributes/{name}"), format!("is {field:?}"), "a field's name"),
        }
    }
    let cache = reader.seconds("cache_seconds").unwrap_or(0);
    let cache_by = cache_by(reader);
    if cache > 0 && cache_by.is_empty() {
        let accepted = "what tells clients apart, as in [\"header:authorization\"]";
        reader.mistake("cache_by", "is missing beside cache_seconds", accepted);
    }
    let on_error = DocumentReader::text(reader, "on_error", 1, MAX_WORD).unwrap_or("deny");
    if !["deny", "allow"].contains(&on_error) {
        reader.mistake("on_error", format!("is {on_error:?}"), "\"deny\", \"allow\"");
    }
    Some(ForwardAuth {
        upstream: upstream?.into(),
        path: path?,
        timeout: Duration::from_nanos(timeout),
        send,
        fields,
        attributes,
        pass_back,
        cache,
        cache_by,
        allows_on_error: on_error == "allow",
    })
}

fn names(
    reader: &mut KeyReader<'_>,
    field: &str,
    default: &[HeaderName],
    read: impl Fn(&str) -> Option<HeaderName>,
) -> Vec<HeaderName> {
    if reader.field(field).is_none() {
        return default.to_vec();
    }
    let mut names = Vec::new();
    for (index, text) in reader.texts(field).into_iter().enumerate() {
        match read(text) {
            Some(name) => names.push(name),
            None => {
                let accepted = "the name of a field that is not about the connection";
                reader.mistake(&format!("{field}/{index}"), format!("is {text:?}"), accepted);
            }
        }
    }
    names
}

fn any_field(text: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(text.as_bytes())
        .ok()
        .filter(|name| !crate::forwarding::fields::is_of_the_connection(name))
}

fn cache_by(reader: &mut KeyReader<'_>) -> Vec<CachedBy> {
    let mut parts = Vec::new();
    for (index, text) in reader.texts("cache_by").into_iter().enumerate() {
        let part = match text {
            "method" => Some(CachedBy::Method),
            "host" => Some(CachedBy::Host),
            "path" => Some(CachedBy::Path),
            _ => text.strip_prefix("header:").and_then(any_field).map(CachedBy::Field),
        };
        match part {
            Some(part) => parts.push(part),
            None => {
                let accepted = "\"header:NAME\", \"method\", \"host\", \"path\"";
                reader.mistake(&format!("cache_by/{index}"), format!("is {text:?}"), accepted);
            }
        }
    }
    parts
}
