//! The order in which routes are looked at, for people: what `tidegate check` shows.
//!
//! It says in a list what the index of `table.rs` does; a test there compares the two.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;

use crate::config::{Action, GatewayConfig, HostPattern, PathPattern, RouteConfig, Segment, SplitConfig};
use crate::routes::route::Route;

/// A route for one of its hosts. It reads as a line: `shop.example /api/* GET -> upstream app`.
#[derive(Clone, Copy, Debug)]
pub struct RankedRoute<'c> {
    /// The route.
    pub route: &'c RouteConfig,
    host: Option<&'c HostPattern>,
}

impl GatewayConfig {
    /// Every route, once for each of its hosts, in the order in which they are looked at: the first that
    /// accepts a request has it.
    #[must_use]
    pub fn in_order(&self) -> Vec<RankedRoute<'_>> {
        let mut ranked: Vec<RankedRoute<'_>> = Vec::new();
        for route in &self.routes {
            ranked.extend(route.hosts.iter().map(|host| RankedRoute { route, host: Some(host) }));
            if route.hosts.is_empty() {
                ranked.push(RankedRoute { route, host: None });
            }
        }
        // Stable: of equals, the first in the file stays first.
        ranked.sort_by_cached_key(|it| {
            (host_rank(it.host), path_rank(&it.route.path), Reverse(Route::conditions(it.route)))
        });
        ranked
    }
}

/// Exact names by name, then suffixes, the longest first, then all hosts.
fn host_rank(host: Option<&HostPattern>) -> (u8, Reverse<usize>, String) {
    match host {
        Some(HostPattern::Exact(name)) => (0, Reverse(0), name.to_string()),
        Some(HostPattern::Suffix(suffix)) => (1, Reverse(suffix.len()), suffix.to_string()),
        None => (2, Reverse(0), String::new()),
    }
}

/// Exact paths, then patterns, where a given part comes before a parameter, then prefixes, the longest first.
fn path_rank(path: &PathPattern) -> (u8, Vec<(bool, &str)>, Reverse<usize>, &str) {
    match path {
        PathPattern::Exact(path) => (0, Vec::new(), Reverse(0), path),
        PathPattern::Segments(segments) => {
            let parts = segments.iter().map(|segment| match segment {
                Segment::Literal(text) => (false, &**text),
                Segment::Parameter(_) => (true, ""),
            });
            (1, parts.collect(), Reverse(0), "")
        }
        PathPattern::Prefix(path) => (2, Vec::new(), Reverse(path.len()), path),
    }
}

impl RankedRoute<'_> {
    /// What of a request does not fit: `host` in lower case, `path` in normal form.
    pub(crate) fn mismatch(&self, host: &str, path: &str, request: &Parts) -> Option<String> {
        let host_fits = match self.host {
            Some(HostPattern::Exact(name)) => **name == *host,
            Some(HostPattern::Suffix(suffix)) => host.ends_with(&**suffix),
            None => true,
        };
        if !host_fits {
            return Some("host".to_owned());
        }
        if !path_fits(&self.route.path, path) {
            return Some("path".to_owned());
        }
        Route::mismatch(self.route, request)
    }
}

