//! The table of routes: an index, so that a request among thousands of routes costs what it costs among ten.
//!
//! ```text
//!   host    the exact name, then the longest suffix, then routes for every host
//!     path    the exact path, then patterns (a given segment before a parameter), then the longest prefix
//!       rest    the route that asks for most beside (method, fields, cookies, query), then the file's order
//! ```
//!
//! The first route in this order that accepts the request has it. Paths are compared in normal form
//! (fault 54). A route that stands behind one with the same host, path and conditions can never match;
//! [`fn@unreachable`] finds those, and the check of a file refuses them.

use std::collections::HashMap;

use tidegate_wire::path::PathError;

use crate::config::{EncodedSlash, HostPattern, PathPattern, RouteConfig, Segment};
use crate::response::refusal::Refusal;
use crate::routes::route::Route;
use crate::routes::target::TargetPath;

/// Positions in a list of routes, by path.
#[derive(Debug, Default)]
struct PathIndex {
    exact: HashMap<Box<str>, Vec<usize>>,
    patterns: Segments,
    prefixes: HashMap<Box<str>, Vec<usize>>,
}

/// Positions by the segments of a pattern.
#[derive(Debug, Default)]
struct Segments {
    literal: HashMap<Box<str>, Self>,
    parameter: Option<Box<Self>>,
    routes: Vec<usize>,
}

/// Positions in a list of routes, by host and path.
#[derive(Debug, Default)]
pub(crate) struct Table {
    exact: HashMap<Box<str>, PathIndex>,
    suffix: HashMap<Box<str>, PathIndex>,
    any: PathIndex,
}

impl Table {
    /// An index of `routes`, whose positions it gives.
    pub(crate) fn new<'r>(routes: impl Iterator<Item = &'r RouteConfig>) -> Self {
        let mut configs: Vec<(usize, &RouteConfig)> = routes.enumerate().collect();
        // Stable: of equals, the first in the file stays first.
        configs.sort_by_key(|(_, config)| std::cmp::Reverse(Route::conditions(config)));
        let mut table = Self::default();
        for (position, config) in configs {
            if config.hosts.is_empty() {
                table.any.add(&config.path, position);
            }
            for host in &config.hosts {
                let index = match host {
                    HostPattern::Exact(name) => table.exact.entry(name.clone()).or_default(),
                    HostPattern::Suffix(suffix) => table.suffix.entry(suffix.clone()).or_default(),
                };
                index.add(&config.path, position);
            }
        }
        table
    }

    /// The route for `host` and `path` that `accepts`, whose rule for encoded slashes is `encoded`.
    ///
    /// # Errors
    /// When a server could read the path in a way by which another route would take it.
    pub(crate) fn route(
        &self,
        host: &str,
        path: &TargetPath,
        accepts: impl Fn(usize) -> bool,
        encoded: impl Fn(usize) -> EncodedSlash,
    ) -> Result<Option<usize>, Refusal> {
        let found = self.find(host, &path.normal, &accepts);
        let (Some(position), Some(other)) = (found, path.other.as_deref()) else { return Ok(found) };
        match encoded(position) {
            EncodedSlash::Keep => Ok(found),
            EncodedSlash::Refuse => Err(PathError::EncodedSeparator.into()),
            EncodedSlash::SameRoute => {
                let is_same = !path.has_a_third_reading() && self.find(host, other, &accepts) == found;
                if is_same { Ok(found) } else { Err(Refusal::OtherRoute) }
            }
        }
    }

    /// The first route for `host` (lower case, no port) and `path` (in normal form) that `accepts`.
    pub(crate) fn find(&self, host: &str, path: &str, accepts: impl Fn(usize) -> bool) -> Option<usize> {
        let exact = self.exact.get(host).and_then(|index| index.find(path, &accepts));
        exact
            .or_else(|| {
                let dots = host.match_indices('.').map(|(at, _)| &host[at..]);
                dots.filter_map(|suffix| self.suffix.get(suffix)).find_map(|index| index.find(path, &accepts))
            })
            .or_else(|| self.any.find(path, &accepts))
    }
}

impl PathIndex {
    fn add(&mut self, path: &PathPattern, position: usize) {
        match path {
            PathPattern::Exact(path) => self.exact.entry(path.clone()).or_default().push(position),
            PathPattern::Prefix(path) => self.prefixes.entry(path.clone()).or_default().push(position),
            PathPattern::Segments(segments) => {
                let mut node = &mut self.patterns;
                for segment in segments {
                    node = match segment {
                        Segment::Literal(text) => node.literal.entry(text.clone()).or_default(),
                        Segment::Parameter(_) => node.parameter.get_or_insert_default(),
                    };
                }
                node.routes.push(position);
            }
        }
    }

