//! A shard of a node's holdings, by key.

use std::collections::HashMap;

use tidegate_algorithms::limit::Limit;
use tidegate_algorithms::time::Tick;

use super::bounds::Bounds;
use super::holding::Holding;
use crate::Charge;

/// Some of the keys, under one lock.
#[derive(Debug, Default)]
pub(super) struct LeaseShard {
    pub(super) keys: HashMap<Box<[u8]>, LeasedKey>,
    swept: Tick,
    latest: Tick,
}

/// One key.
#[derive(Debug)]
pub(super) struct LeasedKey {
    pub(super) holding: Holding,
    pub(super) limit: Limit,
    pub(super) bounds: Bounds,
}

impl LeaseShard {
    /// The time of an operation whose caller read `now`: the latest reading of all callers, so that a caller
    /// that was overtaken spends nothing of a lease that has ended (fault 56).
    pub(super) fn time(&mut self, now: Tick) -> Tick {
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The entry of a charge's key, made if there is room; anew if the limit has changed.
    pub(super) fn entry(
        &mut self,
        now: Tick,
        charge: &Charge<'_>,
        bounds: Bounds,
        most: usize,
    ) -> Option<&mut LeasedKey> {
        if self.keys.get(charge.key).is_some_and(|entry| entry.limit != *charge.limit) {
            self.keys.remove(charge.key);
        }
        if self.keys.len() >= most && !self.keys.contains_key(charge.key) {
            if now.since(self.swept) < bounds.turn {
                return None;
            }
            self.swept = now;
            self.keys.retain(|_, entry| !entry.holding.is_idle(now, entry.bounds.turn));
            if self.keys.len() >= most {
                return None;
            }
        }
        if !self.keys.contains_key(charge.key) {
            let entry = LeasedKey { holding: Holding::default(), limit: charge.limit.clone(), bounds };
            self.keys.insert(charge.key.into(), entry);
        }
        self.keys.get_mut(charge.key)
    }
}
