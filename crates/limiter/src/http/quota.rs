//! A client's quota after a decision, in header fields.

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use tidegate_net::http::Head;
use tidegate_wire::rate_limit_fields::{self, Item, QuotaUnit};

use super::ApiState;
use crate::decision::{Decision, Part};

/// Most policies that a reply's headers describe.
const MAX_DESCRIBED: usize = 8;

/// How an answer was found without the store; absent from one that the store gave.
const DEGRADED: HeaderName = HeaderName::from_static("tidegate-degraded");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Says that no policy applied, and what the request was answered for that.
const NO_MATCH: HeaderName = HeaderName::from_static("tidegate-no-match");
const LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// Where a reply's header fields go.
pub(super) trait ReplyFields {
    /// Adds a field, whose value `write` appends: printable ASCII.
    fn add(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>));
}

impl ReplyFields for HeaderMap {
    fn add(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::with_capacity(64);
        write(&mut value);
        if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
            self.insert(name, value);
        }
    }
}

impl ReplyFields for Head<'_> {
    fn add(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        self.field(&name, write);
    }
}

/// Says in header fields what a decision means for the client's quota.
pub(super) fn describe(shared: &ApiState, decision: &Decision, fields: &mut impl ReplyFields) {
    describe_to(decision, shared.settings.legacy_headers, fields);
}

/// As [`describe`], with the fields that older clients read or without.
fn describe_to(decision: &Decision, legacy: bool, fields: &mut impl ReplyFields) {
    if let Some(degraded) = decision.degraded {
        fields.add(DEGRADED, |field| field.extend_from_slice(degraded.word().as_bytes()));
    }
    if decision.no_match() {
        let answer = if decision.allowed { "allowed" } else { "denied" };
        return fields.add(NO_MATCH, |field| field.extend_from_slice(answer.as_bytes()));
    }
    // Policy names and numbers are printable ASCII.
    let items = || decision.described().take(MAX_DESCRIBED).map(|part| item(part, decision.allowed));
    if items().next().is_none() {
        return;
    }
    if legacy && let Some(part) = decision.deciding() {
        let values = rate_limit_fields::legacy_fields(&item(part, decision.allowed));
        for (name, value) in LEGACY.into_iter().zip(values) {
            fields.add(name, |field| put_number(field, value));
        }
    }
    fields.add(RATE_LIMIT_POLICY, |field| rate_limit_fields::put_policy(field, items()));
    fields.add(RATE_LIMIT, |field| rate_limit_fields::put_limit(field, items()));
    if let Some(seconds) = decision.retry_after_seconds() {
        fields.add(RETRY_AFTER, |field| put_number(field, seconds));
    }
}

/// The fields that say what a decision means for the client's quota; `legacy`: those that older clients read
/// too.
#[must_use]
pub fn quota_fields(decision: &Decision, legacy: bool) -> HeaderMap {
    let mut fields = HeaderMap::new();
    describe_to(decision, legacy, &mut fields);
    fields
}

fn item(part: &Part, allowed: bool) -> Item<'_> {
    Item {
        policy: &part.policy,
        quota: part.quota,
        window_seconds: part.window_seconds,
        unit: if part.concurrent { QuotaUnit::ConcurrentRequests } else { QuotaUnit::Requests },
        remaining: part.verdict.remaining,
        wait_seconds: if allowed { None } else { part.wait().map(rate_limit_fields::whole_seconds) },
        next_seconds: rate_limit_fields::whole_seconds(part.verdict.next),
    }
}

/// Appends a number in decimal.
pub(super) fn put_number(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
