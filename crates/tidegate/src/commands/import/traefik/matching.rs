//! What one alternative of a rule asks of a request, as the conditions of a route.

use std::cmp::{Ordering, Reverse};

use serde_json::{Map, Value, json};

use super::super::pattern::Pattern;
use super::super::product::ProductTable;
use super::rule::{MatcherCall, RuleMistake, alternatives, parse};

/// The conditions of one route.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RouterMatch {
    /// Empty: all. `*.name` is all names below one.
    hosts: Vec<String>,
    /// Nothing: every path.
    path: Option<Pattern>,
    methods: Vec<String>,
    headers: Map<String, Value>,
    query: Map<String, Value>,
}

/// The routes that a rule needs. What they take beside, or beyond, what the rule says goes to `notes`.
pub(super) fn matches(rule: &str, notes: &mut Vec<String>) -> Result<Vec<RouterMatch>, RuleMistake> {
    let mut found: Vec<RouterMatch> = Vec::new();
    for calls in alternatives(&parse(rule)?)? {
        let one = RouterMatch::of(&calls, notes)?;
        if !found.iter_mut().any(|known| known.joins(&one)) {
            found.push(one);
        }
    }
    Ok(found)
}

impl RouterMatch {
    fn of(calls: &[MatcherCall], notes: &mut Vec<String>) -> Result<Self, RuleMistake> {
        let mut found = Self::default();
        let (mut has_hosts, mut has_path) = (false, false);
        for call in calls {
            let (mut has_more, arguments) = (false, &call.arguments);
            match (call.name.as_str(), &arguments[..]) {
                ("host" | "hostheader", _) => {
                    has_more = std::mem::replace(&mut has_hosts, true);
                    found.hosts = each(call, host)?;
                }
                ("hostregexp", _) => {
                    has_more = std::mem::replace(&mut has_hosts, true);
                    found.hosts = each(call, host_of_regex)?;
                }
                ("path" | "pathprefix" | "pathregexp", [text]) => {
                    has_more = std::mem::replace(&mut has_path, true);
                    found.path = Some(path(call, text, notes)?);
                }
                ("method", _) => {
                    has_more = !found.methods.is_empty();
                    found.methods = arguments.iter().map(|method| method.to_ascii_uppercase()).collect();
                }
                ("header" | "headers", [name, value]) => {
                    let name = name.to_ascii_lowercase();
                    has_more = found.headers.insert(name, json!(value)).is_some_and(|known| known != *value);
                }
                ("query", pairs) => {
                    let pairs = parameters(pairs)
                        .ok_or_else(|| call.mistake("Query is understood with a name and its value"))?;
                    for (name, value) in pairs {
                        let known = found.query.insert(name.to_owned(), json!(value));
                        has_more |= known.is_some_and(|known| known != value);
                    }
                }
                _ => {
                    let problem =
                        format!("{} with {} arguments is not understood here", call.name, arguments.len());
                    return Err(call.mistake(problem));
                }
            }
            if has_more {
                return Err(call.mistake(format!("{} is asked for twice, and a route asks once", call.name)));
            }
        }
        // One name that stands for all hosts, and one path that stands for all.
        if found.hosts.iter().any(|host| host == "*") {
            found.hosts.clear();
        }
        found.path = found.path.filter(|path| *path != Pattern::below("/"));
        Ok(found)
    }

    /// Takes what `other` takes, if the two differ in their hosts alone, or in their methods.
    fn joins(&mut self, other: &Self) -> bool {
        let without = |it: &Self| Self { hosts: Vec::new(), methods: Vec::new(), ..it.clone() };
        if without(self) != without(other) {
            return false;
        }
        let (same_hosts, same_methods) = (self.hosts == other.hosts, self.methods == other.methods);
        let (list, further) = match (same_hosts, same_methods) {
            (true, true) => return true,
            (false, true) => (&mut self.hosts, &other.hosts),
            (true, false) => (&mut self.methods, &other.methods),
            (false, false) => return false,
        };
        // An empty list is all already, but a list of some and one of all are two routes.
        if list.is_empty() || further.is_empty() {
            return list.is_empty();
        }
        for text in further {
            if !list.contains(text) {
                list.push(text.clone());
            }
        }
        true
    }

