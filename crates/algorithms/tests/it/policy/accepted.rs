//! What is accepted: defaults, overrides, and documents that come back as they went in.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_algorithms::limit::{Bucket, Limit, SlidingLog};
use tidegate_algorithms::policy::{
    Algorithm, Attributes, Mode, OnStoreFailure, Policy, Quota, parse, parse_quota,
};
use tidegate_algorithms::time::SECOND;

fn policy(document: Value) -> Policy {
    parse(&document, "").unwrap()
}

fn quota(base: &Policy, changes: Value) -> Quota {
    parse_quota(&changes, &base.quota.spec, "").unwrap()
}

#[test]
fn defaults_are_the_services_own_policy() {
    let parsed = policy(json!({"name": "default", "limit": 100, "window_seconds": 60}));
    let default = Policy::default_per_client();
    assert_eq!(parsed.document(), default.document());
    assert_eq!(parsed.quota, default.quota);
    assert_eq!((parsed.mode, parsed.on_store_failure), (Mode::Enforce, OnStoreFailure::Local));
    assert_eq!(parsed.key, ["client_id"]);
    assert_eq!(parsed.quota.limit, Limit::SlidingLog(SlidingLog { limit: 100, window: 60 * SECOND }));
}

#[test]
fn an_empty_key_is_one_counter_for_everyone() {
    let shared = policy(json!({"name": "p", "limit": 1, "window_seconds": 1, "key": []}));
    assert!(shared.key.is_empty() && shared.applies_to(&Attributes::new(&[])));
}

#[test]
fn a_policy_applies_when_patterns_match_and_keyed_attributes_are_there() {
    let policy = policy(json!({
        "name": "p", "limit": 1, "window_seconds": 1, "key": ["ip"],
        "match": {"method": ["GET", "HEAD"], "path": "/v1/*"},
    }));
    let mismatch =
        |pairs: &[(&str, &[u8])]| policy.first_mismatch(&Attributes::new(pairs)).map(str::to_owned);
    assert_eq!(mismatch(&[("method", b"GET"), ("path", b"/v1/x"), ("ip", b"::1")]), None);
    assert_eq!(
        mismatch(&[("method", b"PUT"), ("path", b"/v1/x"), ("ip", b"::1")]).as_deref(),
        Some("method")
    );
    assert_eq!(mismatch(&[("method", b"GET"), ("ip", b"::1")]).as_deref(), Some("path"));
    assert_eq!(mismatch(&[("method", b"GET"), ("path", b"/v1/x")]).as_deref(), Some("ip"));
}

#[test]
fn a_tier_has_its_own_numbers_and_the_rest_of_the_policys() {
    let policy = policy(json!({
        "name": "p", "algorithm": "token_bucket", "limit": 10, "window_seconds": 1, "burst": 20, "key": ["api_key"],
        "tiers": {"free": {}, "pro": {"limit": 100, "burst": 200}, "enterprise": {"limit": 500}},
    }));
    let bucket = |tier: Option<&[u8]>| {
        let pairs: Vec<(&str, &[u8])> = tier.into_iter().map(|tier| ("tier", tier)).collect();
        policy.quota_of(&Attributes::new(&pairs)).limit.clone()
    };
    let general = Limit::TokenBucket(Bucket::new(10, 20, SECOND));
    for tier in [None, Some(&b"free"[..]), Some(b"unknown"), Some(b"")] {
        assert_eq!(bucket(tier), general);
    }
    assert_eq!(bucket(Some(b"pro")), Limit::TokenBucket(Bucket::new(100, 200, SECOND)));
    assert_eq!(bucket(Some(b"enterprise")), Limit::TokenBucket(Bucket::new(500, 20, SECOND)));
    assert_eq!(policy.attributes().collect::<Vec<_>>(), ["api_key", "tier"]);
    assert_eq!(parse(&policy.document(), "").unwrap().tiers, policy.tiers);
}

#[test]
fn an_override_keeps_what_it_does_not_mention() {
    let base = policy(
        json!({"name": "p", "algorithm": "token_bucket", "limit": 10, "window_seconds": 60, "burst": 5}),
    );
    let faster = quota(&base, json!({"limit": 100}));
    assert_eq!(faster.limit, Limit::TokenBucket(Bucket::new(100, 5, 60 * SECOND)));
    let same = quota(&base, json!({}));
    assert_eq!(same, base.quota);
    let log = quota(&base, json!({"algorithm": "sliding_log", "limit": 3, "window_seconds": 1}));
    assert_eq!(log.limit, Limit::SlidingLog(SlidingLog { limit: 3, window: SECOND }));
}

#[test]
fn a_default_burst_follows_an_overridden_limit() {
    let base = policy(json!({"name": "p", "algorithm": "token_bucket", "limit": 10, "window_seconds": 60}));
    assert_eq!(quota(&base, json!({"limit": 100})).spec.burst, Some(100));
    assert_eq!(quota(&base, json!({"limit": 100, "burst": 7})).spec.burst, Some(7));
    assert_eq!(quota(&base, json!({"limit": 0})).limit.quota(), 0);
    let leaky = policy(json!({"name": "p", "algorithm": "leaky_bucket", "limit": 10, "window_seconds": 60}));
    assert_eq!(quota(&leaky, json!({"limit": 100})).spec.burst, Some(1));
}

#[test]
fn an_override_can_always_block_a_client() {
    let widest = policy(json!({
        "name": "p", "algorithm": "token_bucket", "limit": 1_000_000, "window_seconds": 60, "burst": 1_000_000_000,
    }));
    assert_eq!(quota(&widest, json!({"limit": 0})).limit.quota(), 0);
}

