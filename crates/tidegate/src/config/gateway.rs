//! The file's `[[upstream]]`, `[[route]]` and `[[gateway.listener]]` entries, with the lines of the file put to
//! their mistakes.
//!
//! A route of the file must name an upstream and policies of the file (or the built-in policy, where it declares
//! none): a route whose limit is not there would be no limit at all. Stored routes may name whatever is in force.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use tidegate_algorithms::document::DocumentReader;
use tidegate_algorithms::policy::Mistake as DocumentMistake;
use tidegate_gateway::documents::GatewayLayer;
use tidegate_gateway::service::HttpsRules;
use tidegate_limiter::policy_set::DEFAULT_POLICY;
use tidegate_net::proxied::Network;

use super::document::Document;
use super::mistake::{Found, Origin, path};
use super::policies::Checker;
use super::{Settings, listen_addresses};

/// Most listeners of a gateway.
const MAX_LISTENERS: usize = 64;

/// The table that holds the listeners, beside its settings.
pub(super) const TABLE: &str = "gateway";

/// The array of listeners in it.
pub(super) const LISTENERS: &str = "listener";

/// Most networks of proxies in front of a listener.
const MAX_NETWORKS: usize = 100;

const LISTENER_KEYS: [&str; 9] = [
    "listen",
    "proxy_protocol_from",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "tls_client_auth",
    "redirect_to_https",
    "hsts_seconds",
    "hsts_subdomains",
];
/// The longest that browsers are told to use TLS alone, in seconds: ten years.
const MAX_HSTS: u64 = 315_360_000;
const ADDRESS: &str = "an address and a port, as in \"127.0.0.1:8080\" or \"[::]:443\"";

/// Where clients of the gateway connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayListener {
    /// Its address.
    pub listen: SocketAddr,
    /// The proxies in front of it, which begin each connection with a header of the PROXY protocol; empty: there
    /// are none.
    pub proxy_protocol_from: Vec<Network>,
    /// PEM file with its certificate; clients must then speak TLS.
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the certificate's key.
    pub tls_key: Option<PathBuf>,
    /// PEM file with the authorities of clients' certificates.
    pub tls_client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are let in beside those.
    pub is_client_auth_optional: bool,
    /// What it does about plain HTTP.
    pub https: HttpsRules,
}

/// What the file says of the gateway.
#[derive(Debug, Default)]
pub(super) struct FileGateway {
    pub(super) layer: GatewayLayer,
    pub(super) listeners: Vec<GatewayListener>,
    /// Where each listener stands.
    pub(super) origins: Vec<Origin>,
}

/// Checks the lists. Mistakes are added to `found`; a list that has some is left out.
pub(super) fn check(document: &Document<'_>, settings: &Settings, found: &mut Found) -> FileGateway {
    let mut checker = Checker { document, found };
    let upstreams = checker.entries("upstream", tidegate_gateway::config::MAX_UPSTREAMS);
    let routes = checker.entries("route", tidegate_gateway::config::MAX_ROUTES);
    // A policy with a mistake is in the file all the same: a route to it has none of its own.
    let declared = declared(document);
    let layer = GatewayLayer::check(&upstreams.values, &routes.values, &listable(&declared));
    let layer = layer.unwrap_or_else(|mistakes| {
        checker.adopt(mistakes);
        GatewayLayer::default()
    });
    checker.refuse_unsayable(upstreams.unsayable.iter().chain(&routes.unsayable));
    let (listeners, origins) = listeners(&mut checker, settings);
    FileGateway { layer, listeners, origins }
}

/// The policies that a file declares.
pub(super) fn declared(document: &Document<'_>) -> Vec<Json> {
    document.entries("policy").map(|entries| entries.values).unwrap_or_default()
}

