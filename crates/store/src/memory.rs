//! The memory store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tidegate_algorithms::limit::{Limit, PermitId, State};
use tidegate_algorithms::time::Now;

use crate::{Answer, Charge, Intent};

/// Counters in this process.
#[derive(Debug, Default)]
pub struct Memory {
    states: Mutex<HashMap<Vec<u8>, State>>,
}

impl Memory {
    /// A store of at most `max_bytes`.
    #[must_use]
    pub fn new(_max_bytes: usize) -> Self {
        Self::default()
    }

    /// Decides one request over all its limits.
    pub fn decide(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        answer.degraded = None;
        answer.verdicts.clear();
        answer.allowed = true;
        for charge in charges {
            let mut fresh = State::Fresh;
            let state = states.get_mut(charge.key).unwrap_or(&mut fresh);
            let verdict = charge.limit.check(state, now, charge.cost);
            answer.allowed &= verdict.allowed || !charge.binding;
            answer.verdicts.push(verdict);
        }
        let allowed = answer.allowed;
        for (charge, verdict) in charges.iter().zip(&mut answer.verdicts) {
            match intent {
                Intent::Spend(permit) if allowed && verdict.allowed => {
                    let state = states.entry(charge.key.to_vec()).or_default();
                    charge.limit.charge(state, now, charge.cost, permit);
                }
                _ if !allowed && verdict.allowed => {
                    let mut fresh = State::Fresh;
                    let state = states.get_mut(charge.key).unwrap_or(&mut fresh);
                    *verdict = charge.limit.check(state, now, 0);
                }
                _ => {}
            }
        }
    }

    /// Gives back units.
    pub fn refund(&self, now: Now, charges: &[Charge<'_>]) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        for charge in charges {
            if let Some(state) = states.get_mut(charge.key) {
                charge.limit.refund(state, now, charge.cost);
            }
        }
    }

    /// Extends the lease of a permit.
    pub fn renew(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        match (limit, states.get_mut(key)) {
            (Limit::Concurrency(slots), Some(state)) => slots.renew(state, now, permit),
            _ => false,
        }
    }

    /// Gives a permit back.
    pub fn release(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        match (limit, states.get_mut(key)) {
            (Limit::Concurrency(slots), Some(state)) => slots.release(state, now, permit),
            _ => false,
        }
    }
}
