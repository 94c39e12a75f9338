//! The gateway's part of the configuration: the file's `[[upstream]]`, `[[route]]` and `[[gateway.listener]]` entries, with the lines of the file put to
//! their mistakes.
//!
//! A route of the file must name an upstream and policies of the file (or the built-in policy, where it declares
//! none): a route whose limit is not there would be no limit at all. Stored routes may name whatever is in force.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tidegate_algorithms::document::DocumentReader;
use tidegate_algorithms::policy::Mistake as DocumentMistake;
use tidegate_gateway::config::{
    Auth, DocumentKey, MAX_ROUTES, MAX_UPSTREAMS, ROUTE_KEYS, RouteConfig, UPSTREAM_KEYS,
};
use tidegate_gateway::documents::GatewayLayer;
use tidegate_gateway::service::HttpsRules;
use tidegate_limiter::policy_set::DEFAULT_POLICY;
use tidegate_net::proxied::Network;
use tidegate_net::tls::{HTTP, TlsSettings};
use tidegate_settings::document::Document;

use super::checker::Checker;
use super::listener::{Listener, ListenerTls, ServiceListener, TlsSource};
use super::service::{ServiceConfig, Table};
use super::{Config, tls};

/// Most listeners of a gateway.
const MAX_LISTENERS: usize = 64;

/// The table that holds the listeners, beside its settings.
const TABLE: &str = "gateway";

/// The array of listeners in it.
const LISTENERS: &str = "listener";

/// Most networks of proxies in front of a listener.
const MAX_NETWORKS: usize = 100;

/// How long a client that has closed its side is still answered: one that waits for a quick reply gets it, and for one that has
/// left a server works no longer than this.
const HALF_CLOSED: Duration = Duration::from_millis(500);
/// The longest that a client which has closed its side may be waited for, in seconds.
const MAX_HALF_CLOSED: f64 = 3_600.0;

const LISTENER_KEYS: [&str; 13] = [
    "listen",
    "half_closed_seconds",
    "proxy_protocol_from",
    "tls_certificate",
    "tls_key",
    "tls_pairs",
    "tls_acme",
    "tls_client_ca",
    "tls_client_auth",
    "tls_min_version",
    "redirect_to_https",
    "hsts_seconds",
    "hsts_subdomains",
];
/// The longest that browsers are told to use TLS alone, in seconds: ten years.
const MAX_HSTS: u64 = 315_360_000;
const ADDRESS: &str = "an address and a port, as in \"127.0.0.1:8080\" or \"[::]:443\"";

/// Said where API keys are used without a secret for their digests. Set later, it makes every key unknown.
const KEY_SECRET_WARNING: &str = "a route asks for API keys, and gateway.key_secret is not set: their digests are made under no \
    secret. Set it before keys are issued, at all nodes; whoever sets it later makes every key unknown";

/// Where clients of the gateway connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayListener {
    /// Its address.
    pub listen: SocketAddr,
    /// How long a client of HTTP/1.1 that has closed its side, or has left, is still answered.
    pub half_closed: Duration,
    /// The proxies in front of it, which begin each connection with a header of the PROXY protocol; empty: there
    /// are none.
    pub proxy_protocol_from: Vec<Network>,
    /// Its TLS.
    pub tls: TlsSettings,
    /// Whether clients without a certificate are let in beside those.
    pub is_client_auth_optional: bool,
    /// What it does about plain HTTP.
    pub https: HttpsRules,
}

impl Listener {
    /// The gateway's, at this place among its listeners.
    #[must_use]
    pub const fn gateway(place: usize) -> Self {
        Self::of_list(TABLE, place)
    }
}

/// The gateway.
pub(super) const SERVICE: ServiceConfig = ServiceConfig {
    tables: &[
        Table { path: "upstream", schema: || documents_schema(MAX_UPSTREAMS, UPSTREAM_KEYS) },
        Table { path: "route", schema: || documents_schema(MAX_ROUTES, ROUTE_KEYS) },
        Table { path: "gateway.listener", schema: listeners_schema },
    ],
    check,
    listeners: |config| {
        let listener = |(place, it): (usize, &GatewayListener)| ServiceListener {
            listener: Listener::gateway(place),
            setting: "listen",
            address: Some(it.listen),
            tls: Some(ListenerTls {
                source: TlsSource::List {
                    files: it.tls.files(it.is_client_auth_optional),
                    has_acme: it.tls.acme,
                    passed: Vec::new(),
                    min_version: it.tls.min_version,
                },
                protocols: HTTP,
            }),
        };
        config.listeners.iter().enumerate().map(listener).collect()
    },
    warnings,
    serve: None,
};

/// Checks the lists. A list that has mistakes is left out.
fn check(checker: &mut Checker<'_>, config: &mut Config) {
    let upstreams = checker.entries("upstream", MAX_UPSTREAMS);
    let routes = checker.entries("route", MAX_ROUTES);
    // A policy with a mistake counts as declared: a route that lists it is not wrong for that.
    let declared = declared(checker.document);
    let layer = GatewayLayer::check(&upstreams, &routes, &listable(&declared));
    config.gateway = layer.unwrap_or_else(|mistakes| {
        checker.adopt(mistakes);
        GatewayLayer::default()
    });
    config.listeners = listeners(checker);
}

