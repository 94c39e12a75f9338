//! `upstream` blocks, and the upstreams that `proxy_pass` names by address.
//!
//! nginx keeps time and retries with the location, Tidegate with the upstream: the first location that uses an
//! upstream says them, and another one that says something else is not imported.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::product::{ProductTable, SourceLocation};
use super::Importer;
use super::files::Node;
use super::known::is_tls_1_3_alone;
use super::scope::Scope;
use super::units::{milliseconds, seconds};

/// The upstreams of a file.
#[derive(Default)]
pub(super) struct Upstreams<'n> {
    /// Blocks by name.
    blocks: BTreeMap<&'n str, &'n Node>,
    /// The upstreams that are used, by scheme and authority, and what each location must say of them.
    used: BTreeMap<(bool, String), Used>,
}

#[derive(Clone)]
struct Used {
    name: String,
    /// The upstream of its backup servers.
    backup: Option<String>,
    settings: Vec<(&'static str, Value)>,
}

/// Where a `proxy_pass` goes.
pub(super) struct Destination {
    pub(super) upstream: String,
    pub(super) backup: Option<String>,
}

impl<'n> Importer<'n> {
    pub(super) fn declare_upstreams(&mut self, nodes: &'n [Node]) {
        for node in nodes.iter().filter(|node| node.name == "upstream") {
            match node.argument() {
                Some(name) => drop(self.upstreams.blocks.insert(name, node)),
                None => self.product.lacks(&node.source(), "upstream", "has no name"),
            }
        }
    }

    pub(super) fn unused_upstreams(&mut self) {
        for (name, node) in &self.upstreams.blocks {
            let is_used = self.upstreams.used.keys().any(|(_, authority)| authority == name);
            if !is_used {
                self.product.differs(&node.source(), "upstream", format!("{name} is not used, and left out"));
            }
        }
    }

    /// The upstream behind `authority`, made when it is used for the first time.
    pub(super) fn destination(
        &mut self,
        node: &'n Node,
        is_tls: bool,
        authority: &str,
        scope: &Scope<'n>,
    ) -> Option<Destination> {
        let settings = self.settings(scope, is_tls);
        let key = (is_tls, authority.to_owned());
        if let Some(used) = self.upstreams.used.get(&key).cloned() {
            if used.settings != settings {
                let problem =
                    format!("uses {authority} with other times, retries or TLS than a location before it");
                self.product.lacks(&node.source(), "proxy_pass", problem);
                return None;
            }
            return Some(Destination { upstream: used.name, backup: used.backup });
        }
        let block = self.upstreams.blocks.get(authority).copied();
        let name = self.product.name(&[authority]);
        let source = block.map_or_else(|| node.source(), Node::source);
        let mut document = ProductTable::new(source.clone());
        document.set("name", name.clone());
        let scheme = if is_tls { "https" } else { "http" };
        let backups = match block.and_then(|block| block.block.as_deref()) {
            Some(nodes) => self.block(nodes, scheme, &mut document),
            None => {
                document.set("servers", json!([url(scheme, authority)]));
                Vec::new()
            }
        };
        document.fields.extend(settings.iter().cloned());
        let backup = (!backups.is_empty()).then(|| self.backup(&name, backups, &settings, source));
        self.product.upstreams.push(document);
        if is_tls && !scope.is_on("proxy_ssl_verify") {
            let problem =
                "the certificates of its servers are verified here, which nginx does not do by default";
            self.product.differs(&node.source(), "proxy_pass", problem);
        }
        let used = Used { name: name.clone(), backup: backup.clone(), settings };
        self.upstreams.used.insert(key, used);
        Some(Destination { upstream: name, backup })
    }

