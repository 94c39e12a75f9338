//! Which part of a route's requests goes to which upstream: `split` and `canary`. Copies of requests for another one: `mirror`.
//!
//! A canary is a split of two upstreams: the canary has a share, and the route's own upstream gets what that leaves. A split of
//! more has more shares, and its last upstream gets what they leave. So both are one thing for whatever forwards, judges and explains
//! requests.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use tidegate_algorithms::document::shown;

use super::action::Action;
use super::matches::{cookies, is_cookie_name};
use super::pairs::field_pairs;
use super::part::KeyReader;
use super::reference::PERCENT;

/// Fewest and most upstreams of a split.
const LEAST_UPSTREAMS: usize = 2;
pub(super) const MOST_UPSTREAMS: usize = 20;

/// Places that are shared out.
const PLACES: u64 = 1_000;

const ANOTHER: &str = "the name of another upstream";
const STICKY_BY: &str = "\"client\", \"header:NAME\", \"cookie:NAME\"";

/// Other upstreams for parts of a route's requests. The route's action has the upstream that gets what they leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitConfig {
    /// At least one share; together they are at most all places.
    pub(crate) shares: Vec<SplitShare>,
    /// Requests with all of these fields, and of these cookies, go to the first share, too; both empty: none do for that.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The cookies.
    pub cookies: Vec<(Box<str>, Box<str>)>,
    /// What stays on its side.
    pub sticky_by: StickyBy,
    /// Whether the document has a `canary`, not a `split`.
    pub is_canary: bool,
}

/// An upstream, and its part of the clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitShare {
    pub(crate) upstream: Arc<str>,
    /// Of a thousand clients, as `sticky_by` tells them apart, how many go there.
    pub(crate) per_thousand: u64,
}

impl SplitConfig {
    /// The share that has this place, by its position; `None`: it is left to the action's upstream.
    pub(crate) fn share_at(&self, place: u64) -> Option<usize> {
        let mut end = 0;
        self.shares.iter().position(|share| {
            end += share.per_thousand;
            place < end
        })
    }

    /// Every upstream with its places, in order. `rest` is the action's, and has those that the shares leave.
    pub(crate) fn places<'s>(
        &'s self,
        rest: &'s Arc<str>,
    ) -> impl Iterator<Item = (&'s Arc<str>, Range<u64>)> {
        let mut from = 0;
        let shares = self.shares.iter().map(|share| (&share.upstream, Some(share.per_thousand)));
        shares.chain([(rest, None)]).map(move |(upstream, share)| {
            let places = from..share.map_or(PLACES, |share| from + share);
            from = places.end;
            (upstream, places)
        })
    }

    /// By which key the document names the upstream of the share at `position`, or behind the last share the action's.
    pub(super) fn key(&self, position: usize) -> Cow<'static, str> {
        match (self.is_canary, position == self.shares.len()) {
            (false, _) => format!("split/{position}/upstream").into(),
            (true, false) => "canary/upstream".into(),
            (true, true) => "upstream".into(),
        }
    }
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

/// A route's `split`: the upstream of its last share, which gets what the others leave, and those.
pub(super) fn split(reader: &mut KeyReader<'_>) -> Option<(Arc<str>, SplitConfig)> {
    if reader.field("split").is_none() {
        if reader.field("split_by").is_some() {
            reader.mistake("split_by", "has no effect", "split beside it");
        }
        return None;
    }
    let (sticky_by, shares) = (stickiness(reader, "split_by"), shares(reader));
    let (sticky_by, mut shares) = sticky_by.zip(shares)?;
    let last = shares.pop()?;
    let (fields, cookies) = (Vec::new(), Vec::new());
    Some((last.upstream, SplitConfig { shares, fields, cookies, sticky_by, is_canary: false }))
}

/// The upstreams of a split with their shares, which are all that there is.
fn shares(reader: &mut KeyReader<'_>) -> Option<Vec<SplitShare>> {
    let before = reader.mistakes.len();
    let values = reader.list("split");
    if values.len() < LEAST_UPSTREAMS && reader.mistakes.len() == before {
        let accepted = format!("{LEAST_UPSTREAMS} to {MOST_UPSTREAMS} upstreams, each with its percent");
        reader.mistake("split", "has fewer than two entries", accepted);
    }
    let mut shares: Vec<SplitShare> = Vec::new();
    for (index, value) in values.iter().enumerate() {
        reader.entry("split", &format!("split/{index}"), value, |inner| {
            let Some(share) = share(inner) else { return };
            if shares.iter().any(|known| known.upstream == share.upstream) {
                inner.mistake("upstream", format!("is {:?} again", share.upstream), "each upstream once");
            }
            shares.push(share);
        });
    }
    let sum: u64 = shares.iter().map(|share| share.per_thousand).sum();
    if reader.mistakes.len() == before && sum != PLACES {
        let problem = format!("has percentages whose sum is {}", sum as f64 / 10.0);
        reader.mistake("split", problem, "percentages whose sum is 100");
    }
    (reader.mistakes.len() == before).then_some(shares)
}