fn path_fits(pattern: &PathPattern, path: &str) -> bool {
    match pattern {
        PathPattern::Exact(exact) => **exact == *path,
        PathPattern::Prefix(prefix) => {
            path.strip_prefix(&**prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathPattern::Segments(segments) => {
            let parts: Vec<&str> = path.split('/').skip(1).collect();
            let fits = |(segment, part): (&Segment, &&str)| match segment {
                Segment::Literal(text) => **text == **part,
                Segment::Parameter(_) => !part.is_empty(),
            };
            parts.len() == segments.len() && segments.iter().zip(&parts).all(fits)
        }
    }
}

impl fmt::Display for RankedRoute<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RouteConfig { path, methods, fields, cookies, query, action, policies, split, .. } = self.route;
        match self.host {
            Some(HostPattern::Exact(name)) => write!(out, "{name} ")?,
            Some(HostPattern::Suffix(suffix)) => write!(out, "*{suffix} ")?,
            None => write!(out, "* ")?,
        }
        write!(out, "{path}")?;
        let methods: Vec<&str> = methods.iter().map(http::Method::as_str).collect();
        if !methods.is_empty() {
            write!(out, " {}", methods.join("|"))?;
        }
        fields.iter().try_for_each(|(name, _)| write!(out, " header:{name}"))?;
        cookies.iter().try_for_each(|(name, _)| write!(out, " cookie:{name}"))?;
        query.iter().try_for_each(|(name, _)| write!(out, " query:{name}"))?;
        match action {
            Action::Forward { upstream } => match split.as_ref().filter(|split| !split.is_canary) {
                Some(split) => write!(out, " -> split {}", percentages(split, upstream))?,
                None => write!(out, " -> upstream {upstream}")?,
            },
            Action::Redirect(redirect) => write!(out, " -> {}", redirect.status.as_u16())?,
            Action::Reply(reply) => write!(out, " -> {}", reply.status.as_u16())?,
        }
        if !policies.is_empty() {
            write!(out, ", limited by {}", policies.join(", "))?;
        }
        Ok(())
    }
}

/// The upstreams of a split, each with its percentage.
fn percentages(split: &SplitConfig, last: &Arc<str>) -> String {
    let parts = split.places(last).map(|(upstream, places)| {
        let percent = (places.end - places.start) as f64 / 10.0;
        format!("{upstream} {percent} %")
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::routes::table::Table;

    #[test]
    fn the_list_has_the_order_of_the_index() {
        let routes = [
            json!({"path": "/*"}),
            json!({"path": "/users/{id}"}),
            json!({"path": "/users/me"}),
            json!({"path": "/users/me", "method": "GET"}),
            json!({"path": "/users/*"}),
            json!({"host": "*.example.com"}),
            json!({"host": ["a.example.com", "*.b.example.com"], "path": "/users/*"}),
            json!({"path": "/{what}/me"}),
        ];
        let routes: Vec<Value> = (0..)
            .zip(routes)
            .map(|(index, mut route): (u32, Value)| {
                route["name"] = json!(format!("r{index}"));
                route["respond"] = json!({});
                route
            })
            .collect();
        let config = GatewayConfig::check(&[], &routes, &[]).expect("good routes");
        let table = Table::new(config.routes.iter().map(|route| &**route));
        let order = config.in_order();
        let requests = [
            ("h", "/users/me"),
            ("h", "/users/7"),
            ("a.example.com", "/users/me"),
            ("x.b.example.com", "/users/7"),
            ("x.example.com", "/users/7"),
            ("h", "/other/me"),
            ("h", "/"),
        ];
        let (request, ()) = http::Request::new(()).into_parts();
        for (host, path) in requests {
            // Refusing the first one found gives the next, so that the whole order is seen.
            let mut refused: Vec<usize> = Vec::new();
            while let Some(found) = table.find(host, path, |position| !refused.contains(&position)) {
                refused.push(found);
            }
            let places = refused.iter().map(|position| {
                let route = &*config.routes[*position];
                let place = order.iter().position(|it| {
                    std::ptr::eq(it.route, route) && it.mismatch(host, path, &request).is_none()
                });
                place.expect("a route that was found is in the list")
            });
            assert!(places.is_sorted(), "{host} {path}: {refused:?}");
            assert!(!refused.is_empty());
        }
        assert_eq!(order[0].to_string(), "a.example.com /users/* -> 200");
        assert_eq!(order[4].to_string(), "* /users/me -> 200");
    }

    #[test]
    fn a_split_is_told_with_its_percentages() {
        let shares = json!([{"upstream": "a", "percent": 33.5}, {"upstream": "b", "percent": 66.5}]);
        let upstreams = ["a", "b"].map(|name| json!({"name": name, "servers": ["http://127.0.0.1:1"]}));
        let config = GatewayConfig::check(&upstreams, &[json!({"name": "r", "split": shares})], &[]);
        let config = config.expect("a good route");
        assert_eq!(config.in_order()[0].to_string(), "* /* -> split a 33.5 %, b 66.5 %");
    }
}
