//! A `location`: which paths it is for, and the route that it becomes.

use serde_json::json;

use super::super::pattern::{Kind, Pattern, is_swapped};
use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::known::Context;
use super::scope::Scope;
use super::server::NginxServer;

/// Directives that keep somebody out, and that are not understood. What they guard is not opened by leaving them out.
const CLOSING: [&str; 10] = [
    "allow",
    "deny",
    "auth_basic",
    "auth_jwt",
    "satisfy",
    "limit_except",
    "if",
    "rewrite",
    "valid_referers",
    "secure_link",
];

/// The paths of a location.
#[derive(Clone, Debug)]
pub(super) struct Location<'n> {
    pub(super) node: &'n Node,
    pub(super) kind: Kind,
    /// As it is written.
    pub(super) path: &'n str,
    pub(super) pattern: Pattern,
}

impl<'n> Location<'n> {
    /// `None`: it is not understood.
    fn of(node: &'n Node) -> Option<Self> {
        let words: Vec<&'n str> = node.words();
        let (modifier, path) = match words[..] {
            [modifier @ ("=" | "^~" | "~"), path] => (modifier, path),
            [path] => ["^~", "~*", "=", "~", "@"]
                .into_iter()
                .find_map(|modifier| Some((modifier, path.strip_prefix(modifier)?)))
                .unwrap_or(("", path)),
            _ => return None,
        };
        let (kind, pattern) = match modifier {
            "=" => (Kind::Exact, Pattern::exact(path)),
            "^~" => (Kind::FinalPrefix, Pattern::below(path)),
            "" => (Kind::Prefix, Pattern::below(path)),
            "~" => (Kind::Regex, Pattern::of_regex(path)?),
            _ => return None,
        };
        (kind == Kind::Regex || path.starts_with('/')).then_some(Self { node, kind, path, pattern })
    }

    pub(super) fn is_exact(&self) -> bool {
        self.kind == Kind::Exact
    }

    pub(super) fn is_prefix(&self) -> bool {
        matches!(self.kind, Kind::Prefix | Kind::FinalPrefix)
    }

    /// How its paths differ from those of its route.
    fn difference(&self) -> Option<String> {
        let path = self.path;
        match self.kind {
            Kind::Exact | Kind::Regex => None,
            _ if path == "/" => None,
            _ => Some(match path.strip_suffix('/') {
                Some(bare) => {
                    format!("{bare} is answered as {path} is, and not by a redirect or another location")
                }
                None => format!("{path} and all below it, but not {path}x, are for this location"),
            }),
        }
    }
}

impl<'n> Importer<'n> {
    /// The routes of a server's locations, and one for all paths that none of them takes.
    pub(super) fn locations(&mut self, server: &NginxServer<'n>, scope: &Scope<'n>) {
        let nodes = scope.innermost().iter().filter(|node| node.name == "location");
        let mut known: Vec<Location<'n>> = Vec::new();
        for node in nodes {
            let Some(location) = Location::of(node) else {
                let problem = "its paths are not understood here: a path, = and ^~ before one, and regular \
                    expressions of whole parts (^/a/[^/]+$, ^/a/) are";
                self.product.lacks(&node.source(), "location", problem);
                continue;
            };
            let pair = |it: &Location<'n>| (it.kind, it.pattern.clone());
            let clash = known.iter().find(|other| {
                let ((first, one), (second, two)) = (pair(other), pair(&location));
                is_swapped((first, &one), (second, &two))
            });
            if let Some(other) = clash {
                let problem = format!(
                    "some of its paths are also those of line {}, and routes would be asked in another order",
                    other.node.place.line
                );
                self.product.lacks(&node.source(), "location", problem);
                continue;
            }
            self.location(server, &location, scope);
            known.push(location);
        }
        let takes_all = known.iter().any(|it| it.is_prefix() && it.path == "/");
        if !takes_all {
            self.rest(server, scope);
        }
    }

    fn location(&mut self, server: &NginxServer<'n>, location: &Location<'n>, outer: &Scope<'n>) {
        let node = location.node;
        let Some(block) = &node.block else { return };
        self.survey(block, Context::Location);
        if let Some(problem) = location.difference() {
            self.product.differs(&node.source(), "location", problem);
        }
        let scope = outer.within(block);
        let mut route = self.route(node, server, &location.pattern.path());
        let directive = |name: &str| block.iter().find(|node| node.name == name);
        let done = if directive("internal").is_some() {
            route.set("respond", json!({ "status": 404 }));
            Some(())
        } else if server.is_closed.get() || CLOSING.iter().any(|name| scope.one(name).is_some()) {
            None
        } else if let Some(reply) = directive("return") {
            self.reply(reply, &scope, &mut route)
        } else if let Some(pass) = directive("proxy_pass") {
            let sent = self.forward(pass, location, &scope, &mut route);
            sent.and_then(|()| self.authority(&scope, outer, &mut route))
                .map(|()| self.limits(&scope, &mut route))
        } else {
            self.product.lacks(&node.source(), "location", "serves files, which is not understood here");
            None
        };
        if done.is_none() {
            route = closed(route);
        }
        self.product.routes.push(route);
    }

    /// A route with a name, hosts and a path.
    pub(super) fn route(&mut self, node: &Node, server: &NginxServer<'n>, path: &str) -> ProductTable {
        let mut route = ProductTable::new(node.source());
        let name = self.product.name(&[server.name(), path.trim_end_matches("/*").trim_matches('/')]);
        route.set("name", name);
        if !server.hosts.is_empty() {
            route.set("host", server.hosts.clone());
        }
        if path != "/*" {
            route.set("path", path);
        }
        route
    }

    /// What no location takes, nginx looks for among files.
    fn rest(&mut self, server: &NginxServer<'n>, scope: &Scope<'n>) {
        let mut route = self.route(server.node, server, "/*");
        route.set("respond", json!({ "status": 404 }));
        self.product.routes.push(route);
        let problem = "paths of no location are 404 here, without files";
        match scope.one("root") {
            Some(root) => self.product.lacks(&root.source(), "root", "files are not served here"),
            None => self.product.differs(&server.node.source(), "server", problem),
        }
    }
}

/// A route in the place of one that is not understood, so that no other one takes its requests.
fn closed(route: ProductTable) -> ProductTable {
    let mut closed = ProductTable::new(route.source);
    closed
        .fields
        .extend(route.fields.into_iter().filter(|(name, _)| ["name", "host", "path"].contains(name)));
    closed.set("respond", json!({ "status": 503, "body": "not imported" }));
    closed
}
