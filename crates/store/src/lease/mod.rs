//! Leases: a node takes units of a key before it spends them, so that a hot key costs the store one
//! call per lease and not per decision.
//!
//! ```text
//!   request --> every key covered here? --yes--> answered here
//!                   | no
//!                   v
//!      one store call: n units of the keys that ran out, the cost of those not leased
//! ```
//!
//! Guarantee: no more is spent than the store issued. In any one window at most `nodes x (n - 1)`
//! units above a full quota, which is at most `limit x T / window`; 0 for fixed and calendar
//! windows. [`bounds()`] computes it per limit; `simulation.rs` reaches it and never passes it.
//!
//! A lease doubles while it is used up within half its lifetime T, and is halved or dropped as
//! demand goes. Units not spent within T are given up: the store counts them as spent until they
//! come back by themselves. (Returning them late could return what time already has.) On drain what
//! is held is returned. A lost grant, a crash: those units are never spent.
//!
//! A denial is remembered until its wait is over, a lifetime at most, so that a key without room
//! costs the store little. It may keep denying that long after units were returned elsewhere.
//!
//! While the store is away, what is held is spent; then the guard's rule applies.
//!
//! Deliberately absent: waiting for another request's lease. Requests that find one being taken ask
//! the store for their own cost, and share its batch.

mod bounds;
mod holding;
#[cfg(test)]
mod simulation;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_algorithms::limit::{Limit, PermitId, Verdict};
use tidegate_algorithms::time::{Now, Tick};

pub use self::bounds::{Bounds, LeaseConfig, bounds};
use self::holding::{Ask, Holding};
use crate::guard::Guard;
use crate::{Answer, Charge, Intent};

/// Locks over the holdings.
const SHARDS: usize = 64;
/// Most charges in one call when leases are returned.
const RETURN_BATCH: usize = 64;

/// What leasing has saved and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Requests answered without the store.
    pub local: u64,
    /// Requests for which the store was asked.
    pub remote: u64,
    /// Units taken in leases.
    pub taken: u64,
    /// Units returned on drain.
    pub returned: u64,
}

/// A guarded store behind leases.
#[derive(Debug)]
pub struct Leases {
    guard: Guard,
    config: LeaseConfig,
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    local: AtomicU64,
    remote: AtomicU64,
    taken: AtomicU64,
    returned: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    keys: HashMap<Box<[u8]>, Entry>,
    swept: Tick,
}

#[derive(Debug)]
struct Entry {
    holding: Holding,
    limit: Limit,
    bounds: Bounds,
}

/// How one charge of a request is met.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// From what was held; it is spent already.
    Covered(Verdict),
    /// By a lease of so many units.
    Take(u64),
    /// By the store, at its own cost.
    Exact,
}

