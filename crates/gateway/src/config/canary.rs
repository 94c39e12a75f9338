//! A part of a route's requests that goes to another upstream, and which part; copies of requests for another one.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tidegate_algorithms::document::{DocumentReader, shown};

use super::action::Action;
use super::matches::{cookies, is_cookie_name};
use super::pairs::field_pairs;
use super::part::part;

const MIRROR_KEYS: [&str; 2] = ["upstream", "percent"];
const CANARY_KEYS: [&str; 5] = ["upstream", "percent", "header", "cookie", "sticky_by"];

/// What `canary.percent` may be.
pub(super) const PERCENT: &str = "a number from 0 to 100, with one decimal at most";

const STICKY_BY: &str = "\"client\", \"header:NAME\", \"cookie:NAME\"";

/// Another upstream for a part of a route's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryConfig {
    /// Where that part goes.
    pub upstream: Arc<str>,
    /// Of a thousand clients, as `sticky_by` tells them apart, how many go there.
    pub per_thousand: u64,
    /// Requests with all of these fields, and of these cookies, go there, too; both empty: none do for that.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The cookies.
    pub cookies: Vec<(Box<str>, Box<str>)>,
    /// What stays on its side.
    pub sticky_by: StickyBy,
}

/// What stays on one side of a split, for as long as the percentage is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StickyBy {
    /// The client: its API key, or its address without a key.
    Client,
    /// The value of a field; the client where it is not there.
    Field(HeaderName),
    /// The value of a cookie; the client where it is not there.
    Cookie(Box<str>),
}

/// A route's second upstreams: `canary` and `mirror`.
pub(super) fn second_upstreams(
    reader: &mut DocumentReader<'_>,
    pointer: &str,
    action: &Option<Action>,
) -> (Option<CanaryConfig>, Option<MirrorConfig>) {
    let canary = part(reader, "canary", &CANARY_KEYS, pointer, |inner| canary(inner, action));
    let mirror = part(reader, "mirror", &MIRROR_KEYS, pointer, |inner| mirror(inner, action));
    (canary.flatten(), mirror.flatten())
}

fn canary(reader: &mut DocumentReader<'_>, action: &Option<Action>) -> Option<CanaryConfig> {
    let upstream = other_upstream(reader, action);
    let (fields, cookies) = (field_pairs(reader, "header"), cookies(reader));
    if reader.field("percent").is_none() && fields.is_empty() && cookies.is_empty() {
        reader.mistake("percent", "is missing", format!("{PERCENT}, or header, or cookie"));
    }
    let per_thousand = percent(reader).unwrap_or(0);
    let sticky_by = reader.text("sticky_by", 1, 256).map_or(Some(StickyBy::Client), sticky_by);
    let Some(sticky_by) = sticky_by else {
        reader.mistake("sticky_by", "is unknown", STICKY_BY);
        return None;
    };
    upstream.map(|upstream| CanaryConfig { upstream, per_thousand, fields, cookies, sticky_by })
}

/// `percent`, in tenths.
fn percent(reader: &mut DocumentReader<'_>) -> Option<u64> {
    let value = reader.field("percent")?;
    let tenths =
        value.as_f64().filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent * 10.0);
    // 0.3 is no binary fraction.
    let tenths = tenths.filter(|tenths| (tenths - tenths.round()).abs() < 1e-6);
    if tenths.is_none() {
        reader.mistake("percent", format!("is {}", shown(value)), PERCENT);
    }
    tenths.map(|tenths| tenths.round() as u64)
}

/// Copies of a route's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Where they go.
    pub upstream: Arc<str>,
    /// Of a hundred requests, how many are copied.
    pub percent: u64,
}

fn mirror(reader: &mut DocumentReader<'_>, action: &Option<Action>) -> Option<MirrorConfig> {
    let percent = reader.number("percent", 0, 100).unwrap_or(100);
    other_upstream(reader, action).map(|upstream| MirrorConfig { upstream, percent })
}

/// `upstream`, which must be another one than the route's.
fn other_upstream(reader: &mut DocumentReader<'_>, action: &Option<Action>) -> Option<Arc<str>> {
    let upstream = reader.text("upstream", 1, 64).map(Arc::from);
    if upstream.is_none() && reader.field("upstream").is_none() {
        reader.mistake("upstream", "is missing", "the name of another upstream");
    }
    match (action, &upstream) {
        (Some(Action::Forward { upstream: first }), Some(second)) if first == second => {
            reader.mistake("upstream", "is the route's own upstream", "the name of another upstream");
        }
        (Some(Action::Reply(_) | Action::Redirect(_)), Some(_)) => {
            reader.mistake("upstream", "has no effect", "an upstream of the route beside it");
        }
        _ => {}
    }
    upstream
}

fn sticky_by(text: &str) -> Option<StickyBy> {
    match text.split_once(':') {
        None if text == "client" => Some(StickyBy::Client),
        Some(("header", name)) => name.parse().ok().map(StickyBy::Field),
        Some(("cookie", name)) => is_cookie_name(name).then(|| StickyBy::Cookie(name.into())),
        _ => None,
    }
}
