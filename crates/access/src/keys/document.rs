//! The document of an API key, as the control store keeps it.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_algorithms::document::{DocumentReader, Mistake, is_name};
use tidegate_algorithms::time::Wall;

/// Longest name of a consumer, which is a header field's value on its way to servers.
pub const MAX_CONSUMER_BYTES: usize = 128;

/// Longest life of a key, and longest overlap of two secrets: ten years.
pub const MAX_LIFETIME_SECONDS: u64 = 3_650 * 86_400;

/// Most secrets of a key: the newest, and the one before it while a rotation lasts.
pub const MAX_SECRETS: usize = 2;

/// Most routes that a key names, and most scopes that it has.
pub(super) const MAX_KEY_NAMES: usize = 100;

/// Longest scope of a key.
pub const MAX_KEY_SCOPE_BYTES: usize = 64;

const KEYS: [&str; 8] = ["name", "consumer", "tier", "routes", "scopes", "secrets", "created", "expires"];
const SECRET_KEYS: [&str; 2] = ["hmac_sha256", "until"];
const DIGEST: &str = "64 hexadecimal digits in lower case";
const TIME: &str = "a time as in RFC 3339";

/// What is stored of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDocument {
    /// Who uses it.
    pub consumer: Arc<str>,
    /// Which tier's numbers hold for it; `None`: the general ones.
    pub tier: Option<Arc<str>>,
    /// The routes that it opens, at least one; `None`: all that ask for keys.
    pub routes: Option<Vec<Arc<str>>>,
    /// What its requests may do, as routes ask for it.
    pub scopes: Vec<Arc<str>>,
    /// Any of these proves it.
    pub secrets: Vec<Secret>,
    /// When it was issued.
    pub created: Wall,
    /// When it ends; `None`: never.
    pub expires: Option<Wall>,
}

/// What proves a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The digest of the whole text.
    pub digest: [u8; 32],
    /// When it ends; `None`: with the key.
    pub until: Option<Wall>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Secret(redacted, until {:?})", self.until)
    }
}

impl KeyDocument {
    /// Reads it.
    ///
    /// # Errors
    /// Every mistake found.
    pub fn read(value: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &KEYS)?;
        let consumer = read_consumer(&mut reader);
        let tier = read_tier(&mut reader);
        let routes = read_routes(&mut reader);
        let scopes = read_scopes(&mut reader);
        let created = time(&mut reader, "created");
        let expires = time(&mut reader, "expires");
        let mut secrets = Vec::new();
        for (index, value) in reader.list("secrets", MAX_SECRETS).iter().enumerate() {
            match secret(value, &format!("{pointer}/secrets/{index}")) {
                Ok(secret) => secrets.push(secret),
                Err(found) => reader.mistakes.extend(found),
            }
        }
        if secrets.is_empty() && reader.mistakes.is_empty() {
            reader.mistake("secrets", "has no entry", "1 or 2 digests");
        }
        if created.is_none() && reader.mistakes.is_empty() {
            reader.mistake("created", "is missing", TIME);
        }
        match (consumer, created) {
            (Some(consumer), Some(created)) if reader.mistakes.is_empty() => {
                Ok(Self { consumer, tier, routes, scopes, secrets, created, expires })
            }
            _ => Err(reader.mistakes),
        }
    }

    /// The document of the key of this id.
    #[must_use]
    pub fn write(&self, id: &str) -> Value {
        let secrets = self.secrets.iter().map(|secret| {
            let mut document = json!({ "hmac_sha256": hexadecimal(&secret.digest) });
            if let Some(until) = secret.until {
                document["until"] = shown_time(until).into();
            }
            document
        });
        let mut document = json!({
            "name": id,
            "consumer": &*self.consumer,
            "secrets": secrets.collect::<Vec<_>>(),
            "created": shown_time(self.created),
        });
        if let Some(tier) = &self.tier {
            document["tier"] = Value::from(&**tier);
        }
        let list = |names: &[Arc<str>]| Value::from_iter(names.iter().map(|name| &**name));
        if let Some(routes) = &self.routes {
            document["routes"] = list(routes);
        }
        if !self.scopes.is_empty() {
            document["scopes"] = list(&self.scopes);
        }
        if let Some(expires) = self.expires {
            document["expires"] = shown_time(expires).into();
        }
        document
    }

    /// The same with one more secret. The newest earlier secret is good until `until`, the others are not.
    #[must_use]
    pub fn rotated(&self, digest: [u8; 32], now: Wall, until: Wall) -> Self {
        let before = self.secrets.first().cloned().filter(|_| until > now);
        let before = before.map(|before| Secret { until: Some(until), ..before });
        let secrets = [Secret { digest, until: None }].into_iter().chain(before).collect();
        Self { secrets, ..self.clone() }
    }
}

