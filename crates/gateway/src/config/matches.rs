//! A route's match: hosts, paths, methods and query parameters.

use std::fmt;

use http::Method;
use serde_json::Value;
use tidegate_algorithms::document::{escape, shown};
use tidegate_wire::path::{normal_form, one_spelling};

use super::part::KeyReader;
use crate::routes::host::bare_host;

/// Which hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// This one, in lower case, without a port.
    Exact(Box<str>),
    /// Every name that ends so: `.example.com`.
    Suffix(Box<str>),
}

/// Which paths, in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathPattern {
    /// This one.
    Exact(Box<str>),
    /// This one and all below it; empty: every path.
    Prefix(Box<str>),
    /// Paths of this many segments, of which some are given.
    Segments(Vec<Segment>),
}

/// As documents write it.
impl fmt::Display for PathPattern {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => write!(out, "{path}"),
            Self::Prefix(path) => write!(out, "{path}/*"),
            Self::Segments(segments) => segments.iter().try_for_each(|segment| match segment {
                Segment::Literal(text) => write!(out, "/{text}"),
                Segment::Parameter(name) => write!(out, "/{{{name}}}"),
            }),
        }
    }
}

/// One segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Given.
    Literal(Box<str>),
    /// Any; the name says what it is.
    Parameter(Box<str>),
}

/// A text, or a list of them.
fn one_or_more<'a>(reader: &mut KeyReader<'a>, field: &str) -> Vec<&'a str> {
    match reader.field(field) {
        Some(Value::String(text)) => vec![text],
        _ => reader.texts(field),
    }
}

pub(super) fn hosts(reader: &mut KeyReader<'_>) -> Vec<HostPattern> {
    let accepted = "a host name or address without a port; \"*.example.com\" for all names below one";
    let mut hosts = Vec::new();
    for (index, text) in one_or_more(reader, "host").into_iter().enumerate() {
        let (is_suffix, name) = match text.strip_prefix('*') {
            Some(rest) if rest.starts_with('.') => (true, &rest[1..]),
            _ => (false, text),
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_address = bare.is_some_and(|bare| bare.parse::<std::net::Ipv6Addr>().is_ok());
        let is_name = !name.trim_end_matches('.').is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if !is_name && (is_suffix || !is_address) {
            reader.mistake(&format!("host/{index}"), format!("is {text:?}"), accepted);
            continue;
        }
        // As requests' hosts are read.
        let name = bare_host(name);
        hosts.push(if is_suffix {
            HostPattern::Suffix(format!(".{name}").into())
        } else {
            HostPattern::Exact(name.into())
        });
    }
    hosts
}

/// A pattern in the spelling in which paths are compared. Braces are the pattern's own.
fn spelt(text: &str) -> String {
    let mut spelt = String::with_capacity(text.len());
    for piece in text.split_inclusive(['{', '}']) {
        let (literal, brace) = piece.split_at(piece.trim_end_matches(['{', '}']).len());
        spelt.push_str(&String::from_utf8_lossy(&one_spelling(literal.as_bytes())));
        spelt.push_str(brace);
    }
    spelt
}

pub(super) fn path(reader: &mut KeyReader<'_>) -> PathPattern {
    let everything = PathPattern::Prefix("".into());
    let accepted =
        "a path in normal form: \"/a\", \"/a/*\" for all below it, \"/a/{id}\" for any one segment";
    let Some(text) = reader.text("path") else { return everything };
    let spelt = spelt(text);
    let (body, is_prefix) = match spelt.strip_suffix("/*") {
        Some(body) => (body, true),
        None => (&*spelt, false),
    };
    let probe = body.replace(['{', '}'], "_");
    let is_normal = body.is_empty() && is_prefix
        || normal_form(probe.as_bytes()).is_ok_and(|form| *form == *probe.as_bytes());
    if !is_normal || body.contains('*') {
        reader.mistake("path", format!("is {text:?}"), accepted);
        return everything;
    }
    if !body.contains(['{', '}']) {
        return if is_prefix { PathPattern::Prefix(body.into()) } else { PathPattern::Exact(body.into()) };
    }
    let mut segments = Vec::new();
    for segment in body.split('/').skip(1) {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match name {
            Some(name) if !name.is_empty() && !name.contains(['{', '}']) => {
                segments.push(Segment::Parameter(name.into()));
            }
            None if !segment.contains(['{', '}']) => segments.push(Segment::Literal(segment.into())),
            _ => {
                reader.mistake("path", format!("is {text:?}"), accepted);
                return everything;
            }
        }
    }
    if is_prefix {
        reader.mistake("path", format!("is {text:?}"), "either parameters or a * at the end, not both");
        return everything;
    }
    PathPattern::Segments(segments)
}

/// Whether every path of the pattern begins with `prefix`, at the end of a segment.
pub(super) fn covers(path: &PathPattern, prefix: &str) -> bool {
    let begins =
        |text: &str| text.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        PathPattern::Exact(text) | PathPattern::Prefix(text) => begins(text),
        PathPattern::Segments(segments) => {
            let literal = |segment: &Segment| match segment {
                Segment::Literal(text) => Some(text.clone()),
                Segment::Parameter(_) => None,
            };
            let text: String = segments.iter().map_while(literal).map(|text| format!("/{text}")).collect();
            begins(&text)
        }
    }
}

pub(super) fn methods(reader: &mut KeyReader<'_>) -> Vec<Method> {
    let mut methods = Vec::new();
    for (index, text) in one_or_more(reader, "method").into_iter().enumerate() {
        match Method::from_bytes(text.as_bytes()) {
            Ok(Method::CONNECT | Method::TRACE) => {
                let problem = format!("is {text:?}, which no route gets: it is answered 501");
                reader.mistake(&format!("method/{index}"), problem, "a method that is forwarded");
            }
            Ok(method) if text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') => {
                methods.push(method)
            }
            _ => reader.mistake(&format!("method/{index}"), format!("is {text:?}"), "a method in capitals"),
        }
    }
    methods
}

pub(super) fn query(reader: &mut KeyReader<'_>) -> Vec<(Box<str>, Box<str>)> {
    text_pairs(reader, "query")
}

/// Cookies that a request must have.
pub(super) fn cookies(reader: &mut KeyReader<'_>) -> Vec<(Box<str>, Box<str>)> {
    let pairs = text_pairs(reader, "cookie");
    for (name, value) in &pairs {
        // Any other is in no request.
        if !is_cookie_name(name) || value.contains(';') || value.trim().len() != value.len() {
            let accepted = "a cookie's name, and its value without a semicolon or blanks around it";
            reader.mistake(&format!("cookie/{}", escape(name)), format!("is {value:?}"), accepted);
        }
    }
    pairs
}

/// Whether a cookie can have this name (RFC 6265, 4.1.1).
pub(super) fn is_cookie_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// An object of names and texts.
pub(super) fn text_pairs(reader: &mut KeyReader<'_>, field: &str) -> Vec<(Box<str>, Box<str>)> {
    let Some(value) = reader.field(field) else { return Vec::new() };
    let most = reader.most_pairs(field);
    let Some(map) = value.as_object().filter(|map| map.len() <= most) else {
        let accepted = format!("an object of up to {most} names and their values");
        reader.mistake(field, format!("is {}", shown(value)), accepted);
        return Vec::new();
    };
    let mut pairs = Vec::new();
    for (name, value) in map {
        match value.as_str() {
            Some(text) => pairs.push((name.as_str().into(), text.into())),
            None => {
                let place = format!("{field}/{}", escape(name));
                reader.mistake(&place, format!("is {}", shown(value)), "a string");
            }
        }
    }
    pairs
}