/// What is not wrong but looks like a mistake.
fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = unshown_certificates(config);
    if config.settings.gateway.key_secret.is_none() && config.gateway.asks_for_keys() {
        warnings.push(KEY_SECRET_WARNING.to_owned());
    }
    if config.listeners.is_empty() && config.gateway.counts().1 > 0 {
        warnings.push("no route has an effect, since there is no [[gateway.listener]]".to_owned());
    }
    warnings
}

/// Routes that demand a client's certificate although no listener asks for one, so that no client can show one.
fn unshown_certificates(Config { gateway, listeners, .. }: &Config) -> Vec<String> {
    if listeners.is_empty() || listeners.iter().any(|it| it.tls.client_ca.is_some()) {
        return Vec::new();
    }
    let is_certificate = |way: &Auth| matches!(way, Auth::Certificate(_));
    // One of several ways leaves the others.
    let asks = |route: &&Arc<RouteConfig>| match &route.auth {
        Some(Auth::Any { .. }) | None => false,
        Some(auth) => auth.ways().iter().any(is_certificate),
    };
    let routes = gateway.config().routes;
    let warning = |route: &Arc<RouteConfig>| {
        format!(
            "route {:?} refuses all requests, since it demands a client certificate and no [[gateway.listener]] asks \
             for one: set tls_client_ca",
            &*route.name
        )
    };
    routes.iter().filter(asks).map(warning).collect()
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

fn listeners(checker: &mut Checker<'_>) -> Vec<GatewayListener> {
    let list = checker.list(TABLE, LISTENERS);
    if list.len() > MAX_LISTENERS {
        let pointer = format!("/{TABLE}/{LISTENERS}/{MAX_LISTENERS}");
        checker.refuse(&pointer, format!("is one of {}", list.len()), format!("at most {MAX_LISTENERS}"));
    }
    let mut read = Vec::new();
    for (index, value) in list.iter().enumerate().take(MAX_LISTENERS) {
        let pointer = format!("/{TABLE}/{LISTENERS}/{index}");
        match listener(value, &pointer, Listener::gateway(read.len()), checker) {
            Ok(listener) => read.push(listener),
            Err(found) => checker.adopt(found),
        }
    }
    read
}

fn listener(
    value: &Json,
    pointer: &str,
    listener: Listener,
    checker: &mut Checker<'_>,
) -> Result<GatewayListener, Vec<DocumentMistake>> {
    let mut reader = DocumentReader::new(value, pointer, &LISTENER_KEYS)?;
    let text = reader.text("listen", 1, 64);
    let listen: Option<SocketAddr> = text.and_then(|text| text.parse().ok());
    match (text, listen) {
        (_, Some(address)) => checker.add_listener(listener, address, pointer),
        (Some(text), None) => reader.mistake("listen", format!("is {text:?}"), ADDRESS),
        (None, None) if reader.field("listen").is_none() => reader.mistake("listen", "is missing", ADDRESS),
        (None, None) => {}
    }
    let half_closed = reader.seconds("half_closed_seconds", 0.0, MAX_HALF_CLOSED);
    let half_closed = half_closed.map_or(HALF_CLOSED, Duration::from_nanos);
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
    let tls = TlsSettings::read(&mut reader, pointer);
    let is_client_auth_optional = client_auth(&mut reader);
    let https = https(&mut reader, tls.is_on());
    match listen {
        Some(listen) if reader.mistakes.is_empty() => Ok(GatewayListener {
            listen,
            half_closed,
            proxy_protocol_from,
            tls,
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

fn https(reader: &mut DocumentReader<'_>, is_tls: bool) -> HttpsRules {
    let port = reader.number("redirect_to_https", 1, 65_535);
    if port.is_some() && is_tls {
        let accepted = "a listener without tls_certificate and tls_acme";
        reader.mistake("redirect_to_https", "stands on a listener that has TLS", accepted);
    }
    let seconds = reader.number("hsts_seconds", 0, MAX_HSTS);
    let subdomains = reader.flag("hsts_subdomains");
    if seconds.is_some() && !is_tls {
        // Browsers ignore it there (RFC 6797, 8.1).
        reader.mistake("hsts_seconds", "has no effect without TLS", "tls_certificate or tls_acme beside it");
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

fn documents_schema(most: usize, keys: &'static [DocumentKey]) -> Json {
    json!({ "type": "array", "maxItems": most, "items": tidegate_gateway::config::schema(keys) })
}

/// The JSON schema of the list of listeners.
fn listeners_schema() -> Json {
    let mut schema = json!({
        "type": "array",
        "maxItems": MAX_LISTENERS,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["listen"],
            "properties": {
                "listen": { "type": "string", "description": "Address of the listener." },
                "half_closed_seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": MAX_HALF_CLOSED,
                    "description": "How long a client that has closed its side, or has left, is still answered.",
                },
                "proxy_protocol_from": {
                    "type": "array",
                    "maxItems": MAX_NETWORKS,
                    "items": { "type": "string" },
                    "description": "Proxies in front, which begin each connection with a header of the PROXY protocol.",
                },
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
    });
    let properties = schema["items"]["properties"].as_object_mut().expect("it is written so above");
    properties.extend(tls::listener_schema());
    schema
}
