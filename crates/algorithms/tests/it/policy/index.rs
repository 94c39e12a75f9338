//! The index finds every policy that applies, in order, and few others.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_algorithms::policy::{Attributes, MatchIndex, Policy, parse};

const NAMES: [&str; 3] = ["path", "tenant", "device"];

fn policy(number: usize, mut document: Value) -> Policy {
    document["name"] = Value::from(format!("p{number}"));
    document["limit"] = Value::from(1);
    document["window_seconds"] = Value::from(1);
    parse(&document, "").unwrap()
}

fn found(index: &MatchIndex, pairs: &[(&str, &[u8])]) -> Vec<u32> {
    index.candidates(&Attributes::new(pairs), &mut Vec::new()).to_vec()
}

/// Few texts, so that they meet.
fn text() -> impl Strategy<Value = String> {
    "[ab/]{0,3}"
}

fn pattern() -> impl Strategy<Value = Value> {
    let plain = || prop_oneof![text().prop_map(Value::from), text().prop_map(|it| Value::from(it + "*"))];
    let like = "[ab*]{0,4}".prop_map(|it| json!({ "like": it }));
    let except = (text(), plain()).prop_map(|(not, _)| json!({ "not": [not] }));
    prop_oneof![4 => plain(), 1 => prop::collection::vec(plain(), 1..4).prop_map(Value::from), 1 => like, 1 => except]
}

fn document() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(NAMES.to_vec());
    let matches = prop::collection::btree_map(name(), pattern(), 0..3);
    (matches, prop::collection::vec(name(), 0..2))
        .prop_map(|(matches, key)| json!({"match": matches, "key": key}))
}

proptest! {
    #[test]
    fn what_applies_is_found_in_its_order(
        documents in prop::collection::vec(document(), 0..40),
        // A name may be sent twice: its first value counts.
        request in prop::collection::vec((prop::sample::select(NAMES.to_vec()), text()), 0..4),
    ) {
        let policies: Vec<_> =
            documents.into_iter().enumerate().map(|(number, document)| policy(number, document)).collect();
        let index = MatchIndex::new(policies.iter());
        let pairs: Vec<(&str, &[u8])> = request.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let attributes = Attributes::new(&pairs);
        let applying = |number: &u32| policies[*number as usize].applies_to(&attributes);
        let all: Vec<u32> = (0..u32::try_from(policies.len()).unwrap()).filter(applying).collect();
        let candidates = found(&index, &pairs);
        prop_assert!(candidates.is_sorted());
        prop_assert_eq!(candidates.into_iter().filter(applying).collect::<Vec<_>>(), all);
    }
}

#[test]
fn of_ten_thousand_policies_a_request_meets_its_own() {
    let policies: Vec<_> = (0..10_000)
        .map(|number| match number % 4 {
            0 => policy(number, json!({"match": {"tenant": format!("t{number}"), "method": "GET"}})),
            1 => policy(number, json!({"match": {"path": format!("/{number}/*"), "method": ["GET", "PUT"]}})),
            2 => policy(number, json!({"match": {"path": {"like": format!("/{number}/*/edit")}}})),
            _ => policy(number, json!({"key": [format!("attribute-{number}")]})),
        })
        .collect();
    let index = MatchIndex::new(policies.iter());
    let request: [(&str, &[u8]); 4] =
        [("client_id", b"c"), ("method", b"GET"), ("tenant", b"t400"), ("path", b"/802/x/edit")];
    assert_eq!(found(&index, &request), [400, 802]);
    assert_eq!(found(&index, &[("path", b"/801/x"), ("attribute-3", b"")]), [3, 801]);
    assert_eq!(found(&index, &[("client_id", b"c"), ("method", b"GET")]), [0; 0]);
}
