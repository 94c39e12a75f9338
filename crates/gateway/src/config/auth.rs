//! The configuration of a route's authentication: the credential that a request needs, and where the route reads it.

use http::{HeaderName, HeaderValue};
use tidegate_algorithms::document::DocumentReader;

use super::certificate::{CERTIFICATE_KEYS, CertificateAuth, certificate};
use super::forward_auth::{FORWARD_AUTH_KEYS, ForwardAuth, forward_auth};
use super::jwt::{JWT_KEYS, JwtAuth, jwt};
use super::servers::Source;
use super::upstream::part;
use crate::identity::{CONSUMER, OF_KEYS};

/// Most places where a key is looked for.
const MAX_PLACES: usize = 8;

/// Longest name of a parameter or field.
const MAX_NAME: usize = 64;

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
}

impl Auth {
    /// The attributes that what is proved may have.
    #[must_use]
    pub fn attributes(&self) -> Vec<&str> {
        match self {
            Self::Key(_) => OF_KEYS.to_vec(),
            Self::Jwt(jwt) => jwt.attributes.iter().map(|(name, _)| &**name).collect(),
            Self::Forward(forward) => forward.attributes.iter().map(|(name, _)| &**name).collect(),
            Self::Certificate(_) => vec![CONSUMER],
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

/// `None`: it needs nothing.
pub(super) fn auth(reader: &mut DocumentReader<'_>, pointer: &str, source: Source) -> Option<Auth> {
    let wanted = reader.text("auth", 1, MAX_NAME);
    if let Some(other) = wanted.filter(|word| !["key", "jwt", "forward", "certificate"].contains(word)) {
        let accepted = "\"key\", \"jwt\", \"forward\", \"certificate\"";
        reader.mistake("auth", format!("is {other:?}"), accepted);
    }
    let parts =
        [("key_in", "key"), ("jwt", "jwt"), ("forward_auth", "forward"), ("certificate", "certificate")];
    for (field, word) in parts {
        if reader.field(field).is_some()
            && wanted != Some(word)
            && wanted.is_some() == reader.field("auth").is_some()
        {
            let problem = format!("has no effect without auth = {word:?}");
            reader.mistake(field, problem, format!("auth = {word:?} beside it"));
        }
    }
    let key = key(reader);
    let jwt = part(reader, "jwt", &JWT_KEYS, pointer, |inner| jwt(inner, source)).flatten();
    let forward = part(reader, "forward_auth", &FORWARD_AUTH_KEYS, pointer, forward_auth).flatten();
    let certificate = part(reader, "certificate", &CERTIFICATE_KEYS, pointer, certificate).flatten();
    match wanted {
        Some("key") => Some(Auth::Key(key)),
        Some("jwt") => {
            if reader.field("jwt").is_none() {
                reader.mistake("jwt", "is missing", "a table with issuer, and keys_url or keys_file");
            }
            jwt.map(|jwt| Auth::Jwt(Box::new(jwt)))
        }
        Some("forward") => {
            if reader.field("forward_auth").is_none() {
                reader.mistake("forward_auth", "is missing", "a table with upstream");
            }
            forward.map(|forward| Auth::Forward(Box::new(forward)))
        }
        Some("certificate") => {
            if reader.field("certificate").is_none() {
                reader.mistake("certificate", "is missing", "a table with names");
            }
            certificate.map(Auth::Certificate)
        }
        _ => None,
    }
}

/// Whether preflights pass without what `auth` asks for. There must be somebody else who answers them, and that is a server.
pub(super) fn skip_auth_preflight(reader: &mut DocumentReader<'_>) -> bool {
    let skips = reader.flag("skip_auth_preflight").unwrap_or(false);
    for other in ["auth", "upstream"] {
        if skips && reader.field(other).is_none() {
            let problem = format!("has no effect without {other}");
            reader.mistake("skip_auth_preflight", problem, format!("{other} beside it"));
        }
    }
    if skips && reader.field("cors").is_some() {
        let problem = "has no effect beside cors: the route answers preflights itself";
        reader.mistake("skip_auth_preflight", problem, "one of the two");
    }
    skips
}

fn key(reader: &mut DocumentReader<'_>) -> KeyAuth {
    let mut places = Vec::new();
    for (index, text) in reader.texts("key_in", MAX_PLACES, 1, 2 * MAX_NAME).into_iter().enumerate() {
        match place(text) {
            Some(place) => places.push(place),
            None => reader.mistake(&format!("key_in/{index}"), format!("is {text:?}"), ACCEPTED),
        }
    }
    match reader.field("key_in") {
        None => places = vec![KeyPlace::Field(HeaderName::from_static("x-api-key")), KeyPlace::Bearer],
        Some(list) if list.as_array().is_some_and(Vec::is_empty) => {
            reader.mistake("key_in", "has no entry", ACCEPTED);
        }
        Some(_) => {}
    }
    let challenges = places.iter().filter_map(challenge).collect();
    KeyAuth { places, challenges }
}

fn place(text: &str) -> Option<KeyPlace> {
    match text.split_once(':') {
        Some(("header", name)) => free_field(name).map(KeyPlace::Field),
        // Of these letters it stands in a challenge as it is, and in a query in one form.
        Some(("query", name)) => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            ((1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain))
                .then(|| KeyPlace::Parameter(name.into()))
        }
        None if text == "bearer" => Some(KeyPlace::Bearer),
        None if text == "basic" => Some(KeyPlace::Basic),
        _ => None,
    }
}

/// The name of a field that has no meaning of its own here.
pub(super) fn free_field(name: &str) -> Option<HeaderName> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let is_free = !crate::fields::is_of_the_connection(&name)
        && ![http::header::AUTHORIZATION, http::header::HOST, http::header::COOKIE].contains(&name);
    is_free.then_some(name)
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