    /// Whether Tidegate would ask this one before `earlier`, for some request of both.
    pub(super) fn overtakes(&self, earlier: &Self) -> bool {
        let is_free = |methods: &[String]| methods.is_empty();
        let shares_methods = is_free(&self.methods)
            || is_free(&earlier.methods)
            || self.methods.iter().any(|method| earlier.methods.contains(method));
        let (mine, theirs) = (self.pattern(), earlier.pattern());
        if !shares_methods || !mine.overlaps(&theirs) {
            return false;
        }
        let conditions =
            |it: &Self| Reverse(usize::from(!it.methods.is_empty()) + it.headers.len() + it.query.len());
        let rest = mine.order(&theirs).then(conditions(self).cmp(&conditions(earlier)));
        let hosts = |it: &Self| if it.hosts.is_empty() { vec![String::new()] } else { it.hosts.clone() };
        hosts(self).iter().any(|mine| {
            hosts(earlier).iter().any(|theirs| {
                meets(mine, theirs) && host_rank(mine).cmp(&host_rank(theirs)).then(rest) == Ordering::Less
            })
        })
    }

    fn pattern(&self) -> Pattern {
        self.path.clone().unwrap_or_else(|| Pattern::below("/"))
    }

    /// The path that all of them begin with; empty: none.
    pub(super) fn prefix(&self) -> String {
        self.path.as_ref().map(Pattern::prefix).unwrap_or_default()
    }

    /// In words, for a route's name.
    pub(super) fn words(&self) -> String {
        self.path.as_ref().map(Pattern::path).unwrap_or_default().trim_matches(['/', '*']).to_owned()
    }

    pub(super) fn write(&self, route: &mut ProductTable) {
        if !self.hosts.is_empty() {
            route.set("host", self.hosts.clone());
        }
        if let Some(path) = &self.path {
            route.set("path", path.path());
        }
        if !self.methods.is_empty() {
            route.set("method", self.methods.clone());
        }
        for (key, pairs) in [("header", &self.headers), ("query", &self.query)] {
            if !pairs.is_empty() {
                route.set(key, Value::Object(pairs.clone()));
            }
        }
    }
}

/// Whether some host fits both; empty: all.
fn meets(one: &str, other: &str) -> bool {
    match (one.strip_prefix('*'), other.strip_prefix('*')) {
        _ if one.is_empty() || other.is_empty() => true,
        (None, None) => one == other,
        (Some(below), None) => other.ends_with(below),
        (None, Some(below)) => one.ends_with(below),
        (Some(one), Some(other)) => one.ends_with(other) || other.ends_with(one),
    }
}

/// A host's place in the order of routes: less is asked first.
fn host_rank(host: &str) -> (u8, Reverse<usize>) {
    match host.strip_prefix('*') {
        Some(below) => (1, Reverse(below.len())),
        None if host.is_empty() => (2, Reverse(0)),
        None => (0, Reverse(0)),
    }
}

/// Every argument of a call, as `read` has it.
fn each(call: &MatcherCall, read: fn(&str) -> Option<String>) -> Result<Vec<String>, RuleMistake> {
    let one = |text: &String| {
        let problem = "is not understood here: names are, and regular expressions as ^.+\\.example\\.com$";
        read(text).ok_or_else(|| call.mistake(format!("{} of {text:?} {problem}", call.name)))
    };
    call.arguments.iter().map(one).collect()
}

fn host(text: &str) -> Option<String> {
    (!text.contains(['*', '{'])).then(|| text.to_ascii_lowercase())
}