/// The policies that a route or a listener of the file may list.
pub(super) fn listable(declared: &[Json]) -> Vec<&str> {
    if declared.is_empty() {
        return vec![DEFAULT_POLICY];
    }
    declared.iter().filter_map(|policy| policy.get("name")?.as_str()).collect()
}

fn listeners(checker: &mut Checker<'_>, settings: &Settings) -> (Vec<GatewayListener>, Vec<Origin>) {
    let table = checker.document.table(TABLE);
    let mut mistakes = Vec::new();
    let mut read = Vec::new();
    let list = match table.get(LISTENERS) {
        None => &Vec::new(),
        Some(Json::Array(list)) => list,
        Some(_) => {
            mistakes.push(DocumentMistake {
                pointer: format!("/{TABLE}/{LISTENERS}"),
                problem: "is no list".to_owned(),
                accepted: format!("tables, each under [[{TABLE}.{LISTENERS}]]"),
            });
            &Vec::new()
        }
    };
    if list.len() > MAX_LISTENERS {
        mistakes.push(DocumentMistake {
            pointer: format!("/{TABLE}/{LISTENERS}/{MAX_LISTENERS}"),
            problem: format!("is one of {}", list.len()),
            accepted: format!("at most {MAX_LISTENERS}"),
        });
    }
    let taken = listen_addresses(settings).into_iter().map(|(path, address)| (address, path.to_owned()));
    let mut taken: HashMap<SocketAddr, String> = taken.collect();
    for (index, value) in list.iter().enumerate().take(MAX_LISTENERS) {
        let pointer = format!("/{TABLE}/{LISTENERS}/{index}");
        match listener(value, &pointer, &mut taken) {
            Ok(listener) => read.push(listener),
            Err(found) => mistakes.extend(found),
        }
    }
    let origins =
        (0..read.len()).map(|index| checker.document.locate(&format!("/{TABLE}/{LISTENERS}/{index}")));
    let origins = origins.collect();
    checker.adopt(mistakes);
    (read, origins)
}

fn listener(
    value: &Json,
    pointer: &str,
    taken: &mut HashMap<SocketAddr, String>,
) -> Result<GatewayListener, Vec<DocumentMistake>> {
    let mut reader = DocumentReader::new(value, pointer, &LISTENER_KEYS)?;
    let text = reader.text("listen", 1, 64);
    let listen: Option<SocketAddr> = text.and_then(|text| text.parse().ok());
    match (text, listen) {
        (_, Some(address)) => match taken.get(&address).filter(|_| address.port() != 0) {
            Some(first) => {
                reader.mistake("listen", format!("is {address}, as is {first}"), "an address of its own");
            }
            None => {
                taken.insert(address, path(&format!("{pointer}/listen")));
            }
        },
        (Some(text), None) => reader.mistake("listen", format!("is {text:?}"), ADDRESS),
        (None, None) if reader.field("listen").is_none() => reader.mistake("listen", "is missing", ADDRESS),
        (None, None) => {}
    }
    let mut proxy_protocol_from = Vec::new();
    for (index, text) in reader.texts("proxy_protocol_from", MAX_NETWORKS, 1, 64).into_iter().enumerate() {
        match text.parse() {
            Ok(network) => proxy_protocol_from.push(network),
            Err(_) => reader.mistake(
                &format!("proxy_protocol_from/{index}"),
                format!("is {text:?}"),
                "an address, or a network: \"10.0.0.0/8\"",
            ),
        }
    }
    let mut file = |field| reader.text(field, 1, 4_096).map(PathBuf::from);
    let [tls_certificate, tls_key, tls_client_ca] =
        ["tls_certificate", "tls_key", "tls_client_ca"].map(&mut file);
    match (&tls_certificate, &tls_key, &tls_client_ca) {
        (Some(_), None, _) => {
            reader.mistake("tls_certificate", "is given without tls_key", "both or neither")
        }
        (None, Some(_), _) => {
            reader.mistake("tls_key", "is given without tls_certificate", "both or neither")
        }
        (None, None, Some(_)) => {
            let accepted = "a certificate and its key beside it";
            reader.mistake("tls_client_ca", "is given without tls_certificate", accepted);
        }
        _ => {}
    }
    let is_client_auth_optional = client_auth(&mut reader);
    let https = https(&mut reader);
    match listen {
        Some(listen) if reader.mistakes.is_empty() => Ok(GatewayListener {
            listen,
            proxy_protocol_from,
            tls_certificate,
            tls_key,
            tls_client_ca,
            is_client_auth_optional,
            https,
        }),
        _ => Err(reader.mistakes),
    }
}

