//! Decisions under the policies that somebody lists, and no others (decision 0076).

use std::sync::Arc;

use super::applying::{Applying, counter};
use super::{Ask, Engine, check};
use crate::decision::Decision;
use crate::error::AskError;
use crate::policy_set::PolicySet;

impl Engine {
    /// As [`Engine::decide`], under those of `policies` that apply. Names of policies that are not in force are
    /// passed over.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn decide_under(&self, policies: &[Arc<str>], ask: &Ask<'_>) -> Result<Decision, AskError> {
        check(&ask.attributes, ask.cost)?;
        let (set, mut keys) = (self.set.load(), Vec::with_capacity(64));
        let applying = listed(&set, policies, ask, &mut keys);
        let asked = self.asked(ask, &set, applying);
        self.settle(&asked, &keys).await
    }
}

/// Those of the `policies` that apply, in their order, and their keys, one after another in `keys`.
fn listed<'s>(
    set: &'s PolicySet,
    policies: &[Arc<str>],
    ask: &Ask<'_>,
    keys: &mut Vec<u8>,
) -> Vec<Applying<'s>> {
    let mut applying = Vec::with_capacity(policies.len());
    for index in policies.iter().filter_map(|name| set.place(name)) {
        let in_force = &set.policies()[index];
        let is_for_it = ask.can_release || !in_force.is_concurrent();
        if is_for_it && in_force.policy.applies_to(&ask.attributes) {
            applying.extend(counter(set, index, &ask.attributes, keys));
        }
    }
    set.leave_out_replaced(&mut applying, |applies| Some(applies.index));
    applying
}
