//! Paths of other programs' routes as patterns of ours, and which of two they and Tidegate would ask first.
//!
//! nginx asks the exact location, else the longest prefix if that is marked `^~`, else the first regular expression
//! that fits, else the longest prefix. A route's order is exact, then pattern, then longest prefix. Where the two
//! orders could give a path to different locations, the second of them is not imported.

use std::cmp::Ordering;

/// A part of a path: given, or any.
type PatternPart = Option<String>;

/// The paths of a location, by whole parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    parts: Vec<PatternPart>,
    /// Whether all below it belongs to it.
    is_open: bool,
}

/// How nginx finds a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Exact,
    Prefix,
    /// `^~`: no regular expression is asked.
    FinalPrefix,
    Regex,
}

impl Pattern {
    pub(super) fn exact(path: &str) -> Self {
        Self { parts: parts(path), is_open: false }
    }

    pub(super) fn below(path: &str) -> Self {
        Self { parts: parts(path), is_open: true }
    }

    /// What a regular expression says, if a pattern can say exactly that, slashes at the end aside.
    pub(super) fn of_regex(text: &str) -> Option<Self> {
        let body = text.strip_prefix('^')?.strip_prefix('/')?;
        if body.is_empty() {
            return Some(Self::below("/"));
        }
        let (body, is_open) = ending(body)?;
        let mut parts = Vec::new();
        for part in segments(body) {
            parts.push(part_of_regex(part)?);
        }
        let has_parameter = parts.iter().any(Option::is_none);
        (!(is_open && has_parameter)).then_some(Self { parts, is_open })
    }

    /// As a route's `path`.
    pub(super) fn path(&self) -> String {
        let name = |(index, part): (usize, &PatternPart)| match part {
            Some(text) => format!("/{text}"),
            None => format!("/{{part{}}}", index + 1),
        };
        let path: String = self.parts.iter().enumerate().map(name).collect();
        match (self.is_open, path.is_empty()) {
            (true, _) => format!("{path}/*"),
            (false, true) => "/".to_owned(),
            (false, false) => path,
        }
    }

    /// The path that all of them begin with, as routes take it off.
    pub(super) fn prefix(&self) -> String {
        let given = self.parts.iter().map_while(Option::as_ref);
        given.map(|part| format!("/{part}")).collect()
    }

    /// Whether all paths of `other` are its own, too. Both have given parts alone.
    pub(super) fn contains(&self, other: &Self) -> bool {
        self == other || self.is_open && other.parts.starts_with(&self.parts)
    }

    /// Whether some path belongs to both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (shorter, longer) =
            if self.parts.len() <= other.parts.len() { (self, other) } else { (other, self) };
        let fits = |(one, other): (&PatternPart, &PatternPart)| match (one, other) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        (shorter.is_open || shorter.parts.len() == longer.parts.len())
            && shorter.parts.iter().zip(&longer.parts).all(fits)
    }

    /// Whether routes with this pattern are asked before those with the other one (less), or in the file's order.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }

    /// Its place in the order of routes: less is asked first.
    fn rank(&self) -> (u8, Vec<bool>, usize) {
        let are_any: Vec<bool> = self.parts.iter().map(Option::is_none).collect();
        match (self.is_open, are_any.contains(&true)) {
            (false, false) => (0, Vec::new(), 0),
            (false, true) => (1, are_any, 0),
            (true, _) => (2, Vec::new(), usize::MAX - self.parts.len()),
        }
    }
}

/// Whether a path of both would go elsewhere than in nginx, where `first` stands before `second`.
pub(super) fn is_swapped(first: (Kind, &Pattern), second: (Kind, &Pattern)) -> bool {
    if !first.1.overlaps(second.1) {
        return false;
    }
    let nginx = |(kind, pattern): (Kind, &Pattern)| match kind {
        Kind::Exact => (0, 0),
        // Of two prefixes the longer; which of the two kinds it is decides about regular expressions alone.
        Kind::FinalPrefix => (1, usize::MAX - pattern.parts.len()),
        Kind::Regex => (2, 0),
        Kind::Prefix => (3, usize::MAX - pattern.parts.len()),
    };
    let is_prefix = |kind| matches!(kind, Kind::Prefix | Kind::FinalPrefix);
    if is_prefix(first.0) && is_prefix(second.0) {
        return first.1 == second.1;
    }
    let first_in_nginx = nginx(first) <= nginx(second);
    let (one, other) = (first.1.rank(), second.1.rank());
    if first_in_nginx { other < one } else { one <= other }
}

