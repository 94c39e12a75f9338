//! The directives of a site, `handle`, `handle_path` or `route`: who answers which requests, and what is done before.
//!
//! Caddy asks directives by name in its own order, those of one name by their matchers, and in `route` as they stand. Here each that
//! answers becomes a route; what is done before it becomes keys of that route, and of a further one where it is for a part of the requests.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate_wire::caddyfile::CaddyDirective;

use super::super::product::{ProductTable, SourceLocation};
use super::CaddyImporter;
use super::change::{CaddyChange, closed, put_field, put_key};
use super::matching::{CaddyMatch, CaddyMatcher, CaddyRoute, MAX_ROUTES};

/// What becomes of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaddyFate {
    /// It changes requests or replies.
    Changes,
    /// It answers.
    Answers,
    /// It has other directives, which answer.
    Groups,
}

/// The directives that are understood, in the order in which Caddy asks them, and those that answer but are not understood, so that what
/// stands before them is.
const ORDER: [(&str, CaddyFate); 19] = [
    ("header", CaddyFate::Changes),
    ("request_body", CaddyFate::Changes),
    ("redir", CaddyFate::Answers),
    ("rewrite", CaddyFate::Changes),
    ("uri", CaddyFate::Changes),
    ("forward_auth", CaddyFate::Changes),
    ("request_header", CaddyFate::Changes),
    ("encode", CaddyFate::Changes),
    ("handle", CaddyFate::Groups),
    ("handle_path", CaddyFate::Groups),
    ("route", CaddyFate::Groups),
    ("abort", CaddyFate::Answers),
    ("error", CaddyFate::Answers),
    ("respond", CaddyFate::Answers),
    ("metrics", CaddyFate::Answers),
    ("reverse_proxy", CaddyFate::Answers),
    ("php_fastcgi", CaddyFate::Answers),
    ("file_server", CaddyFate::Answers),
    ("acme_server", CaddyFate::Answers),
];

/// Directives on which the replies do not depend, and what is said of them.
const WITHOUT_EFFECT: [(&str, &str); 8] = [
    ("log", "has no effect: the access log of the gateway is [access_log]"),
    ("log_skip", "has no effect: access_log.sample says which requests are logged"),
    ("skip_log", "has no effect: access_log.sample says which requests are logged"),
    ("log_append", "has no effect: the access log has fields of its own"),
    ("log_name", "has no effect: there is one access log"),
    ("tracing", "has no effect: spans are sent by [telemetry]"),
    ("root", "has no effect: files are not served here"),
    ("push", "has no effect: nothing is pushed"),
];

/// Changes, and the requests that they are for.
#[derive(Clone, Debug)]
struct CaddyEffect {
    when: Vec<CaddyMatch>,
    source: SourceLocation,
    changes: Vec<CaddyChange>,
}

/// What holds where a block stands.
#[derive(Clone, Debug)]
pub(super) struct CaddyScope {
    when: CaddyMatch,
    /// Matchers by name; none: it is not understood.
    named: BTreeMap<String, Option<CaddyMatcher>>,
    effects: Vec<CaddyEffect>,
    /// Directives are asked as they stand.
    is_literal: bool,
    /// The path that matchers see is no longer the client's.
    pub(super) is_rewritten: bool,
    /// Something behind the block takes the requests that it does not answer.
    has_rest: bool,
}

/// A directive with its matcher; none: that is not understood.
struct CaddyLine<'n> {
    node: &'n CaddyDirective,
    rank: usize,
    fate: Option<CaddyFate>,
    matcher: Option<CaddyMatcher>,
    arguments: Vec<&'n str>,
}

impl CaddyScope {
    pub(super) fn of(hosts: Vec<String>) -> Self {
        Self {
            when: CaddyMatch::of(hosts),
            named: BTreeMap::new(),
            effects: Vec::new(),
            is_literal: false,
            is_rewritten: false,
            has_rest: false,
        }
    }

    /// The hosts of its requests; none: all.
    pub(super) fn hosts(&self) -> &[String] {
        &self.when.hosts
    }

    fn push(&mut self, source: SourceLocation, when: Vec<CaddyMatch>, changes: Vec<CaddyChange>) {
        let is_path =
            |change: &CaddyChange| matches!(change, CaddyChange::Key(key, _) if PATH_KEYS.contains(key));
        self.is_rewritten |= changes.iter().any(is_path);
        self.effects.push(CaddyEffect { when, source, changes });
    }
}

const PATH_KEYS: [&str; 3] = ["strip_prefix", "add_prefix", "replace_path"];

