//! The `RateLimit-Policy` and `RateLimit` response fields, and `Retry-After`.
//!
//! Follows draft-ietf-httpapi-ratelimit-headers-11 (23 May 2026), RFC 9651 (structured fields) and
//! RFC 9110 section 10.2.3. The draft may change: nothing else in the workspace writes these fields.
//!
//! What the draft leaves open, and what is sent here:
//! - denied: `r=0` and `t` = the wait in whole seconds, rounded up; `Retry-After` says the same;
//! - allowed: `t = max(1, ceil(r x w / q))`, so that a client which spends `r` evenly over `t`
//!   never exceeds the policy's own rate;
//! - `pk` is never sent: it would show clients how others are told apart.

use std::fmt::Write;

/// What one policy's two items say.
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
    pub unit: Unit,
    /// What can still be spent.
    pub remaining: u64,
    /// Seconds to wait if denied; `None` if allowed.
    pub wait_seconds: Option<u64>,
}

/// The quota unit (`qu`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// `requests`, the default, which is not sent.
    #[default]
    Requests,
    /// `concurrent-requests`.
    ConcurrentRequests,
}

/// The value of `RateLimit-Policy`.
#[must_use]
pub fn policy_field(items: &[Item<'_>]) -> String {
    let mut field = String::with_capacity(items.len() * 32);
    for item in items {
        separate(&mut field);
        let Item { policy, quota, window_seconds, .. } = item;
        push(&mut field, format_args!("\"{policy}\";q={quota}"));
        if item.unit == Unit::ConcurrentRequests {
            field.push_str(";qu=\"concurrent-requests\"");
        }
        push(&mut field, format_args!(";w={window_seconds}"));
    }
    field
}

/// The value of `RateLimit`.
#[must_use]
pub fn limit_field(items: &[Item<'_>]) -> String {
    let mut field = String::with_capacity(items.len() * 32);
    for item in items {
        separate(&mut field);
        let (remaining, seconds) = match item.wait_seconds {
            Some(wait) => (0, wait.max(1)),
            None => (item.remaining, effective_window(item)),
        };
        push(&mut field, format_args!("\"{}\";r={remaining};t={seconds}", item.policy));
    }
    field
}

/// Whole seconds for `Retry-After`: rounded up, at least 1, so that a client which obeys it is never
/// early.
#[must_use]
pub fn whole_seconds(nanos: u64) -> u64 {
    nanos.div_ceil(1_000_000_000).max(1)
}

fn effective_window(item: &Item<'_>) -> u64 {
    let spread = (u128::from(item.remaining) * u128::from(item.window_seconds))
        .div_ceil(u128::from(item.quota.max(1)));
    u64::try_from(spread).unwrap_or(u64::MAX).max(1)
}

fn separate(field: &mut String) {
    if !field.is_empty() {
        field.push(',');
    }
}

fn push(field: &mut String, text: std::fmt::Arguments<'_>) {
    // Invariant: writing to a String cannot fail.
    field.write_fmt(text).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(remaining: u64, wait_seconds: Option<u64>) -> Item<'static> {
        let unit = Unit::Requests;
        Item { policy: "default", quota: 100, window_seconds: 60, unit, remaining, wait_seconds }
    }

    #[test]
    fn fields_read_as_the_draft_has_them() {
        let permits = Item { unit: Unit::ConcurrentRequests, policy: "slots", ..item(3, None) };
        let items = [item(99, None), permits];
        assert_eq!(
            policy_field(&items),
            "\"default\";q=100;w=60,\"slots\";q=100;qu=\"concurrent-requests\";w=60"
        );
        assert_eq!(limit_field(&items), "\"default\";r=99;t=60,\"slots\";r=3;t=2");
    }

    #[test]
    fn a_denial_says_how_long() {
        assert_eq!(limit_field(&[item(7, Some(45))]), "\"default\";r=0;t=45");
    }

    #[test]
    fn spending_what_remains_within_t_never_exceeds_the_rate() {
        for remaining in 0..=100 {
            let t = effective_window(&item(remaining, None));
            assert!(remaining * 60 <= t * 100, "{remaining} in {t} s");
        }
    }

    #[test]
    fn seconds_round_up_and_are_at_least_one() {
        assert_eq!([0, 1, 1_000_000_000, 1_000_000_001].map(whole_seconds), [1, 1, 1, 2]);
    }
}
