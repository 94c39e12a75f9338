//! The edge's part of the configuration: its listeners, and the file's `[[edge.listener]]`, `[[edge.backend]]` and `[[edge.place]]` entries, with the lines of the file put to
//! their mistakes.

use std::collections::HashSet;
use std::sync::Arc;

use tidegate_algorithms::policy::Mistake as DocumentMistake;
use tidegate_edge::config::{
    BACKEND_KEYS, BackendConfig, LISTENER_KEYS, ListenerConfig, MAX_BACKENDS, MAX_LISTENERS, MAX_PLACES,
    PLACE_KEYS, each, is_own,
};
use tidegate_edge::documents::EdgeLayer;
use tidegate_limiter::policy_set::FileLayer;

use super::checker::Checker;
use super::listener::{Listener, ListenerTls, ServiceListener, TlsSource};
use super::policies::RETURNABLE;
use super::service::{ServiceConfig, Table, list_schema};
use super::{Config, RegionName, gateway};

/// The table that holds the lists, beside its settings.
const TABLE: &str = "edge";

const LISTENERS: &str = "listener";

impl Listener {
    /// The edge's, at this place among its listeners.
    #[must_use]
    pub const fn edge(place: usize) -> Self {
        Self::of_list(TABLE, place)
    }

    /// The registration API.
    pub const REGISTRATION: Self = Self::of_settings(TABLE, "registration");
    /// The server of names.
    pub const NAMES: Self = Self::of_settings(TABLE, "names");
}

/// The edge.
pub(super) const SERVICE: ServiceConfig = ServiceConfig {
    tables: &[
        Table { path: "edge.listener", schema: || list_schema(&LISTENER_KEYS, MAX_LISTENERS, &["listen"]) },
        Table {
            path: "edge.backend",
            schema: || list_schema(&BACKEND_KEYS, MAX_BACKENDS, &["name", "address"]),
        },
        Table { path: "edge.place", schema: || list_schema(&PLACE_KEYS, MAX_PLACES, &[]) },
    ],
    check,
    listeners: |config| {
        let settings = &config.settings.edge;
        let listener = |(place, it): (usize, &ListenerConfig)| ServiceListener {
            listener: Listener::edge(place),
            setting: "listen",
            address: Some(it.listen),
            tls: Some(ListenerTls {
                source: TlsSource::List {
                    files: it.tls.files(false),
                    has_acme: it.tls.acme,
                    passed: it.tls_alpn.clone(),
                    min_version: it.tls.min_version,
                },
                protocols: &[],
            }),
        };
        let of_settings = [
            ServiceListener::plain(Listener::REGISTRATION, "api_listen", settings.api_listen),
            ServiceListener::plain(Listener::NAMES, "dns_listen", settings.dns_listen),
        ];
        of_settings.into_iter().chain(config.edge_listeners.iter().enumerate().map(listener)).collect()
    },
    warnings,
    serve: None,
};

/// Checks the lists. Lists with mistakes are left out.
fn check(checker: &mut Checker<'_>, config: &mut Config) {
    let mut mistakes = Vec::new();
    let [listeners, backends, places] = [LISTENERS, "backend", "place"].map(|list| checker.list(TABLE, list));
    let pointer = format!("/{TABLE}/{LISTENERS}");
    let read = each(&pointer, &listeners, MAX_LISTENERS, &mut mistakes, ListenerConfig::read);
    let declared = gateway::declared(checker.document);
    let listable = gateway::listable(&declared);
    for (index, listener) in read {
        let at = format!("{pointer}/{index}");
        checker.add_listener(Listener::edge(config.edge_listeners.len()), listener.listen, &at);
        mistakes.extend(unlistable_policies(&listener, &at, &listable));
        mistakes.extend(unreturnable_bytes(&listener, &at, &config.layer));
        config.edge_listeners.push(listener);
    }
    let layer = EdgeLayer::check(&backends, &places).unwrap_or_else(|found| {
        mistakes.extend(found);
        EdgeLayer::default()
    });
    checker.adopt(mistakes);
    config.edge = layer;
    let (edge, settings) = (&mut config.edge.config, &config.settings.edge);
    edge.region = settings.region.as_ref().map(|RegionName(name)| name.as_str().into());
    edge.database = settings.country_database.clone();
    edge.round_trip_tiers = settings.round_trip_tiers;
    edge.listeners = config.edge_listeners.iter().cloned().map(Arc::new).collect();
}

/// The policies that a listener lists and the file does not have.
fn unlistable_policies(listener: &ListenerConfig, at: &str, listable: &[&str]) -> Vec<DocumentMistake> {
    let lists = [("policies", &listener.policies), ("byte_policies", &listener.byte_policies)];
    let each = lists
        .into_iter()
        .flat_map(|(key, names)| names.iter().enumerate().map(move |(index, name)| (key, index, name)));
    let strange = each.filter(|(.., name)| !listable.contains(&&***name));
    let mistake = |(key, index, name): (&str, usize, &Arc<str>)| DocumentMistake {
        pointer: format!("{at}/{key}/{index}"),
        problem: format!("is {name:?}, which is no policy of the file"),
        accepted: format!("one of {}", listable[..listable.len().min(20)].join(", ")),
    };
    strange.map(mistake).collect()
}

