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
//! A lease is as large as what its key's demand spends in its lifetime, and at most twice the one
//! before. Units not spent within it are given up: the store counts them as spent until they come
//! back by themselves. (Returning them late could return what time already has.) That is why a
//! lease lasts long, up to a window: the bound is by what is held and not by how long, and each
//! lease that lapses is a call and some units lost. On drain what is held is returned. A lost grant,
//! a crash: those units are never spent.
//!
//! A denial is remembered until its wait is over, T at most, and beyond that while one request asks
//! whether it still stands, so that a key without room costs the store little. It may keep denying
//! that long after units were returned elsewhere.
//!
//! While the store is away, what is held is spent; then the guard's rule applies.
//!
//! Deliberately absent: waiting for another request's lease. Requests that find one being taken ask
//! the store for their own cost, and share its batch.

mod bounds;
mod holding;
mod shard;
#[cfg(test)]
mod simulation;
mod taking;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::limit::{Limit, Verdict};
use tidegate_algorithms::time::{Now, Tick};

pub use self::bounds::{Bounds, LeaseConfig, bounds};
use self::holding::LeaseAsk;
use self::shard::LeaseShard;
use self::taking::{ChargePlan, Taking};
use crate::guard::Guard;
use crate::{Answer, Charge, Intent, StoreError};

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
    shards: Vec<Mutex<LeaseShard>>,
    hasher: RandomState,
    /// Whether the node is about to stop: no further leases are taken.
    draining: AtomicBool,
    local: AtomicU64,
    remote: AtomicU64,
    taken: AtomicU64,
    returned: AtomicU64,
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
            draining: AtomicBool::default(),
            local: count(),
            remote: count(),
            taken: count(),
            returned: count(),
        }
    }

    /// Decides one request: from what is held, or by the store.
    pub async fn decide(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) {
        let plans = match (intent, charges) {
            (Intent::Peek, _) => {
                self.remote.fetch_add(1, Ordering::Relaxed);
                self.guard.decide(now, charges, intent, answer).await;
                return;
            }
            // The usual request meets one limit, and takes no memory while a lease covers it.
            (Intent::Spend(_), [charge]) => match self.plan_one(now.tick, charge, true) {
                Ok(ChargePlan::Covered(verdict)) => return self.answer_here(&[verdict], true, answer),
                Err(denied) => return self.answer_here(&[denied], false, answer),
                Ok(plan) => vec![plan],
            },
            (Intent::Spend(_), _) => self.plan(now.tick, charges),
        };
        let covered: Option<Vec<_>> = plans.iter().map(ChargePlan::covered).collect();
        match covered {
            Some(verdicts) => self.answer_here(&verdicts, true, answer),
            None => {
                self.remote.fetch_add(1, Ordering::Relaxed);
                self.decide_there(now, charges, plans, intent, answer).await;
            }
        }
    }

    /// Answers without the store.
    fn answer_here(&self, verdicts: &[Verdict], allowed: bool, answer: &mut Answer) {
        self.local.fetch_add(1, Ordering::Relaxed);
        answer.allowed = allowed;
        answer.degraded = None;
        answer.verdicts.clear();
        answer.verdicts.extend_from_slice(verdicts);
    }

    /// Forgets what was spent under these keys, in the store, and then what this node holds of them: nothing
    /// that was taken before the reset can be spent after it.
    ///
    /// # Errors
    /// When the store did not answer.
    pub async fn reset(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        self.guard.reset(now, charges).await?;
        for charge in charges {
            hold(self.shard(charge.key)).keys.remove(charge.key);
        }
        Ok(())
    }

    /// What leasing `limit` can cost here.
    #[must_use]
    pub fn bounds(&self, limit: &Limit) -> Bounds {
        bounds(limit, &self.config)
    }

    /// How leases are made.
    #[must_use]
    pub fn config(&self) -> &LeaseConfig {
        &self.config
    }

    /// The guarded store.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns everything that is held and takes no further leases: the node is about to stop.
    /// Requests still come meanwhile and are decided by the store. Call it again when they have
    /// ended, for a lease that was being taken when it was called first.
    pub async fn drain(&self, now: Now) {
        self.draining.store(true, Ordering::Relaxed);
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
            if self.guard.attempt_refund(now, &charges).await.is_ok() {
                let units = batch.iter().map(|(_, _, units)| units).sum();
                self.returned.fetch_add(units, Ordering::Relaxed);
            }
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

    /// How to meet each of several charges.
    fn plan(&self, now: Tick, charges: &[Charge<'_>]) -> Vec<ChargePlan> {
        let plan = |(index, charge): (usize, &Charge<'_>)| {
            let twice =
                charges.iter().enumerate().any(|(other, that)| other != index && that.key == charge.key);
            let alone = if twice { None } else { self.plan_one(now, charge, false).ok() };
            alone.unwrap_or(ChargePlan::Exact)
        };
        charges.iter().enumerate().map(plan).collect()
    }

    /// How to meet a charge. What is covered is spent at once, so that nobody else spends it. `alone`:
    /// the request meets no other limit, so a denial that still stands answers it.
    ///
    /// # Errors
    /// The verdict of that denial; nothing is spent then.
    fn plan_one(&self, now: Tick, charge: &Charge<'_>, alone: bool) -> Result<ChargePlan, Verdict> {
        let mut shard = hold(self.shard(charge.key));
        let now = shard.time(now);
        if let Some(entry) = shard.keys.get_mut(charge.key)
            && entry.limit == *charge.limit
            && entry.holding.covers(now, charge.cost)
        {
            return Ok(ChargePlan::Covered(entry.holding.spend(now, charge.cost, charge.limit.quota())));
        }
        let bounds = bounds(charge.limit, &self.config);
        let unleased = bounds.units <= 1 || charge.cost == 0 || !charge.binding;
        if unleased || self.draining.load(Ordering::Relaxed) {
            return Ok(ChargePlan::Exact);
        }
        let Some(entry) = shard.entry(now, charge, bounds, self.config.max_keys / SHARDS) else {
            return Ok(ChargePlan::Exact);
        };
        match entry.holding.ask(now, charge.cost, &bounds) {
            LeaseAsk::Take(units) => Ok(ChargePlan::Take(units)),
            LeaseAsk::Denied(verdict) if alone => Err(verdict),
            LeaseAsk::Denied(_) | LeaseAsk::Exact => Ok(ChargePlan::Exact),
        }
    }

    /// Asks the store for what is not covered; if it denies the leases, for the costs alone.
    async fn decide_there(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        plans: Vec<ChargePlan>,
        intent: Intent,
        answer: &mut Answer,
    ) {
        let mut taking = Taking::new(self, charges, plans);
        loop {
            let asked: Vec<Charge<'_>> = charges
                .iter()
                .zip(taking.plans())
                .filter_map(|(charge, plan)| match plan {
                    ChargePlan::Covered(_) => None,
                    ChargePlan::Take(units) => Some(Charge { cost: *units, ..*charge }),
                    ChargePlan::Exact => Some(*charge),
                })
                .collect();
            let heard = self.guard.attempt(now, &asked, intent, answer).await;
            if heard.is_ok() && (answer.allowed || !taking.has_leases()) {
                self.note(now.tick, charges, taking.plans(), answer);
                break;
            }
            taking.give_up_leases();
            if let Err(error) = heard {
                let own: Vec<Charge<'_>> = uncovered(charges, taking.plans());
                self.guard.decide_blindly(now, &own, intent, &error, answer);
                break;
            }
        }
        let mut plans = taking.settled();
        if !answer.allowed {
            self.give_back(now.tick, charges, &mut plans);
        }
        self.compose(&plans, answer);
    }

    /// Takes in what the store said of the charges that it was asked for.
    fn note(&self, now: Tick, charges: &[Charge<'_>], plans: &[ChargePlan], answer: &mut Answer) {
        let asked = charges.iter().zip(plans).filter(|(_, plan)| !matches!(plan, ChargePlan::Covered(_)));
        for ((charge, plan), verdict) in asked.zip(&mut answer.verdicts) {
            let mut shard = hold(self.shard(charge.key));
            let Some(entry) = shard.keys.get_mut(charge.key) else { continue };
            match plan {
                ChargePlan::Take(units) => {
                    let ends = matches!(charge.limit, Limit::FixedWindow(_) | Limit::Calendar(_));
                    let most = if ends { verdict.reset } else { u64::MAX };
                    let lifetime = entry.bounds.lifetime.min(most);
                    entry.holding.granted(now, *units, charge.cost, *verdict, lifetime);
                    self.taken.fetch_add(*units, Ordering::Relaxed);
                    verdict.remaining = verdict.remaining.saturating_add(units - charge.cost);
                }
                _ => entry.holding.answered(now, charge.cost, *verdict, entry.bounds.turn),
            }
        }
    }

    /// Puts back what was spent here for a request that was then denied.
    fn give_back(&self, now: Tick, charges: &[Charge<'_>], plans: &mut [ChargePlan]) {
        for (charge, plan) in charges.iter().zip(plans) {
            let ChargePlan::Covered(verdict) = plan else { continue };
            let mut shard = hold(self.shard(charge.key));
            let now = shard.time(now);
            if let Some(entry) = shard.keys.get_mut(charge.key) {
                entry.holding.put_back(now, charge.cost, &entry.bounds);
                *verdict = entry.holding.verdict(now, charge.limit.quota());
            }
        }
    }

    /// Puts the verdicts of what was covered between those of the store, in the order asked.
    fn compose(&self, plans: &[ChargePlan], answer: &mut Answer) {
        let mut store = std::mem::take(&mut answer.verdicts).into_iter();
        answer.verdicts = plans
            .iter()
            .filter_map(|plan| match plan {
                ChargePlan::Covered(verdict) => Some(*verdict),
                ChargePlan::Take(_) | ChargePlan::Exact => store.next(),
            })
            .collect();
    }

    fn shard(&self, key: &[u8]) -> &Mutex<LeaseShard> {
        let hash = self.hasher.hash_one(key);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

fn uncovered<'a>(charges: &[Charge<'a>], plans: &[ChargePlan]) -> Vec<Charge<'a>> {
    let pairs = charges.iter().zip(plans);
    pairs.filter(|(_, plan)| !matches!(plan, ChargePlan::Covered(_))).map(|(charge, _)| *charge).collect()
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
