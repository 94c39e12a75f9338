//! `redirect` of a route: where clients are sent to, always to the same place or to the one that they asked for on another host.
//!
//! A location may keep two things of a request: `{host}` its host, and `{uri}` its path and query. They stand where they can be
//! nothing else: `{host}` is the whole host, and `{uri}` comes last and behind a host. So no path leads to another host, as
//! `//evil.example` and `/\evil.example` would if they were a location of their own. The names are Caddy's; nginx has
//! `$host` and `$request_uri`.

use http::uri::Authority;
use http::{HeaderValue, StatusCode, Uri};

use super::part::{KeyReader, status_code};
use crate::response::refusal::Refusal;

const ACCEPTED: &str = "a URL or a path; \"https://{host}{uri}\" and \"https://new.example/old{uri}\" keep the request's host, and its path \
                        and query";

/// Where clients are sent to, and with which status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// The place.
    pub location: Location,
}

/// A place that clients are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Always this one.
    Fixed(HeaderValue),
    /// A redirect that keeps something of the request.
    Kept {
        /// Up to the request's host, or up to its path if it keeps none of the host.
        before: Box<str>,
        /// Whether the request's host follows.
        host: bool,
        /// What follows then: a port, and what comes before the path.
        after: Box<str>,
        /// Whether the request's path and query follow.
        uri: bool,
    },
}

impl Location {
    /// Reads one; `None`: it is no field's value, or keeps something in a place that is not for it.
    fn read(text: &str) -> Option<Self> {
        if !text.contains(['{', '}']) {
            return HeaderValue::from_str(text).ok().map(Self::Fixed);
        }
        let (rest, uri) = text.strip_suffix("{uri}").map_or((text, false), |rest| (rest, true));
        let (scheme, place) = rest.split_once("://")?;
        let (before, host, after) = match place.strip_prefix("{host}") {
            Some(after) => (format!("{scheme}://"), true, after),
            None => (rest.to_owned(), false, ""),
        };
        let follows_host = after.is_empty() || after.starts_with([':', '/']);
        let is_open = uri && (rest.ends_with('/') || rest.contains(['?', '#']));
        let braced = before.contains(['{', '}']) || after.contains(['{', '}']);
        // Any host will do where the request's stands.
        let read: Uri = format!("{before}{}{after}", if host { "host" } else { "" }).parse().ok()?;
        let is_of_http = matches!(read.scheme_str(), Some("http" | "https"));
        let is_sound = is_of_http && is_host(read.authority()?) && follows_host && !is_open && !braced;
        is_sound.then(|| Self::Kept { before: before.into(), host, after: after.into(), uri })
    }

    /// The place for a request of this host, in lower case and without a port, and this target, as it is.
    pub(crate) fn for_request(&self, host: &str, target: &Uri) -> Result<HeaderValue, Refusal> {
        let (before, with_host, after, with_uri) = match self {
            Self::Fixed(value) => return Ok(value.clone()),
            Self::Kept { before, host, after, uri } => (before, *host, after, *uri),
        };
        if with_host && !host.parse::<Authority>().is_ok_and(|host| is_host(&host)) {
            return Err(Refusal::Malformed("the request's host is no name, to which a client could be sent"));
        }
        let asked =
            target.path_and_query().map(|asked| asked.as_str()).filter(|asked| asked.starts_with('/'));
        let asked = if with_uri { asked.ok_or(Refusal::Unsupported("the target is no path"))? } else { "" };
        let host = if with_host { host } else { "" };
        let location = HeaderValue::try_from(format!("{before}{host}{after}{asked}"));
        location.map_err(|_| Refusal::Unsupported("the target is no path"))
    }
}

/// Whether it is a host, with or without a port, and no more.
fn is_host(authority: &Authority) -> bool {
    let host = authority.host();
    let Some(rest) = authority.as_str().strip_prefix(host).filter(|_| !host.is_empty()) else { return false };
    let port = rest.strip_prefix(':').and_then(|port| port.parse::<u16>().ok());
    !authority.as_str().contains(['@', '\\']) && (rest.is_empty() || port.is_some_and(|port| port > 0))
}