/// A regular expression of v3, or a template of v2, that says: all names, or all below one.
fn host_of_regex(text: &str) -> Option<String> {
    if let Some((variable, name)) = text.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        let pattern = variable.split_once(':').map(|(_, pattern)| pattern)?;
        let below = name.strip_prefix('.').filter(|name| is_name(name));
        return match (pattern, below) {
            (".+" | ".*", Some(name)) => Some(format!("*.{}", name.to_ascii_lowercase())),
            (".+" | ".*", None) if name.is_empty() => Some("*".to_owned()),
            _ => None,
        };
    }
    let body = text.strip_prefix('^').and_then(|body| body.strip_suffix('$'));
    if [".+", ".*"].contains(&body.unwrap_or(text)) {
        return Some("*".to_owned());
    }
    let body = body?;
    let (body, prefix) = match body.strip_prefix(".+\\.").or_else(|| body.strip_prefix(".*\\.")) {
        Some(name) => (name, "*."),
        None => (body, ""),
    };
    let name = body.replace("\\.", "/");
    let is_plain = !name.contains('.') && is_name(&name.replace('/', "."));
    is_plain.then(|| format!("{prefix}{}", name.replace('/', ".").to_ascii_lowercase()))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

/// The name and value of v3, or the `name=value` of v2.
fn parameters(arguments: &[String]) -> Option<Vec<(&str, &str)>> {
    match arguments {
        [name, value] if !name.contains('=') => Some(vec![(name.as_str(), value.as_str())]),
        pairs => pairs.iter().map(|pair| pair.split_once('=')).collect(),
    }
}