    /// Its servers and what else its block says; those that are marked `backup` apart.
    fn block(&mut self, nodes: &'n [Node], scheme: &str, document: &mut ProductTable) -> Vec<Value> {
        let (mut servers, mut backups) = (Vec::new(), Vec::new());
        let mut ejections = Vec::new();
        document.set("balance", "round_robin");
        for node in nodes {
            match (node.name.as_str(), &node.words()[..]) {
                ("server", [address, options @ ..]) => {
                    if let Some((server, is_backup)) =
                        self.upstream_server(node, scheme, address, options, &mut ejections)
                    {
                        if is_backup { backups.push(server) } else { servers.push(server) }
                    }
                }
                ("least_conn", []) => document.set("balance", "least_requests"),
                ("ip_hash", []) => document.set("balance", "ring_hash"),
                ("hash", [variable, ..]) => match hash_by(variable) {
                    Some(by) => {
                        document.set("balance", "ring_hash");
                        document.set("hash_by", by);
                    }
                    None => self.product.lacks(
                        &node.source(),
                        "hash",
                        format!("{variable} is not understood here"),
                    ),
                },
                ("keepalive", [count, ..]) => match count.parse::<u64>() {
                    Ok(count) => document.set("idle_connections", count),
                    Err(_) => self.product.lacks(&node.source(), "keepalive", "is no number"),
                },
                ("keepalive_timeout", [time, ..]) => match seconds(time) {
                    Some(time) => document.set("idle_timeout_seconds", time),
                    None => self.product.lacks(&node.source(), "keepalive_timeout", "is no time"),
                },
                ("zone" | "keepalive_requests" | "keepalive_time", _) => {
                    self.product.differs(&node.source(), &node.name, "has no counterpart, and needs none");
                }
                _ => self.product.lacks(&node.source(), &node.name, "is not understood here"),
            }
        }
        document.set("servers", servers);
        self.ejection(nodes, &ejections, document);
        backups
    }

    /// One server, and whether it is asked only when no other is there.
    fn upstream_server(
        &mut self,
        node: &Node,
        scheme: &str,
        address: &str,
        options: &[&str],
        ejections: &mut Vec<(Option<u64>, Option<Value>)>,
    ) -> Option<(Value, bool)> {
        if address.starts_with("unix:") || address.contains('$') {
            self.product.lacks(&node.source(), "server", format!("{address} is not understood here"));
            return None;
        }
        let mut server = Map::new();
        server.insert("url".to_owned(), json!(url(scheme, address)));
        let (mut is_backup, mut ejection) = (false, (None, None));
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let number = value.parse::<u64>().ok();
            match (name, number) {
                ("weight", Some(weight)) => drop(server.insert("weight".to_owned(), json!(weight))),
                ("max_conns", Some(most)) if most > 0 => {
                    drop(server.insert("max_requests".to_owned(), json!(most)))
                }
                ("max_fails", Some(count)) => ejection.0 = Some(count),
                ("fail_timeout", _) if milliseconds(value).is_some() => ejection.1 = seconds(value),
                ("backup", _) => is_backup = true,
                ("down", _) => drop(server.insert("weight".to_owned(), json!(0))),
                ("max_conns", Some(_)) | ("resolve", _) => {}
                _ => self.product.lacks(&node.source(), "server", format!("{option} is not understood here")),
            }
        }
        ejections.push(ejection);
        let is_plain = server.len() == 1;
        let value = if is_plain { server.remove("url").unwrap_or_default() } else { Value::Object(server) };
        Some((value, is_backup))
    }

    /// When a server is left out: a matter of the upstream here, of the server there.
    fn ejection(
        &mut self,
        nodes: &[Node],
        ejections: &[(Option<u64>, Option<Value>)],
        document: &mut ProductTable,
    ) {
        let Some(first) = ejections.first() else { return };
        if ejections.iter().any(|other| other != first) {
            let server = nodes.iter().find(|node| node.name == "server");
            if let Some(server) = server {
                let problem = "max_fails and fail_timeout differ among the servers, and are left out";
                self.product.differs(&server.source(), "server", problem);
            }
            return;
        }
        if let (Some(count), _) = first {
            document.set("eject_after", *count);
        }
        if let (_, Some(time)) = first {
            document.set("eject_seconds", time.clone());
        }
    }

