//! The configuration of a route's authentication: the credential that a request needs, and where the route reads it.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use serde_json::Value;
use tidegate_access::keys::is_key_scope;
use tidegate_algorithms::document::DocumentReader;

use super::certificate::{CertificateAuth, certificate};
use super::forward_auth::{ForwardAuth, forward_auth};
use super::jwt::{JwtAuth, TokenPlace, jwt};
use super::pairs::{free_field, is_parameter};
use super::part::KeyReader;
use super::servers::Source;
use crate::authentication::identity::{CONSUMER, OF_KEYS};

/// Longest value of `auth` that is compared with the ways.
const MAX_NAME: usize = 64;

/// The ways to prove who one is, by their names.
pub(super) const WAYS: [&str; 4] = ["key", "jwt", "forward", "certificate"];

const ACCEPTED: &str = "\"header:NAME\", \"query:NAME\", \"bearer\", \"basic\"";

/// What a request must prove.
#[derive(Clone, Debug, PartialEq)]
pub enum Auth {
    /// An API key.
    Key(KeyAuth),
    /// A token of an issuer.
    Jwt(Box<JwtAuth>),
    /// Whatever another service asks for.
    Forward(Box<ForwardAuth>),
    /// A certificate that its connection has shown.
    Certificate(CertificateAuth),
    /// One of several ways: the first for which the request has something decides alone.
    Any {
        /// At least two of those above, in order, each once.
        ways: Vec<Self>,
        /// The attributes that any of them may prove.
        attributes: Arc<[Arc<str>]>,
    },
    /// All of several ways.
    All {
        /// As those of [`Auth::Any`].
        ways: Vec<Self>,
        /// The attributes that they may prove.
        attributes: Arc<[Arc<str>]>,
    },
}

impl Auth {
    /// The ways in which a request may prove whose it is: one, or those of a list.
    #[must_use]
    pub fn ways(&self) -> &[Self] {
        match self {
            Self::Any { ways, .. } | Self::All { ways, .. } => ways,
            one => std::slice::from_ref(one),
        }
    }

    /// The attributes that what is proved may have.
    #[must_use]
    pub fn attributes(&self) -> Vec<&str> {
        match self {
            Self::Key(_) => OF_KEYS.to_vec(),
            Self::Jwt(jwt) => jwt.attributes.iter().map(|(name, _)| &**name).collect(),
            Self::Forward(forward) => forward.attributes.iter().map(|(name, _)| &**name).collect(),
            Self::Certificate(_) => vec![CONSUMER],
            Self::Any { attributes, .. } | Self::All { attributes, .. } => {
                attributes.iter().map(|name| &**name).collect()
            }
        }
    }
}

/// Which of the ways that a route names must be proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    /// The only one.
    One,
    Any,
    All,
}

impl Needed {
    fn field(self) -> &'static str {
        match self {
            Self::One => "auth",
            Self::Any => "auth_any",
            Self::All => "auth_all",
        }
    }
}

/// A request needs an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAuth {
    /// Where it is looked for; the first that has something counts.
    pub places: Vec<KeyPlace>,
    /// What a request without one is told (`WWW-Authenticate`), a challenge for each place.
    pub challenges: Vec<HeaderValue>,
    /// The name of the route, which a key that names routes must have among them.
    pub route: Arc<str>,
    /// The scope that the key must have.
    pub scope: Option<Box<str>>,
}

/// Where a request has its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a field of its own.
    Field(HeaderName),
    /// In a parameter of the query.
    Parameter(Box<str>),
    /// `Authorization: Bearer` (RFC 6750).
    Bearer,
    /// `Authorization: Basic` (RFC 7617): the password, or the user's name if that is empty.
    Basic,
}

