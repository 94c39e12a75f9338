//! `proxy_pass`, and what its location says of times, sizes and headers: a route to an upstream.

use serde_json::json;

use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::location::Location;
use super::scope::Scope;
use super::units::{bytes, seconds};
use super::upstream::Destination;

/// nginx's `client_max_body_size` where none is stated.
const MAX_BODY: u64 = 1 << 20;

/// A `proxy_pass` in its parts.
pub(super) struct ProxyPass<'n> {
    pub(super) is_tls: bool,
    pub(super) authority: &'n str,
    /// What takes the place of the location's own path; none: the path stays.
    pub(super) uri: Option<&'n str>,
}

impl<'n> ProxyPass<'n> {
    /// `None`: it is not understood.
    pub(super) fn of(node: &'n Node) -> Option<Self> {
        let url = node.argument().filter(|url| !url.contains('$'))?;
        let (is_tls, rest) = match url.split_once("://")? {
            ("http", rest) => (false, rest),
            ("https", rest) => (true, rest),
            _ => return None,
        };
        let (authority, uri) = match rest.find('/') {
            Some(slash) => (&rest[..slash], Some(&rest[slash..])),
            None => (rest, None),
        };
        let is_known =
            !authority.is_empty() && !authority.starts_with("unix:") && !authority.contains(['?', '@']);
        (is_known && uri.is_none_or(|uri| !uri.contains(['?', '#']))).then_some(Self {
            is_tls,
            authority,
            uri,
        })
    }

    /// What nginx calls `$proxy_host`: the authority without the scheme's own port.
    pub(super) fn host(&self) -> &'n str {
        self.authority.strip_suffix(if self.is_tls { ":443" } else { ":80" }).unwrap_or(self.authority)
    }
}

impl<'n> Importer<'n> {
    /// Completes a route to where `node`, a `proxy_pass`, says. `None`: it is listed, and there is no route.
    pub(super) fn forward(
        &mut self,
        node: &'n Node,
        location: &Location<'n>,
        scope: &Scope<'n>,
        route: &mut ProductTable,
    ) -> Option<()> {
        let Some(target) = ProxyPass::of(node) else {
            let problem =
                "is not understood here: a scheme, a host or an upstream, and a path without variables are";
            self.product.lacks(&node.source(), "proxy_pass", problem);
            return None;
        };
        if let Some(body) = scope.one("proxy_pass_request_body").filter(|it| it.argument() != Some("on")) {
            self.product.lacks(&body.source(), &body.name, "is not understood here");
        }
        let Destination { upstream, backup } =
            self.destination(node, target.is_tls, target.authority, scope)?;
        route.set("upstream", upstream);
        self.path(node, location, target.uri, route)?;
        self.request_fields(&target, scope, route);
        self.response_fields(scope, route);
        self.sizes_and_times(scope, route);
        if let Some(backup) = backup {
            route.set("fallback", json!({ "upstream": backup }));
            let problem = "backup servers are asked for what no other server gives a reply to";
            self.product.differs(&node.source(), "proxy_pass", problem);
        }
        if scope.is_on("gzip") {
            route.set("compress", true);
        }
        Some(())
    }

    /// The path that the upstream is asked for.
    fn path(
        &mut self,
        node: &Node,
        location: &Location<'_>,
        uri: Option<&str>,
        route: &mut ProductTable,
    ) -> Option<()> {
        let Some(uri) = uri else { return Some(()) };
        if location.is_exact() {
            route.set("replace_path", uri);
            return Some(());
        }
        // nginx puts the URI where the location's letters were, slashes included.
        let both_end_alike = location.path.ends_with('/') == uri.ends_with('/');
        if !location.is_prefix() || !both_end_alike {
            let problem = "its path replaces the location's letter by letter, and not whole parts: \
                end both with a slash, or none";
            self.product.lacks(&node.source(), "proxy_pass", problem);
            return None;
        }
        for (key, text) in [("strip_prefix", location.pattern.prefix()), ("add_prefix", trimmed(uri))] {
            if !text.is_empty() {
                route.set(key, text);
            }
        }
        Some(())
    }

    fn sizes_and_times(&mut self, scope: &Scope<'n>, route: &mut ProductTable) {
        match scope.one("client_max_body_size") {
            None => route.set("max_body_bytes", MAX_BODY),
            Some(node) => match node.argument().and_then(bytes) {
                Some(0) => {}
                Some(most) => route.set("max_body_bytes", most),
                None => self.product.lacks(&node.source(), &node.name, "is no size"),
            },
        }
        let stated = scope.one("proxy_read_timeout");
        let time = match stated.map(|node| (node, node.argument().and_then(seconds))) {
            None => json!(60),
            Some((_, Some(time))) => time,
            Some((node, None)) => {
                self.product.lacks(&node.source(), &node.name, "is no time");
                return;
            }
        };
        route.set("first_byte_timeout_seconds", time.clone());
        if stated.is_some() {
            route.set("idle_timeout_seconds", time.clone());
            route.set("upgrade_idle_timeout_seconds", time);
        }
    }
}

/// A prefix as routes have it: without a slash at its end.
fn trimmed(uri: &str) -> String {
    uri.trim_end_matches('/').to_owned()
}
