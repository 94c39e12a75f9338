//! Which requests a line of a Caddyfile is for, and in which order Tidegate asks the routes of these.
//!
//! Paths are exact or prefixes, so of two that meet one contains the other. Where Tidegate would ask a later route before one that
//! Caddy asks first, the requests of both get a route of their own, with what the first does ([`place`]).

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tidegate_wire::caddyfile::CaddyDirective;

use super::super::pattern::Pattern;
use super::super::product::ProductTable;
use super::{CaddyImporter, has_placeholder};

/// Most routes of a site.
pub(super) const MAX_ROUTES: usize = 1_000;

/// Requests by host, path, method, fields and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CaddyMatch {
    /// In order; none: all.
    pub(super) hosts: Vec<String>,
    pub(super) pattern: Pattern,
    /// In order; none: all.
    methods: Vec<String>,
    /// Values by `header` or `query` and a name.
    values: BTreeMap<(&'static str, String), String>,
}

/// A matcher of the file: requests that one of `any` takes.
#[derive(Clone, Debug)]
pub(super) struct CaddyMatcher {
    pub(super) any: Vec<CaddyMatch>,
    /// Its path as it is written, if it has one path.
    pub(super) path: Option<String>,
}

/// A route that is being made, its table without name and conditions.
#[derive(Clone, Debug)]
pub(super) struct CaddyRoute {
    pub(super) when: CaddyMatch,
    pub(super) table: ProductTable,
    /// It is for what nobody answers.
    pub(super) is_rest: bool,
}

impl CaddyMatch {
    pub(super) fn of(hosts: Vec<String>) -> Self {
        Self { hosts, pattern: Pattern::below("/"), methods: Vec::new(), values: BTreeMap::new() }
    }

    /// The part of the requests whose path is this one or below it.
    pub(super) fn below(&self, path: &str) -> Option<Self> {
        self.and(&Self { pattern: Pattern::below(path), ..Self::of(Vec::new()) })
    }

    /// The requests of both; `None`: there are none.
    pub(super) fn and(&self, other: &Self) -> Option<Self> {
        let pattern = [(self, other), (other, self)].into_iter().find_map(|(wide, narrow)| {
            wide.pattern.contains(&narrow.pattern).then(|| narrow.pattern.clone())
        })?;
        let mut values = self.values.clone();
        for (name, value) in &other.values {
            if values.insert(name.clone(), value.clone()).is_some_and(|known| known != *value) {
                return None;
            }
        }
        let hosts = common(&self.hosts, &other.hosts)?;
        Some(Self { hosts, pattern, methods: common(&self.methods, &other.methods)?, values })
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.and(other).as_ref() == Some(self)
    }

    /// Whether Tidegate could ask this one before `earlier` about a request of `both`.
    fn overtakes(&self, earlier: &Self, both: &Self) -> bool {
        let conditions = |it: &Self| usize::from(!it.methods.is_empty()) + it.values.len();
        both.hosts.iter().any(|host| !earlier.hosts.contains(host))
            || match self.pattern.order(&earlier.pattern) {
                Ordering::Less => true,
                Ordering::Equal => conditions(self) > conditions(earlier),
                Ordering::Greater => false,
            }
    }

    pub(super) fn write(&self, route: &mut ProductTable) {
        let path = self.pattern.path();
        if !self.hosts.is_empty() {
            route.set("host", self.hosts.clone());
        }
        if path != "/*" {
            route.set("path", path);
        }
        if !self.methods.is_empty() {
            route.set("method", self.methods.clone());
        }
        for kind in ["header", "query"] {
            let of_kind = self.values.iter().filter(|((known, _), _)| *known == kind);
            let values: Map<String, Value> =
                of_kind.map(|((_, name), value)| (name.clone(), json!(value))).collect();
            if !values.is_empty() {
                route.set(kind, Value::Object(values));
            }
        }
    }
}

impl CaddyMatcher {
    pub(super) fn all() -> Self {
        Self { any: vec![CaddyMatch::of(Vec::new())], path: None }
    }

    /// Whether it takes every request.
    pub(super) fn is_all(&self) -> bool {
        self.any == Self::all().any
    }

    pub(super) fn has_path(&self) -> bool {
        self.any.iter().any(|it| it.pattern != Pattern::below("/"))
    }
}

/// What both lists name, in order, as they are; an empty one names all. `None`: they have nothing in common.
fn common(one: &[String], other: &[String]) -> Option<Vec<String>> {
    if one.is_empty() || other.is_empty() {
        return Some([one, other].concat());
    }
    let covers = |wide: &str, name: &str| {
        wide == name || wide.strip_prefix('*').is_some_and(|end| name.ends_with(end))
    };
    let mut found: Vec<String> = Vec::new();
    for name in one {
        let own = other.iter().any(|it| covers(it, name)).then_some(name);
        let narrower = other.iter().filter(|it| own.is_none() && covers(name, it));
        for name in own.into_iter().chain(narrower) {
            if !found.contains(name) {
                found.push(name.clone());
            }
        }
    }
    found.sort();
    (!found.is_empty()).then_some(found)
}

/// Adds a route that Caddy asks after the first `before` of the list. If Tidegate would ask it before one of these, the requests of both
/// get a copy of that one.
pub(super) fn place(list: &mut Vec<CaddyRoute>, route: CaddyRoute, before: usize) {
    for index in 0..before {
        let earlier = &list[index];
        let Some(both) = route.when.and(&earlier.when) else { continue };
        let is_first = list.len() < MAX_ROUTES && route.when.overtakes(&earlier.when, &both);
        if is_first && !list.iter().any(|it| it.when == both) {
            let copy = CaddyRoute { when: both, ..earlier.clone() };
            place(list, copy, index);
        }
    }
    if !list.iter().any(|it| it.when == route.when) {
        list.push(route);
    }
}