impl Leases {
    /// Leases what `guard` guards.
    #[must_use]
    pub fn new(guard: Guard, config: LeaseConfig) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let count = AtomicU64::default;
        Self {
            guard,
            config,
            shards,
            hasher: RandomState::new(),
            local: count(),
            remote: count(),
            taken: count(),
            returned: count(),
        }
    }

    /// Decides one request: from what is held, or by the store.
    pub async fn decide(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        let Intent::Spend(_) = intent else {
            self.remote.fetch_add(1, Ordering::Relaxed);
            self.guard.decide(now, charges, intent, answer).await;
            return;
        };
        let plans = match self.plan(now.tick, charges) {
            Ok(plans) => plans,
            Err(denied) => {
                self.local.fetch_add(1, Ordering::Relaxed);
                *answer = Answer { allowed: false, verdicts: vec![denied], degraded: None };
                return;
            }
        };
        if plans.iter().all(|plan| matches!(plan, Plan::Covered(_))) {
            self.local.fetch_add(1, Ordering::Relaxed);
            answer.allowed = true;
            answer.degraded = None;
            self.compose(&plans, answer);
        } else {
            self.remote.fetch_add(1, Ordering::Relaxed);
            self.decide_there(now, charges, plans, intent, answer).await;
        }
    }

    /// Gives back units, to the store.
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) {
        self.guard.refund(now, charges).await;
    }

    /// Extends the lease of a permit. False if it is not held.
    pub async fn renew(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        self.guard.renew(now, limit, key, permit).await
    }

    /// Gives a permit back. False if it is not held.
    pub async fn release(&self, now: Now, limit: &Limit, key: &[u8], permit: PermitId) -> bool {
        self.guard.release(now, limit, key, permit).await
    }

    /// Returns everything that is held: the node is about to stop.
    pub async fn drain(&self, now: Now) {
        let mut returned = Vec::new();
        for shard in &self.shards {
            for (key, mut entry) in std::mem::take(&mut hold(shard).keys) {
                let units = entry.holding.surrender(now.tick);
                if units > 0 {
                    returned.push((key, entry.limit, units));
                }
            }
        }
        for batch in returned.chunks(RETURN_BATCH) {
            let refund =
                |(key, limit, units): &'_ (Box<[u8]>, Limit, u64)| (key.clone(), limit.clone(), *units);
            let owned: Vec<_> = batch.iter().map(refund).collect();
            let charges: Vec<_> = owned
                .iter()
                .map(|(key, limit, cost)| Charge {
                    limit,
                    key,
                    cost: *cost,
                    binding: true,
                    on_failure: Default::default(),
                })
                .collect();
            self.guard.refund(now, &charges).await;
            let units = batch.iter().map(|(_, _, units)| units).sum();
            self.returned.fetch_add(units, Ordering::Relaxed);
        }
    }

    /// What has been saved so far.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LeaseStats {
            local: read(&self.local),
            remote: read(&self.remote),
            taken: read(&self.taken),
            returned: read(&self.returned),
        }
    }

    /// How to meet each charge. What is covered is spent at once, so that nobody else spends it.
    ///
    /// # Errors
    /// The verdict of a denial that still stands; nothing is spent then.
    fn plan(&self, now: Tick, charges: &[Charge<'_>]) -> Result<Vec<Plan>, Verdict> {
        if let [charge] = charges {
            return Ok(vec![self.plan_one(now, charge, true)?]);
        }
        let mut plans = Vec::with_capacity(charges.len());
        for (index, charge) in charges.iter().enumerate() {
            let twice =
                charges.iter().enumerate().any(|(other, that)| other != index && that.key == charge.key);
            plans.push(if twice { Plan::Exact } else { self.plan_one(now, charge, false)? });
        }
        Ok(plans)
    }

    /// `alone`: the request meets no other limit, so a denial that still stands answers it.
    fn plan_one(&self, now: Tick, charge: &Charge<'_>, alone: bool) -> Result<Plan, Verdict> {
        let mut shard = hold(self.shard(charge.key));
        if let Some(entry) = shard.keys.get_mut(charge.key)
            && entry.limit == *charge.limit
            && entry.holding.covers(now, charge.cost)
        {
            return Ok(Plan::Covered(entry.holding.spend(now, charge.cost, charge.limit.quota())));
        }
        let bounds = bounds(charge.limit, &self.config);
        if bounds.units <= 1 || charge.cost == 0 || !charge.binding {
            return Ok(Plan::Exact);
        }
        let Some(entry) = shard.entry(now, charge, bounds, self.config.max_keys / SHARDS) else {
            return Ok(Plan::Exact);
        };
        match entry.holding.ask(now, charge.cost, &bounds) {
            Ask::Take(units) => Ok(Plan::Take(units)),
            Ask::Denied(verdict) if alone => Err(verdict),
            Ask::Denied(_) | Ask::Exact => Ok(Plan::Exact),
        }
    }

    /// Asks the store for what is not covered; if it denies the leases, for the costs alone.
    async fn decide_there(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        mut plans: Vec<Plan>,
        intent: Intent,
        answer: &mut Answer,
    ) {
        loop {
            let asked: Vec<Charge<'_>> = charges
                .iter()
                .zip(&plans)
                .filter_map(|(charge, plan)| match plan {
                    Plan::Covered(_) => None,
                    Plan::Take(units) => Some(Charge { cost: *units, ..*charge }),
                    Plan::Exact => Some(*charge),
                })
                .collect();
            let heard = self.guard.attempt(now, &asked, intent, answer).await;
            let leases = plans.iter().any(|plan| matches!(plan, Plan::Take(_)));
            if heard && (answer.allowed || !leases) {
                self.note(now.tick, charges, &plans, answer);
                break;
            }
            self.give_up_leases(charges, &mut plans);
            if !heard {
                let own: Vec<Charge<'_>> = uncovered(charges, &plans);
                self.guard.decide_blindly(now, &own, intent, answer);
                break;
            }
        }
        if !answer.allowed {
            self.give_back(now.tick, charges, &mut plans);
        }
        self.compose(&plans, answer);
    }

    /// Takes in what the store said of the charges that it was asked for.
    fn note(&self, now: Tick, charges: &[Charge<'_>], plans: &[Plan], answer: &mut Answer) {
        let asked = charges.iter().zip(plans).filter(|(_, plan)| !matches!(plan, Plan::Covered(_)));
        for ((charge, plan), verdict) in asked.zip(&mut answer.verdicts) {
            let mut shard = hold(self.shard(charge.key));
            let Some(entry) = shard.keys.get_mut(charge.key) else { continue };
            match plan {
                Plan::Take(units) => {
                    let ends = matches!(charge.limit, Limit::FixedWindow(_) | Limit::Calendar(_));
                    let most = if ends { verdict.reset } else { u64::MAX };
                    let lifetime = entry.bounds.lifetime.min(most);
                    entry.holding.granted(now, *units, charge.cost, *verdict, lifetime);
                    self.taken.fetch_add(*units, Ordering::Relaxed);
                    verdict.remaining = verdict.remaining.saturating_add(units - charge.cost);
                }
                _ => entry.holding.answered(now, charge.cost, *verdict, entry.bounds.lifetime),
            }
        }
    }

    /// Turns the leases of a plan into plain costs.
    fn give_up_leases(&self, charges: &[Charge<'_>], plans: &mut [Plan]) {
        for (charge, plan) in charges.iter().zip(plans) {
            if matches!(plan, Plan::Take(_)) {
                *plan = Plan::Exact;
                if let Some(entry) = hold(self.shard(charge.key)).keys.get_mut(charge.key) {
                    entry.holding.not_granted();
                }
            }
        }
    }

    /// Puts back what was spent here for a request that was then denied.
    fn give_back(&self, now: Tick, charges: &[Charge<'_>], plans: &mut [Plan]) {
        for (charge, plan) in charges.iter().zip(plans) {
            if let Plan::Covered(verdict) = plan
                && let Some(entry) = hold(self.shard(charge.key)).keys.get_mut(charge.key)
            {
                entry.holding.put_back(now, charge.cost, &entry.bounds);
                *verdict = entry.holding.verdict(now, charge.limit.quota());
            }
        }
    }

    /// Puts the verdicts of what was covered between those of the store, in the order asked.
    fn compose(&self, plans: &[Plan], answer: &mut Answer) {
        let mut store = std::mem::take(&mut answer.verdicts).into_iter();
        answer.verdicts = plans
            .iter()
            .filter_map(|plan| match plan {
                Plan::Covered(verdict) => Some(*verdict),
                Plan::Take(_) | Plan::Exact => store.next(),
            })
            .collect();
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl Shard {
    /// The entry of a charge's key, made if there is room; anew if the limit has changed.
    fn entry(&mut self, now: Tick, charge: &Charge<'_>, bounds: Bounds, most: usize) -> Option<&mut Entry> {
        if self.keys.get(charge.key).is_some_and(|entry| entry.limit != *charge.limit) {
            self.keys.remove(charge.key);
        }
        if self.keys.len() >= most && !self.keys.contains_key(charge.key) {
            if now.since(self.swept) < bounds.lifetime {
                return None;
            }
            self.swept = now;
            self.keys.retain(|_, entry| !entry.holding.is_idle(now, entry.bounds.lifetime));
            if self.keys.len() >= most {
                return None;
            }
        }
        if !self.keys.contains_key(charge.key) {
            let entry = Entry { holding: Holding::default(), limit: charge.limit.clone(), bounds };
            self.keys.insert(charge.key.into(), entry);
        }
        self.keys.get_mut(charge.key)
    }
}

fn uncovered<'a>(charges: &[Charge<'a>], plans: &[Plan]) -> Vec<Charge<'a>> {
    let pairs = charges.iter().zip(plans);
    pairs.filter(|(_, plan)| !matches!(plan, Plan::Covered(_))).map(|(charge, _)| *charge).collect()
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