/// The concurrency limits that a listener charges bytes under: they would limit nothing, since no byte is given back.
fn unreturnable_bytes(listener: &ListenerConfig, at: &str, layer: &FileLayer) -> Vec<DocumentMistake> {
    let listed = listener.byte_policies.iter().enumerate();
    let mistake = |(index, name): (usize, &Arc<str>)| DocumentMistake {
        pointer: format!("{at}/byte_policies/{index}"),
        problem: format!("is {name:?}, a concurrency limit, and bytes are never given back"),
        accepted: RETURNABLE.to_owned(),
    };
    listed.filter(|(_, name)| layer.is_concurrent(name)).map(mistake).collect()
}

/// What is not wrong but looks like a mistake.
fn warnings(config: &Config) -> Vec<String> {
    let (edge, listeners) = (&config.edge.config, &config.edge_listeners);
    let mut warnings = Vec::new();
    if listeners.is_empty() && !edge.backends.is_empty() {
        warnings.push("no backend of the edge has an effect, since there is no [[edge.listener]]".to_owned());
    }
    let apps: HashSet<&str> = listeners
        .iter()
        .flat_map(|listener| listener.server_names.iter().map(|names| &*names.app).chain([&*listener.app]))
        .collect();
    if !listeners.is_empty() {
        let unserved = edge.backends.iter().filter(|backend| !apps.contains(&*backend.app)).take(20);
        warnings.extend(unserved.map(|backend| {
            format!(
                "edge.backend {:?} gets nothing, since no listener is for its app {:?}",
                backend.name, backend.app
            )
        }));
    }
    warnings.extend(circles(&edge.backends, listeners));
    warnings.extend(listeners.iter().filter_map(|listener| unreadable(listener, &edge.backends)));
    warnings.extend(unnamed(config));
    warnings
}

/// What is said of a node with names whose listeners have no address that can be in them.
fn unnamed(config: &Config) -> Option<String> {
    let settings = &config.settings.edge;
    if settings.dns_listen.is_none() || !settings.advertise.is_empty() {
        return None;
    }
    let RegionName(region) = settings.region.as_ref()?;
    let listener = config.edge_listeners.iter().find(|listener| listener.listen.ip().is_unspecified())?;
    Some(format!(
        "edge.listener {} is on every address of its machine, so that {region}.pops.internal has no address of it: say in \
         edge.advertise at which addresses clients reach this node",
        listener.listen
    ))
}

/// Backends that are the edge itself.
fn circles(backends: &[Arc<BackendConfig>], listeners: &[ListenerConfig]) -> Vec<String> {
    let own = |backend: &&Arc<BackendConfig>| is_own(&backend.target, listeners.iter().map(|it| it.listen));
    let warning = |backend: &Arc<BackendConfig>| {
        format!(
            "edge.backend {:?} gets nothing, since the edge itself listens at its address, {}",
            backend.name, backend.target
        )
    };
    backends.iter().filter(own).take(20).map(warning).collect()
}

/// Protocols whose clients ask in clear whether they may begin TLS, by their usual ports.
const STARTTLS: [(u16, &str); 8] = [
    (21, "FTP"),
    (25, "SMTP"),
    (110, "POP3"),
    (143, "IMAP"),
    (389, "LDAP"),
    (587, "SMTP"),
    (3306, "MySQL"),
    (5432, "PostgreSQL"),
];

/// What is said of a listener that waits for a TLS hello which its backends' clients do not begin with.
fn unreadable(listener: &ListenerConfig, backends: &[Arc<BackendConfig>]) -> Option<String> {
    if !listener.reads_server_name() || listener.tls.is_on() {
        return None;
    }
    let served = backends.iter().filter(|backend| listener.serves(&backend.app));
    let found = served.map(|it| it.target.port).find_map(|port| STARTTLS.iter().find(|it| it.0 == port));
    found.map(|(port, protocol)| {
        let unless = if *protocol == "PostgreSQL" { ", unless they say sslnegotiation=direct" } else { "" };
        format!(
            "edge.listener {} closes clients that do not begin with a TLS hello, and has backends on port {port}: clients of \
             {protocol} ask for TLS in clear first (STARTTLS), which is not supported where server names are read{unless}",
            listener.listen
        )
    })
}

/// The page of the reference.
pub(super) const REFERENCE: &str = "
## `[[edge.listener]]`

