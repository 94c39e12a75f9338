//! The file's `[[token]]` entries, and who may do what at each listener: those, `admin.token`, `grpc.token`
//! and `resp.password`.
//!
//! The file has digests only, so that who reads it cannot use it. A digest that is refused is not repeated
//! in the message: the likeliest mistake is to have written the token itself.

use serde_json::{Value as Json, json};
use tidegate_access::tokens::{Credential, MAX_TOKENS, Scope, Tokens};
use tidegate_net::tls;
use tidegate_settings::document::Document;
use tidegate_settings::mistake::{Found, MAX_MISTAKES, Mistake, path};
use tidegate_settings::table::TlsSettings;
use tidegate_settings::value::shown;

use super::access::Access;
use super::listener::{Listener, ServiceListener};
use super::service::{ServiceConfig, Table};
use super::settings::Settings;

/// Names that stand for the tokens of the settings, and for clients that needed no token.
const TAKEN: [&str; 5] = ["admin", "default", "edge", "grpc", "local"];
const FIELDS: [&str; 3] = ["name", "scopes", "sha256"];
const NAME: &str = "1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter, and no other token's";
const SCOPES: &str = "a list of some of \"decide\", \"refund\", \"read\", \"configure\", \"ingest\"";
const DIGEST: &str = "64 hexadecimal digits: printf %s \"$TOKEN\" | sha256sum";
const MAX_NAME_BYTES: usize = 64;

impl Listener {
    /// The admin API, if it has a listener of its own.
    pub const ADMIN: Self = Self::of_settings("admin", "admin");
}

/// The admin API. Its tokens are read before all tables: they decide whether a listener may be open.
pub(super) const SERVICE: ServiceConfig = ServiceConfig {
    tables: &[Table { path: "token", schema }],
    check: |_, _| {},
    listeners: |config| {
        let admin = &config.settings.admin;
        vec![ServiceListener::of_settings(Listener::ADMIN, admin.listen, &admin.tls, tls::HTTP)]
    },
    warnings: |_| Vec::new(),
    serve: None,
};

/// A listener that other machines can reach, and that nothing guards.
#[derive(Debug)]
pub(crate) struct Unguarded {
    /// The setting of its address.
    pub(crate) path: &'static str,
    /// The setting of its own secret, if it has one.
    pub(crate) secret: Option<&'static str>,
    address: std::net::SocketAddr,
}

impl Unguarded {
    pub(crate) fn problem(&self) -> String {
        let missing = self.secret.unwrap_or("[[token]] with the scope \"ingest\"");
        format!("is {}, which others can reach, and there is no {missing}", self.address)
    }

    pub(crate) fn accepted(&self) -> String {
        let beside = match (self.path, self.secret) {
            ("http.listen" | "admin.listen" | "edge.api_listen", Some(secret)) => {
                format!("{secret} beside it, any [[token]]")
            }
            (_, Some(secret)) => {
                format!("{secret} beside it, a [[token]] with the scope \"decide\", or a tls_client_ca")
            }
            (_, None) => "such a [[token]] beside it, or a tls_client_ca".to_owned(),
        };
        format!("a loopback address; or {beside}")
    }
}

/// The listeners of `settings` that would be left to everybody who reaches them. On HTTP that is the
/// configuration; decisions there may be left open on purpose.
pub(crate) fn unguarded(settings: &Settings, access: &Access) -> Vec<Unguarded> {
    let Settings { http, admin, grpc, resp, intake, edge, .. } = settings;
    let is_guarded =
        |tokens: &Tokens, scope, tls: &TlsSettings| tokens.demands(scope) || tls.client_ca.is_some();
    let [http_guarded, grpc_guarded, resp_guarded, intake_guarded] = [
        access.http.demands(Scope::Configure),
        is_guarded(&access.grpc, Scope::Decide, &grpc.tls),
        is_guarded(&access.resp, Scope::Decide, &resp.tls),
        is_guarded(&access.intake, Scope::Ingest, &intake.tls),
    ];
    let listeners = [
        ("http.listen", Some("admin.token"), Some(http.listen), http_guarded),
        ("admin.listen", Some("admin.token"), admin.listen, http_guarded),
        ("grpc.listen", Some("grpc.token"), grpc.listen, grpc_guarded),
        ("resp.listen", Some("resp.password"), resp.listen, resp_guarded),
        ("intake.listen", None, intake.listen, intake_guarded),
        ("edge.api_listen", Some("edge.api_token"), edge.api_listen, access.edge.demands(Scope::Configure)),
    ];
    let open = listeners.into_iter().filter_map(|(path, secret, address, is_guarded)| {
        let address = address.filter(|address| !is_guarded && !address.ip().to_canonical().is_loopback())?;
        Some(Unguarded { path, secret, address })
    });
    open.collect()
}