#[test]
fn an_override_to_another_algorithm_takes_nothing_over() {
    let base = policy(json!({"name": "p", "limit": 10, "window_seconds": 60}));
    let found = parse_quota(&json!({"algorithm": "fixed_window"}), &base.quota.spec, "/quota").unwrap_err();
    let pointers: Vec<&str> = found.iter().map(|mistake| mistake.pointer.as_str()).collect();
    assert_eq!(pointers, ["/quota/limit", "/quota/window_seconds"]);
}

#[test]
fn the_stated_window_is_in_seconds() {
    for (document, seconds) in [
        (json!({"name": "p", "limit": 1, "window_seconds": 90}), 90),
        (json!({"name": "p", "algorithm": "concurrency", "limit": 1, "lease_seconds": 5}), 5),
        (json!({"name": "p", "algorithm": "concurrency", "limit": 1}), 60),
        (
            json!({"name": "p", "algorithm": "calendar", "limit": 1, "period": "day", "time_zone": "UTC"}),
            86_400,
        ),
        (
            json!({"name": "p", "algorithm": "calendar", "limit": 1, "period": "month", "time_zone": "UTC"}),
            2_678_400,
        ),
    ] {
        assert_eq!(policy(document).quota.spec.stated_window_seconds(), seconds);
    }
}

/// Documents that are accepted, with and without each optional field.
pub(crate) fn any_document() -> impl Strategy<Value = Value> {
    let pattern = || {
        let text = prop::sample::select(vec!["", "*", "GET", "/v1/*", "a*b", "**", "\u{e9}"]);
        let like = text.clone().prop_map(|text| json!({ "like": text }));
        let one = prop_oneof![text.clone().prop_map(Value::from), like.clone()];
        let several = || prop::collection::vec(one.clone(), 1..4).prop_map(Value::from);
        prop_oneof![
            text.clone().prop_map(Value::from),
            several(),
            like,
            several().prop_map(|not| json!({ "not": not })),
            (text, several()).prop_map(|(like, not)| json!({ "like": like, "not": not })),
        ]
    };
    let numbers = prop_oneof![
        (0..2_usize, 0..1_000_u64, 1..100_u64, prop::option::of(1..1_000_u64)).prop_map(|(n, limit, seconds, burst)| {
            let algorithm = ["token_bucket", "leaky_bucket"][n];
            let mut numbers = json!({"algorithm": algorithm, "limit": limit, "window_seconds": seconds});
            if let Some(burst) = burst {
                numbers["burst"] = Value::from(burst);
            }
            numbers
        }),
        (0..3_usize, 0..=4_096_u64, 1..=7_776_000_u64).prop_map(|(n, limit, seconds)| {
            let algorithm = ["fixed_window", "sliding_log", "sliding_counter"][n];
            json!({"algorithm": algorithm, "limit": limit, "window_seconds": seconds})
        }),
        (0..=10_000_u64, 1..=86_400_u64)
            .prop_map(|(limit, lease)| json!({"algorithm": "concurrency", "limit": limit, "lease_seconds": lease})),
        (0..=1_000_000_000_u64, any::<bool>()).prop_map(|(limit, day)| {
            let period = if day { "day" } else { "month" };
            json!({"algorithm": "calendar", "limit": limit, "period": period, "time_zone": "America/Sao_Paulo"})
        }),
    ];
    let matches = prop::collection::btree_map("[a-z/~]{1,8}", pattern(), 0..4);
    let key = prop::option::of(prop::collection::vec("[a-z_]{1,8}", 0..4));
    let modes = (prop::option::of(any::<bool>()), prop::option::of(0..3_usize), 0..3_usize);
    (numbers, matches, key, modes).prop_map(|(mut document, matches, key, (shadow, failure, replaced))| {
        if replaced > 0 {
            document["replaces"] = Value::from(vec!["another"; replaced]);
        }
        document["name"] = Value::from("p.1");
        document["match"] = json!(matches);
        if let Some(key) = key {
            document["key"] = Value::from(key);
        }
        if let Some(shadow) = shadow {
            document["mode"] = Value::from(if shadow { "shadow" } else { "enforce" });
        }
        if let Some(failure) = failure {
            document["on_store_failure"] = Value::from(["local", "open", "closed"][failure]);
        }
        document
    })
}

proptest! {
    #[test]
    fn a_policys_document_parses_to_the_same_policy(document in any_document()) {
        let policy = parse(&document, "").unwrap();
        let again = parse(&policy.document(), "").unwrap();
        prop_assert_eq!(&again.quota, &policy.quota);
        prop_assert_eq!(&again.matches, &policy.matches);
        prop_assert_eq!(again.document(), policy.document());
        // Nothing that was written is lost: the document has it, with the defaults beside it.
        let written = policy.document();
        for (field, value) in document.as_object().unwrap() {
            if field != "match" || value != &json!({}) {
                prop_assert_eq!(written.get(field), Some(value));
            }
        }
        let numbers = serde_json::to_value(&policy.quota.spec).unwrap();
        prop_assert_eq!(parse_quota(&numbers, &policy.quota.spec, "").unwrap(), policy.quota);
    }
}

#[test]
fn algorithms_have_the_names_of_their_modules() {
    for (algorithm, name) in [
        (Algorithm::TokenBucket, "token_bucket"),
        (Algorithm::SlidingLog, "sliding_log"),
        (Algorithm::Calendar, "calendar"),
    ] {
        assert_eq!(serde_json::to_value(algorithm).unwrap(), json!(name));
    }
}
