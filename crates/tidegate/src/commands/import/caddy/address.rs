//! Addresses of sites, `tls`, and `email`: listeners, hosts and the table `[acme]`.
//!
//! A site belongs to its addresses; a route is in force at all listeners. A site at some of the ports is therefore a warning, and a host
//! that two sites have is the first one's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};
use tidegate_wire::caddyfile::CaddyDirective;

use super::super::product::{ProductTable, SourceLocation, inline};
use super::CaddyImporter;

/// A site, and what its requests are found by.
pub(super) struct CaddySite {
    pub(super) node: CaddyDirective,
    /// None: all.
    pub(super) hosts: Vec<String>,
    ports: BTreeSet<u16>,
    /// Something that may keep people out is not understood.
    pub(super) is_closed: bool,
}

/// An address of a site.
struct CaddyAddress {
    /// Empty: all.
    host: String,
    port: u16,
    is_tls: bool,
    /// Whether a certificate makes it one of TLS.
    may_be_tls: bool,
}

/// What the sites at a port say of its listener.
struct CaddyPort {
    source: SourceLocation,
    is_tls: bool,
    pairs: Vec<Value>,
    has_acme: bool,
}

impl CaddyImporter {
    /// The sites, with the listeners that they need.
    pub(super) fn sites(&mut self, nodes: Vec<CaddyDirective>) -> Vec<CaddySite> {
        let mut ports: BTreeMap<u16, CaddyPort> = BTreeMap::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut sites: Vec<CaddySite> = Vec::new();
        for node in nodes {
            let mut site = self.addresses(node, &mut ports);
            let mut hosts = std::mem::take(&mut site.hosts);
            hosts.sort();
            hosts.dedup();
            if hosts.first().is_some_and(String::is_empty) {
                hosts.truncate(1);
            }
            for host in hosts {
                if taken.insert(host.clone()) {
                    site.hosts.push(host);
                } else {
                    let host = if host.is_empty() { "requests for all hosts" } else { &host };
                    self.lacks(
                        &site.node,
                        &format!("{host} is another site's, too, and routes are for all ports"),
                    );
                }
            }
            if site.hosts.is_empty() {
                continue;
            }
            site.hosts.retain(|host| !host.is_empty());
            sites.push(site);
        }
        self.listeners(&sites, ports);
        sites
    }

    fn addresses(&mut self, node: CaddyDirective, ports: &mut BTreeMap<u16, CaddyPort>) -> CaddySite {
        let missing = self.missing();
        let pair = self.certificate(&node);
        let is_known = self.missing() == missing;
        let mut site = CaddySite { hosts: Vec::new(), ports: BTreeSet::new(), is_closed: !is_known, node };
        let node = &site.node;
        for text in &node.words {
            let Some(address) = address(text) else {
                self.lacks(
                    node,
                    &format!("{text} is not understood here: http:// or https://, a host and a port are"),
                );
                site.is_closed = true;
                continue;
            };
            let CaddyAddress { host, port, .. } = address;
            let is_tls = address.is_tls || address.may_be_tls && pair.is_some();
            site.hosts.push(host.clone());
            if host.starts_with('*') {
                self.differs(node, &format!("{host} is for all names below, not for one more label alone"));
            }
            if is_tls && pair.is_none() && !(is_known && is_public(&host)) {
                self.lacks(
                    node,
                    &format!("{text} has no certificate from a file or by ACME, and no listener"),
                );
                site.is_closed = true;
                continue;
            }
            let source = self.source(node);
            let at =
                ports.entry(port).or_insert(CaddyPort { source, is_tls, pairs: Vec::new(), has_acme: false });
            if at.is_tls != is_tls {
                self.lacks(
                    node,
                    &format!("{text} is at the port of another site, of which one alone speaks TLS"),
                );
                site.is_closed = true;
                continue;
            }
            site.ports.insert(port);
            match &pair {
                Some(pair) if is_tls && !at.pairs.contains(pair) => at.pairs.push(pair.clone()),
                None if is_tls => {
                    at.has_acme = true;
                    self.names.push(host);
                }
                _ => {}
            }
        }
        site
    }

    /// The certificate of a site and its key, as one of `tls_pairs`. What else its `tls` says is listed.
    fn certificate(&mut self, node: &CaddyDirective) -> Option<Value> {
        let mut pair = None;
        for line in node.lines().iter().filter(|line| line.name() == "tls") {
            match line.arguments()[..] {
                [certificate, key] => pair = Some(json!({ "certificate": certificate, "key": key })),
                [contact] if contact.contains('@') => self.orders.push(("contact", line.clone())),
                [] if line.block.is_some() => {}
                _ => self.lacks(
                    line,
                    "is not understood here: a certificate and a key, or an address of mail, are",
                ),
            }
            for line in line.lines() {
                self.lacks(line, "is not understood here");
            }
        }
        pair
    }