/// Checks the list. Mistakes are added to `found`. An entry with a mistake is in the result all the same if
/// it has a name: the file is refused anyway, and no other mistake should follow from its absence.
pub(super) fn check(document: &Document<'_>, found: &mut Found) -> Vec<Credential> {
    let entries = document.entries("token").map(|entries| entries.values).unwrap_or_else(|mistake| {
        found.push(mistake);
        Vec::new()
    });
    let mut tokens: Vec<Credential> = Vec::new();
    for (index, entry) in entries.iter().enumerate().take(MAX_MISTAKES) {
        let pointer = format!("/token/{index}");
        let mut refuse = |field: &str, problem: String, accepted: &str| {
            let pointer = format!("{pointer}{field}");
            found.push(Mistake {
                origin: document.locate(&pointer),
                path: path(&pointer),
                problem,
                accepted: accepted.to_owned(),
            });
        };
        if index == MAX_TOKENS {
            refuse("", format!("is one of {}", entries.len()), "at most 64");
            break;
        }
        let Some(fields) = entry.as_object() else {
            refuse("", "is not a table".to_owned(), "a table under [[token]]");
            continue;
        };
        for key in fields.keys().filter(|key| !FIELDS.contains(&key.as_str())) {
            let token = key.replace('~', "~0").replace('/', "~1");
            refuse(&format!("/{token}"), "is not a known key".to_owned(), "name, scopes, sha256");
        }
        let name = fields.get("name").and_then(Json::as_str).unwrap_or_default();
        if !is_name(name) || TAKEN.contains(&name) || tokens.iter().any(|other| other.name() == name) {
            refuse("/name", said(fields.get("name")), NAME);
        }
        let scopes = fields.get("scopes").and_then(scopes);
        if scopes.is_none() {
            refuse("/scopes", said(fields.get("scopes")), SCOPES);
        }
        let digest = fields.get("sha256").and_then(Json::as_str);
        let parsed = digest.and_then(digest_of);
        match (digest, parsed) {
            (None, _) => refuse("/sha256", "is missing, or no string".to_owned(), DIGEST),
            (Some(text), None) => {
                refuse("/sha256", format!("is not acceptable ({} characters)", text.chars().count()), DIGEST);
            }
            (Some(_), Some(_)) => {}
        }
        tokens.push(Credential::from_digest(
            name,
            scopes.unwrap_or(Scope::ALL.to_vec()),
            parsed.unwrap_or_default(),
        ));
    }
    tokens
}

fn said(value: Option<&Json>) -> String {
    match value {
        None => "is missing".to_owned(),
        Some(Json::String(text)) => shown(text),
        Some(other) => shown(&other.to_string()),
    }
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
}

fn scopes(list: &Json) -> Option<Vec<Scope>> {
    let scopes = list.as_array()?.iter().map(|word| Scope::of_word(word.as_str()?));
    let scopes: Vec<Scope> = scopes.collect::<Option<_>>()?;
    (!scopes.is_empty()).then_some(scopes)
}

fn digest_of(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, digits) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// The JSON schema of the list.
fn schema() -> Json {
    let words: Vec<&str> = Scope::ALL.iter().map(|scope| scope.word()).collect();
    json!({
        "type": "array",
        "maxItems": MAX_TOKENS,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": FIELDS,
            "properties": {
                "name": { "type": "string", "pattern": "^[a-z][a-z0-9._-]{0,63}$" },
                "scopes": { "type": "array", "minItems": 1, "items": { "enum": words } },
                "sha256": { "type": "string", "pattern": "^[0-9A-Fa-f]{64}$" },
            },
        },
    })
}

#[cfg(test)]
mod tests;
