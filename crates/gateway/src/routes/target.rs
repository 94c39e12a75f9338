//! The path of a request: one form to route by, and what the upstream is asked for.
//!
//! ```text
//!   as it came ──(dot segments resolved)──> settled ──┬── what a service is asked about, and its answer is known by
//!                                                     ├── a server's, a copy's: after the route's own changes
//!                                                     └── its readings: routes, policies, explanations
//! ```
//!
//! All that decide and all that serve go by one path, the settled one. It is the path byte for byte but for what no server may be
//! left to read in its own way: dot segments are resolved, `merge_slashes` makes one slash of several, and where another service
//! decides by the path, escapes of plain characters are decoded. Routes and policies compare its normal form. Where `%2F`,
//! `%5C` or a backslash may be a separator there is a second reading, which policies see, too, and which must lead to the same
//! route unless the route says that its servers take them for a part of a name.

use std::borrow::Cow;

use http::header::{EXPECT, HeaderMap, HeaderValue, LOCATION};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Uri, Version};
use tidegate_wire::path::{PathError, Readings, plain_escapes, readings, without_dot_segments};

use crate::config::{Auth, RouteConfig};
use crate::response::refusal::Refusal;

/// A request's path, before its route has a word in it.
#[derive(Debug)]
pub(crate) struct TargetPath {
    /// Its normal form, in which encoded slashes and backslashes stand as they came.
    pub(crate) normal: String,
    /// The same for a server that takes these for slashes; `None`: it has none.
    pub(crate) other: Option<String>,
    /// Without dot segments, if that is not as it came.
    resolved: Option<String>,
}

impl TargetPath {
    pub(crate) fn read(raw: &str) -> Result<Self, PathError> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let resolved = without_dot_segments(raw.as_bytes())?;
        // Dot segments are gone, and routes know no parameters: no reading has these as names.
        let Readings { first, other, .. } = readings(&resolved);
        let (normal, other) = (text(&first), other.map(|other| text(&other)));
        let resolved = (*resolved != *raw.as_bytes()).then(|| text(&resolved));
        Ok(Self { normal, other, resolved })
    }

    /// Whether a server that takes backslashes for slashes, and `%2F` for none, or the other way round, has a third reading.
    pub(crate) fn has_a_third_reading(&self) -> bool {
        self.normal.contains("%2F") && (self.normal.contains('\\') || self.normal.contains("%5C"))
    }

    /// What a route's server gets before the route's own changes, of a path that came as `raw`.
    fn settled<'p>(&'p self, raw: &'p str, route: &RouteConfig) -> Cow<'p, str> {
        let path = self.resolved.as_deref().unwrap_or(raw);
        let is_judged = route.ways().iter().any(|way| matches!(way, Auth::Forward(_)));
        let path = match plain_escapes(path.as_bytes()) {
            Cow::Owned(plain) if is_judged => Cow::Owned(String::from_utf8_lossy(&plain).into_owned()),
            _ => Cow::Borrowed(path),
        };
        if route.slashes.merge && path.contains("//") { Cow::Owned(merged(&path)) } else { path }
    }
}

/// Gives a request the path that all go by from here on.
pub(crate) fn settle(parts: &mut Parts, path: &TargetPath, route: &RouteConfig) -> Result<(), Refusal> {
    match path.settled(parts.uri.path(), route) {
        same if same == parts.uri.path() => Ok(()),
        other => {
            let target = with_query(&other, &parts.uri);
            parts.uri = origin(&target)?;
            Ok(())
        }
    }
}

/// Makes of a settled request's line the one that the upstream is asked by.
pub(crate) fn forward_to(parts: &mut Parts, route: &RouteConfig) -> Result<(), Refusal> {
    // No client of another version is told to go on.
    if parts.version != Version::HTTP_11 {
        parts.headers.remove(EXPECT);
    }
    parts.version = Version::HTTP_11;
    let path = match &route.replace_path {
        Some(path) => Cow::Borrowed(&**path),
        None => forwarded_path(parts.uri.path(), &route.strip_prefix, &route.add_prefix),
    };
    if path != parts.uri.path() || parts.uri.authority().is_some() {
        let target = with_query(&path, &parts.uri);
        parts.uri = origin(&target)?;
    }
    Ok(())
}

