//! `server` blocks: where they listen, which hosts they are for, and their routes.
//!
//! A server of nginx belongs to its addresses; a route of Tidegate is in force at all listeners. Servers of one
//! name at two addresses are therefore not imported twice, but for the one that everybody has: the server that
//! sends plain HTTP to HTTPS is a listener with `redirect_to_https`.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde_json::{Value, json};

use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::known::{Context, is_tls_1_3_alone};
use super::scope::Scope;

/// A server, and what it is found by.
pub(super) struct NginxServer<'n> {
    pub(super) node: &'n Node,
    block: &'n [Node],
    listens: Vec<Listen>,
    names: Vec<&'n str>,
    /// Hosts of its routes; empty: all.
    pub(super) hosts: Vec<String>,
    /// The port to which it sends everything by HTTPS, if it does nothing else.
    redirects_to: Option<u16>,
    /// Its locations are guarded by something that is not imported.
    pub(super) is_closed: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Listen {
    address: SocketAddr,
    is_tls: bool,
    is_default: bool,
}

impl NginxServer<'_> {
    /// For the names of its routes.
    pub(super) fn name(&self) -> &str {
        self.names.first().map_or("all", |name| name.trim_start_matches(['*', '.']))
    }
}

impl<'n> Importer<'n> {
    pub(super) fn servers(&mut self, nodes: &'n [Node], http: &Scope<'n>) {
        let blocks = nodes.iter().filter(|node| node.name == "server");
        let mut servers: Vec<NginxServer<'n>> = blocks.filter_map(|node| self.server_block(node)).collect();
        self.listeners(&servers, http);
        servers.retain(|server| server.redirects_to.is_none());
        self.hosts(&mut servers);
        let everywhere: BTreeSet<SocketAddr> = servers.iter().flat_map(addresses).collect();
        for server in &servers {
            let own: BTreeSet<SocketAddr> = addresses(server).collect();
            let elsewhere: Vec<String> = everywhere.difference(&own).map(SocketAddr::to_string).collect();
            if !elsewhere.is_empty() {
                let problem = format!("its routes are also in force at {}", elsewhere.join(", "));
                self.product.differs(&server.node.source(), "server", problem);
            }
            self.server(server, &http.within(server.block));
        }
    }

