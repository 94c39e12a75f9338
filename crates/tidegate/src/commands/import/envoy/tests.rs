//! Random rules asked about random descriptors: the policy that applies against the rule that the
//! reference service would have asked.

use super::*;
use proptest::prelude::*;
use tidegate_algorithms::policy::{Attributes, Policy, parse};

/// A descriptor's entries.
type Entries = Vec<(String, String)>;

/// The rule that the reference service asks, by its path.
fn chosen<'d>(descriptors: &'d [LimitRule], entries: &[(String, String)]) -> Option<&'d LimitRule> {
    let ((key, value), rest) = entries.split_first()?;
    let of_key = || descriptors.iter().filter(|it| it.key == *key);
    let exact = of_key().find(|it| it.value.as_deref() == Some(value.as_str()));
    let like = |it: &&LimitRule| {
        it.value
            .as_deref()
            .is_some_and(|text| text.contains('*') && Pattern::like(text).matches(value.as_bytes()))
    };
    let next = exact.or_else(|| of_key().find(like)).or_else(|| of_key().find(|it| it.value.is_none()))?;
    if rest.is_empty() { Some(next) } else { chosen(&next.descriptors, rest) }
}

/// The attributes as the gRPC service makes them.
fn attributes(entries: &[(String, String)]) -> Entries {
    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    let mut attributes =
        vec![("domain".to_owned(), "d".to_owned()), ("descriptor_keys".to_owned(), keys.join("/"))];
    for (at, (key, value)) in entries.iter().enumerate() {
        let before = entries[..at].iter().filter(|(other, _)| other == key).count();
        let name = if before == 0 { key.clone() } else { format!("{key}#{}", before + 1) };
        attributes.push((name, value.clone()));
    }
    attributes
}

fn any_rules() -> impl Strategy<Value = Value> {
    let leaf = (
        prop::sample::select(vec!["a", "b"]),
        prop::sample::select(vec!["", "x", "y", "xy", "x*", "*y", "*"]),
        any::<bool>(),
    )
        .prop_map(|(key, value, limited)| {
            let mut rule = json!({ "key": key, "value": value });
            if limited {
                rule["rate_limit"] = json!({ "unit": "hour", "requests_per_unit": 3 });
            }
            rule
        });
    let rules = |rule: BoxedStrategy<Value>| {
        prop::collection::vec(rule, 1..5).prop_map(|mut rules: Vec<Value>| {
            let mut seen = BTreeSet::new();
            rules.retain(|it| seen.insert((it["key"].to_string(), it["value"].to_string())));
            Value::from(rules)
        })
    };
    let nested = leaf.prop_recursive(2, 20, 4, move |inner| {
        (inner.clone(), prop::option::of(rules(inner))).prop_map(|(mut rule, below)| {
            if let Some(below) = below {
                rule["descriptors"] = below;
            }
            rule
        })
    });
    rules(nested.boxed())
}

fn any_entries() -> impl Strategy<Value = Entries> {
    prop::collection::vec(("[ab]", "[xyz]{0,2}"), 1..4)
}

proptest! {
    #[test]
    fn the_policy_that_applies_is_the_rule_that_would_have_been_asked(
        rules in any_rules(), asked in prop::collection::vec(any_entries(), 20),
    ) {
        // JSON is YAML.
        let text = json!({ "domain": "d", "descriptors": rules }).to_string();
        let DomainRead { domain, .. } = read(text.as_bytes()).unwrap();
        let mut translator = Translator::of(&domain);
        translator.siblings(&domain.descriptors, &mut Vec::new());
        let found = policies(&translator.rules, &mut translator.mistakes, &mut Vec::new());
        prop_assert_eq!(&translator.mistakes, &vec![]);
        let found: Vec<Policy> = found.iter().map(|document| parse(document, "").unwrap()).collect();
        for entries in asked {
            let owned = attributes(&entries);
            let pairs: Vec<(&str, &[u8])> =
                owned.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            let attributes = Attributes::new(&pairs);
            let applying: Vec<&str> = translator.rules.iter().zip(&found)
                .filter(|(_, policy)| policy.applies_to(&attributes))
                .map(|(rule, _)| rule.descriptor.path.as_str())
                .collect();
            let expected = chosen(&domain.descriptors, &entries).filter(|it| it.limit.is_some());
            prop_assert_eq!(applying, expected.map(|it| it.path.as_str()).into_iter().collect::<Vec<_>>());
        }
    }
}
