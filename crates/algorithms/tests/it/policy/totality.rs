//! Any tree of values gives a policy or mistakes, never a panic; and a policy's limit can decide.

use proptest::prelude::*;
use serde_json::{Map, Number, Value};
use tidegate_algorithms::limit::{PermitId, State};
use tidegate_algorithms::policy::{Policy, parse, parse_quota};
use tidegate_algorithms::time::{Now, SECOND};

use crate::policy::accepted::any_document;

const FIELDS: [&str; 14] = [
    "name",
    "match",
    "key",
    "mode",
    "on_store_failure",
    "replaces",
    "algorithm",
    "limit",
    "window_seconds",
    "burst",
    "lease_seconds",
    "period",
    "time_zone",
    "unknown/~",
];

fn any_value() -> impl Strategy<Value = Value> {
    let known = vec![
        "p",
        "token_bucket",
        "sliding_log",
        "concurrency",
        "calendar",
        "day",
        "month",
        "UTC",
        "shadow",
        "open",
        "",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..5_u64).prop_map(Value::from),
        any::<f64>().prop_map(|float| Number::from_f64(float).map_or(Value::Null, Value::Number)),
        ".{0,80}".prop_map(Value::from),
        prop::sample::select(known).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 40, 20, |inner| {
        let field =
            prop_oneof![3 => prop::sample::select(FIELDS.to_vec()).prop_map(str::to_owned), 1 => ".{0,70}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::btree_map(field, inner, 0..20)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn judge(document: &Value) -> Result<(), TestCaseError> {
    let base = Policy::default_per_client().quota.spec;
    if let Err(mistakes) = parse_quota(document, &base, "/x") {
        prop_assert!(!mistakes.is_empty());
    }
    match parse(document, "") {
        Ok(policy) => {
            let now = Now::at(1_700_000_000 * SECOND);
            let mut state = State::Fresh;
            let verdict = policy.quota.limit.check(&mut state, now, 1);
            prop_assert_eq!(verdict.allowed, policy.quota.limit.quota() > 0);
            if verdict.allowed {
                policy.quota.limit.charge(&mut state, now, 1, PermitId(1));
            }
            prop_assert!(parse(&policy.document(), "").is_ok());
        }
        Err(mistakes) => {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(mistake.pointer.is_empty() || mistake.pointer.starts_with('/'));
                prop_assert!(mistake.problem.len() < 400 && !mistake.accepted.is_empty());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn any_value_gives_a_policy_or_mistakes(value in any_value()) {
        judge(&value)?;
    }

    #[test]
    fn a_sound_document_with_one_field_replaced_gives_a_policy_or_mistakes(
        document in any_document(), field in prop::sample::select(FIELDS.to_vec()), value in any_value(),
    ) {
        let mut document = document;
        document[field] = value;
        judge(&document)?;
    }
}