    fn find(&self, path: &str, accepts: &impl Fn(usize) -> bool) -> Option<usize> {
        let first = |routes: &[usize]| routes.iter().copied().find(|position| accepts(*position));
        if let Some(found) = self.exact.get(path).and_then(|routes| first(routes)) {
            return Some(found);
        }
        if let Some(found) = self.patterns.find(path.strip_prefix('/').unwrap_or(path), accepts) {
            return Some(found);
        }
        if self.prefixes.is_empty() {
            return None;
        }
        // "/" is the root itself, whose only prefix is the empty one.
        let mut prefix = if path == "/" { "" } else { path };
        loop {
            if let Some(found) = self.prefixes.get(prefix).and_then(|routes| first(routes)) {
                return Some(found);
            }
            prefix = &prefix[..prefix.rfind('/')?];
        }
    }
}

impl Segments {
    /// `rest` is what of the path is left, without a slash in front.
    fn find(&self, rest: &str, accepts: &impl Fn(usize) -> bool) -> Option<usize> {
        let (segment, rest) = match rest.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        if segment.is_empty() {
            return None;
        }
        let down = |node: &Self| match rest {
            Some(rest) => node.find(rest, accepts),
            None => node.routes.iter().copied().find(|position| accepts(*position)),
        };
        let literal = self.literal.get(segment).and_then(down);
        literal.or_else(|| self.parameter.as_deref().and_then(down))
    }
}

/// Routes that can never match, each with one that comes first: the same hosts, path and conditions, and each of its
/// methods is taken. A route for all methods does not hide a route for some, which is more specific; nor the other way
/// round, since a route cannot name all methods.
pub(crate) fn unreachable(routes: &[&RouteConfig]) -> Vec<(usize, usize)> {
    // By host and all the rest but the methods: who takes each method, "" for all of them.
    let mut first: HashMap<String, HashMap<&str, usize>> = HashMap::new();
    let mut found = Vec::new();
    for (position, config) in routes.iter().enumerate() {
        let rest = same_requests(config);
        let mut hosts: Vec<String> = config.hosts.iter().map(|host| format!("{host:?} {rest}")).collect();
        if hosts.is_empty() {
            hosts.push(format!(" {rest}"));
        }
        let mut methods: Vec<&str> = config.methods.iter().map(http::Method::as_str).collect();
        if methods.is_empty() {
            methods.push("");
        }
        let mut is_hidden = true;
        let mut earlier = None;
        for host in hosts {
            let taken = first.entry(host).or_default();
            for method in &methods {
                match taken.get(method) {
                    Some(other) if *other != position => earlier = earlier.or(Some(*other)),
                    Some(_) => {}
                    None => {
                        is_hidden = false;
                        taken.insert(method, position);
                    }
                }
            }
        }
        if let Some(other) = earlier.filter(|_| is_hidden) {
            found.push((position, other));
        }
    }
    found
}