impl CaddyLine<'_> {
    fn is_handle(&self) -> bool {
        self.node.name().starts_with("handle")
    }

    /// Whether Caddy asks it before another one that stands before it.
    fn precedes(&self, other: &Self) -> bool {
        if self.rank != other.rank {
            return self.rank < other.rank;
        }
        let path = |line: &Self| line.matcher.as_ref()?.path.clone();
        let has_matcher = |line: &Self| line.matcher.as_ref().is_none_or(|it| !it.is_all());
        match (path(self), path(other)) {
            (Some(own), Some(its)) => {
                let [first, second] = [&own, &its].map(|path| path.trim_end_matches('*').len());
                first > second || first == second && own.len() < its.len()
            }
            _ => has_matcher(self) && !has_matcher(other),
        }
    }
}

impl CaddyImporter {
    /// The routes of a block, those that Caddy asks first in front.
    pub(super) fn block(
        &mut self,
        nodes: &[CaddyDirective],
        by: &CaddyDirective,
        mut scope: CaddyScope,
    ) -> Vec<CaddyRoute> {
        for node in nodes.iter().filter(|node| node.name().starts_with('@')) {
            let matcher = self.named(node);
            scope.named.insert(node.name().to_owned(), matcher);
        }
        let lines = self.ordered(nodes, &scope);
        let mut routes = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let later = |it: &CaddyLine<'_>| {
                let answers = matches!(it.fate, Some(CaddyFate::Answers | CaddyFate::Groups));
                answers && !(it.is_handle() && line.is_handle())
            };
            let has_rest = scope.has_rest || lines[index + 1..].iter().any(later);
            let missing = self.missing();
            let source = self.source(line.node);
            let Some(requests) = self.requests(line, &scope) else {
                // What is not understood may be for any request.
                scope.push(source, CaddyMatcher::all().any, vec![CaddyChange::Closed]);
                continue;
            };
            match line.fate {
                Some(CaddyFate::Answers) => {
                    let table = self.answer(line.node, &line.arguments, &scope);
                    let table = if self.missing() > missing { closed(source) } else { table };
                    for when in requests {
                        routes.extend(self.parted(when, &table, &scope.effects));
                    }
                }
                Some(CaddyFate::Groups) => {
                    let inner = CaddyScope { has_rest, ..scope.clone() };
                    routes.extend(self.group(line, requests, &inner));
                }
                Some(CaddyFate::Changes) => {
                    let changes = self.changes(line.node, &line.arguments);
                    let is_understood = self.missing() == missing;
                    let changes = if is_understood { changes } else { vec![CaddyChange::Closed] };
                    // A prefix is taken off paths that begin with it.
                    let requests = match &changes[..] {
                        [CaddyChange::Key("strip_prefix", prefix)] => {
                            let prefix = prefix.as_str().unwrap_or_default();
                            requests.iter().filter_map(|it| it.below(prefix)).collect()
                        }
                        _ => requests,
                    };
                    scope.push(source, requests, changes);
                }
                None => {}
            }
        }
        let is_whole = routes.iter().any(|it: &CaddyRoute| scope.when.is_within(&it.when));
        if !is_whole {
            let table = self.rest(by, &scope);
            let rest = self.parted(scope.when.clone(), &table, &scope.effects);
            routes.extend(rest.into_iter().map(|route| CaddyRoute { is_rest: true, ..route }));
        }
        routes
    }

    /// The directives in the order in which Caddy asks them.
    fn ordered<'n>(&mut self, nodes: &'n [CaddyDirective], scope: &CaddyScope) -> Vec<CaddyLine<'n>> {
        let mut lines: Vec<CaddyLine<'n>> = Vec::new();
        for node in nodes.iter().filter(|node| !node.name().starts_with('@')) {
            if !self.spend(node) {
                break;
            }
            lines.extend(self.directive(node, scope));
            let mut at = lines.len().saturating_sub(1);
            // Caddy's own way: what precedes what is no order of all, so that the way of sorting matters.
            while !scope.is_literal && at > 0 && lines[at].precedes(&lines[at - 1]) {
                lines.swap(at, at - 1);
                at -= 1;
            }
        }
        lines
    }

    /// The answer to what no directive of a block answers: an empty one, as Caddy's, unless something behind the block has it.
    fn rest(&mut self, by: &CaddyDirective, scope: &CaddyScope) -> ProductTable {
        if scope.has_rest {
            self.lacks(by, "leaves requests to what follows it, which is not understood here");
            return closed(self.source(by));
        }
        let mut table = ProductTable::new(self.source(by));
        table.set("respond", json!({ "status": 200 }));
        table
    }

    /// A directive with its matcher. `None`: there is nothing to do for it.
    fn directive<'n>(&mut self, node: &'n CaddyDirective, scope: &CaddyScope) -> Option<CaddyLine<'n>> {
        let name = node.name();
        if let Some((_, problem)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name) {
            self.differs(node, problem);
            return None;
        }
        if name == "handle_errors" {
            self.lacks(node, "is not understood here: errors of the gateway are problem documents");
        }
        if matches!(name, "tls" | "handle_errors") {
            return None;
        }
        let mut arguments = node.arguments();
        let mut line = CaddyLine { node, rank: 0, fate: None, matcher: None, arguments: Vec::new() };
        let Some(rank) = ORDER.iter().position(|(known, _)| *known == name) else {
            let is_import = name == "import";
            let problem =
                if is_import { "names no snippet: files are not read" } else { "is not understood here" };
            self.lacks(node, problem);
            return Some(line);
        };
        // Both handles have one place.
        line.rank = if name == "handle_path" { rank - 1 } else { rank };
        line.fate = Some(ORDER[rank].1);
        let is_target = name == "rewrite" && arguments.len() == 1;
        line.matcher = match arguments.first().copied().filter(|_| !is_target) {
            Some("*") => Some(CaddyMatcher::all()),
            Some(path) if path.starts_with('/') => self.path_matcher(node, path),
            Some(name) if name.starts_with('@') => {
                let known = scope.named.get(name).cloned();
                if known.is_none() {
                    self.lacks(node, &format!("{name} is not defined"));
                }
                known.flatten()
            }
            _ => {
                line.arguments = arguments;
                line.matcher = Some(CaddyMatcher::all());
                return Some(line);
            }
        };
        arguments.remove(0);
        line.arguments = arguments;
        Some(line)
    }

    /// The requests that a line is for. `None`: its matcher is not understood.
    fn requests(&mut self, line: &CaddyLine<'_>, scope: &CaddyScope) -> Option<Vec<CaddyMatch>> {
        let matcher = line.matcher.as_ref()?;
        if scope.is_rewritten && matcher.has_path() {
            self.lacks(line.node, "goes by a path that is rewritten before, which is not understood here");
            return None;
        }
        let requests: Vec<CaddyMatch> = matcher.any.iter().filter_map(|it| scope.when.and(it)).collect();
        if requests.is_empty() {
            self.differs(line.node, "is for no request that comes so far, and left out");
        }
        Some(requests)
    }

    fn group(
        &mut self,
        line: &CaddyLine<'_>,
        requests: Vec<CaddyMatch>,
        scope: &CaddyScope,
    ) -> Vec<CaddyRoute> {
        let path = line.matcher.as_ref().and_then(|matcher| matcher.path.as_deref()).unwrap_or_default();
        let prefix = path.trim_end_matches('*').trim_end_matches('/');
        let mut routes = Vec::new();
        for when in requests {
            let mut inner = CaddyScope { when, ..scope.clone() };
            inner.is_literal = line.node.name() == "route";
            if line.node.name() == "handle_path" && !prefix.is_empty() {
                let change = CaddyChange::Key("strip_prefix", json!(prefix));
                inner.push(self.source(line.node), vec![inner.when.clone()], vec![change]);
            }
            routes.extend(self.block(line.node.lines(), line.node, inner));
        }
        routes
    }

    /// The routes of requests that are answered alike: one, and further ones for those parts that something is done for before.
    fn parted(&mut self, when: CaddyMatch, table: &ProductTable, effects: &[CaddyEffect]) -> Vec<CaddyRoute> {
        let mut parts: Vec<(CaddyMatch, Vec<usize>)> = vec![(when.clone(), Vec::new())];
        for (index, effect) in effects.iter().enumerate() {
            let mut next: Vec<(CaddyMatch, Vec<usize>)> = Vec::new();
            for (part, mut applied) in parts {
                if effect.when.iter().any(|it| part.is_within(it)) {
                    applied.push(index);
                } else {
                    for both in effect.when.iter().filter_map(|it| part.and(it)) {
                        if next.len() < MAX_ROUTES && !next.iter().any(|(known, _)| both.is_within(known)) {
                            next.push((both, [&applied[..], &[index]].concat()));
                        }
                    }
                }
                next.push((part, applied));
            }
            parts = next;
        }
        if parts.len() >= MAX_ROUTES {
            self.product.lacks(&table.source, "", format!("would be more than {MAX_ROUTES} routes"));
            return vec![CaddyRoute { when, table: closed(table.source.clone()), is_rest: false }];
        }
        let mut routes = Vec::new();
        for (when, applied) in parts {
            let mut table = table.clone();
            for index in applied {
                self.apply(&effects[index], &mut table);
            }
            routes.push(CaddyRoute { when, table, is_rest: false });
        }
        routes
    }

    fn apply(&mut self, effect: &CaddyEffect, table: &mut ProductTable) {
        for change in effect.changes.clone() {
            let done = match change {
                CaddyChange::Closed => {
                    *table = closed(table.source.clone());
                    return;
                }
                CaddyChange::Key(key, value) => put_key(table, key, &value),
                CaddyChange::Field(side, how, name, value) => put_field(table, side, how, &name, &value),
            };
            if done.is_none() {
                let problem = "cannot be said here beside what is done before it";
                self.product.lacks(&effect.source, "", problem);
                *table = closed(table.source.clone());
                return;
            }
        }
    }
}