/// `None`: there is a mistake in it.
pub(super) fn redirect(reader: &mut KeyReader<'_>) -> Option<Redirect> {
    let status = reader.number("status").unwrap_or(302);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        reader.mistake("status", format!("is {status}"), "301, 302, 303, 307, 308");
    }
    let location = reader.text("location").and_then(Location::read);
    let Some(location) = location else {
        reader.mistake("location", "is missing, or no place to send a client to", ACCEPTED);
        return None;
    };
    Some(Redirect { status: status_code(status), location })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(location: &str, host: &str, target: &str) -> Option<String> {
        let target = target.parse::<Uri>().ok()?;
        let location = Location::read(location)?.for_request(host, &target).ok()?;
        Some(String::from_utf8(location.as_bytes().to_vec()).unwrap())
    }

    #[test]
    fn a_location_keeps_host_path_and_query_as_they_came() {
        for (location, target, expected) in [
            ("/new", "/x?y", "/new"),
            ("https://{host}{uri}", "/x/%2e%2F?y=%20&z", "https://shop.example/x/%2e%2F?y=%20&z"),
            ("https://{host}:8443{uri}", "/", "https://shop.example:8443/"),
            ("https://{host}", "/x", "https://shop.example"),
            ("https://{host}/moved?to=it", "/x", "https://shop.example/moved?to=it"),
            ("http://new.example{uri}", "/x?", "http://new.example/x?"),
            ("https://new.example:81/old{uri}", "/x", "https://new.example:81/old/x"),
            ("https://[::1]:81{uri}", "/x", "https://[::1]:81/x"),
            ("https://{host}{uri}", "http://other.example/x", "https://shop.example/x"),
        ] {
            assert_eq!(
                sent(location, "shop.example", target).as_deref(),
                Some(expected),
                "{location} {target}"
            );
        }
        assert_eq!(sent("https://{host}{uri}", "[::1]", "/x").as_deref(), Some("https://[::1]/x"));
    }

    /// The open redirect: a path that a browser takes for another host.
    #[test]
    fn no_path_and_no_host_lead_anywhere_else() {
        for target in [
            "//evil.example/x",
            "/\\evil.example",
            "/@evil.example",
            "///evil.example",
            "/.evil.example",
            "/:80@evil",
        ] {
            for (location, host) in
                [("https://{host}{uri}", "https://a/"), ("https://b.example{uri}", "https://b.example/")]
            {
                let sent = sent(location, "a", target).unwrap();
                assert!(sent.starts_with(host) && sent.ends_with(target), "{target} {sent}");
            }
        }
        for host in ["", "a@evil.example", "a/b", "a\\b", "a b", "a?b", "a#b", "a\r\nb"] {
            assert_eq!(sent("https://{host}{uri}", host, "/"), None, "{host:?}");
        }
        assert_eq!(sent("https://{host}{uri}", "a", "*"), None);
    }

    #[test]
    fn what_is_kept_has_its_place() {
        for location in [
            "{uri}",
            "/old{uri}",
            "//{host}{uri}",
            "https://{uri}",
            "https://{host}.evil.example{uri}",
            "https://evil.{host}{uri}",
            "https://me@{host}{uri}",
            "https://{host}@evil.example{uri}",
            "https://{host}/{uri}",
            "https://{host}?to={uri}",
            "https://new.example{uri}/x",
            "https://new.example/{path}",
            "https://new.example/{host}{uri}",
            "https://{host}:99999{uri}",
            "ftp://{host}{uri}",
            "javascript://{host}{uri}",
            "https://new.example{uri}{uri}",
            "https://{host}/a b{uri}",
            "https://{host}/\r\n{uri}",
            "a\r\nb",
        ] {
            assert_eq!(Location::read(location), None, "{location}");
        }
    }
}