fn parts(path: &str) -> Vec<PatternPart> {
    path.split('/').filter(|part| !part.is_empty()).map(|part| Some(part.to_owned())).collect()
}

/// What the end of a regular expression says: whether all below belongs to it.
fn ending(body: &str) -> Option<(&str, bool)> {
    for (end, is_open) in [
        ("/.*$", true),
        ("/.*", true),
        ("(/.*)?$", true),
        ("(/|$)", true),
        ("/?$", false),
        ("/$", false),
        ("$", false),
    ] {
        if let Some(rest) = body.strip_suffix(end) {
            // A `$` behind a backslash is a letter.
            return (!rest.ends_with('\\')).then_some((rest, is_open));
        }
    }
    body.strip_suffix('/').map(|rest| (rest, true))
}

/// The parts between slashes that are outside of brackets: `[^/]+` is one part.
fn segments(body: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut begin, mut depth) = (0, 0_usize);
    for (at, letter) in body.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '/' if depth == 0 => {
                found.push(&body[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if begin < body.len() || !found.is_empty() {
        found.push(&body[begin..]);
    }
    found
}

/// `None`: it says something else than one given part, or any one.
fn part_of_regex(text: &str) -> Option<PatternPart> {
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    let named = inner.strip_prefix("?<").or_else(|| inner.strip_prefix("?P<"));
    let bare = named.map_or(Some(inner), |rest| rest.split_once('>').map(|(_, pattern)| pattern))?;
    if bare == "[^/]+" {
        return Some(None);
    }
    let mut literal = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => literal.push(letters.next().filter(|it| matches!(it, '.' | '-' | '_'))?),
            letter if letter.is_ascii_alphanumeric() || "-_~".contains(letter) => literal.push(letter),
            _ => return None,
        }
    }
    (!literal.is_empty()).then_some(Some(literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_expression_is_a_pattern_where_that_says_the_same() {
        for (regex, expected) in [
            ("^/users/[^/]+$", Some("/users/{part2}")),
            ("^/users/(?<id>[^/]+)/orders$", Some("/users/{part2}/orders")),
            ("^/users/([^/]+)/?$", Some("/users/{part2}")),
            (r"^/robots\.txt$", Some("/robots.txt")),
            ("^/static/", Some("/static/*")),
            ("^/static/.*$", Some("/static/*")),
            ("^/static(/.*)?$", Some("/static/*")),
            ("^/static(/|$)", Some("/static/*")),
            ("^/$", Some("/")),
            ("^/", Some("/*")),
            (r"^/robots.txt$", None),
            (r"\.php$", None),
            ("^/users/[0-9]+$", None),
            ("^/users/\\d+$", None),
            ("^/static", None),
            ("^/a|b$", None),
            ("^/[^/]+/", None),
            ("^/a//b$", None),
            (r"^/price\$", None),
            ("", None),
        ] {
            assert_eq!(Pattern::of_regex(regex).map(|it| it.path()).as_deref(), expected, "{regex}");
        }
    }

    #[test]
    fn an_order_that_would_change_is_seen() {
        let regex = |text| (Kind::Regex, Pattern::of_regex(text).expect("a pattern"));
        let prefix = |kind, text| (kind, Pattern::below(text));
        let cases = [
            // The longer prefix is taken by both, unless it is the same path.
            (prefix(Kind::Prefix, "/a"), prefix(Kind::Prefix, "/a/b"), false),
            (prefix(Kind::Prefix, "/a"), prefix(Kind::FinalPrefix, "/a/"), true),
            // A regular expression comes before a prefix, as patterns do.
            (prefix(Kind::Prefix, "/users"), regex("^/users/[^/]+$"), false),
            (prefix(Kind::FinalPrefix, "/users"), regex("^/users/[^/]+$"), true),
            (prefix(Kind::Prefix, "/a/b"), regex("^/a/"), true),
            (prefix(Kind::Prefix, "/a"), regex("^/a/b/"), false),
            // The first of two regular expressions.
            (regex("^/users/[^/]+$"), regex("^/users/me$"), true),
            (regex("^/users/me$"), regex("^/users/[^/]+$"), false),
            (regex("^/a/$"), regex("^/b/$"), false),
            ((Kind::Exact, Pattern::exact("/a")), regex("^/[^/]+$"), false),
            ((Kind::Exact, Pattern::exact("/a")), regex("^/a$"), false),
            (regex("^/a$"), (Kind::Exact, Pattern::exact("/a")), true),
        ];
        for (first, second, expected) in cases {
            let swapped = is_swapped((first.0, &first.1), (second.0, &second.1));
            assert_eq!(swapped, expected, "{first:?} {second:?}");
        }
    }
}
