//! A listener: where clients connect, which app is behind it, and the bounds of its connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate_algorithms::balance::region::Spill;
use tidegate_algorithms::document::{DocumentReader, Mistake, shown};
use tidegate_net::proxied::Network;
use tidegate_net::tls::TlsSettings;
use tidegate_wire::proxy_protocol::ProxyVersion;

use super::{DEFAULT_APP, optional_name};

/// The keys of a listener.
pub const LISTENER_KEYS: [&str; 22] = [
    "listen",
    "app",
    "server_names",
    "policies",
    "byte_policies",
    "byte_unit",
    "affinity",
    "affinity_seconds",
    "spill",
    "connect_seconds",
    "idle_seconds",
    "longest_seconds",
    "on_unhealthy",
    "proxy_protocol_from",
    "proxy_protocol_to",
    "tls_certificate",
    "tls_key",
    "tls_pairs",
    "tls_acme",
    "tls_client_ca",
    "tls_min_version",
    "tls_alpn",
];

const NAME_KEYS: [&str; 2] = ["names", "app"];

/// Most policies of each list.
const MAX_POLICIES: usize = 32;
/// Most bytes of one unit.
const MAX_BYTE_UNIT: u64 = 64 << 10;
/// Most networks of proxies in front of a listener.
const MAX_NETWORKS: usize = 100;
/// Most application protocols of a listener, and the longest name of one (RFC 7301).
const MAX_PROTOCOLS: usize = 16;
const MAX_PROTOCOL: usize = 255;
/// Most entries of `server_names`, and most names of one.
const MAX_NAMES: usize = 1_000;
const DAY: f64 = 86_400.0;
const ADDRESS: &str = "an address and a port, as in \"127.0.0.1:8080\" or \"[::]:443\"";

/// A listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConfig {
    /// Its address.
    pub listen: SocketAddr,
    /// The app whose backends its connections go to.
    pub app: Arc<str>,
    /// Apps by the server name that TLS asks for, which is read without decrypting. Empty: it is not looked at.
    pub server_names: Arc<[ServerNames]>,
    /// The policies that each connection is charged under, one unit each.
    pub policies: Vec<Arc<str>>,
    /// The policies that bytes in both directions are charged under.
    pub byte_policies: Vec<Arc<str>>,
    /// How many bytes one unit of these stands for.
    pub byte_unit: u64,
    /// What a client is known again by.
    pub affinity: Affinity,
    /// How long a client that does not come back is remembered.
    pub affinity_idle: Duration,
    /// When clients go to the next tier.
    pub spill: Spill,
    /// How long one backend may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long both sides may be silent.
    pub idle_timeout: Duration,
    /// How long a connection may last.
    pub longest: Option<Duration>,
    /// What becomes of connections whose backend is found to be down.
    pub on_unhealthy: OnUnhealthy,
    /// The proxies in front of it.
    pub proxy_protocol_from: Vec<Network>,
    /// The header that backends are sent in front of each connection.
    pub proxy_protocol_to: Option<ProxyVersion>,
    /// Its TLS; where it is on, backends are spoken to without.
    pub tls: TlsSettings,
    /// The application protocols that are agreed on where its TLS is on, the preferred one first: those that backends speak.
    pub tls_alpn: Vec<Box<str>>,
}

/// Names that lead to an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNames {
    /// In lower case; `*.` at the beginning stands for one label or more.
    pub names: Vec<Box<str>>,
    /// The app.
    pub app: Arc<str>,
}

/// What a client is known again by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Nothing: each connection goes where the score is best.
    Off,
    /// Its address; the /64 of an IPv6 one.
    #[default]
    Address,
    /// Its address and the server name that it asks for.
    ServerName,
}

/// What becomes of connections whose backend is found to be down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnhealthy {
    /// They live on.
    #[default]
    Keep,
    /// They are closed.
    Close,
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Header {
    V1,
    V2,
}

