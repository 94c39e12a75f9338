//! The `RateLimit-Policy` and `RateLimit` response fields, and `Retry-After`.
//!
//! Follows draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026), RFC 9651 (structured fields) and
//! RFC 9110 section 10.2.3. The draft may change: nothing else in the workspace writes these fields.
//!
//! The draft leaves some points open. Here:
//! - denied: `r=0` and `t` = the wait in whole seconds, rounded up; `Retry-After` says the same;
//! - allowed: a client that spends all of `r` now gets its next unit after `t` seconds, rounded up, at
//!   least 1. So nothing beyond `r` is admitted before `t - 1` seconds. (`ceil(r x w / q)` promised times
//!   that did not hold: 1 s after the last unit of 2 per hour.)
//! - under a concurrency limit there is no `t`: permits may come back at any time;
//! - `pk` is never sent: it would show clients how others are told apart.

/// The values of one policy's two items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Policy name. Names are lower-case ASCII letters, digits, `-`, `_` and `.`, so they need no
    /// escape in a structured-field string.
    pub policy: &'a str,
    /// Quota of the policy, in its unit.
    pub quota: u64,
    /// Window in seconds, > 0.
    pub window_seconds: u64,
    /// Unit of the quota.
    pub unit: QuotaUnit,
    /// What can still be spent.
    pub remaining: u64,
    /// Seconds to wait if denied; `None` if allowed.
    pub wait_seconds: Option<u64>,
    /// If allowed: seconds until more comes back to a client that spends all that remains now.
    pub next_seconds: u64,
}

/// The quota unit (`qu`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuotaUnit {
    /// `requests`, the default, which is not sent.
    #[default]
    Requests,
    /// `concurrent-requests`.
    ConcurrentRequests,
}

/// Appends the value of `RateLimit-Policy`.
pub fn put_policy<'a>(field: &mut Vec<u8>, items: impl Iterator<Item = Item<'a>>) {
    for (index, item) in items.enumerate() {
        put_name(field, index, item.policy);
        put_number(field, ";q=", item.quota);
        if item.unit == QuotaUnit::ConcurrentRequests {
            field.extend_from_slice(b";qu=\"concurrent-requests\"");
        }
        put_number(field, ";w=", item.window_seconds);
    }
}

/// Appends the value of `RateLimit`.
pub fn put_limit<'a>(field: &mut Vec<u8>, items: impl Iterator<Item = Item<'a>>) {
    for (index, item) in items.enumerate() {
        let (remaining, seconds) = available(&item);
        put_name(field, index, item.policy);
        put_number(field, ";r=", remaining);
        if item.unit != QuotaUnit::ConcurrentRequests {
            put_number(field, ";t=", seconds);
        }
    }
}

/// Whole seconds for `Retry-After`: rounded up, at least 1, so that a client which obeys it is never
/// early.
#[must_use]
pub fn whole_seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000).max(1)
}

/// `X-RateLimit-Limit`, `-Remaining` and `-Reset` for one policy, which are older than the draft: the same quota, and
/// the reset as seconds from now, as Envoy sends it, or the lease of a permit that was handed out. They have room for
/// one policy only.
#[must_use]
pub fn legacy_fields(item: &Item<'_>) -> [u64; 3] {
    let (remaining, seconds) = available(item);
    [item.quota, remaining, seconds]
}

/// `r` and `t`.
fn available(item: &Item<'_>) -> (u64, u64) {
    match item.wait_seconds {
        Some(wait) => (0, wait.max(1)),
        None if item.unit == QuotaUnit::ConcurrentRequests => (item.remaining, item.window_seconds),
        None => (item.remaining, item.next_seconds.max(1)),
    }
}

fn put_name(field: &mut Vec<u8>, index: usize, policy: &str) {
    if index > 0 {
        field.push(b',');
    }
    field.push(b'"');
    field.extend_from_slice(policy.as_bytes());
    field.push(b'"');
}

/// Not by `format!`: these fields are in every reply.
fn put_number(field: &mut Vec<u8>, key: &str, number: u64) {
    field.extend_from_slice(key.as_bytes());
    field.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(remaining: u64, wait_seconds: Option<u64>) -> Item<'static> {
        let (policy, unit, next_seconds) = ("default", QuotaUnit::Requests, 42);
        Item { policy, quota: 100, window_seconds: 60, unit, remaining, wait_seconds, next_seconds }
    }

    #[test]
    fn fields_read_as_the_draft_has_them() {
        let permits = Item { unit: QuotaUnit::ConcurrentRequests, policy: "slots", ..item(3, None) };
        let items = || [item(99, None), permits].into_iter();
        let (mut policy, mut limit) = (Vec::new(), Vec::new());
        put_policy(&mut policy, items());
        put_limit(&mut limit, items());
        let expected = "\"default\";q=100;w=60,\"slots\";q=100;qu=\"concurrent-requests\";w=60";
        assert_eq!(policy, expected.as_bytes());
        assert_eq!(limit, b"\"default\";r=99;t=42,\"slots\";r=3");
    }

    /// A permit may be released long before the lease ends that a denial names as the longest wait.
    #[test]
    fn permits_promise_no_time() {
        let mut limit = Vec::new();
        let denied = Item { unit: QuotaUnit::ConcurrentRequests, ..item(0, Some(45)) };
        put_limit(&mut limit, std::iter::once(denied));
        assert_eq!(limit, b"\"default\";r=0");
        assert_eq!(legacy_fields(&denied), [100, 0, 45]);
        assert_eq!(legacy_fields(&Item { wait_seconds: None, ..denied }), [100, 0, 60]);
    }

    #[test]
    fn a_denial_says_how_long() {
        let mut limit = Vec::new();
        put_limit(&mut limit, std::iter::once(item(7, Some(45))));
        assert_eq!(limit, b"\"default\";r=0;t=45");
    }

    #[test]
    fn the_legacy_fields_describe_the_same_quota() {
        assert_eq!(legacy_fields(&item(99, None)), [100, 99, 42]);
        assert_eq!(legacy_fields(&item(7, Some(45))), [100, 0, 45]);
    }

    #[test]
    fn seconds_round_up_and_are_at_least_one() {
        assert_eq!([0, 1, 1_000_000_000, 1_000_000_001].map(whole_seconds), [1, 1, 1, 2]);
    }
}