    /// Backup servers as an upstream of their own, which is the routes' fallback.
    fn backup(
        &mut self,
        of: &str,
        servers: Vec<Value>,
        settings: &[(&'static str, Value)],
        source: SourceLocation,
    ) -> String {
        let name = self.product.name(&[of, "backup"]);
        let mut document = ProductTable::new(source);
        document.set("name", name.clone());
        document.set("servers", servers);
        document.set("balance", "round_robin");
        document.fields.extend(settings.iter().cloned());
        self.product.upstreams.push(document);
        name
    }

    /// What the directives of a location say of the upstream that it uses.
    fn settings(&mut self, scope: &Scope<'n>, is_tls: bool) -> Vec<(&'static str, Value)> {
        let mut settings = Vec::new();
        if let Some(node) = scope.one("proxy_connect_timeout") {
            match node.argument().and_then(seconds) {
                Some(time) => settings.push(("connect_timeout_seconds", time)),
                None => self.product.lacks(&node.source(), &node.name, "is no time"),
            }
        }
        let again = scope.one("proxy_next_upstream");
        if again.is_some_and(|node| node.argument() == Some("off")) {
            settings.push(("retries", json!({ "attempts": 1 })));
        } else {
            if let Some(node) = again {
                let problem = "has no effect: docs/gateway-requests.md says which requests are tried again";
                self.product.differs(&node.source(), &node.name, problem);
            }
            if let Some(node) = scope.one("proxy_next_upstream_tries") {
                match node.argument().and_then(|text| text.parse::<u64>().ok()) {
                    Some(0) => {}
                    Some(tries) => settings.push(("retries", json!({ "attempts": tries }))),
                    None => self.product.lacks(&node.source(), &node.name, "is no number"),
                }
            }
        }
        if is_tls {
            let text = |name: &str| scope.one(name).and_then(Node::argument);
            let mut tls = Map::new();
            for (there, here) in
                [("proxy_ssl_trusted_certificate", "ca_file"), ("proxy_ssl_name", "server_name")]
            {
                if let Some(value) = text(there) {
                    tls.insert(here.to_owned(), json!(value));
                }
            }
            if scope.one("proxy_ssl_protocols").is_some_and(is_tls_1_3_alone) {
                tls.insert("min_version".to_owned(), json!("1.3"));
            }
            self.client_pair(scope, &mut tls);
            if !tls.is_empty() {
                settings.push(("tls", Value::Object(tls)));
            }
        }
        settings
    }
}

impl<'n> Importer<'n> {
    /// The certificate that servers are shown, and its key. A pair that is not whole is listed, and not imported.
    fn client_pair(&mut self, scope: &Scope<'n>, tls: &mut Map<String, Value>) {
        let stated = |name: &str| scope.one(name).filter(|node| node.argument() != Some(""));
        let pair = ["proxy_ssl_certificate", "proxy_ssl_certificate_key"].map(stated);
        // Without a certificate, nginx does not look at the key.
        let [Some(certificate), key] = pair else { return };
        let file = |node: &'n Node| {
            let file = node.argument()?;
            let is_file = !file.contains('$') && !file.starts_with("engine:") && !file.starts_with("store:");
            is_file.then_some(file)
        };
        let Some(key) = key else {
            let problem = "has no proxy_ssl_certificate_key beside it";
            return self.product.lacks(&certificate.source(), &certificate.name, problem);
        };
        for node in [certificate, key].into_iter().filter(|node| file(node).is_none()) {
            self.product.lacks(&node.source(), &node.name, "is no file");
        }
        if let [Some(certificate), Some(key)] = [certificate, key].map(file) {
            tls.insert("certificate_file".to_owned(), json!(certificate));
            tls.insert("key_file".to_owned(), json!(key));
        }
    }
}

fn url(scheme: &str, address: &str) -> String {
    format!("{scheme}://{address}")
}

/// What a ring goes by.
fn hash_by(variable: &str) -> Option<String> {
    if matches!(variable, "$remote_addr" | "$binary_remote_addr") {
        return Some("address".to_owned());
    }
    let name = variable.strip_prefix("$http_")?;
    Some(format!("header:{}", name.replace('_', "-")))
}
