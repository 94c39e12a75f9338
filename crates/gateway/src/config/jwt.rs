//! `jwt` of a route: which tokens open it, where their issuer's keys are, and what becomes of their claims.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, Uri};
use serde_json::json;
use tidegate_access::jwt::{JwtKeys, JwtRules};
use tidegate_algorithms::document::{escape, is_name};

use super::matches::{is_cookie_name, text_pairs};
use super::pairs::{free_field, is_parameter};
use super::part::KeyReader;
use super::servers::{Source, read_bounded};
use super::upstream::{UpstreamConfig, read as read_upstream};
use crate::authentication::identity::CONSUMER;

const LEEWAY_SECONDS: u64 = 60;
/// The longest name of a place where a token is looked for.
const MAX_PLACE_NAME: usize = 64;

/// What every request has, whoever sends it.
const TAKEN_ATTRIBUTES: [&str; 5] = ["route", "method", "host", "path", "ip"];

/// A request needs a JWT.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtAuth {
    /// What it must say.
    pub rules: JwtRules,
    /// Where it is looked for; the first that has one counts.
    pub(crate) places: Vec<TokenPlace>,
    /// Where the keys are that sign it.
    pub keys: JwtKeysFrom,
    /// Attributes, and the claims that they are.
    pub attributes: Vec<(Arc<str>, Box<str>)>,
    /// Fields that servers are sent, and the claims that they are.
    pub fields: Vec<(HeaderName, Box<str>)>,
    /// Whether servers are sent the token.
    pub forward: bool,
}

/// Where a request has its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenPlace {
    /// `Authorization: Bearer` (RFC 6750).
    Bearer,
    /// In a cookie.
    Cookie(Box<str>),
    /// In a parameter of the query.
    Parameter(Box<str>),
    /// Among the subprotocols that a client of WebSocket offers: the one after this one.
    Protocol(Box<str>),
}

/// Where keys are.
#[derive(Clone, Debug, PartialEq)]
pub enum JwtKeysFrom {
    /// They were in a file.
    File(Arc<JwtKeys>),
    /// Their issuer publishes them.
    Url(Arc<JwtKeysUrl>),
}

/// Where an issuer publishes its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtKeysUrl {
    /// As it is configured.
    pub text: Arc<str>,
    /// Its server.
    pub upstream: UpstreamConfig,
    /// What it is asked for.
    pub path: PathAndQuery,
}

pub(super) fn jwt(reader: &mut KeyReader<'_>, source: Source) -> Option<JwtAuth> {
    let issuer = reader.text("issuer");
    if reader.field("issuer").is_none() {
        reader.mistake("issuer", "is missing", "the value of the claim iss in tokens");
    }
    let audiences = reader.texts("audience").into_iter().map(Box::from).collect();
    let leeway_seconds = reader.number("leeway_seconds").unwrap_or(LEEWAY_SECONDS);
    let required = text_pairs(reader, "required");
    let attributes = attributes(reader);
    let fields = fields(reader);
    let forward = reader.flag("forward").unwrap_or(false);
    let places = places(reader, forward);
    let keys = keys(reader, source);
    let rules = JwtRules { issuer: issuer?.into(), audiences, leeway_seconds, required };
    Some(JwtAuth { rules, places, keys: keys?, attributes, fields, forward })
}

/// `token_in`. A token that servers are sent stays where it is, which is no place where others write it down.
fn places(reader: &mut KeyReader<'_>, forward: bool) -> Vec<TokenPlace> {
    const ACCEPTED: &str = "\"bearer\", \"cookie:NAME\", \"query:NAME\", \"protocol:NAME\", each once";
    if reader.field("token_in").is_none() {
        return vec![TokenPlace::Bearer];
    }
    let mut places = Vec::new();
    for (index, text) in reader.texts("token_in").into_iter().enumerate() {
        let field = format!("token_in/{index}");
        match place(text).filter(|place| !places.contains(place)) {
            Some(TokenPlace::Parameter(_) | TokenPlace::Protocol(_)) if forward => {
                let accepted = "\"bearer\" or \"cookie:NAME\", where servers can be sent it, or no forward";
                reader.mistake(&field, format!("is {text:?} beside forward"), accepted);
            }
            Some(place) => places.push(place),
            None => reader.mistake(&field, format!("is {text:?}"), ACCEPTED),
        }
    }
    if places.is_empty() && reader.mistakes.is_empty() {
        reader.mistake("token_in", "has no entry", ACCEPTED);
    }
    places
}