Where clients of the edge connect ([edge.md](edge.md)). Up to 64. What a listener does with connections changes with the file
at once, as backends and places do, and connections go on as they began. A listener that comes, goes, or changes its address, the proxies in
front of it (`proxy_protocol_from`) or its TLS takes effect with the file, too, without a restart
([what happens to its connections](gateway.md#changed-listeners)).

| key | default | accepted | what it is |
|---|---|---|---|
| `listen` | required | an address and a port | address of the listener, which may be public |
| `app` | `default` | a name | whose backends its connections go to |
| `server_names` | none | a list of up to 1,000 `{ names = [...], app = \"...\" }` | apps by the server name that TLS asks for, read without decrypting; `*.` at the beginning of a name stands for one label or more; other names go to `app`; what is no TLS is closed |
| `policies` | none | a list of up to 32 names of policies | what each connection is charged under, one unit each; a permit of a concurrency limit is held until the connection ends; a connection that is denied is closed |
| `byte_policies` | none | a list of up to 32 names of policies | what the bytes of both directions are charged under; connections whose bytes are used up wait |
| `byte_unit` | 1 | 1 to 65,536 | how many bytes one unit of `byte_policies` stands for; a unit that is used in part is charged whole |
| `affinity` | `address` | off, address, server_name | what a client is known again by: its address (the /64 of an IPv6 one), alone or with the server name |
| `affinity_seconds` | 600 | 1 to 86,400 | how long a client that does not come back is remembered |
| `spill` | `at-hard` | never, at-soft, at-hard | when clients go to backends further away: never; when nearer ones are at their soft limits; when they are at their hard limits |
| `connect_seconds` | 1 | 0.01 to 86,400 | how long a backend may take to accept a connection; up to eight are tried, together for twice as long, so that later ones may have less |
| `idle_seconds` | 600 | 0.1 to 86,400 | how long both sides may be silent |
| `longest_seconds` | none | 0.1 to 86,400 | how long a connection may last |
| `on_unhealthy` | `keep` | keep, close | what becomes of connections whose backend is found to be down |
| `proxy_protocol_from` | none | a list of up to 100 addresses or networks | proxies in front, each of whose connections begins with a header of the PROXY protocol |
| `proxy_protocol_to` | none | v1, v2 | the header that backends are sent in front of each connection |
| `tls_certificate` | none | a file | PEM file with the certificate that it shows; clients must then speak TLS, and backends are spoken to without |
| `tls_key` | none | a file | PEM file with the certificate's private key, not encrypted |
| `tls_pairs` | none | a list of up to 1,000 `{ certificate = \"...\", key = \"...\" }` | more certificates, each shown to clients that ask for a name in it; `*.` stands for one label, exact names come first, no two have the same one |
| `tls_acme` | false | true, false | whether it shows the certificates that are ordered for `acme.names`; clients must then speak TLS, and who asks for another name is shown `tls_certificate` |
| `tls_client_ca` | none | a file | PEM file with the authorities of clients' certificates (mTLS) |
| `tls_min_version` | `\"1.2\"` | `\"1.2\"`, `\"1.3\"` | the oldest version of TLS that clients may speak; who speaks older ones alone is refused in the handshake |
| `tls_alpn` | none | a list of up to 16 strings | what its backends speak, the preferred one first, as clients ask for it by ALPN: `[\"h2\", \"http/1.1\"]`, `[\"postgresql\"]`; clients that insist on it (gRPC in Go, browsers for HTTP/2, direct TLS of PostgreSQL 17) give up without; a client that asks for others only is refused |

## `[[edge.backend]]`

| key | default | accepted | what it is |
|---|---|---|---|
| `name` | required | a name | its name, which no other backend has |
| `app` | `default` | a name | what it serves |
| `address` | required | a host and a port | where it is |
| `region` | none | a name | its region |
| `country` | none | two letters of ISO 3166 | its country |
| `weight` | 1 | 0 to 1,000 | its share among its like; 0: nothing new |
| `soft_limit` | 100, or `hard_limit` if that is less | 1 to 1,000,000 | connections that it is meant to have from this node |
| `hard_limit` | 150, or `soft_limit` if that is more | 1 to 1,000,000 | connections that it may have from this node |
| `priority` | 0 | 0 to 100 | used when no backend of a lower number has room |
| `drain` | false | true, false | whether it gets nothing new, while what it has lives on |
| `slow_start_seconds` | 0 | 0 to 3,600 | how long it is given less than its share after it came up, was reached again, or came while its app had backends |
| `check.kind` | `tcp` | tcp, http, tls, off | how it is checked: a connection; a request answered with 2xx; a TLS hello that is answered; not at all |
| `check.path` | `/` | a path | what the request is for |
| `check.interval_seconds` | 10 | 0.1 to 3,600 | time between two checks |
| `check.timeout_seconds` | 5 | 0.05 to 60 | how long one may take |
| `check.fall`, `check.rise` | 3, 2 | 1 to 100 | failures in a row that take it down, successes that bring it up |

## `[[edge.place]]`

Where clients are. Each place has `networks` or `countries`; of networks the most exact one wins.

| key | default | accepted | what it is |
|---|---|---|---|
| `networks` | none | a list of up to 10,000 addresses or networks | clients of these addresses |
| `countries` | none | a list of up to 10,000 countries | clients of these countries, wherever that is known from |
| `country` | none | two letters of ISO 3166 | the country of these addresses |
| `region` | none | a name | the region of these addresses or countries |
";