impl ListenerConfig {
    /// A listener as it is without further words.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            app: DEFAULT_APP.into(),
            server_names: Arc::default(),
            policies: Vec::new(),
            byte_policies: Vec::new(),
            byte_unit: 1,
            affinity: Affinity::default(),
            affinity_idle: Duration::from_secs(600),
            spill: Spill::default(),
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(600),
            longest: None,
            on_unhealthy: OnUnhealthy::default(),
            proxy_protocol_from: Vec::new(),
            proxy_protocol_to: None,
            tls: TlsSettings::default(),
            tls_alpn: Vec::new(),
        }
    }

    /// Reads a document of which `pointer` says where it is.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(value: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &LISTENER_KEYS)?;
        let listen = listen(&mut reader);
        let base = Self::new(listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))));
        let seconds = |reader: &mut DocumentReader<'_>, field, least| {
            reader.seconds(field, least, DAY).map(Duration::from_nanos)
        };
        let mut read = Self {
            app: optional_name(&mut reader, "app").unwrap_or(base.app),
            server_names: server_names(&mut reader, pointer).into(),
            policies: policies(&mut reader, "policies"),
            byte_policies: policies(&mut reader, "byte_policies"),
            byte_unit: reader.number("byte_unit", 1, MAX_BYTE_UNIT).unwrap_or(base.byte_unit),
            affinity: reader.choice("affinity", "\"off\", \"address\", \"server_name\"").unwrap_or_default(),
            affinity_idle: seconds(&mut reader, "affinity_seconds", 1.0).unwrap_or(base.affinity_idle),
            spill: reader.choice("spill", "\"never\", \"at-soft\", \"at-hard\"").unwrap_or_default(),
            connect_timeout: seconds(&mut reader, "connect_seconds", 0.01).unwrap_or(base.connect_timeout),
            idle_timeout: seconds(&mut reader, "idle_seconds", 0.1).unwrap_or(base.idle_timeout),
            longest: seconds(&mut reader, "longest_seconds", 0.1),
            on_unhealthy: reader.choice("on_unhealthy", "\"keep\", \"close\"").unwrap_or_default(),
            proxy_protocol_from: networks(&mut reader, "proxy_protocol_from"),
            proxy_protocol_to: reader.choice("proxy_protocol_to", "\"v1\", \"v2\"").map(
                |header| match header {
                    Header::V1 => ProxyVersion::One,
                    Header::V2 => ProxyVersion::Two,
                },
            ),
            tls: TlsSettings::read(&mut reader, pointer),
            tls_alpn: Vec::new(),
            listen: base.listen,
        };
        read.tls_alpn = protocols(&mut reader, &read.tls);
        if reader.mistakes.is_empty() && listen.is_some() { Ok(read) } else { Err(reader.mistakes) }
    }

    /// The app for a server name: that of the exact name, or else of the longest pattern; or else the listener's own.
    #[must_use]
    pub fn app_for(&self, name: Option<&str>) -> &Arc<str> {
        let Some(name) = name else { return &self.app };
        let mut best: Option<(usize, &Arc<str>)> = None;
        for entry in self.server_names.iter() {
            for pattern in &entry.names {
                if **pattern == *name {
                    return &entry.app;
                }
                let fits = pattern
                    .strip_prefix('*')
                    .is_some_and(|end| name.len() > end.len() && name.ends_with(end));
                if fits && best.is_none_or(|(length, _)| pattern.len() > length) {
                    best = Some((pattern.len(), &entry.app));
                }
            }
        }
        best.map_or(&self.app, |(_, app)| app)
    }

    /// Whether it has connections for `app`.
    #[must_use]
    pub fn serves(&self, app: &str) -> bool {
        *self.app == *app || self.server_names.iter().any(|entry| *entry.app == *app)
    }

    /// Whether a connection begins with a ClientHello that is read for its name, unless TLS ends here.
    #[must_use]
    pub fn reads_server_name(&self) -> bool {
        !self.server_names.is_empty() || self.affinity == Affinity::ServerName
    }

    /// What a connection meets before it is known what is to become of it: the address, the proxies in front, and the TLS.
    /// What is done with it then is as if nothing were said.
    #[must_use]
    pub fn front(&self) -> Self {
        Self {
            proxy_protocol_from: self.proxy_protocol_from.clone(),
            tls: self.tls.clone(),
            tls_alpn: self.tls_alpn.clone(),
            ..Self::new(self.listen)
        }
    }

    /// Whether the other one can take its place without a socket being opened, and with the same proxies in front and
    /// the same TLS.
    pub(crate) fn has_socket_of(&self, other: &Self) -> bool {
        self.listen == other.listen
            && self.proxy_protocol_from == other.proxy_protocol_from
            && self.tls == other.tls
            && self.tls_alpn == other.tls_alpn
    }
}