    fn listeners(&mut self, sites: &[CaddySite], ports: BTreeMap<u16, CaddyPort>) {
        let secure = ports.iter().filter(|(_, at)| at.is_tls).map(|(port, _)| *port);
        // Caddy sends plain HTTP to HTTPS at port 80, unless a site is there.
        let target = secure.min_by_key(|port| (*port != 443, *port)).filter(|_| !ports.contains_key(&80));
        for site in sites {
            let elsewhere: Vec<String> =
                ports.keys().filter(|port| !site.ports.contains(port)).map(u16::to_string).collect();
            if !elsewhere.is_empty() {
                let problem = format!("its routes are also in force at port {}", elsewhere.join(", "));
                self.differs(&site.node, &problem);
            }
            let is_secure = |port: &u16| ports.get(port).is_some_and(|at| at.is_tls);
            if ports.contains_key(&80) && !site.ports.contains(&80) && site.ports.iter().any(is_secure) {
                self.lacks(&site.node, "is not sent from HTTP to HTTPS, since another site is at port 80");
            }
        }
        if let Some(target) = target
            && let Some(at) = ports.get(&target)
        {
            let mut listener = ProductTable::new(at.source.clone());
            listener.set("listen", "0.0.0.0:80");
            listener.set("redirect_to_https", target);
            self.product.listeners.push(listener);
        }
        for (index, (port, at)) in ports.into_iter().enumerate() {
            if index == 0 {
                let problem = "listeners are for IPv4: Caddy is at the same ports of [::], too";
                self.product.differs(&at.source, "", problem);
            }
            let mut listener = ProductTable::new(at.source);
            listener.set("listen", format!("0.0.0.0:{port}"));
            let mut pairs = at.pairs.into_iter();
            if let Some(first) = pairs.next() {
                listener.set("tls_certificate", first["certificate"].clone());
                listener.set("tls_key", first["key"].clone());
            }
            let further: Vec<Value> = pairs.collect();
            if !further.is_empty() {
                listener.set("tls_pairs", further);
            }
            if at.has_acme {
                listener.set("tls_acme", true);
            }
            self.product.listeners.push(listener);
        }
    }

    /// The table `[acme]`, if certificates are ordered.
    pub(super) fn acme(&mut self) -> String {
        let orders = std::mem::take(&mut self.orders);
        self.names.sort();
        self.names.dedup();
        if self.names.is_empty() {
            for (_, line) in &orders {
                self.differs(line, "has no effect: no certificates are ordered");
            }
            return String::new();
        }
        let mut text = format!("\n[acme]\nnames = {}\nagree_to_terms = true\n", inline(&json!(self.names)));
        for key in ["contact", "directory"] {
            let stated =
                orders.iter().filter(|(known, _)| *known == key).filter_map(|(_, line)| line.words.last());
            let mut stated: Vec<&String> = stated.collect();
            stated.sort();
            stated.dedup();
            let value = if key == "contact" { json!(stated) } else { json!(stated.last()) };
            if !stated.is_empty() {
                text.push_str(&format!("{key} = {}\n", inline(&value)));
            }
        }
        if let Some(listener) = self.product.listeners.first() {
            let source = listener.source.clone();
            let problem = "agree_to_terms = true is written: Caddy agrees to the authority's terms unasked";
            self.product.differs(&source, "acme", problem);
        }
        text
    }
}

/// `None`: it is not understood.
fn address(text: &str) -> Option<CaddyAddress> {
    let text = text.trim_end_matches(',').to_ascii_lowercase();
    let (scheme, rest) = text.split_once("://").unwrap_or(("", &text));
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !rest.ends_with(']') => (host, Some(port.parse::<u16>().ok()?)),
        _ => (rest, None),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_host = bare.is_some_and(|bare| bare.parse::<IpAddr>().is_ok())
        || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    let port = match (scheme, port) {
        (_, Some(port)) => port,
        ("http", None) => 80,
        ("https", None) => 443,
        _ if host.is_empty() => return None,
        _ => 443,
    };
    let may_be_tls = scheme != "http" && port != 80;
    let is_tls = scheme == "https" || may_be_tls && !host.is_empty();
    let is_known = is_host && matches!(scheme, "" | "http" | "https");
    is_known.then(|| CaddyAddress { host: host.to_owned(), port, is_tls, may_be_tls })
}

/// Whether a public authority gives certificates for it, without a wildcard.
fn is_public(host: &str) -> bool {
    let private = [".localhost", ".local", ".internal", ".home.arpa"];
    host.contains('.')
        && !host.starts_with(['*', '['])
        && host.parse::<IpAddr>().is_err()
        && !private.iter().any(|end| host.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_port_and_the_tls_that_caddy_gives_it() {
        for (text, expected) in [
            ("Example.com", Some(("example.com", 443, true))),
            ("example.com:8443,", Some(("example.com", 8443, true))),
            ("http://example.com", Some(("example.com", 80, false))),
            ("https://*.example.com", Some(("*.example.com", 443, true))),
            ("example.com:80", Some(("example.com", 80, false))),
            (":8080", Some(("", 8080, false))),
            ("[::1]:81", Some(("[::1]", 81, true))),
            ("http://", Some(("", 80, false))),
            ("", None),
            ("example.com/path", None),
            ("example.*", None),
            ("ftp://example.com", None),
            ("example.com:{port}", None),
        ] {
            let found = address(text);
            let found = found.as_ref().map(|it| (it.host.as_str(), it.port, it.is_tls));
            assert_eq!(found, expected, "{text}");
        }
        let public =
            ["example.com", "localhost", "a.localhost", "10.0.0.1", "[::1]", "*.example.com"].map(is_public);
        assert_eq!(public, [true, false, false, false, false, false]);
    }
}
