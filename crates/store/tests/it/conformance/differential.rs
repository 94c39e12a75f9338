//! Random operations on a store, compared with the pure functions over a map.
//!
//! The model keeps every state for ever and is obvious; the store forgets what has expired, shares
//! memory, locks. Their answers must be equal, verdict by verdict. The model also says what the
//! contract says of charges of one key, of the verdicts after a denial, and of a caller whose clock is
//! behind: it is answered at the latest time that any caller has told of one of its keys.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_algorithms::limit::{Limit, PermitId, State};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND, Tick, Wall};
use tidegate_store::{Answer, Charge, Counters, Intent};

use crate::conformance::suite::{START, every_limit};

/// The store contract over a map.
#[derive(Default)]
pub(crate) struct Model {
    states: HashMap<Vec<u8>, State>,
    /// The latest time that was told under each key.
    latest: HashMap<Vec<u8>, Now>,
    now: Now,
}

/// One operation after a step in time.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    elapsed: i64,
    wall_jump: i64,
    operation: Operation,
}

#[derive(Clone, Debug)]
enum Operation {
    Decide { charges: Vec<Spend>, spends: bool, permit: u64 },
    Refund(Vec<Spend>),
    Reset(Vec<Spend>),
    Renew { spend: Spend, permit: u64 },
    Release { spend: Spend, permit: u64 },
}

#[derive(Clone, Debug)]
struct Spend {
    key: u16,
    limit: Limit,
    cost: u64,
    binding: bool,
}

/// Operations over `keys` keys; `back` says whether the clocks may jump back too.
pub(crate) fn steps(keys: u16, back: bool) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(keys, back), 1..200)
}

fn step(keys: u16, back: bool) -> impl Strategy<Value = Step> {
    let second = i64::try_from(SECOND).expect("small");
    let forward = prop_oneof![
        4 => Just(0),
        2 => 1..second,
        2 => second..70 * second,
        1 => 70 * second..90_000 * second,
    ];
    let jump = (-4_000 * second..=4_000 * second).prop_map(move |by| if back { by } else { by.abs() });
    let elapsed = prop_oneof![8 => forward, 1 => jump.clone()];
    let wall_jump = prop_oneof![20 => Just(0), 1 => jump];
    (elapsed, wall_jump, operation(keys)).prop_map(|(elapsed, wall_jump, operation)| Step {
        elapsed,
        wall_jump,
        operation,
    })
}

fn operation(keys: u16) -> impl Strategy<Value = Operation> {
    let permit = 0..4_u64;
    let charges = prop::collection::vec(spend(keys), 1..=4);
    prop_oneof![
        12 => (charges.clone(), prop::bool::weighted(0.8), permit.clone())
            .prop_map(|(charges, spends, permit)| Operation::Decide { charges, spends, permit }),
        2 => charges.clone().prop_map(Operation::Refund),
        1 => charges.prop_map(Operation::Reset),
        2 => (spend(keys), permit.clone()).prop_map(|(spend, permit)| Operation::Renew { spend, permit }),
        2 => (spend(keys), permit).prop_map(|(spend, permit)| Operation::Release { spend, permit }),
    ]
}

/// A key mostly stays under one algorithm, with a quota that changes at times.
fn spend(keys: u16) -> impl Strategy<Value = Spend> + Clone {
    let quota = prop_oneof![6 => Just(5_u64), 1 => 0..9_u64];
    let algorithm = prop_oneof![9 => Just(None), 1 => (0..7_usize).prop_map(Some)];
    (
        0..keys,
        quota,
        algorithm,
        1..=3_u64,
        prop_oneof![1 => Just(0), 9 => 1..=6_u64],
        prop::bool::weighted(0.9),
    )
        .prop_map(|(key, quota, algorithm, stretch, cost, binding)| {
            let algorithm = algorithm.unwrap_or(usize::from(key) % 7);
            let limit = stretched(every_limit(quota).swap_remove(algorithm).1, stretch);
            Spend { key, limit, cost, binding }
        })
}

/// The limit with a longer window.
fn stretched(limit: Limit, by: u64) -> Limit {
    match limit {
        Limit::SlidingLog(mut log) => {
            log.window *= by;
            Limit::SlidingLog(log)
        }
        Limit::FixedWindow(mut window) => {
            window.seconds *= u32::try_from(by).expect("small");
            Limit::FixedWindow(window)
        }
        Limit::Concurrency(mut slots) => {
            slots.lease *= by;
            Limit::Concurrency(slots)
        }
        other => other,
    }
}

