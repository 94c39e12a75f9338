//! Decisions under the policies that somebody lists, and no others (decision 0076).

use std::sync::Arc;

use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::policy::Mode;

use super::applying::{AllApplying, Applying, charges, counter};
use super::keys::Keys;
use super::{Ask, Engine, PendingAsk, check};
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
        check(ask.cost)?;
        let (set, mut keys) = (self.set.load(), Keys::new());
        let applying = listed(&set, policies, ask, &mut keys);
        let asked = PendingAsk { listed: Some(policies), ..self.asked(ask, &set, applying) };
        self.settle(&asked, &keys).await
    }

    /// As [`Engine::decide_under`], for as much of the cost as the enforced policies can hold at once: the decision,
    /// and the cost that it is about.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn decide_up_to(
        &self,
        policies: &[Arc<str>],
        ask: &Ask<'_>,
    ) -> Result<(Decision, u64), AskError> {
        check(ask.cost)?;
        let (set, mut keys, mut ask) = (self.set.load(), Keys::new(), *ask);
        let applying = listed(&set, policies, &ask, &mut keys);
        let is_enforced =
            |applies: &&Applying<'_>| set.policies()[applies.index].policy.mode == Mode::Enforce;
        let quotas = applying.iter().filter(is_enforced).map(|applies| applies.limit.quota());
        // A quota of 0 denies a cost of 1; a cost of 0 would be a peek.
        ask.cost = quotas.min().map_or(ask.cost, |quota| ask.cost.min(quota.max(1)));
        let asked = PendingAsk { listed: Some(policies), ..self.asked(&ask, &set, applying) };
        Ok((self.settle(&asked, &keys).await?, ask.cost))
    }

    /// As [`Engine::refund`], under those of `policies` that apply.
    ///
    /// # Errors
    /// As [`Engine::decide`].
    pub async fn refund_under(&self, policies: &[Arc<str>], ask: &Ask<'_>) -> Result<(), AskError> {
        check(ask.cost)?;
        let (set, mut keys) = (self.set.load_full(), Keys::new());
        let mut applying = listed(&set, policies, ask, &mut keys);
        applying.retain(|applies| !matches!(applies.limit, Limit::Concurrency(_)));
        let charges = charges(&set, &applying, &keys, ask.cost);
        self.counters.refund(self.clock.now(), &charges).await?;
        self.refund_beside(&set, Some(policies), ask);
        Ok(())
    }
}

/// The policies among `policies` that apply, in their order, and their keys, one after another in `keys`.
pub(super) fn listed<'s>(
    set: &'s PolicySet,
    policies: &[Arc<str>],
    ask: &Ask<'_>,
    keys: &mut Vec<u8>,
) -> AllApplying<'s> {
    let mut applying = AllApplying::new();
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