/// `None`: it needs nothing. A way that cannot be read is a mistake, so that no list is in force without one of its ways.
pub(super) fn auth(reader: &mut KeyReader<'_>, source: Source) -> Option<Auth> {
    let stated = named_ways(reader);
    let words = stated.as_ref().map(|(_, words)| &words[..]).unwrap_or_default();
    let parts = [
        ("key_in", "key"),
        ("key_scope", "key"),
        ("jwt", "jwt"),
        ("forward_auth", "forward"),
        ("certificate", "certificate"),
    ];
    let is_stated = ["auth", "auth_any", "auth_all"].iter().any(|field| reader.field(field).is_some());
    for (field, word) in parts {
        if reader.field(field).is_some() && !words.contains(&word) && stated.is_some() == is_stated {
            let problem = format!("has no effect without auth = {word:?}");
            reader.mistake(
                field,
                problem,
                format!("auth = {word:?} beside it, or {word:?} in auth_any or auth_all"),
            );
        }
    }
    let jwt = reader.part("jwt", |inner| jwt(inner, source)).flatten();
    let tokens = jwt.as_ref().filter(|_| words.contains(&"jwt")).map(|jwt| &jwt.places[..]);
    let mut key = Some(key(reader, tokens.unwrap_or_default()));
    let mut jwt = jwt.map(|jwt| Auth::Jwt(Box::new(jwt)));
    let forward = reader.part("forward_auth", forward_auth).flatten();
    let mut forward = forward.map(|forward| Auth::Forward(Box::new(forward)));
    let certificate = reader.part("certificate", certificate).flatten();
    let mut certificate = certificate.map(Auth::Certificate);
    let (needed, words) = stated?;
    let mut ways = Vec::new();
    for word in &words {
        let (way, table, accepted) = match *word {
            "key" => (key.take().map(Auth::Key), None, ""),
            "jwt" => (jwt.take(), Some("jwt"), "a table with issuer, and keys_url or keys_file"),
            "forward" => (forward.take(), Some("forward_auth"), "a table with upstream"),
            "certificate" => (certificate.take(), Some("certificate"), "a table with names"),
            _ => continue,
        };
        if let Some(table) = table.filter(|table| reader.field(table).is_none()) {
            reader.mistake(table, "is missing", accepted);
        }
        ways.extend(way);
    }
    if ways.len() != words.len() && reader.mistakes.is_empty() {
        reader.mistake(needed.field(), "has a way that cannot be read", WAYS.join(", "));
    }
    let names = ways.iter().flat_map(Auth::attributes);
    let mut attributes: Vec<Arc<str>> = names.map(Arc::from).collect();
    attributes.sort_unstable();
    attributes.dedup();
    let attributes = Arc::from(attributes);
    match needed {
        Needed::One => ways.pop(),
        Needed::Any => Some(Auth::Any { ways, attributes }),
        Needed::All => Some(Auth::All { ways, attributes }),
    }
}

/// The names of the ways that a route demands; `None`: none is stated, or they cannot be read, which is reported.
fn named_ways<'v>(reader: &mut KeyReader<'v>) -> Option<(Needed, Vec<&'v str>)> {
    let fields = [Needed::One, Needed::Any, Needed::All];
    let stated: Vec<Needed> =
        fields.into_iter().filter(|needed| reader.field(needed.field()).is_some()).collect();
    if let [_, second, ..] = stated[..] {
        reader.mistake(second.field(), format!("stands beside {}", stated[0].field()), "one of the two");
        return None;
    }
    let needed = *stated.first()?;
    if needed == Needed::One {
        if reader.field("auth").is_some_and(Value::is_array) {
            let accepted = "one way; or auth_any, of which one will do, or auth_all, which demands each";
            reader.mistake("auth", "is a list", accepted);
            return None;
        }
        let word = DocumentReader::text(reader, "auth", 1, MAX_NAME)?;
        if !WAYS.contains(&word) {
            let accepted = "\"key\", \"jwt\", \"forward\", \"certificate\"; several in auth_any or auth_all";
            reader.mistake("auth", format!("is {word:?}"), accepted);
        }
        return Some((needed, vec![word]));
    }
    let (field, before) = (needed.field(), reader.mistakes.len());
    let words = reader.texts(field);
    for (index, word) in words.iter().enumerate() {
        let place = format!("{field}/{index}");
        if !WAYS.contains(word) || words[..index].contains(word) {
            let accepted = "\"key\", \"jwt\", \"certificate\", \"forward\", each once";
            reader.mistake(&place, format!("is {word:?}"), accepted);
        } else if *word == "forward" && index + 1 < words.len() {
            let accepted =
                "\"forward\" as the last: the service is asked about every request that comes so far";
            reader.mistake(&place, "stands before others", accepted);
        }
    }
    if words.len() < 2 && reader.mistakes.len() == before {
        reader.mistake(field, "has fewer than two entries", "two or more, or auth with one");
    }
    (reader.mistakes.len() == before).then_some((needed, words))
}