/// A text that is the same for routes that accept the same requests of a host, methods aside.
fn same_requests(config: &RouteConfig) -> String {
    let path = match &config.path {
        PathPattern::Segments(segments) => {
            let shape = segments.iter().map(|segment| match segment {
                Segment::Literal(text) => format!("={text}"),
                Segment::Parameter(_) => "*".to_owned(),
            });
            shape.collect::<Vec<_>>().join("/")
        }
        other => format!("{other:?}"),
    };
    let mut fields: Vec<String> = config.fields.iter().map(|pair| format!("{pair:?}")).collect();
    fields.sort_unstable();
    let mut cookies: Vec<String> = config.cookies.iter().map(|pair| format!("{pair:?}")).collect();
    cookies.sort_unstable();
    let mut query: Vec<String> = config.query.iter().map(|pair| format!("{pair:?}")).collect();
    query.sort_unstable();
    format!("{path} {fields:?} {cookies:?} {query:?}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::config::{Source, read_route};

    fn config(routes: Value) -> Vec<Arc<RouteConfig>> {
        let routes = routes.as_array().expect("a list").iter().enumerate().map(|(index, route)| {
            let mut route = route.clone();
            route["name"] = json!(format!("r{index}"));
            route["respond"] = json!({});
            Arc::new(read_route(&route, "", Source::File).expect("a good route"))
        });
        routes.collect()
    }

    fn found(routes: &[Arc<RouteConfig>], host: &str, path: &str) -> Option<usize> {
        Table::new(routes.iter().map(|route| &**route)).find(host, path, |_| true)
    }

    #[test]
    fn the_most_specific_host_comes_first() {
        let routes = config(json!([
            {}, {"host": "*.example.com"}, {"host": "*.b.example.com"}, {"host": ["A.b.example.com", "x"]}
        ]));
        for (host, expected) in [
            ("a.b.example.com", 3),
            ("c.b.example.com", 2),
            ("b.example.com", 1),
            ("example.com", 0),
            ("x", 3),
            ("", 0),
        ] {
            assert_eq!(found(&routes, host, "/"), Some(expected), "{host}");
        }
    }

    #[test]
    fn the_most_specific_path_comes_first() {
        let routes = config(json!([
            {"path": "/*"}, {"path": "/users/*"}, {"path": "/users/{id}"}, {"path": "/users/me"},
            {"path": "/users/{id}/orders"}, {"path": "/users/me/{what}"}, {"path": "/users/me/posts/*"}
        ]));
        for (path, expected) in [
            ("/", 0),
            ("/other", 0),
            ("/users", 1),
            ("/users/7", 2),
            ("/users/me", 3),
            ("/users/7/orders", 4),
            ("/users/me/orders", 5),
            ("/users/7/x", 1),
            ("/users/me/posts/1", 6),
            ("/userspace", 0),
        ] {
            assert_eq!(found(&routes, "h", path), Some(expected), "{path}");
        }
    }

    #[test]
    fn a_route_that_asks_for_more_comes_first_and_the_next_takes_what_it_refuses() {
        let routes = config(
            json!([{"path": "/a"}, {"path": "/a", "method": "POST"}, {"path": "/*", "header": {"x": "1"}}]),
        );
        let table = Table::new(routes.iter().map(|route| &**route));
        assert_eq!(table.find("h", "/a", |_| true), Some(1));
        assert_eq!(table.find("h", "/a", |position| position != 1), Some(0));
        assert_eq!(table.find("h", "/a", |position| position == 2), Some(2));
        assert_eq!(table.find("h", "/b", |position| position != 2), None);
    }

    #[test]
    fn among_thousands_of_routes_as_few_are_looked_at_as_among_ten() {
        let looked_at = |count: usize| {
            let routes: Vec<Value> = (0..count)
                .flat_map(|n| {
                    let host = format!("h{n}.example.com");
                    [
                        json!({"host": host, "path": "/api/*"}),
                        json!({"host": host, "path": "/api/users/{id}"}),
                        json!({"host": "*.example.com", "path": format!("/n{n}/*"), "method": "GET"}),
                        json!({"path": format!("/exact/{n}")}),
                        json!({"path": format!("/exact/{n}"), "method": "POST"}),
                    ]
                })
                .collect();
            let routes = config(json!(routes));
            let table = Table::new(routes.iter().map(|route| &**route));
            let requests = [
                ("h1.example.com", "/api/users/7"),
                ("h1.example.com", "/api/other/7/8"),
                ("x.example.com", "/n1/a/b"),
                ("other", "/exact/1"),
                ("other", "/nothing"),
            ];
            requests.map(|(host, path)| {
                let (asked, refuses_first) = (std::cell::Cell::new(0), path == "/exact/1");
                let found = table.find(host, path, |_| {
                    asked.set(asked.get() + 1);
                    !refuses_first || asked.get() > 1
                });
                (asked.get(), found.is_some())
            })
        };
        let expected = [(1, true), (1, true), (1, true), (2, true), (0, false)];
        assert_eq!(looked_at(2), expected);
        assert_eq!(looked_at(2_000), expected, "10,000 routes");
    }

    #[test]
    fn a_route_whose_methods_are_all_taken_is_found() {
        let routes = config(json!([
            {"path": "/a", "method": ["GET", "POST"]}, {"path": "/a", "method": "GET"},
            {"path": "/a", "method": ["POST", "PUT"]}, {"path": "/a", "method": ["PUT", "GET"]},
            {"path": "/a"}, {"path": "/a", "method": "DELETE"},
            {"host": ["h", "i"], "path": "/a", "method": "GET"}, {"host": "h", "path": "/a", "method": ["GET", "PUT"]},
            {"host": ["h", "i"], "path": "/a", "method": "PUT"}, {"host": ["h", "h"], "path": "/a", "method": "PUT"}
        ]));
        let all: Vec<&RouteConfig> = routes.iter().map(|route| &**route).collect();
        // 3: PUT is taken by 2, GET by 0. 8: PUT is free at the host i.
        assert_eq!(unreachable(&all), [(1, 0), (3, 2), (9, 7)]);
        let table = Table::new(all.iter().copied());
        let takes = |method: &str| {
            let accepts = |at: usize| {
                let methods = &all[at].methods;
                methods.is_empty() || methods.iter().any(|it| it.as_str() == method)
            };
            table.find("x", "/a", accepts)
        };
        let taken = ["GET", "POST", "PUT", "DELETE", "PATCH"].map(takes);
        assert_eq!(taken, [Some(0), Some(0), Some(2), Some(5), Some(4)], "as the table has it");
    }

    #[test]
    fn a_route_behind_its_like_is_found() {
        let routes = config(json!([
            {"path": "/a/{x}", "method": ["GET", "PUT"]}, {"path": "/a/{y}", "method": ["PUT", "GET"]},
            {"path": "/a/{y}"}, {"host": "h", "path": "/a/{y}"}, {"host": ["h", "i"], "path": "/a/{y}"},
            {"host": ["i", "h"], "path": "/a/{z}"}
        ]));
        let routes: Vec<&RouteConfig> = routes.iter().map(|route| &**route).collect();
        assert_eq!(unreachable(&routes), [(1, 0), (5, 4)]);
    }
}
