//! What was spent while the store was away, and how much of it was too much.
//!
//! After an outage the store is asked, by peeks, what each key has left. Units spent blindly beyond
//! that would have been denied. It is an estimate: units that came back during the outage count as
//! left, and keys beyond [`MAX_KEYS`] are not followed, so it is rather too low for long outages.

use std::collections::HashMap;

use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::time::Now;

use crate::shared::Shared;
use crate::{Answer, Charge, Intent};

/// Most keys that are followed through one outage.
const MAX_KEYS: usize = 1_024;

/// Units spent blindly, by key.
#[derive(Debug, Default)]
pub(super) struct Outage {
    spent: HashMap<Box<[u8]>, Blind>,
}

#[derive(Debug)]
struct Blind {
    limit: Limit,
    units: u64,
}

impl Outage {
    /// Notes what was allowed blindly.
    pub(super) fn note(&mut self, charges: &[Charge<'_>]) {
        for charge in charges.iter().filter(|charge| !matches!(charge.limit, Limit::Concurrency(_))) {
            if let Some(blind) = self.spent.get_mut(charge.key) {
                blind.units = blind.units.saturating_add(charge.cost);
            } else if self.spent.len() < MAX_KEYS {
                let blind = Blind { limit: charge.limit.clone(), units: charge.cost };
                self.spent.insert(charge.key.into(), blind);
            }
        }
    }

    /// Units that the store would have denied, as far as it can say now.
    pub(super) async fn over_admitted(&self, store: &Shared, now: Now) -> u64 {
        let mut over = 0_u64;
        for (key, blind) in &self.spent {
            let charge =
                Charge { limit: &blind.limit, key, cost: 0, binding: true, on_failure: Default::default() };
            let mut answer = Answer::default();
            if store.decide(now, &[charge], Intent::Peek, &mut answer).await.is_ok() {
                let left = answer.verdicts.first().map_or(0, |verdict| verdict.remaining);
                over = over.saturating_add(blind.units.saturating_sub(left));
            }
        }
        over
    }
}
