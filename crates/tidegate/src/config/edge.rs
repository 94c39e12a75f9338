//! The file's `[[edge.listener]]`, `[[edge.backend]]` and `[[edge.place]]` entries, with the lines of the file put to
//! their mistakes.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tidegate_algorithms::policy::Mistake as DocumentMistake;
use tidegate_edge::config::{
    BACKEND_KEYS, EdgeConfig, LISTENER_KEYS, ListenerConfig, MAX_BACKENDS, MAX_LISTENERS, MAX_PLACES,
    PLACE_KEYS, each,
};

use super::document::Document;
use super::gateway::GatewayListener;
use super::mistake::{Found, Origin, path};
use super::policies::Checker;
use super::{Settings, gateway, listen_addresses};

/// The table that holds the lists, beside its settings.
pub(super) const TABLE: &str = "edge";

const LISTENERS: &str = "listener";

/// The arrays of tables in it.
pub(super) const LISTS: [&str; 3] = [LISTENERS, "backend", "place"];

/// What the file says of the edge.
#[derive(Debug, Default)]
pub(super) struct FileEdge {
    pub(super) layer: EdgeConfig,
    pub(super) listeners: Vec<ListenerConfig>,
    /// Where each listener stands.
    pub(super) origins: Vec<Origin>,
}

/// Checks the lists. Mistakes are added to `found`; lists with mistakes are left out.
pub(super) fn check(
    document: &Document<'_>,
    settings: &Settings,
    gateway: &[GatewayListener],
    found: &mut Found,
) -> FileEdge {
    let mut checker = Checker { document, found };
    let table = document.table(TABLE);
    let mut mistakes = Vec::new();
    let [listeners, backends, places] = LISTS.map(|list| match table.get(list) {
        None => Vec::new(),
        Some(Json::Array(values)) => values.clone(),
        Some(_) => {
            mistakes.push(DocumentMistake {
                pointer: format!("/{TABLE}/{list}"),
                problem: "is no list".to_owned(),
                accepted: format!("tables, each under [[{TABLE}.{list}]]"),
            });
            Vec::new()
        }
    });
    let pointer = format!("/{TABLE}/{LISTENERS}");
    let read = each(&pointer, &listeners, MAX_LISTENERS, &mut mistakes, ListenerConfig::read);
    let declared = gateway::declared(document);
    let listable = gateway::listable(&declared);
    let mut taken = taken(settings, gateway);
    let (mut listeners, mut origins) = (Vec::new(), Vec::new());
    for (index, listener) in read {
        let at = format!("{pointer}/{index}");
        match taken.get(&listener.listen).filter(|_| listener.listen.port() != 0) {
            Some(first) => mistakes.push(DocumentMistake {
                pointer: format!("{at}/listen"),
                problem: format!("is {}, as is {first}", listener.listen),
                accepted: "an address of its own".to_owned(),
            }),
            None => {
                taken.insert(listener.listen, path(&format!("{at}/listen")));
            }
        }
        mistakes.extend(strange_policies(&listener, &at, &listable));
        origins.push(checker.document.locate(&at));
        listeners.push(listener);
    }
    let layer = match tidegate_edge::config::check(&backends, &places) {
        Ok((backends, places)) => EdgeConfig { backends, places: places.into(), ..EdgeConfig::default() },
        Err(found) => {
            mistakes.extend(found);
            EdgeConfig::default()
        }
    };
    checker.adopt(mistakes);
    FileEdge { layer, listeners, origins }
}