/// Performs `step` on both and compares every answer.
pub(crate) async fn compare(store: &Counters, model: &mut Model, step: &Step) {
    model.advance(step);
    let now = model.now;
    match &step.operation {
        Operation::Decide { charges, spends, permit } => {
            let keys = keys(charges);
            let charges = as_charges(charges, &keys);
            let intent = if *spends { Intent::Spend(PermitId(*permit)) } else { Intent::Peek };
            let mut answer = Answer::default();
            store.decide(now, &charges, intent, &mut answer).await.expect("the store is up");
            assert_eq!(answer, model.decide(&charges, intent));
        }
        Operation::Refund(charges) => {
            let keys = keys(charges);
            let charges = as_charges(charges, &keys);
            store.refund(now, &charges).await.expect("the store is up");
            model.refund(&charges);
        }
        Operation::Reset(charges) => {
            let keys = keys(charges);
            let charges = as_charges(charges, &keys);
            store.reset(now, &charges).await.expect("the store is up");
            model.reset(&charges);
        }
        Operation::Renew { spend, permit } => {
            let key = key(spend);
            let renewed = store.renew(now, &spend.limit, &key, PermitId(*permit)).await;
            assert_eq!(renewed.expect("the store is up"), model.renew(spend, PermitId(*permit)));
        }
        Operation::Release { spend, permit } => {
            let key = key(spend);
            let released = store.release(now, &spend.limit, &key, PermitId(*permit)).await;
            assert_eq!(released.expect("the store is up"), model.release(spend, PermitId(*permit)));
        }
    }
}

impl Model {
    /// The time of the last step.
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    fn advance(&mut self, step: &Step) {
        if self.now.tick == Tick(0) {
            self.now = Now::at(START);
        }
        self.now = Now {
            tick: Tick(self.now.tick.0.saturating_add_signed(step.elapsed)),
            wall: Wall(self.now.wall.0.saturating_add_signed(step.elapsed + step.wall_jump)),
        };
    }

    /// The time at which an operation on these keys is made.
    fn time(&mut self, keys: &[&[u8]]) -> Now {
        let known = keys.iter().filter_map(|key| self.latest.get(*key));
        let now = known.fold(self.now, |now, known| now.latest(*known));
        self.latest.extend(keys.iter().map(|key| (key.to_vec(), now)));
        now
    }

    fn decide(&mut self, charges: &[Charge<'_>], intent: Intent) -> Answer {
        let keys: Vec<_> = charges.iter().map(|charge| charge.key).collect();
        let now = self.time(&keys);
        let mut answer = Answer { allowed: true, ..Answer::default() };
        for (index, charge) in charges.iter().enumerate() {
            let earlier = (0..index)
                .filter(|other| charges[*other].key == charge.key && answer.verdicts[*other].allowed)
                .map(|other| charges[other].cost)
                .sum::<u64>();
            let verdict = self
                .with_state(charge.key, now, |state| charge.limit.check(state, now, charge.cost + earlier));
            answer.allowed &= verdict.allowed || !charge.binding;
            answer.verdicts.push(verdict);
        }
        for (index, charge) in charges.iter().enumerate() {
            let Charge { limit, key, cost, .. } = *charge;
            match intent {
                _ if !answer.verdicts[index].allowed => {}
                _ if !answer.allowed => {
                    answer.verdicts[index] = self.with_state(key, now, |state| limit.check(state, now, 0));
                }
                Intent::Spend(permit) => {
                    self.with_state(key, now, |state| limit.charge(state, now, cost, permit));
                }
                Intent::Peek => {}
            }
        }
        answer
    }

    fn refund(&mut self, charges: &[Charge<'_>]) {
        for charge in charges {
            let now = self.time(&[charge.key]);
            if let Some(state) = self.states.get_mut(charge.key) {
                charge.limit.refund(state, now, charge.cost);
            }
        }
    }

    fn reset(&mut self, charges: &[Charge<'_>]) {
        for charge in charges {
            self.time(&[charge.key]);
            self.states.remove(charge.key);
        }
    }

    fn renew(&mut self, spend: &Spend, permit: PermitId) -> bool {
        let Limit::Concurrency(slots) = &spend.limit else { return false };
        let now = self.time(&[&key(spend)]);
        self.states.get_mut(&key(spend)).is_some_and(|state| slots.renew(state, now, permit))
    }

    fn release(&mut self, spend: &Spend, permit: PermitId) -> bool {
        let Limit::Concurrency(slots) = &spend.limit else { return false };
        let now = self.time(&[&key(spend)]);
        self.states.get_mut(&key(spend)).is_some_and(|state| slots.release(state, now, permit))
    }

    /// A key becomes known when there is something to say of it.
    fn with_state<R>(&mut self, key: &[u8], now: Now, act: impl FnOnce(&mut State) -> R) -> R {
        let known = self.states.contains_key(key);
        let state = self.states.entry(key.to_vec()).or_default();
        let result = act(state);
        if !known && state.expires() <= now.tick && state.used(now) == 0 {
            self.states.remove(key);
        }
        result
    }
}

fn key(spend: &Spend) -> Vec<u8> {
    format!("differential/{}", spend.key).into_bytes()
}

fn keys(spends: &[Spend]) -> Vec<Vec<u8>> {
    spends.iter().map(key).collect()
}

fn as_charges<'a>(spends: &'a [Spend], keys: &'a [Vec<u8>]) -> Vec<Charge<'a>> {
    let pairs = spends.iter().zip(keys);
    let charge = |(spend, key): (&'a Spend, &'a Vec<u8>)| Charge {
        limit: &spend.limit,
        key,
        cost: spend.cost,
        binding: spend.binding,
        on_failure: OnStoreFailure::Local,
    };
    pairs.map(charge).collect()
}
