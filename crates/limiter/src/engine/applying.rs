//! From attributes to charges: which policies apply to a request, and where each counts it.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::policy::{Attributes, Mode, key_of};
use tidegate_store::Charge;

use super::HeldPermit;
use crate::policy_set::{InForce, PolicySet};

/// One policy that applies to a request.
pub(super) struct Applying<'s> {
    pub(super) index: usize,
    pub(super) limit: &'s Limit,
    pub(super) key: Range<usize>,
}

/// All policies that apply to a request: up to two, as nearly always, need no allocation.
pub(super) type AllApplying<'s> = SmallVec<[Applying<'s>; 2]>;

/// The charges of a request, in the same way.
pub(super) type Charges<'a> = SmallVec<[Charge<'a>; 2]>;

/// The policies that apply, and their keys, one after another in `keys`. `concurrent`: concurrency limits too.
pub(super) fn applying<'s>(
    set: &'s PolicySet,
    attributes: &Attributes<'_>,
    concurrent: bool,
    keys: &mut Vec<u8>,
) -> AllApplying<'s> {
    let mut applying = matching(set, attributes, concurrent, keys);
    set.leave_out_replaced(&mut applying, |applies| Some(applies.index));
    applying
}

/// As [`applying`], with those that others of them replace.
pub(super) fn matching<'s>(
    set: &'s PolicySet,
    attributes: &Attributes<'_>,
    concurrent: bool,
    keys: &mut Vec<u8>,
) -> AllApplying<'s> {
    let mut applying = AllApplying::new();
    let mut found = Vec::new();
    for (index, in_force) in set.candidates(attributes, &mut found) {
        let policy = &in_force.policy;
        if (concurrent || !in_force.is_concurrent()) && policy.applies_to(attributes) {
            applying.extend(counter(set, index, attributes, keys));
        }
    }
    applying
}

/// The concurrency policies that match, among all or those `listed`: they do not apply to a request that cannot give a
/// permit back.
pub(super) fn barred(
    set: &PolicySet,
    attributes: &Attributes<'_>,
    listed: Option<&[Arc<str>]>,
) -> Vec<Arc<str>> {
    let is_listed = |name: &Arc<str>| listed.is_none_or(|listed| listed.contains(name));
    let mut found = Vec::new();
    let candidates = set.candidates(attributes, &mut found).map(|(_, in_force)| in_force);
    let matching = candidates.filter(|it| it.is_concurrent() && it.policy.applies_to(attributes));
    matching.map(|it| Arc::clone(&it.policy.name)).filter(is_listed).collect()
}

/// The concurrency policies in force that granted a permit, and their keys.
pub(super) fn granting<'s>(
    set: &'s PolicySet,
    permit: &HeldPermit<'_>,
    keys: &mut Vec<u8>,
) -> AllApplying<'s> {
    let granted =
        |in_force: &InForce| in_force.is_concurrent() && permit.policies.contains(&&*in_force.policy.name);
    let policies = set.policies().iter().enumerate().filter(|(_, in_force)| granted(in_force));
    policies.filter_map(|(index, _)| counter(set, index, &permit.attributes, keys)).collect()
}

/// Where the policy at `index` counts a request, with the key in `keys`. `None` if it lacks an attribute.
pub(super) fn counter<'s>(
    set: &'s PolicySet,
    index: usize,
    attributes: &Attributes<'_>,
    keys: &mut Vec<u8>,
) -> Option<Applying<'s>> {
    let policy = &set.policies()[index].policy;
    let start = keys.len();
    key_of(&policy.name, &policy.key, attributes, keys)?;
    let (quota, _) = set.quota(index, attributes);
    Some(Applying { index, limit: &quota.limit, key: start..keys.len() })
}

pub(super) fn charges<'a>(
    set: &PolicySet,
    applying: &[Applying<'a>],
    keys: &'a [u8],
    cost: u64,
) -> Charges<'a> {
    let charge = |applies: &Applying<'a>| {
        let policy = &set.policies()[applies.index].policy;
        Charge {
            limit: applies.limit,
            key: &keys[applies.key.clone()],
            cost,
            binding: policy.mode == Mode::Enforce,
            on_failure: policy.on_store_failure,
        }
    };
    applying.iter().map(charge).collect()
}