/// The policies that a listener lists and the file does not have.
fn strange_policies(listener: &ListenerConfig, at: &str, listable: &[&str]) -> Vec<DocumentMistake> {
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

/// The addresses of the other listeners, and whose they are.
fn taken(settings: &Settings, gateway: &[GatewayListener]) -> HashMap<SocketAddr, String> {
    let own = listen_addresses(settings).into_iter().map(|(path, address)| (address, path.to_owned()));
    let place = |(index, listener): (usize, &GatewayListener)| {
        (listener.listen, format!("{}.{}[{index}].listen", gateway::TABLE, gateway::LISTENERS))
    };
    own.chain(gateway.iter().enumerate().map(place)).collect()
}

/// What is not wrong but looks like a mistake.
pub(super) fn warnings(edge: &EdgeConfig, listeners: &[ListenerConfig]) -> Vec<String> {
    let mut warnings = Vec::new();
    if listeners.is_empty() && !edge.backends.is_empty() {
        warnings.push("no backend of the edge has an effect, since there is no [[edge.listener]]".to_owned());
    }
    let apps: HashSet<&str> = listeners
        .iter()
        .flat_map(|listener| listener.server_names.iter().map(|names| &*names.app).chain([&*listener.app]))
        .collect();
    if !listeners.is_empty() {
        let strangers = edge.backends.iter().filter(|backend| !apps.contains(&*backend.app)).take(20);
        warnings.extend(strangers.map(|backend| {
            format!(
                "edge.backend {:?} gets nothing, since no listener is for its app {:?}",
                backend.name, backend.app
            )
        }));
    }
    warnings
}

/// The JSON schemas of the lists: their keys. What each accepts is said by `tidegate check`, and on the page.
pub(super) fn schemas() -> [(&'static str, Json); 3] {
    let list = |keys: &[&str], most: usize, required: &[&str]| {
        let properties: serde_json::Map<_, _> =
            keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect();
        json!({
            "type": "array",
            "maxItems": most,
            "items": {
                "type": "object",
                "additionalProperties": false,
                "required": required,
                "properties": properties,
            },
        })
    };
    [
        (LISTS[0], list(&LISTENER_KEYS, MAX_LISTENERS, &["listen"])),
        (LISTS[1], list(&BACKEND_KEYS, MAX_BACKENDS, &["name", "address"])),
        (LISTS[2], list(&PLACE_KEYS, MAX_PLACES, &[])),
    ]
}

/// The page of the reference.
pub(super) const REFERENCE: &str = "
## `[[edge.listener]]`

Where clients of the edge connect ([edge.md](edge.md)). Up to 64. A changed listener takes effect at the next
start, changed backends and places at once.

| key | default | accepted | what it is |
|---|---|---|---|
| `listen` | required | an address and a port | address of the listener, which may be public |
| `app` | `default` | a name | whose backends its connections go to |
| `server_names` | none | a list of up to 1,000 `{ names = [...], app = \"...\" }` | apps by the server name that TLS asks for, read without decrypting; `*.` at the beginning of a name stands for one label or more; other names go to `app`; what is no TLS is closed |
| `policies` | none | a list of up to 32 names of policies | what each connection is charged under, one unit each; a permit of a concurrency limit is held until the connection ends; a connection that is denied is closed |
| `byte_policies` | none | a list of up to 32 names of policies | what the bytes of both directions are charged under, one unit each; connections whose bytes are used up wait |
| `affinity` | `address` | off, address, server_name | what a client is known again by: its address (the /64 of an IPv6 one), alone or with the server name |
| `affinity_seconds` | 600 | 1 to 86,400 | how long a client that does not come back is remembered |
| `spill` | `at-hard` | never, at-soft, at-hard | when clients go to backends further away: never; when nearer ones are at their soft limits; when they are at their hard limits |
| `connect_seconds` | 1 | 0.01 to 86,400 | how long one backend may take to accept a connection; up to three are tried, together for twice as long |
| `idle_seconds` | 600 | 0.1 to 86,400 | how long both sides may be silent |
| `longest_seconds` | none | 0.1 to 86,400 | how long a connection may last |
| `on_unhealthy` | `keep` | keep, close | what becomes of connections whose backend is found to be down |
| `proxy_protocol_from` | none | a list of up to 100 addresses or networks | proxies in front, each of whose connections begins with a header of the PROXY protocol |
| `proxy_protocol_to` | none | v1, v2 | the header that backends are sent in front of each connection |
| `tls_certificate` | none | a file | PEM file with the certificate that it shows; clients must then speak TLS, and backends are spoken to without |
| `tls_key` | none | a file | PEM file with the certificate's private key, not encrypted |
| `tls_client_ca` | none | a file | PEM file with the authorities of clients' certificates (mTLS) |

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
| `slow_start_seconds` | 0 | 0 to 3,600 | how long it is given less than its share after it came up |
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