impl CaddyImporter {
    /// A definition `@name`. `None`: it is listed.
    pub(super) fn named(&mut self, node: &CaddyDirective) -> Option<CaddyMatcher> {
        let single = CaddyDirective { words: node.words.get(1..)?.to_vec(), ..node.clone() };
        let lines = if single.words.is_empty() { node.lines() } else { std::slice::from_ref(&single) };
        let (mut paths, mut requests) = (Vec::new(), CaddyMatch::of(Vec::new()));
        for line in lines {
            let arguments = line.arguments();
            let is_plain = |text: &&str| !text.contains('*') && !has_placeholder(text);
            let are_plain = line.block.is_none() && !arguments.is_empty() && arguments.iter().all(is_plain);
            let owned = || arguments.iter().map(|text| (*text).to_owned());
            let pair = match (line.name(), &arguments[..]) {
                ("path", [_, ..]) if line.block.is_none() => {
                    paths.extend(owned());
                    continue;
                }
                ("method", _) if are_plain => {
                    requests.methods.extend(owned());
                    continue;
                }
                ("host", _) if are_plain => {
                    requests.hosts.extend(owned().map(|host| host.to_ascii_lowercase()));
                    continue;
                }
                ("header", [name, value]) if are_plain && !name.starts_with('!') => {
                    Some((("header", name.to_ascii_lowercase()), (*value).to_owned()))
                }
                ("query", [pair]) if are_plain => {
                    pair.split_once('=').map(|(name, value)| (("query", name.to_owned()), value.to_owned()))
                }
                _ => None,
            };
            let Some((name, value)) = pair.filter(|(name, _)| !requests.values.contains_key(name)) else {
                let problem =
                    "is not understood here: path, method, host, header and query with whole values are";
                self.lacks(line, problem);
                return None;
            };
            requests.values.insert(name, value);
        }
        requests.methods.sort();
        requests.hosts.sort();
        if paths.is_empty() {
            return Some(CaddyMatcher { any: vec![requests], path: None });
        }
        let mut matcher = CaddyMatcher { any: Vec::new(), path: None };
        for path in &paths {
            let found = CaddyMatch { pattern: self.pattern(node, path)?, ..requests.clone() };
            if !matcher.any.iter().any(|known| found.is_within(known)) {
                matcher.any.retain(|known| !known.is_within(&found));
                matcher.any.push(found);
            }
        }
        matcher.path = paths.pop().filter(|_| paths.is_empty());
        Some(matcher)
    }

    /// A path that stands in a line itself.
    pub(super) fn path_matcher(&mut self, node: &CaddyDirective, path: &str) -> Option<CaddyMatcher> {
        let all = CaddyMatch::of(Vec::new());
        let found = CaddyMatch { pattern: self.pattern(node, path)?, ..all };
        Some(CaddyMatcher { any: vec![found], path: Some(path.to_owned()) })
    }

    /// A path of Caddy: exact, or with a `*` at its end.
    fn pattern(&mut self, node: &CaddyDirective, path: &str) -> Option<Pattern> {
        let prefix = path.strip_suffix('*');
        let text = prefix.unwrap_or(path);
        if text.contains(['*', '?', '[', '{', '\\', '%']) || !path.starts_with(['/', '*']) {
            self.lacks(node, &format!("{path} is not understood here: a path is, with * at its end at most"));
            return None;
        }
        if text.len() > 1 {
            let problem = match prefix.map(|prefix| (prefix, prefix.strip_suffix('/'))) {
                Some((_, Some(bare))) => format!("{bare} is taken as all below it is"),
                Some((prefix, None)) => format!("{prefix} and all below it are taken, but not {prefix}x"),
                None => format!("{path}/ is taken as {path} is"),
            };
            let case = if text.contains(char::is_alphabetic) { ", and capitals matter" } else { "" };
            self.differs(node, &format!("{problem}{case}"));
        }
        Some(if prefix.is_some() { Pattern::below(text) } else { Pattern::exact(text) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(hosts: &[&str], pattern: Pattern, methods: &[&str]) -> CaddyMatch {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        CaddyMatch { pattern, methods: owned(methods), ..CaddyMatch::of(owned(hosts)) }
    }

    #[test]
    fn the_requests_of_two_matchers_are_those_that_both_take() {
        let site = requests(&["*.a.example", "b.example"], Pattern::below("/"), &[]);
        let api = requests(&["x.a.example"], Pattern::below("/api"), &["GET", "POST"]);
        let both = site.and(&api).expect("some");
        assert_eq!(both, api);
        assert!(api.is_within(&site) && !site.is_within(&api));
        let post = requests(&[], Pattern::exact("/api/v1"), &["POST"]);
        assert_eq!(api.and(&post), Some(requests(&["x.a.example"], Pattern::exact("/api/v1"), &["POST"])));
        assert_eq!(post.and(&requests(&[], Pattern::below("/api/v1/x"), &[])), None);
        assert_eq!(post.and(&requests(&[], Pattern::below("/"), &["GET"])), None);
        assert_eq!(site.and(&requests(&["c.example"], Pattern::below("/"), &[])), None);
    }
}
