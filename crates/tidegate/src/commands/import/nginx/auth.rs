//! `auth_request`: another service says whether a request goes on.

use serde_json::{Map, Value, json};

use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::forward::ProxyPass;
use super::scope::Scope;
use super::units::milliseconds;

/// The longest that a route may wait for such a service, in milliseconds.
const MAX_WAIT: u64 = 60_000;

impl<'n> Importer<'n> {
    /// Completes a route whose requests are asked about. `None`: how is not understood, and is listed.
    pub(super) fn authority(
        &mut self,
        scope: &Scope<'n>,
        server: &Scope<'n>,
        route: &mut ProductTable,
    ) -> Option<()> {
        let Some(node) = scope.one("auth_request").filter(|it| it.argument() != Some("off")) else {
            return Some(());
        };
        let asked = node.argument().and_then(|path| {
            let location = location_of(server, path)?;
            let block = location.block.as_deref()?;
            let pass = block.iter().find(|node| node.name == "proxy_pass")?;
            Some((path, block, pass, ProxyPass::of(pass)?))
        });
        let Some((path, block, pass, target)) = asked else {
            let problem = "is not understood here: a location = with a proxy_pass without variables is";
            self.product.lacks(&node.source(), "auth_request", problem);
            return None;
        };
        let inner = server.within(block);
        let destination = self.destination(pass, target.is_tls, target.authority, &inner)?;
        let mut asks = Map::new();
        asks.insert("upstream".to_owned(), json!(destination.upstream));
        asks.insert("path".to_owned(), json!(target.uri.unwrap_or(path)));
        let wait = inner.one("proxy_read_timeout").and_then(Node::argument).and_then(milliseconds);
        asks.insert(
            "timeout_seconds".to_owned(),
            json!(wait.unwrap_or(MAX_WAIT).clamp(1_000, MAX_WAIT) / 1_000),
        );
        let fields = answered(scope);
        if !fields.is_empty() {
            asks.insert("fields".to_owned(), Value::Array(fields));
        }
        self.sent(node, &inner);
        route.set("auth", "forward");
        route.set("forward_auth", Value::Object(asks));
        Some(())
    }

    /// What the service is sent in another way.
    fn sent(&mut self, node: &Node, inner: &Scope<'n>) {
        let problem = "is sent Authorization and Cookie, not all fields (forward_auth.send); \
            the request's URI is in X-Forwarded-Uri, its method in X-Forwarded-Method";
        self.product.differs(&node.source(), "auth_request", problem);
        for header in inner.all("proxy_set_header") {
            let [name, value] = header.words()[..] else { continue };
            let field = name.to_ascii_lowercase();
            let is_harmless = value.is_empty()
                || matches!(value, "$request_uri" | "$request_method" | "$host" | "$http_host" | "$scheme")
                || matches!(value, "$remote_addr" | "$proxy_add_x_forwarded_for");
            if !is_harmless || field == "host" && value != "$http_host" && value != "$host" {
                let problem = format!("{name} is not sent to the service");
                self.product.lacks(&header.source(), &header.name, problem);
            }
        }
    }
}

/// The location of a server with exactly this path.
fn location_of<'n>(server: &Scope<'n>, path: &str) -> Option<&'n Node> {
    server.innermost().iter().find(|node| {
        node.name == "location"
            && match node.words()[..] {
                ["=", known] | [known] => known == path || known.strip_prefix('=') == Some(path),
                _ => false,
            }
    })
}

/// Fields of its answer that servers are sent, under their own names.
fn answered(scope: &Scope<'_>) -> Vec<Value> {
    let set = scope.all("auth_request_set");
    let taken = set.iter().filter_map(|node| match node.words()[..] {
        [variable, answer] => Some((variable, answer.strip_prefix("$upstream_http_")?.replace('_', "-"))),
        _ => None,
    });
    let headers = scope.all("proxy_set_header");
    let is_sent = |(variable, field): &(&str, String)| {
        headers.iter().any(|node| match node.words()[..] {
            [name, value] => value == *variable && name.eq_ignore_ascii_case(field),
            _ => false,
        })
    };
    taken.filter(is_sent).map(|(_, field)| json!(field)).collect()
}