fn listen(reader: &mut DocumentReader<'_>) -> Option<SocketAddr> {
    let Some(value) = reader.field("listen") else {
        reader.mistake("listen", "is missing", ADDRESS);
        return None;
    };
    let address = value.as_str().and_then(|text| text.parse().ok());
    if address.is_none() {
        reader.mistake("listen", format!("is {}", shown(value)), ADDRESS);
    }
    address
}

fn policies(reader: &mut DocumentReader<'_>, field: &str) -> Vec<Arc<str>> {
    reader.texts(field, MAX_POLICIES, 1, 64).into_iter().map(Arc::from).collect()
}

fn protocols(reader: &mut DocumentReader<'_>, tls: &TlsSettings) -> Vec<Box<str>> {
    let protocols = reader.texts("tls_alpn", MAX_PROTOCOLS, 1, MAX_PROTOCOL);
    if !protocols.is_empty() && !tls.is_on() {
        reader.mistake(
            "tls_alpn",
            "has no effect without TLS",
            "tls_certificate, tls_pairs or tls_acme beside it",
        );
    }
    protocols.into_iter().map(Box::from).collect()
}

fn networks(reader: &mut DocumentReader<'_>, field: &str) -> Vec<Network> {
    let mut networks = Vec::new();
    for (index, text) in reader.texts(field, MAX_NETWORKS, 1, 64).into_iter().enumerate() {
        match text.parse() {
            Ok(network) => networks.push(network),
            Err(_) => reader.mistake(
                &format!("{field}/{index}"),
                format!("is {text:?}"),
                "an address, or a network: \"10.0.0.0/8\"",
            ),
        }
    }
    networks
}

fn server_names(reader: &mut DocumentReader<'_>, pointer: &str) -> Vec<ServerNames> {
    let mut read = Vec::new();
    for (index, value) in reader.list("server_names", MAX_NAMES).iter().enumerate() {
        let at = format!("{pointer}/server_names/{index}");
        let mut entry = match DocumentReader::new(value, &at, &NAME_KEYS) {
            Ok(entry) => entry,
            Err(mistakes) => {
                reader.mistakes.extend(mistakes);
                continue;
            }
        };
        let app = entry.name("app").map(Arc::from);
        let mut names: Vec<Box<str>> = Vec::new();
        for (place, name) in entry.texts("names", MAX_NAMES, 1, 253).into_iter().enumerate() {
            let host = name.strip_prefix("*.").unwrap_or(name);
            let is_name = host.split('.').all(|label| {
                !label.is_empty()
                    && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            });
            if is_name {
                names.push(name.to_ascii_lowercase().into());
            } else {
                let accepted = "a host's name, or one that begins with \"*.\"";
                entry.mistake(&format!("names/{place}"), format!("is {name:?}"), accepted);
            }
        }
        if names.is_empty() && entry.mistakes.is_empty() {
            entry.mistake("names", "has no entry", "a list of hosts' names");
        }
        reader.mistakes.append(&mut entry.mistakes);
        read.extend(app.map(|app| ServerNames { names, app }));
    }
    read
}
