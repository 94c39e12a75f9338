//! Options of a route that stand for themselves: CORS, maintenance, priority.

use std::time::Duration;

use http::HeaderValue;
use http::uri::Uri;
use tidegate_algorithms::document::DocumentReader;
use tidegate_algorithms::time::SECOND;
use tidegate_net::proxied::Network;

use super::action::StaticReply;
use super::fixed::static_reply;
use super::part::KeyReader;
use crate::routes::cors::Cors;
use crate::routes::shed::Priority;

/// A route that is out of service, but for some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// What everybody else is answered.
    pub reply: StaticReply,
    /// Whose requests pass.
    pub allow: Vec<Network>,
}

pub(super) fn cors(reader: &mut KeyReader<'_>) -> Cors {
    let texts = reader.texts("origins");
    let mut origins = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match HeaderValue::from_str(text) {
            Ok(value) if is_origin(text) => origins.push(value),
            _ if *text == "*" && texts.len() == 1 => {}
            _ => reader.mistake(
                &format!("origins/{index}"),
                format!("is {text:?}"),
                "an origin as browsers send it, \"https://a.example\": in lower case, without a wildcard or the port that its \
                 scheme has anyway; or \"*\" alone",
            ),
        }
    }
    if texts.is_empty() {
        reader.mistake("origins", "has no entry", "origins whose scripts may read the replies");
    }
    let is_anybody = texts.contains(&"*");
    let credentials = reader.flag("credentials").unwrap_or(false);
    if credentials && is_anybody {
        reader.mistake("credentials", "stands beside the origin \"*\"", "origins by name");
    }
    let methods = names(reader, "methods");
    let max_age = reader.seconds("max_age_seconds").unwrap_or(600 * SECOND);
    Cors {
        origins: (!is_anybody).then_some(origins),
        methods: methods.unwrap_or(HeaderValue::from_static("GET, HEAD, POST")),
        headers: names(reader, "headers"),
        expose: names(reader, "expose"),
        credentials,
        max_age: Duration::from_nanos(max_age),
    }
}

/// Whether a browser can send this as `Origin` (the URL standard's serialization of an origin).
fn is_origin(text: &str) -> bool {
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return false };
    let own_port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    format!("{scheme}://{authority}") == text
        && text == text.to_ascii_lowercase()
        && !authority.as_str().contains(['@', '*'])
        && !authority.as_str().ends_with(':')
        && authority.port_u16() != Some(own_port)
}

/// A list of names as one field's value; `None` if it is empty.
fn names(reader: &mut KeyReader<'_>, field: &str) -> Option<HeaderValue> {
    let names = reader.texts(field);
    let is_token =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    for (index, name) in names.iter().enumerate().filter(|(_, name)| !is_token(name)) {
        reader.mistake(&format!("{field}/{index}"), format!("is {name:?}"), "a name");
    }
    if names.is_empty() { None } else { HeaderValue::from_str(&names.join(", ")).ok() }
}

/// How much requests of a route matter.
pub(super) fn priority(reader: &mut KeyReader<'_>) -> Priority {
    let Some(word) = DocumentReader::text(reader, "priority", 1, 16) else { return Priority::default() };
    let known = Priority::ALL.into_iter().find(|known| known.word() == word);
    if known.is_none() {
        reader.mistake("priority", format!("is {word:?}"), "\"low\", \"normal\", \"critical\"");
    }
    known.unwrap_or_default()
}

/// `None` if it is switched off.
pub(super) fn maintenance(reader: &mut KeyReader<'_>) -> Option<Maintenance> {
    let enabled = reader.flag("enabled").unwrap_or(true);
    let wait = reader.number("retry_after_seconds").unwrap_or(60);
    let mut allow = Vec::new();
    for (index, text) in reader.texts("allow").into_iter().enumerate() {
        match text.parse::<Network>() {
            Ok(network) => allow.push(network),
            Err(error) => {
                let accepted = "an address, or a network: \"10.0.0.0/8\"";
                reader.mistake(&format!("allow/{index}"), format!("is {text:?}, which {error}"), accepted);
            }
        }
    }
    let mut reply = static_reply(reader, 503);
    reply.fields.push((http::header::RETRY_AFTER, HeaderValue::from(wait)));
    enabled.then_some(Maintenance { reply, allow })
}