fn place(text: &str) -> Option<TokenPlace> {
    if text == "bearer" {
        return Some(TokenPlace::Bearer);
    }
    let (kind, name) = text.split_once(':')?;
    let name = Some(name).filter(|name| name.len() <= MAX_PLACE_NAME && is_cookie_name(name))?;
    match kind {
        "cookie" => Some(TokenPlace::Cookie(name.into())),
        // As the name of a parameter that may have a key.
        "query" => is_parameter(name).then(|| TokenPlace::Parameter(name.into())),
        // A subprotocol is of the same letters as a cookie's name (RFC 6455, 4.1).
        "protocol" => Some(TokenPlace::Protocol(name.into())),
        _ => None,
    }
}

fn attributes(reader: &mut KeyReader<'_>) -> Vec<(Arc<str>, Box<str>)> {
    if reader.field("attributes").is_none() {
        return vec![(Arc::from(CONSUMER), "sub".into())];
    }
    attribute_pairs(reader).into_iter().map(|(name, claim)| (Arc::from(name), claim)).collect()
}

/// `attributes`: their names, and what they are.
pub(super) fn attribute_pairs(reader: &mut KeyReader<'_>) -> Vec<(Box<str>, Box<str>)> {
    let pairs = text_pairs(reader, "attributes");
    for (name, _) in &pairs {
        if !is_name(name) || TAKEN_ATTRIBUTES.contains(&&**name) {
            let place = format!("attributes/{}", escape(name));
            let accepted =
                format!("names of a-z, 0-9, '-', '_', '.', other than {}", TAKEN_ATTRIBUTES.join(", "));
            reader.mistake(&place, "cannot be such an attribute", accepted);
        }
    }
    pairs
}

fn fields(reader: &mut KeyReader<'_>) -> Vec<(HeaderName, Box<str>)> {
    let mut fields = Vec::new();
    for (name, claim) in text_pairs(reader, "fields") {
        match free_field(&name) {
            Some(name) => fields.push((name, claim)),
            None => {
                let accepted = "a field that is not about the connection, nor Host, Cookie or Authorization";
                reader.mistake(&format!("fields/{}", escape(&name)), "cannot be such a field", accepted);
            }
        }
    }
    fields
}

fn keys(reader: &mut KeyReader<'_>, source: Source) -> Option<JwtKeysFrom> {
    const EITHER: &str = "one of keys_url, keys_file";
    let url = reader.text("keys_url");
    let file = reader.text("keys_file");
    match (reader.field("keys_url").is_some(), reader.field("keys_file").is_some()) {
        (false, false) => reader.mistake("keys_url", "is missing", EITHER),
        (true, true) => reader.mistake("keys_file", "stands beside keys_url", EITHER),
        (true, false) => {
            let from = url.and_then(keys_url);
            if let (Some(url), None) = (url, &from) {
                let accepted = "a URL of https:// or http:// with a path";
                reader.mistake("keys_url", format!("is {url:?}"), accepted);
            }
            return from.map(|url| JwtKeysFrom::Url(Arc::new(url)));
        }
        (false, true) if source == Source::Stored => {
            let problem = "names a file, which only the configuration file may";
            reader.mistake("keys_file", problem, "keys_url");
        }
        (false, true) => {
            let file = file?;
            let read = read_bounded(file).map_err(|error| format!("{file:?} cannot be read: {error}"));
            let read = read.and_then(|text| {
                JwtKeys::read(&text, true).map_err(|error| format!("{file:?} is no set of keys: {error}"))
            });
            match read {
                Ok(keys) => return Some(JwtKeysFrom::File(Arc::new(keys))),
                Err(problem) => reader.mistake("keys_file", problem, "a file with a JWKS (RFC 7517)"),
            }
        }
    }
    None
}

fn keys_url(text: &str) -> Option<JwtKeysUrl> {
    let uri: Uri = text.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let server = json!({
        "name": "jwks", "servers": [format!("{scheme}://{authority}")], "connect_timeout_seconds": 5,
    });
    let upstream = read_upstream(&server, "", Source::Stored).ok()?;
    Some(JwtKeysUrl { text: Arc::from(text), upstream, path: uri.path_and_query()?.clone() })
}