fn share(reader: &mut KeyReader<'_>) -> Option<SplitShare> {
    let upstream = named_upstream(reader, "the name of an upstream");
    if reader.field("percent").is_none() {
        reader.mistake("percent", "is missing", PERCENT);
    }
    let per_thousand = percent(reader);
    Some(SplitShare { upstream: upstream?, per_thousand: per_thousand? })
}

/// A route's second upstreams: `canary`, which does not go with a `split`, and `mirror`.
pub(super) fn second_upstreams(
    reader: &mut KeyReader<'_>,
    action: &Option<Action>,
    split: &Option<SplitConfig>,
) -> (Option<SplitConfig>, Option<MirrorConfig>) {
    let is_twice = ["split", "canary"].iter().all(|key| reader.field(key).is_some());
    let canary = if is_twice {
        reader.mistake("canary", "stands beside split", "one of the two");
        None
    } else {
        reader.part("canary", |inner| canary(inner, action))
    };
    let mirror = reader.part("mirror", |inner| mirror(inner, action, split));
    (canary.flatten(), mirror.flatten())
}

fn canary(reader: &mut KeyReader<'_>, action: &Option<Action>) -> Option<SplitConfig> {
    let upstream = other_upstream(reader, action, &None);
    let (fields, cookies) = (field_pairs(reader, "header"), cookies(reader));
    if reader.field("percent").is_none() && fields.is_empty() && cookies.is_empty() {
        reader.mistake("percent", "is missing", format!("{PERCENT}, or header, or cookie"));
    }
    let per_thousand = percent(reader).unwrap_or(0);
    let sticky_by = stickiness(reader, "sticky_by")?;
    let shares = vec![SplitShare { upstream: upstream?, per_thousand }];
    Some(SplitConfig { shares, fields, cookies, sticky_by, is_canary: true })
}

/// What stays on its side: the client where nothing is stated.
fn stickiness(reader: &mut KeyReader<'_>, field: &str) -> Option<StickyBy> {
    let read = reader.text(field).map_or(Some(StickyBy::Client), sticky_by);
    if read.is_none() {
        reader.mistake(field, "is unknown", STICKY_BY);
    }
    read
}

/// `percent`, in tenths.
fn percent(reader: &mut KeyReader<'_>) -> Option<u64> {
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

fn mirror(
    reader: &mut KeyReader<'_>,
    action: &Option<Action>,
    split: &Option<SplitConfig>,
) -> Option<MirrorConfig> {
    let percent = reader.number("percent").unwrap_or(100);
    other_upstream(reader, action, split).map(|upstream| MirrorConfig { upstream, percent })
}

/// `upstream`, which must be there and another one than the route's.
fn other_upstream(
    reader: &mut KeyReader<'_>,
    action: &Option<Action>,
    split: &Option<SplitConfig>,
) -> Option<Arc<str>> {
    let upstream = named_upstream(reader, ANOTHER);
    if let Some(name) = &upstream {
        beside_action(reader, name, action, split);
    }
    upstream
}

/// `upstream`, which must be there.
fn named_upstream(reader: &mut KeyReader<'_>, accepted: &str) -> Option<Arc<str>> {
    let upstream = reader.text("upstream").map(Arc::from);
    if upstream.is_none() && reader.field("upstream").is_none() {
        reader.mistake("upstream", "is missing", accepted);
    }
    upstream
}

/// Notes it if the route sends requests to `upstream` anyway, or to none.
pub(super) fn beside_action(
    reader: &mut KeyReader<'_>,
    upstream: &Arc<str>,
    action: &Option<Action>,
    split: &Option<SplitConfig>,
) {
    let is_shared = || split.iter().any(|it| it.shares.iter().any(|share| share.upstream == *upstream));
    match action {
        Some(Action::Forward { upstream: own }) if own == upstream || is_shared() => {
            reader.mistake("upstream", "is the route's own upstream", ANOTHER);
        }
        Some(Action::Reply(_) | Action::Redirect(_)) => {
            reader.mistake("upstream", "has no effect", "an upstream of the route beside it");
        }
        _ => {}
    }
}

fn sticky_by(text: &str) -> Option<StickyBy> {
    match text.split_once(':') {
        None if text == "client" => Some(StickyBy::Client),
        Some(("header", name)) => name.parse().ok().map(StickyBy::Field),
        Some(("cookie", name)) => is_cookie_name(name).then(|| StickyBy::Cookie(name.into())),
        _ => None,
    }
}
