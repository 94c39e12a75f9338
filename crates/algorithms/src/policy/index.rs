//! An index of policies by what they match, so that a request does not have to ask each of them.
//!
//! ```text
//!   policy  match = { tenant = "a" }      --> tenant: exact "a"
//!           match = { path = "/v1/*" }    --> path:   prefix "/v1/"
//!           key = ["device"]              --> device: present
//!           key = []                      --> everywhere
//! ```
//!
//! A policy stands under one condition that must hold if it applies: of its patterns the one that
//! fewest policies share. A request then looks up each of its values, and each of their prefixes that
//! some policy asks for. What it finds is a superset of the policies that apply, in their order, so
//! [`Policy::applies_to`] has the last word and the order of checks is that of the list.
//!
//! A set of at most [`MAX_UNINDEXED`] policies is not indexed: asking each is faster.

use std::collections::{BTreeSet, HashMap};

use super::{Attributes, Pattern, Policy};

/// Most policies that are all asked.
pub const MAX_UNINDEXED: usize = 8;

/// Where to look for the policies that could apply to a request.
#[derive(Clone, Debug, Default)]
pub struct MatchIndex {
    /// Policies that could apply to any request.
    everywhere: Vec<u32>,
    by_attribute: HashMap<Box<str>, ByValue>,
}

/// The policies that one attribute leads to.
#[derive(Clone, Debug, Default)]
struct ByValue {
    present: Vec<u32>,
    exact: HashMap<Box<[u8]>, Vec<u32>>,
    prefix: HashMap<Box<[u8]>, Vec<u32>>,
    /// The lengths of all prefixes, shortest first.
    prefix_lengths: BTreeSet<usize>,
}

/// What a value must be for a policy to apply.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Selector<'p> {
    Present,
    Exact(&'p str),
    Prefix(&'p str),
}

/// One attribute and the values of it, any of which will do.
type AttributeCondition<'p> = (&'p str, Vec<Selector<'p>>);

impl MatchIndex {
    /// The index of `policies`, which are named by their place in the list.
    #[must_use]
    pub fn new<'p>(policies: impl ExactSizeIterator<Item = &'p Policy>) -> Self {
        let count = u32::try_from(policies.len()).unwrap_or(u32::MAX);
        if policies.len() <= MAX_UNINDEXED {
            return Self { everywhere: (0..count).collect(), by_attribute: HashMap::new() };
        }
        let conditions: Vec<Vec<AttributeCondition<'p>>> = policies.map(conditions).collect();
        let mut shared: HashMap<(&str, Selector<'_>), usize> = HashMap::new();
        for (attribute, selectors) in conditions.iter().flatten() {
            for selector in selectors {
                *shared.entry((attribute, *selector)).or_default() += 1;
            }
        }
        let crowd = |(attribute, selectors): &AttributeCondition<'p>| {
            selectors.iter().map(|selector| shared[&(*attribute, *selector)]).sum::<usize>()
        };
        let mut index = Self::default();
        for (number, conditions) in (0..count).zip(&conditions) {
            match conditions.iter().min_by_key(|condition| crowd(condition)) {
                Some(condition) => index.put(condition, number),
                None => index.everywhere.push(number),
            }
        }
        index
    }

    fn put(&mut self, (attribute, selectors): &AttributeCondition<'_>, number: u32) {
        let by_value = self.by_attribute.entry((*attribute).into()).or_default();
        for selector in selectors {
            let list = match selector {
                Selector::Present => &mut by_value.present,
                Selector::Exact(text) => by_value.exact.entry(text.as_bytes().into()).or_default(),
                Selector::Prefix(text) => {
                    by_value.prefix_lengths.insert(text.len());
                    by_value.prefix.entry(text.as_bytes().into()).or_default()
                }
            };
            list.push(number);
        }
    }

    /// The places of all policies that could apply, and of few others, in ascending order. `found` is
    /// where they are put together.
    pub fn candidates<'a>(&'a self, attributes: &Attributes<'_>, found: &'a mut Vec<u32>) -> &'a [u32] {
        if self.by_attribute.is_empty() {
            return &self.everywhere;
        }
        found.clear();
        found.extend_from_slice(&self.everywhere);
        for (name, value) in attributes.iter() {
            let Some(by_value) = self.by_attribute.get(name) else { continue };
            found.extend_from_slice(&by_value.present);
            found.extend(by_value.exact.get(value).into_iter().flatten());
            for length in &by_value.prefix_lengths {
                let Some(prefix) = value.get(..*length) else { break };
                found.extend(by_value.prefix.get(prefix).into_iter().flatten());
            }
        }
        // One policy may have been found by two of its alternatives, or by an attribute sent twice.
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Every condition that must hold for `policy` to apply.
fn conditions(policy: &Policy) -> Vec<AttributeCondition<'_>> {
    let matched = policy.matches.iter().map(|(name, pattern)| {
        (name.as_str(), selectors(pattern).unwrap_or_else(|| vec![Selector::Present]))
    });
    let keyed = policy.key.iter().map(|name| (name.as_str(), vec![Selector::Present]));
    matched.chain(keyed).collect()
}

/// Selectors, at least one of which holds whenever `pattern` matches; `None` if the pattern only demands that the
/// attribute is there.
fn selectors(pattern: &Pattern) -> Option<Vec<Selector<'_>>> {
    match pattern {
        Pattern::Present => None,
        Pattern::Exact(text) => Some(vec![Selector::Exact(text)]),
        Pattern::Prefix(text) => prefix(text),
        Pattern::Like(parts) => match parts.as_slice() {
            [whole] => Some(vec![Selector::Exact(whole)]),
            parts => prefix(parts.first()?),
        },
        Pattern::AnyOf(patterns) => {
            patterns.iter().map(selectors).collect::<Option<Vec<_>>>().map(|all| all.concat())
        }
        Pattern::Except(pattern, _) => selectors(pattern),
    }
}

fn prefix(text: &str) -> Option<Vec<Selector<'_>>> {
    (!text.is_empty()).then(|| vec![Selector::Prefix(text)])
}
