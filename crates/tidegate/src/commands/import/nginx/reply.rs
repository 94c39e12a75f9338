//! `return`: a fixed reply, or a redirect.

use serde_json::json;

use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::scope::Scope;

impl<'n> Importer<'n> {
    /// Completes a route that answers by itself. `None`: it is listed.
    pub(super) fn reply(
        &mut self,
        node: &'n Node,
        scope: &Scope<'n>,
        route: &mut ProductTable,
    ) -> Option<()> {
        let (status, text) = match node.words()[..] {
            [url] if url.starts_with("http") => (302, Some(url)),
            [code] => (code.parse::<u16>().ok().unwrap_or(0), None),
            [code, text] => (code.parse::<u16>().ok().unwrap_or(0), Some(text)),
            _ => (0, None),
        };
        let kept = text.and_then(kept);
        let has_variable = text.is_some_and(|text| text.contains('$'));
        let source = node.source();
        match (status, text) {
            (301 | 302 | 303 | 307 | 308, Some(location)) if !has_variable => {
                if location.starts_with('/') && !is_off(scope, "absolute_redirect") {
                    let problem = "Location is the path alone, without scheme and host";
                    self.product.differs(&source, "return", problem);
                }
                route.set("redirect", json!({ "status": status, "location": location }));
            }
            (301 | 302 | 303 | 307 | 308, Some(_)) if kept.is_some() => {
                route.set("redirect", json!({ "status": status, "location": kept }));
            }
            (200..=599, _) if !has_variable && !matches!(status, 300..=399 | 444 | 499) => {
                let mut respond = json!({ "status": status });
                match text {
                    Some(text) => {
                        respond["body"] = json!(text);
                        let kind = scope.one("default_type").and_then(Node::argument).unwrap_or("text/plain");
                        respond["content_type"] = json!(kind);
                    }
                    None if status >= 400 => {
                        self.product.differs(&source, "return", "has no page of HTML here");
                    }
                    None => {}
                }
                route.set("respond", respond);
            }
            _ => {
                let problem = "is not understood here: a status with a text or a URL is, with $host and $request_uri at most";
                self.product.lacks(&source, "return", problem);
                return None;
            }
        }
        self.response_fields(scope, route);
        Some(())
    }
}

/// The location that keeps the host, or the path and the query, of a request as this redirect of nginx does. `None`: it does not, or
/// keeps something else.
fn kept(location: &str) -> Option<String> {
    let (place, uri) = location.strip_suffix("$request_uri").map_or((location, ""), |place| (place, "{uri}"));
    let (scheme, place) = place.split_once("://")?;
    let (host, rest) = match place.strip_prefix("$host") {
        Some(rest) if rest.is_empty() || rest.starts_with([':', '/']) => ("{host}", rest),
        _ => ("", place),
    };
    let ends =
        if uri.is_empty() { !host.is_empty() } else { !rest.ends_with('/') && !rest.contains(['?', '#']) };
    let is_somewhere = !host.is_empty() || !rest.is_empty();
    let is_whole = is_somewhere && !rest.contains(['$', '{', '}']);
    (ends && is_whole).then(|| format!("{scheme}://{host}{rest}{uri}"))
}

fn is_off(scope: &Scope<'_>, name: &str) -> bool {
    scope.one(name).is_some_and(|node| node.argument() == Some("off"))
}