/// Whether clients without a certificate are let in, too.
fn client_auth(reader: &mut DocumentReader<'_>) -> bool {
    let wanted = reader.text("tls_client_auth", 1, 64);
    match wanted {
        Some("required" | "optional") if reader.field("tls_client_ca").is_none() => {
            let accepted = "tls_client_ca beside it";
            reader.mistake("tls_client_auth", "has no effect without tls_client_ca", accepted);
        }
        None | Some("required" | "optional") => {}
        Some(other) => {
            reader.mistake("tls_client_auth", format!("is {other:?}"), "\"required\", \"optional\"");
        }
    }
    wanted == Some("optional")
}

fn https(reader: &mut DocumentReader<'_>) -> HttpsRules {
    let is_tls = reader.field("tls_certificate").is_some();
    let port = reader.number("redirect_to_https", 1, 65_535);
    if port.is_some() && is_tls {
        let accepted = "a listener without tls_certificate";
        reader.mistake("redirect_to_https", "stands on a listener that has TLS", accepted);
    }
    let seconds = reader.number("hsts_seconds", 0, MAX_HSTS);
    let subdomains = reader.flag("hsts_subdomains");
    if seconds.is_some() && !is_tls {
        // Browsers ignore it there (RFC 6797, 8.1).
        reader.mistake("hsts_seconds", "has no effect without TLS", "tls_certificate beside it");
    }
    if subdomains.is_some() && seconds.is_none() {
        reader.mistake("hsts_subdomains", "has no effect without hsts_seconds", "hsts_seconds beside it");
    }
    let rules = match port.and_then(|port| u16::try_from(port).ok()) {
        Some(port) => HttpsRules::redirecting_to(port),
        None => HttpsRules::default(),
    };
    match seconds {
        Some(seconds) => rules.with_hsts(seconds, subdomains.unwrap_or(false)),
        None => rules,
    }
}

/// The JSON schema of the list of listeners.
pub(super) fn listeners_schema() -> Json {
    let file =
        |doc: &str| json!({ "type": "string", "minLength": 1, "maxLength": 4_096, "description": doc });
    json!({
        "type": "array",
        "maxItems": MAX_LISTENERS,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["listen"],
            "properties": {
                "listen": { "type": "string", "description": "Address of the listener." },
                "proxy_protocol_from": {
                    "type": "array",
                    "maxItems": MAX_NETWORKS,
                    "items": { "type": "string" },
                    "description": "Proxies in front, which begin each connection with a header of the PROXY protocol.",
                },
                "tls_certificate": file("PEM file with the certificate that this listener shows."),
                "tls_key": file("PEM file with the private key of tls_certificate, not encrypted."),
                "tls_client_ca": file("PEM file with the authorities of clients' certificates (mTLS)."),
                "tls_client_auth": {
                    "enum": ["required", "optional"],
                    "description": "Whether clients must show a certificate of these, or may.",
                },
                "redirect_to_https": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 65_535,
                    "description": "Every request is answered 308 to https:// with this port.",
                },
                "hsts_seconds": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": MAX_HSTS,
                    "description": "How long browsers are told to use TLS alone for this host.",
                },
                "hsts_subdomains": {
                    "type": "boolean",
                    "description": "Whether that holds for all names below the host.",
                },
            },
        },
    })
}
