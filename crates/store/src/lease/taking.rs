//! How the charges of a request are met, and what becomes of that if nobody waits for the answer.

use tidegate_algorithms::limit::Verdict;

use super::{Leases, hold};
use crate::Charge;

/// How one charge of a request is met.
#[derive(Clone, Copy, Debug)]
pub(super) enum ChargePlan {
    /// From what was held; it is spent already.
    Covered(Verdict),
    /// By a lease of so many units.
    Take(u64),
    /// By the store, at its own cost.
    Exact,
}

impl ChargePlan {
    /// The verdict, if it is met here.
    pub(super) fn covered(&self) -> Option<Verdict> {
        match self {
            Self::Covered(verdict) => Some(*verdict),
            Self::Take(_) | Self::Exact => None,
        }
    }
}

/// The plans of a request while the store is asked. A caller that goes away before the answer leaves
/// no lease that seems to be being taken for ever: that would keep its key from being leased.
pub(super) struct Taking<'r, 'c> {
    leases: &'r Leases,
    charges: &'r [Charge<'c>],
    plans: Vec<ChargePlan>,
}

impl<'r, 'c> Taking<'r, 'c> {
    pub(super) fn new(leases: &'r Leases, charges: &'r [Charge<'c>], plans: Vec<ChargePlan>) -> Self {
        Self { leases, charges, plans }
    }

    pub(super) fn plans(&self) -> &[ChargePlan] {
        &self.plans
    }

    pub(super) fn has_leases(&self) -> bool {
        self.plans.iter().any(|plan| matches!(plan, ChargePlan::Take(_)))
    }

    /// Turns the leases into plain costs.
    pub(super) fn give_up_leases(&mut self) {
        for (charge, plan) in self.charges.iter().zip(&mut self.plans) {
            if matches!(plan, ChargePlan::Take(_)) {
                *plan = ChargePlan::Exact;
                if let Some(entry) = hold(self.leases.shard(charge.key)).keys.get_mut(charge.key) {
                    entry.holding.not_granted();
                }
            }
        }
    }

    /// The plans, when what came of them is noted.
    pub(super) fn settled(mut self) -> Vec<ChargePlan> {
        std::mem::take(&mut self.plans)
    }
}

impl Drop for Taking<'_, '_> {
    fn drop(&mut self) {
        self.give_up_leases();
    }
}