    fn server_block(&mut self, node: &'n Node) -> Option<NginxServer<'n>> {
        let block = node.block.as_deref()?;
        self.survey(block, Context::Server);
        let mut listens = Vec::new();
        for listen in block.iter().filter(|node| node.name == "listen") {
            match listen_of(listen) {
                Some(listen) => listens.push(listen),
                None => {
                    let problem = "is not understood here: an address and a port, ssl and default_server are";
                    self.product.lacks(&listen.source(), "listen", problem);
                }
            }
        }
        if !block.iter().any(|node| node.name == "listen") {
            let address = (Ipv4Addr::UNSPECIFIED, 80).into();
            listens.push(Listen { address, is_tls: false, is_default: false });
        }
        let names = block.iter().filter(|node| node.name == "server_name").flat_map(Node::words);
        let names: Vec<&str> = names.filter(|name| !matches!(*name, "_" | "")).collect();
        let redirects_to = https_port(block);
        Some(NginxServer {
            node,
            block,
            listens,
            names,
            hosts: Vec::new(),
            redirects_to,
            is_closed: Cell::new(false),
        })
    }

    /// One listener for each address. Its certificate is that of its first or default server; those of others are shown
    /// for the names in them.
    fn listeners(&mut self, servers: &[NginxServer<'n>], http: &Scope<'n>) {
        let mut by_address: BTreeMap<SocketAddr, Vec<(&NginxServer<'n>, Listen)>> = BTreeMap::new();
        for server in servers {
            for listen in &server.listens {
                by_address.entry(listen.address).or_default().push((server, *listen));
            }
        }
        for (address, here) in by_address {
            let Some((first, listen)) = here.iter().find(|(_, it)| it.is_default).or(here.first()) else {
                continue;
            };
            let mut listener = ProductTable::new(first.node.source());
            listener.set("listen", address.to_string());
            let redirect =
                first.redirects_to.filter(|_| here.iter().all(|(it, _)| it.redirects_to.is_some()));
            if let Some(port) = redirect {
                listener.set("redirect_to_https", port);
                let problem = "requests are redirected by 308, which keeps their method";
                self.product.differs(&first.node.source(), "return", problem);
            } else {
                for (server, _) in here.iter().filter(|(it, _)| it.redirects_to.is_some()) {
                    let problem = format!("redirects to HTTPS, while other servers at {address} do not");
                    self.product.lacks(&server.node.source(), "server", problem);
                }
            }
            if listen.is_tls {
                self.certificate(&http.within(first.block), &mut listener);
                let mut pairs = Vec::new();
                for (other, _) in here.iter().filter(|(other, _)| !std::ptr::eq(*other, *first)) {
                    self.same_clients(first, other, address, http);
                    self.same_versions(first, other, address, http);
                    let [own, theirs] = [first, other].map(|it| pair(&http.within(it.block)));
                    pairs.extend(theirs.filter(|it| Some(it) != own.as_ref() && !pairs.contains(it)));
                }
                if !pairs.is_empty() {
                    listener.set("tls_pairs", pairs);
                }
            }
            self.product.listeners.push(listener);
        }
    }

    /// A listener has the rules about clients' certificates of one server. What another one guards by others is closed.
    fn same_clients(
        &mut self,
        first: &NginxServer<'n>,
        other: &NginxServer<'n>,
        address: SocketAddr,
        http: &Scope<'n>,
    ) {
        let of = |server: &NginxServer<'n>, name: &str| {
            http.within(server.block).one(name).and_then(Node::argument).unwrap_or_default()
        };
        let asks = ["ssl_verify_client", "ssl_client_certificate"];
        if asks.iter().any(|name| of(other, name) != of(first, name)) {
            let problem = format!("asks for other certificates of clients than another server at {address}");
            self.product.lacks(&other.node.source(), "server", problem);
            other.is_closed.set(true);
        }
    }

    /// A listener has the versions of TLS of one server, and so in nginx the versions of its default server.
    fn same_versions(
        &mut self,
        first: &NginxServer<'n>,
        other: &NginxServer<'n>,
        address: SocketAddr,
        http: &Scope<'n>,
    ) {
        let stated = |server: &NginxServer<'n>| http.within(server.block).one("ssl_protocols");
        let is_newest = |server: &NginxServer<'n>| stated(server).is_some_and(is_tls_1_3_alone);
        let problem = match (is_newest(first), is_newest(other)) {
            (true, false) => {
                format!("TLS 1.3 alone is spoken at {address}, as its first or default server says")
            }
            (false, true) => {
                format!(
                    "has no effect at {address}: TLS 1.2 is spoken there, as its first or default server says"
                )
            }
            _ => return,
        };
        let source = stated(other).map_or_else(|| other.node.source(), Node::source);
        self.product.differs(&source, "ssl_protocols", problem);
    }

    fn certificate(&mut self, scope: &Scope<'n>, listener: &mut ProductTable) {
        for (there, here) in [
            ("ssl_certificate", "tls_certificate"),
            ("ssl_certificate_key", "tls_key"),
            ("ssl_client_certificate", "tls_client_ca"),
        ] {
            let is_asked =
                || !matches!(scope.one("ssl_verify_client").and_then(Node::argument), None | Some("off"));
            if let Some(node) = scope.one(there).filter(|_| there != "ssl_client_certificate" || is_asked()) {
                match node.argument().filter(|file| !file.contains('$')) {
                    Some(file) => listener.set(here, file),
                    None => self.product.lacks(&node.source(), there, "is no file"),
                }
            }
        }
        if scope.one("ssl_certificate").is_none() || scope.one("ssl_certificate_key").is_none() {
            self.product.lacks(
                &listener.source.clone(),
                "listen",
                "has ssl, and no certificate with its key",
            );
        }
        if scope.one("ssl_protocols").is_some_and(is_tls_1_3_alone) {
            listener.set("tls_min_version", "1.3");
        }
        match scope.one("ssl_verify_client").map(|node| (node, node.argument())) {
            None | Some((_, Some("on" | "off"))) => {}
            Some((_, Some("optional"))) => listener.set("tls_client_auth", "optional"),
            Some((node, _)) => self.product.lacks(&node.source(), &node.name, "is not understood here"),
        }
    }

    /// Gives each server the hosts of its routes. What nginx gives to an address's default server, because no name
    /// fits, goes to the first of them here: its routes are for all hosts.
    fn hosts(&mut self, servers: &mut Vec<NginxServer<'n>>) {
        let mut taken: BTreeSet<String> = BTreeSet::new();
        let mut has_default = false;
        let defaults = defaults(servers);
        let wild: Vec<(usize, &str)> = servers
            .iter()
            .enumerate()
            .flat_map(|(index, it)| {
                it.names.iter().filter_map(move |name| {
                    Some((index, name.strip_prefix('*').or_else(|| name.strip_prefix('.'))?))
                })
            })
            .collect();
        for (index, server) in servers.iter_mut().enumerate() {
            let source = server.node.source();
            if defaults.contains(&index) && !has_default {
                has_default = true;
                let falls =
                    |name: &str| wild.iter().any(|(other, end)| *other != index && name.ends_with(end));
                if let Some(name) = server.names.iter().find(|name| falls(name)) {
                    let problem = format!("{name} would go to a server for all names below another");
                    self.product.lacks(&source, "server_name", problem);
                }
                taken.extend(server.names.iter().filter_map(|name| hosts_of(name)).flatten());
                continue;
            }
            if defaults.contains(&index) {
                let problem = "requests for other hosts go to the first default server at all addresses";
                self.product.differs(&source, "server", problem);
            }
            for name in &server.names {
                let Some(hosts) = hosts_of(name) else {
                    let problem = format!("{name} is not understood here");
                    self.product.lacks(&source, "server_name", problem);
                    continue;
                };
                for host in hosts {
                    if taken.insert(host.clone()) {
                        server.hosts.push(host);
                    } else {
                        let problem =
                            format!("{host} is another server's, too, and routes are for all addresses");
                        self.product.lacks(&source, "server_name", problem);
                    }
                }
            }
            if server.names.is_empty() {
                self.product.lacks(
                    &source,
                    "server",
                    "has no server_name, and is not the first default server",
                );
            }
        }
        let mut index = 0;
        servers.retain(|server| {
            index += 1;
            !server.hosts.is_empty() || defaults.first() == Some(&(index - 1))
        });
    }

    fn server(&mut self, server: &NginxServer<'n>, scope: &Scope<'n>) {
        let Some(reply) = server.block.iter().find(|node| node.name == "return") else {
            return self.locations(server, scope);
        };
        let mut route = self.route(server.node, server, "/*");
        if self.reply(reply, scope, &mut route).is_some() {
            self.product.routes.push(route);
        }
        for node in server.block.iter().filter(|node| node.name == "location") {
            self.product.differs(&node.source(), "location", "is never reached: its server returns before");
        }
    }
}

/// The certificate of a server and its key, as one of `tls_pairs`.
fn pair(scope: &Scope<'_>) -> Option<Value> {
    let file = |name: &str| scope.one(name).and_then(Node::argument).filter(|file| !file.contains('$'));
    Some(json!({ "certificate": file("ssl_certificate")?, "key": file("ssl_certificate_key")? }))
}

/// The default servers of all addresses, in the file's order.
fn defaults(servers: &[NginxServer<'_>]) -> Vec<usize> {
    let mut defaults = BTreeMap::new();
    for (index, server) in servers.iter().enumerate() {
        for listen in &server.listens {
            let known = defaults.entry(listen.address).or_insert((listen.is_default, index));
            if listen.is_default && !known.0 {
                *known = (true, index);
            }
        }
    }
    let indices: BTreeSet<usize> = defaults.into_values().map(|(_, index)| index).collect();
    indices.into_iter().collect()
}

fn addresses(server: &NginxServer<'_>) -> impl Iterator<Item = SocketAddr> {
    server.listens.iter().map(|listen| listen.address)
}

/// `None`: it is not understood.
fn listen_of(node: &Node) -> Option<Listen> {
    let (first, options) = node.arguments.split_first()?;
    let address = address(first)?;
    let mut listen = Listen { address, is_tls: false, is_default: false };
    for option in options {
        match option.split('=').next().unwrap_or_default() {
            "ssl" => listen.is_tls = true,
            "default_server" | "default" => listen.is_default = true,
            "http2" | "reuseport" | "backlog" | "deferred" | "so_keepalive" | "ipv6only" | "rcvbuf"
            | "sndbuf" | "fastopen" => {}
            _ => return None,
        }
    }
    Some(listen)
}

/// `80`, `127.0.0.1`, `127.0.0.1:80`, `*:80`, `[::]:80`, `localhost:80`.
fn address(text: &str) -> Option<SocketAddr> {
    if let Ok(port) = text.parse::<u16>() {
        return Some((Ipv4Addr::UNSPECIFIED, port).into());
    }
    let text = text.replace("localhost", "127.0.0.1");
    let text = text.strip_prefix('*').map_or(text.clone(), |rest| format!("{}{rest}", Ipv4Addr::UNSPECIFIED));
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    text.parse()
        .ok()
        .or_else(|| Some((text.parse::<Ipv4Addr>().ok()?, 80).into()))
        .or_else(|| Some((bare?.parse::<Ipv6Addr>().ok()?, 80).into()))
}

/// Hosts of routes that stand for a name; `None`: none do.
fn hosts_of(name: &str) -> Option<Vec<String>> {
    let is_plain = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    let name = name.to_ascii_lowercase();
    if let Some(rest) = name.strip_prefix("*.") {
        return is_plain(rest).then(|| vec![name.clone()]);
    }
    match name.strip_prefix('.') {
        Some(rest) => is_plain(rest).then(|| vec![rest.to_owned(), format!("*.{rest}")]),
        None => is_plain(&name).then_some(vec![name]),
    }
}

/// The port of `return 301 https://$host$request_uri`, if that is all that a server does.
fn https_port(block: &[Node]) -> Option<u16> {
    let reply = block.iter().find(|node| node.name == "return")?;
    let target = match reply.words()[..] {
        ["301" | "302" | "307" | "308", target] => target.strip_prefix("https://")?,
        _ => return None,
    };
    let (host, rest) = target.split_at(target.find(['$', ':', '/']).unwrap_or(target.len()));
    if !host.is_empty() {
        return None;
    }
    let name = ["$host", "$http_host", "$server_name"].into_iter().find(|name| rest.starts_with(name))?;
    let rest = rest[name.len()..].strip_suffix("$request_uri")?;
    match rest.strip_prefix(':') {
        Some(port) => port.parse().ok(),
        None => rest.is_empty().then_some(443),
    }
}