/// Makes a path in a reply's `Location`, as the server knows it, the one that leads back to it: with what the route strips off, and
/// without what it adds. A URL with a host stays as it is, and so does a path that begins with the prefix already, since its server
/// was told of it by `X-Forwarded-Prefix`.
pub(crate) fn locate_outside(fields: &mut HeaderMap, route: &RouteConfig) {
    if route.strip_prefix.is_empty() || route.replace_path.is_some() {
        return;
    }
    let Some(location) = fields.get_mut(LOCATION) else { return };
    let outside = location.to_str().ok().and_then(|at| outside(at, &route.strip_prefix, &route.add_prefix));
    if let Some(outside) = outside.and_then(|outside| HeaderValue::try_from(outside).ok()) {
        *location = outside;
    }
}

/// `None`: it stays as it is.
fn outside(location: &str, strip: &str, add: &str) -> Option<String> {
    let below = |prefix: &str| {
        let rest = location.strip_prefix(prefix)?;
        (rest.is_empty() || rest.starts_with(['/', '?', '#'])).then_some(rest)
    };
    let is_path = location.starts_with('/') && !location.starts_with("//");
    if !is_path || below(strip).is_some() {
        return None;
    }
    Some(format!("{strip}{}", below(add)?))
}

fn with_query(path: &str, uri: &Uri) -> String {
    uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
}

fn origin(target: &str) -> Result<Uri, Refusal> {
    let target = PathAndQuery::try_from(target);
    target.map(Uri::from).map_err(|_| Refusal::Unsupported("the target is no path"))
}

/// The path that the upstream is asked for: `path` after `add`, without the segments of `strip`, which its normal form begins
/// with.
fn forwarded_path<'p>(path: &'p str, strip: &str, add: &str) -> Cow<'p, str> {
    if strip.is_empty() && add.is_empty() {
        return Cow::Borrowed(path);
    }
    let rest = after_segments(path, strip.matches('/').count());
    if !add.is_empty() {
        return Cow::Owned(format!("{add}{rest}"));
    }
    // With two slashes in front, some servers would take what follows for a host.
    match rest.trim_start_matches('/') {
        "" => Cow::Borrowed("/"),
        after => Cow::Borrowed(&rest[rest.len() - after.len() - 1..]),
    }
}

/// What follows so many segments that have a name.
fn after_segments(path: &str, count: usize) -> &str {
    let mut rest = path;
    let mut left = count;
    while left > 0 {
        let Some(after) = rest.strip_prefix('/') else { return "" };
        let end = after.find('/').unwrap_or(after.len());
        let is_named = !after[..end].is_empty() && !after.starts_with(';');
        left -= usize::from(is_named);
        rest = &after[end..];
    }
    rest
}

/// With one slash for each run of them.
fn merged(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !merged.ends_with('/') {
            merged.push(character);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_redirect_to_a_path_leads_back_to_it() {
        for (location, strip, add, expected) in [
            ("/login?next=/x", "/api", "", Some("/api/login?next=/x")),
            ("/", "/api", "", Some("/api/")),
            ("/api/login", "/api", "", None),
            ("/apix", "/api", "", Some("/api/apix")),
            ("/v2/login", "/api", "/v2", Some("/api/login")),
            ("/v2", "/api", "/v2", Some("/api")),
            ("/v3/login", "/api", "/v2", None),
            ("login", "/api", "", None),
            ("//other.example/", "/api", "", None),
            ("https://other.example/", "/api", "", None),
        ] {
            assert_eq!(outside(location, strip, add).as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn fault_54_a_servers_path_is_the_one_that_was_decided_on_without_the_prefix() {
        for (path, strip, add, expected) in [
            ("/a/b/", "", "", "/a/b/"),
            ("//a//b", "", "", "//a//b"),
            ("/api/b", "/api", "", "/b"),
            ("/api", "/api", "", "/"),
            ("/api/", "/api", "", "/"),
            ("/api;v=1/b;w=2//c/", "/api", "", "/b;w=2//c/"),
            ("/%61pi/%62", "/api", "/v2", "/v2/%62"),
            ("//api/;p/v1//b", "/api/v1", "", "/b"),
            ("/api//evil.example/", "/api", "", "/evil.example/"),
            ("/api//b", "/api", "/v2", "/v2//b"),
            ("/b", "", "/v2", "/v2/b"),
            ("//b", "", "/v2", "/v2//b"),
        ] {
            assert_eq!(forwarded_path(path, strip, add), expected, "{path}");
        }
        assert_eq!(merged("//a///b/c//"), "/a/b/c/");
    }
}
