//! Settling an outage: units that were admitted without the store are charged to it afterwards.
//!
//! ```text
//!   blind spend --note--> this node's own state of the key, under the whole limit
//!                              | the store answers again
//!                              v
//!   units still in use --spend as many as fit--> the store        the rest was over-admitted
//! ```
//!
//! So the figures of several nodes add up: the store gives each unit of room to one of them only. And
//! a client does not find a fresh quota after an outage in which it was served.
//!
//! Over-admitted is what the store has no room for, and what this node alone admitted above the
//! limit. Units that have come back by then count as neither: no other client can have been denied for them.
//!
//! Not known, and counted as unsettled: units of calls without an answer, which the store may have
//! charged already (charging them again would deny somebody else); those of keys beyond [`MAX_KEYS`];
//! and what cannot be charged because the store fails again.
//!
//! Deliberately absent: permits, which their holders give back or which lapse by themselves.

use std::collections::HashMap;

use tidegate_algorithms::limit::{Limit, PermitId, State};
use tidegate_algorithms::time::Now;

use crate::shared::Shared;
use crate::{Answer, Charge, Intent, StoreError};

/// Most keys that are followed through one outage.
const MAX_KEYS: usize = 1_024;
/// How often the store is asked to charge a key, with less each time, while others spend from it too.
const ROUNDS: usize = 4;

/// Units spent blindly, by key.
#[derive(Debug, Default)]
pub(super) struct Outage {
    spent: HashMap<Box<[u8]>, Blind>,
}

/// What was spent blindly of one key.
#[derive(Debug)]
struct Blind {
    limit: Limit,
    state: State,
    /// Whether a denial would have denied.
    binding: bool,
    /// Units above the whole limit.
    excess: u64,
}

/// What became of the units of an outage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// The store has charged them.
    pub(super) charged: u64,
    /// It had no room for them.
    pub(super) over_admitted: u64,
    /// It could not be asked.
    pub(super) unsettled: u64,
}

impl Outage {
    /// Notes what was allowed blindly. Returns the units that are not followed.
    pub(super) fn note(&mut self, now: Now, charges: &[Charge<'_>]) -> u64 {
        let mut lost = 0_u64;
        for charge in charges.iter().filter(|charge| is_counted(charge.limit) && charge.cost > 0) {
            if !self.spent.contains_key(charge.key) {
                if self.spent.len() >= MAX_KEYS {
                    lost = lost.max(charge.cost);
                    continue;
                }
                self.spent.insert(charge.key.into(), Blind::new(charge));
            }
            if let Some(blind) = self.spent.get_mut(charge.key) {
                blind.spend(now, charge);
            }
        }
        lost
    }

    /// Takes back units that were noted. False, and nothing is changed, if some of them were not.
    pub(super) fn take_back(&mut self, now: Now, charges: &[Charge<'_>]) -> bool {
        let noted = |charge: &Charge<'_>| {
            self.spent.get(charge.key).is_some_and(|blind| blind.state.used(now) >= charge.cost)
        };
        if charges.is_empty() || !charges.iter().all(noted) {
            return false;
        }
        for charge in charges {
            if let Some(blind) = self.spent.get_mut(charge.key) {
                charge.limit.refund(&mut blind.state, now, charge.cost);
            }
        }
        true
    }

    /// Charges the store what is still in use, as far as it has room.
    pub(super) async fn settle(self, store: &Shared, now: Now) -> Settled {
        let mut settled = Settled::default();
        let mut fails = false;
        for (key, blind) in self.spent {
            let Blind { limit, mut state, binding, excess } = blind;
            let used = limit.quota() - limit.check(&mut state, now, 0).remaining.min(limit.quota());
            let charged = if fails { None } else { Some(charge(store, now, &key, &limit, used).await) };
            let over = match charged {
                Some(Ok(charged)) => {
                    settled.charged += charged;
                    used - charged
                }
                outcome => {
                    fails |=
                        matches!(outcome, Some(Err(error)) if !matches!(error, StoreError::Unreadable(_)));
                    settled.unsettled += used;
                    0
                }
            };
            if binding {
                settled.over_admitted += over + excess;
            }
        }
        settled
    }
}

impl Blind {
    fn new(charge: &Charge<'_>) -> Self {
        Self { limit: charge.limit.clone(), state: State::Fresh, binding: charge.binding, excess: 0 }
    }

    fn spend(&mut self, now: Now, charge: &Charge<'_>) {
        if self.limit != *charge.limit {
            self.limit = charge.limit.clone();
        }
        self.binding = charge.binding;
        if self.limit.check(&mut self.state, now, charge.cost).allowed {
            self.limit.charge(&mut self.state, now, charge.cost, PermitId(0));
        } else {
            self.excess = self.excess.saturating_add(charge.cost);
        }
    }
}

/// Has the store charge a key as much of `units` as it has room for; how much that was.
async fn charge(store: &Shared, now: Now, key: &[u8], limit: &Limit, units: u64) -> Result<u64, StoreError> {
    let mut wanted = units;
    for _ in 0..ROUNDS {
        if wanted == 0 {
            break;
        }
        let charge = Charge { limit, key, cost: wanted, binding: true, on_failure: Default::default() };
        let mut answer = Answer::default();
        store.decide(now, &[charge], Intent::Spend(PermitId(0)), &mut answer).await?;
        if answer.allowed {
            return Ok(wanted);
        }
        let room = answer.verdicts.first().map_or(0, |verdict| verdict.remaining);
        // Somebody else may spend it first: then there is less the next time.
        wanted = room.min(wanted.saturating_sub(1));
    }
    Ok(0)
}

/// Whether a limit counts units that come back by themselves.
fn is_counted(limit: &Limit) -> bool {
    !matches!(limit, Limit::Concurrency(_))
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::SlidingLog;
    use tidegate_algorithms::time::SECOND;

    use super::*;

    fn charge<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
        Charge { limit, key, cost, binding: true, on_failure: Default::default() }
    }

    #[test]
    fn only_what_was_noted_is_taken_back_and_keys_are_bounded() {
        let limit = Limit::SlidingLog(SlidingLog { limit: 5, window: 60 * SECOND });
        let now = Now::at(SECOND);
        let mut outage = Outage::default();
        assert_eq!(outage.note(now, &[charge(&limit, b"a", 4)]), 0);
        assert!(!outage.take_back(now, &[charge(&limit, b"a", 1), charge(&limit, b"b", 1)]));
        assert!(!outage.take_back(now, &[charge(&limit, b"a", 5)]));
        assert!(outage.take_back(now, &[charge(&limit, b"a", 3)]));
        assert_eq!(outage.spent[&b"a"[..]].state.used(now), 1);
        assert_eq!(outage.note(now, &[charge(&limit, b"a", 5)]), 0);
        assert_eq!(outage.spent[&b"a"[..]].excess, 5, "above the whole limit");
        for number in 0..u64::try_from(MAX_KEYS).unwrap() {
            outage.note(now, &[charge(&limit, &number.to_be_bytes(), 1)]);
        }
        assert_eq!((outage.spent.len(), outage.note(now, &[charge(&limit, b"late", 2)])), (MAX_KEYS, 2));
    }
}