fn path(call: &MatcherCall, text: &str, notes: &mut Vec<String>) -> Result<Pattern, RuleMistake> {
    if call.name == "pathregexp" {
        let problem = "is not understood here: regular expressions of whole parts, as ^/users/[^/]+$, are";
        let pattern = Pattern::of_regex(text).ok_or_else(|| call.mistake(format!("{text:?} {problem}")))?;
        notes.push(format!("{text} is {} here, whole parts of a path", pattern.path()));
        return Ok(pattern);
    }
    if !text.starts_with('/') || text.contains("//") || text.contains('*') {
        return Err(call.mistake(format!("{text:?} is no path that a route can have")));
    }
    let is_prefix = call.name == "pathprefix";
    if text.contains(['{', '}']) {
        let part = |part: &str| match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if is_name(name) => "[^/]+".to_owned(),
            _ => part.replace('.', "\\."),
        };
        let parts: Vec<String> = text.split('/').map(part).collect();
        let pattern = (!is_prefix).then(|| Pattern::of_regex(&format!("^{}$", parts.join("/")))).flatten();
        let problem = "is not understood here: {name} for a whole part of a Path is";
        let pattern = pattern.ok_or_else(|| call.mistake(format!("{text:?} {problem}")))?;
        notes.push(format!("a part in braces of {text} is any part, as in Traefik's v2"));
        return Ok(pattern);
    }
    if !is_prefix {
        if text != "/" {
            notes.push(format!("{text} is taken with a slash at its end, too, and without"));
        }
        return Ok(Pattern::exact(text));
    }
    match text.strip_suffix('/') {
        Some("") => {}
        Some(bare) => notes.push(format!("{bare} is taken as {text} is")),
        None => notes.push(format!("{text} and all below it are taken, but not {text}x")),
    }
    Ok(Pattern::below(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::import::product::{SourceLocation, inline};

    /// The routes of a rule as TOML, or what is wrong.
    fn routes(rule: &str) -> Result<Vec<String>, String> {
        let found = matches(rule, &mut Vec::new()).map_err(|mistake| mistake.problem)?;
        let position = tidegate_wire::yaml::Position { line: 1, column: 1 };
        let source = SourceLocation { file: "".into(), place: position };
        let line = |one: &RouterMatch| {
            let mut table = ProductTable::new(source.clone());
            one.write(&mut table);
            let fields = table.fields.iter().map(|(name, value)| format!("{name}={}", inline(value)));
            fields.collect::<Vec<_>>().join(" ")
        };
        Ok(found.iter().map(line).collect())
    }

    #[test]
    fn a_rule_becomes_the_routes_that_say_the_same() {
        for (rule, expected) in [
            ("Host(`A.example`) && PathPrefix(`/`)", vec![r#"host=["a.example"]"#]),
            ("Host(`a`) || Host(`b`)", vec![r#"host=["a", "b"]"#]),
            ("Host(`a`) && (Method(`get`) || Method(`PUT`))", vec![r#"host=["a"] method=["GET", "PUT"]"#]),
            ("Host(`a`) || Path(`/x`)", vec![r#"host=["a"]"#, r#"path="/x""#]),
            ("Path(`/a`, `/b/{id}`)", vec![r#"path="/a""#, r#"path="/b/{part2}""#]),
            ("PathRegexp(`^/u/[^/]+$`)", vec![r#"path="/u/{part2}""#]),
            ("HostRegexp(`^.+\\.a\\.b$`)", vec![r#"host=["*.a.b"]"#]),
            ("HostRegexp(`{sub:.+}.a.b`)", vec![r#"host=["*.a.b"]"#]),
            ("HostRegexp(`.+`)", vec![""]),
            ("Header(`X-A`, `1`) && Query(`q`, `2`)", vec![r#"header={ x-a = "1" } query={ q = "2" }"#]),
            (
                "Headers(`X-A`, `1`) && Query(`q=2`, `r=3`)",
                vec![r#"header={ x-a = "1" } query={ q = "2", r = "3" }"#],
            ),
        ] {
            assert_eq!(routes(rule).unwrap(), expected, "{rule}");
        }
    }

    #[test]
    fn what_a_route_cannot_say_is_a_mistake_and_no_guess() {
        for (rule, problem) in [
            ("ClientIP(`10.0.0.0/8`)", "clientip with 1 arguments is not understood"),
            ("HeaderRegexp(`X`, `^a`)", "headerregexp with 2"),
            ("HostRegexp(`[a-z]+\\.a\\.b`)", "hostregexp of"),
            ("HostRegexp(`^[a-z]+\\.a\\.b$`)", "hostregexp of"),
            ("HostRegexp(`^a.b$`)", "hostregexp of"),
            ("PathRegexp(`\\.php$`)", "\"\\\\.php$\" is not understood"),
            ("PathPrefix(`/a/{id}`)", "\"/a/{id}\" is not understood"),
            ("Path(`/a/{id:[0-9]+}`)", "\"/a/{id:[0-9]+}\" is not understood"),
            ("Host(`a`) && Host(`b`)", "host is asked for twice"),
            ("Path(`/a`) && PathPrefix(`/`)", "pathprefix is asked for twice"),
            ("Header(`X`, `1`) && Header(`x`, `2`)", "header is asked for twice"),
            ("Query(`q`)", "Query is understood"),
        ] {
            let mistake = routes(rule).unwrap_err();
            assert!(mistake.starts_with(problem), "{rule}: {mistake}");
        }
    }

    #[test]
    fn a_route_that_would_be_asked_too_early_is_seen() {
        let one = |rule: &str| matches(rule, &mut Vec::new()).unwrap().remove(0);
        for (later, earlier, expected) in [
            ("Host(`a`)", "Host(`a`) && PathPrefix(`/x`)", false),
            ("Host(`a`) && PathPrefix(`/x`)", "Host(`a`)", true),
            ("Host(`a`)", "PathPrefix(`/x`)", true),
            ("PathPrefix(`/x`)", "Host(`a`)", false),
            ("Host(`a`) && PathPrefix(`/x`)", "Host(`b`)", false),
            ("Host(`c.a`)", "HostRegexp(`^.+\\.a$`)", true),
            ("Host(`a`) && Path(`/x`)", "Host(`a`) && PathPrefix(`/y`)", false),
            ("Method(`GET`)", "Method(`PUT`) && PathPrefix(`/x`)", false),
            ("Method(`GET`) && Header(`X`, `1`)", "Method(`GET`)", true),
        ] {
            assert_eq!(one(later).overtakes(&one(earlier)), expected, "{later} behind {earlier}");
        }
    }
}