/// The name of a consumer, which must be there; `None` if it is wrong, which is reported.
pub fn read_consumer(reader: &mut DocumentReader<'_>) -> Option<Arc<str>> {
    let accepted = "1 to 128 printable ASCII characters, the first and the last no blank";
    let text = reader.text("consumer", 1, MAX_CONSUMER_BYTES);
    let is_good =
        |text: &&str| text.trim() == *text && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    match (text, reader.field("consumer")) {
        (_, None) => reader.mistake("consumer", "is missing", accepted),
        (Some(text), _) if !is_good(&text) => reader.mistake("consumer", format!("is {text:?}"), accepted),
        _ => {}
    }
    text.filter(is_good).map(Arc::from)
}

/// The name of a tier, if it is there.
pub fn read_tier(reader: &mut DocumentReader<'_>) -> Option<Arc<str>> {
    reader.field("tier")?;
    reader.name("tier").map(Arc::from)
}

/// The routes that a key opens, if they are stated; `None`: all, or something is wrong, which is reported.
pub fn read_routes(reader: &mut DocumentReader<'_>) -> Option<Vec<Arc<str>>> {
    reader.field("routes")?;
    let routes = names(reader, "routes", is_name, "the names of routes, each once");
    if routes.is_empty() && reader.mistakes.is_empty() {
        reader.mistake("routes", "has no entry", "the names of routes; a key without this opens all");
    }
    (!routes.is_empty()).then_some(routes)
}

/// The scopes of a key: none if they are not stated.
pub fn read_scopes(reader: &mut DocumentReader<'_>) -> Vec<Arc<str>> {
    names(
        reader,
        "scopes",
        is_key_scope,
        "scopes of 1 to 64 printable ASCII characters without blanks, '\"' and '\\', each once",
    )
}

/// Whether a text can be a scope of a key: a scope token of OAuth (RFC 6749, 3.3).
#[must_use]
pub fn is_key_scope(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    (1..=MAX_KEY_SCOPE_BYTES).contains(&text.len()) && text.bytes().all(is_token)
}

fn names(
    reader: &mut DocumentReader<'_>,
    field: &str,
    is_good: fn(&str) -> bool,
    accepted: &str,
) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for (index, text) in reader.texts(field, MAX_KEY_NAMES, 1, 64).into_iter().enumerate() {
        if is_good(text) && names.iter().all(|name| **name != *text) {
            names.push(text.into());
        } else {
            reader.mistake(&format!("{field}/{index}"), format!("is {text:?}"), accepted);
        }
    }
    names
}

fn time(reader: &mut DocumentReader<'_>, field: &str) -> Option<Wall> {
    let text = reader.text(field, 1, 64)?;
    let wall = text.parse::<Timestamp>().ok().and_then(|time| u64::try_from(time.as_nanosecond()).ok());
    if wall.is_none() {
        reader.mistake(field, format!("is {text:?}"), TIME);
    }
    wall.map(Wall)
}

fn secret(value: &Value, pointer: &str) -> Result<Secret, Vec<Mistake>> {
    let mut reader = DocumentReader::new(value, pointer, &SECRET_KEYS)?;
    let until = time(&mut reader, "until");
    let digest = reader.text("hmac_sha256", 64, 64).and_then(bytes);
    if digest.is_none() && reader.mistakes.is_empty() {
        reader.mistake("hmac_sha256", "is no digest", DIGEST);
    }
    match digest {
        Some(digest) if reader.mistakes.is_empty() => Ok(Secret { digest, until }),
        _ => Err(reader.mistakes),
    }
}

/// A time as documents and replies have it.
#[must_use]
pub fn shown_time(wall: Wall) -> String {
    Timestamp::from_nanosecond(i128::from(wall.0)).map(|time| time.to_string()).unwrap_or_default()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut digest = [0; 32];
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        *byte = (digit(*high)? << 4) | digit(*low)?;
    }
    (pairs.len() == digest.len()).then_some(digest)
}