/// Whether preflights pass without what `auth` asks for. There must be somebody else who answers them, and that is a server.
pub(super) fn skip_auth_preflight(reader: &mut KeyReader<'_>) -> bool {
    let skips = reader.flag("skip_auth_preflight").unwrap_or(false);
    let has = |fields: &[&str]| fields.iter().any(|field| reader.field(field).is_some());
    let lacks = [("auth", has(&["auth", "auth_any", "auth_all"])), ("upstream", has(&["upstream"]))];
    for (other, _) in lacks.into_iter().filter(|(_, is_there)| skips && !is_there) {
        let problem = format!("has no effect without {other}");
        reader.mistake("skip_auth_preflight", problem, format!("{other} beside it"));
    }
    if skips && reader.field("cors").is_some() {
        let problem = "has no effect beside cors: the route answers preflights itself";
        reader.mistake("skip_auth_preflight", problem, "one of the two");
    }
    skips
}

/// `tokens` are the places in which the same route looks for tokens: what stands there is no key.
fn key(reader: &mut KeyReader<'_>, tokens: &[TokenPlace]) -> KeyAuth {
    let is_of_tokens = |place: &KeyPlace| match place {
        KeyPlace::Bearer => tokens.contains(&TokenPlace::Bearer),
        KeyPlace::Parameter(name) => tokens.contains(&TokenPlace::Parameter(name.clone())),
        KeyPlace::Field(_) | KeyPlace::Basic => false,
    };
    let mut places = Vec::new();
    for (index, text) in reader.texts("key_in").into_iter().enumerate() {
        match place(text) {
            Some(place) if is_of_tokens(&place) => {
                let problem = format!("is {text:?}, where jwt.token_in has tokens");
                reader.mistake(&format!("key_in/{index}"), problem, "a place of its own");
            }
            Some(place) => places.push(place),
            None => reader.mistake(&format!("key_in/{index}"), format!("is {text:?}"), ACCEPTED),
        }
    }
    match reader.field("key_in") {
        None => {
            let usual = [KeyPlace::Field(HeaderName::from_static("x-api-key")), KeyPlace::Bearer];
            places = usual.into_iter().filter(|place| !is_of_tokens(place)).collect();
        }
        Some(list) if list.as_array().is_some_and(Vec::is_empty) => {
            reader.mistake("key_in", "has no entry", ACCEPTED);
        }
        Some(_) => {}
    }
    let challenges = places.iter().filter_map(challenge).collect();
    let route = reader.field("name").and_then(Value::as_str).unwrap_or_default().into();
    let scope = reader.text("key_scope");
    if let Some(other) = scope.filter(|scope| !is_key_scope(scope)) {
        let accepted = "printable ASCII without blanks, '\"' and '\\': a scope that keys can have";
        reader.mistake("key_scope", format!("is {other:?}"), accepted);
    }
    KeyAuth { places, challenges, route, scope: scope.map(Box::from) }
}

fn place(text: &str) -> Option<KeyPlace> {
    match text.split_once(':') {
        Some(("header", name)) => free_field(name).map(KeyPlace::Field),
        Some(("query", name)) => is_parameter(name).then(|| KeyPlace::Parameter(name.into())),
        None if text == "bearer" => Some(KeyPlace::Bearer),
        None if text == "basic" => Some(KeyPlace::Basic),
        _ => None,
    }
}

/// The challenge of a place. `ApiKey` is no registered scheme; it names the place.
fn challenge(place: &KeyPlace) -> Option<HeaderValue> {
    let text = match place {
        KeyPlace::Field(name) => format!("ApiKey in=\"header\", name=\"{name}\""),
        KeyPlace::Parameter(name) => format!("ApiKey in=\"query\", name=\"{name}\""),
        KeyPlace::Bearer => "Bearer".to_owned(),
        KeyPlace::Basic => "Basic realm=\"api\", charset=\"UTF-8\"".to_owned(),
    };
    HeaderValue::from_str(&text).ok()
}
