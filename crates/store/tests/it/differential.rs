//! The same random operations at the same times give the same answers in every store.
//!
//! Histories mix all seven algorithms on few keys, limits that change under a key, several limits
//! in one request, shadow mode, peeks, refunds, permits, times to the nanosecond and a clock that
//! goes back. `TIDEGATE_HISTORIES` sets how many, 500 unless stated.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_algorithms::limit::calendar::{Calendar, Period};
use tidegate_algorithms::limit::{
    Bucket, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots, State, Verdict,
};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::policy::{MAX_SPAN, MAX_UNITS, MAX_WINDOW_SECONDS};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::postgres::{Postgres, PostgresConfig};
use tidegate_store::redis::Redis;
use tidegate_store::redis::config::{DecidingClock, RedisConfig};
use tidegate_store::shared::Shared;
use tidegate_store::{Answer, Charge, Counters, Intent};
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

/// 2026-03-28 12:00:00 UTC: Berlin changes its offset in the following night.
const START: u64 = 1_774_699_200 * SECOND;

#[derive(Clone, Debug)]
enum Operation {
    Decide { charges: Vec<Spend>, permit: Option<u64> },
    Refund(Spend),
    Reset(Spend),
    Renew(Spend, u64),
    Release(Spend, u64),
}

#[derive(Clone, Debug)]
struct Spend {
    limit: Limit,
    key: u8,
    cost: u64,
    binding: bool,
}

#[derive(Clone, Debug)]
struct Step {
    operation: Operation,
    later: i64,
}

fn units() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![8 => 0_u64..12, 1 => 50_u64..5_000, 1 => Just(MAX_UNITS)]
}

fn seconds() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![6 => 1_u64..5, 2 => 30_u64..120, 1 => Just(MAX_WINDOW_SECONDS)]
}

fn narrow(seconds: u64) -> u32 {
    u32::try_from(seconds).expect("at most 90 days")
}

/// A bucket that a policy could state.
fn bucket() -> impl Strategy<Value = Bucket> + Clone {
    (units(), 1_u64..20, seconds()).prop_filter_map("too wide", |(limit, burst, seconds)| {
        let bucket = Bucket::new(limit, burst, seconds * SECOND);
        let span = u128::from(bucket.burst) * u128::from(bucket.interval);
        (limit <= seconds * 10_000_000 && span <= u128::from(MAX_SPAN)).then_some(bucket)
    })
}

fn limit() -> impl Strategy<Value = Limit> + Clone {
    let zones = prop_oneof![Just("UTC"), Just("Europe/Berlin"), Just("Pacific/Apia")];
    let periods = prop_oneof![Just(Period::Day), Just(Period::Month)];
    prop_oneof![
        bucket().prop_map(Limit::TokenBucket),
        bucket().prop_map(Limit::LeakyBucket),
        (units(), seconds())
            .prop_map(|(limit, seconds)| Limit::FixedWindow(FixedWindow { limit, seconds: narrow(seconds) })),
        (0_u64..40, seconds())
            .prop_map(|(limit, seconds)| Limit::SlidingLog(SlidingLog { limit, window: seconds * SECOND })),
        (units(), seconds()).prop_map(|(limit, seconds)| {
            Limit::SlidingCounter(SlidingCounter { limit, seconds: narrow(seconds) })
        }),
        (0_u64..12, seconds()).prop_map(|(limit, seconds)| {
            Limit::Concurrency(Slots { limit, lease: seconds.min(86_400) * SECOND })
        }),
        (units(), periods, zones).prop_map(|(limit, period, zone)| {
            Limit::Calendar(Calendar { limit, period, zone: jiff::tz::TimeZone::get(zone).expect("bundled") })
        }),
    ]
}

/// A bucket that was changed in its burst alone.
fn with_burst(limit: &Limit, burst: u64) -> Option<Limit> {
    let changed = |bucket: &Bucket| {
        let fits = burst.saturating_mul(bucket.interval) <= MAX_SPAN && bucket.burst > 0;
        fits.then_some(Bucket { burst, ..*bucket })
    };
    match limit {
        Limit::TokenBucket(bucket) => changed(bucket).map(Limit::TokenBucket),
        Limit::LeakyBucket(bucket) => changed(bucket).map(Limit::LeakyBucket),
        _ => None,
    }
}

/// Mostly each limit has its own keys; sometimes a key changes its limit.
fn spend(limits: Vec<Limit>) -> impl Strategy<Value = Spend> {
    let cost = prop_oneof![8 => 0_u64..4, 2 => 0_u64..15, 1 => Just(600_000_000), 1 => Just(u64::MAX)];
    let own = prop::bool::weighted(0.8);
    (0..limits.len(), 0_u8..3, cost, prop::bool::weighted(0.8), own).prop_map(
        move |(limit, key, cost, binding, own)| {
            let key = if own { u8::try_from(limit).expect("a few") * 3 + key } else { 255 - key };
            Spend { limit: limits[limit].clone(), key, cost, binding }
        },
    )
}

fn history() -> impl Strategy<Value = Vec<Step>> {
    let limits = (prop::collection::vec(limit(), 1..5), prop::option::of(1_u64..30));
    let limits = limits.prop_map(|(mut limits, burst)| {
        limits.extend(burst.and_then(|burst| limits.iter().find_map(|limit| with_burst(limit, burst))));
        limits
    });
    limits.prop_flat_map(|limits| {
        let charges = prop::collection::vec(spend(limits.clone()), 1..4);
        let permit = || 0_u64..6;
        let operation = prop_oneof![
            8 => (charges, prop::option::weighted(0.9, permit()))
                .prop_map(|(charges, permit)| Operation::Decide { charges, permit }),
            1 => spend(limits.clone()).prop_map(Operation::Refund),
            1 => spend(limits.clone()).prop_map(Operation::Reset),
            1 => (spend(limits.clone()), permit()).prop_map(|(spend, permit)| Operation::Renew(spend, permit)),
            1 => (spend(limits), permit()).prop_map(|(spend, permit)| Operation::Release(spend, permit)),
        ];
        let second = i64::try_from(SECOND).expect("small");
        let later = prop_oneof![
            4 => Just(0),
            4 => 0..second,
            3 => 0..5 * second,
            1 => 0..4 * 86_400 * second,
            1 => (1_i64..5).prop_map(move |seconds| seconds * second),
            1 => -3 * second..0,
        ];
        let step = (operation, later).prop_map(|(operation, later)| Step { operation, later });
        prop::collection::vec(step, 1..60)
    })
}

/// The pure functions over a map that forgets a state when it is touched and says nothing.
#[derive(Default)]
struct Model(HashMap<u8, State>);

impl Model {
    fn apply(&mut self, now: Now, operation: &Operation) -> Answer {
        let touched: Vec<u8> = match operation {
            Operation::Decide { charges, .. } => charges.iter().map(|spend| spend.key).collect(),
            Operation::Refund(spend) | Operation::Reset(spend) => vec![spend.key],
            Operation::Renew(spend, _) | Operation::Release(spend, _) => match spend.limit {
                Limit::Concurrency(_) => vec![spend.key],
                _ => Vec::new(),
            },
        };
        let speaks = |key: &u8, state: &mut State| !touched.contains(key) || state.expires() > now.tick;
        self.0.retain(speaks);
        let answer = match operation {
            Operation::Decide { charges, permit } => self.decide(now, charges, *permit),
            Operation::Refund(spend) => {
                self.0.entry(spend.key).and_modify(|state| spend.limit.refund(state, now, spend.cost));
                Answer::default()
            }
            Operation::Reset(spend) => {
                self.0.remove(&spend.key);
                Answer::default()
            }
            Operation::Renew(spend, permit) => {
                self.permit(spend, |slots, state| slots.renew(state, now, PermitId(*permit)))
            }
            Operation::Release(spend, permit) => {
                self.permit(spend, |slots, state| slots.release(state, now, PermitId(*permit)))
            }
        };
        self.0.retain(speaks);
        answer
    }

    fn permit(&mut self, spend: &Spend, act: impl FnOnce(&Slots, &mut State) -> bool) -> Answer {
        let allowed = match (&spend.limit, self.0.get_mut(&spend.key)) {
            (Limit::Concurrency(slots), Some(state)) => act(slots, state),
            _ => false,
        };
        Answer { allowed, ..Answer::default() }
    }

    fn decide(&mut self, now: Now, charges: &[Spend], permit: Option<u64>) -> Answer {
        let mut answer = Answer { allowed: true, ..Answer::default() };
        for (index, charge) in charges.iter().enumerate() {
            let earlier = charges[..index].iter().zip(&answer.verdicts);
            let same_key = earlier.filter(|(other, verdict)| other.key == charge.key && verdict.allowed);
            let cost = same_key.map(|(other, _)| other.cost).fold(charge.cost, u64::saturating_add);
            let verdict = self.check(now, charge, cost);
            answer.allowed &= verdict.allowed || !charge.binding;
            answer.verdicts.push(verdict);
        }
        for (charge, verdict) in charges.iter().zip(&mut answer.verdicts) {
            match permit {
                _ if !verdict.allowed => {}
                _ if !answer.allowed => *verdict = self.check(now, charge, 0),
                Some(permit) => {
                    let state = self.0.entry(charge.key).or_default();
                    charge.limit.charge(state, now, charge.cost, PermitId(permit));
                }
                None => {}
            }
        }
        answer
    }

    fn check(&mut self, now: Now, charge: &Spend, cost: u64) -> Verdict {
        let state = self.0.entry(charge.key).or_default();
        let verdict = charge.limit.check(state, now, cost);
        if state.expires() <= now.tick {
            self.0.remove(&charge.key);
        }
        verdict
    }
}

/// What a store says to one step, in a form that can be compared.
async fn apply(store: &Counters, run: u64, now: Now, operation: &Operation) -> Result<Answer, TestCaseError> {
    let name = |spend: &Spend| format!("run{run}/{}", spend.key).into_bytes();
    let mut answer = Answer::default();
    let outcome = match operation {
        Operation::Decide { charges, permit } => {
            let keys: Vec<Vec<u8>> = charges.iter().map(name).collect();
            let charges: Vec<Charge<'_>> = charges
                .iter()
                .zip(&keys)
                .map(|(spend, key)| Charge {
                    limit: &spend.limit,
                    key,
                    cost: spend.cost,
                    binding: spend.binding,
                    on_failure: OnStoreFailure::Local,
                })
                .collect();
            let intent = permit.map_or(Intent::Peek, |permit| Intent::Spend(PermitId(permit)));
            store.decide(now, &charges, intent, &mut answer).await
        }
        Operation::Refund(spend) | Operation::Reset(spend) => {
            let key = name(spend);
            let charge = Charge {
                limit: &spend.limit,
                key: &key,
                cost: spend.cost,
                binding: true,
                on_failure: OnStoreFailure::Local,
            };
            match operation {
                Operation::Refund(_) => store.refund(now, &[charge]).await,
                _ => store.reset(now, &[charge]).await,
            }
        }
        Operation::Renew(spend, permit) => {
            let held = store.renew(now, &spend.limit, &name(spend), PermitId(*permit)).await;
            held.map(|held| answer.allowed = held)
        }
        Operation::Release(spend, permit) => {
            let held = store.release(now, &spend.limit, &name(spend), PermitId(*permit)).await;
            held.map(|held| answer.allowed = held)
        }
    };
    outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
    Ok(answer)
}

/// Runs histories against the pure functions and a store, and compares every answer.
fn agrees_with_the_pure_functions(runtime: &tokio::runtime::Runtime, store: &Counters) {
    let cases = std::env::var("TIDEGATE_HISTORIES").map_or(500, |cases| cases.parse().expect("a number"));
    let runs = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    });
    let outcome = runner.run(&history(), |steps| {
        runtime.block_on(async {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            let mut model = Model::default();
            let mut nanos = START;
            for (index, step) in steps.iter().enumerate() {
                nanos = nanos.saturating_add_signed(step.later);
                let now = Now::at(nanos);
                let expected = model.apply(now, &step.operation);
                let found = apply(store, run, now, &step.operation).await?;
                prop_assert_eq!(found, expected, "step {} at {}: {:?}", index, nanos, step.operation);
            }
            Ok(())
        })
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn redis_agrees_with_the_pure_functions() {
    let server = RedisServer::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let mut config = RedisConfig::single("127.0.0.1", server.port);
    config.clock = DecidingClock::Caller;
    config.response_timeout = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(60);
    let redis = Counters::Shared(Shared::Redis(Redis::start(config)));
    agrees_with_the_pure_functions(&runtime, &redis);
}

#[test]
fn postgres_agrees_with_the_pure_functions() {
    let server = PostgresServer::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let mut config = PostgresConfig::parse(&server.connection_string()).unwrap();
    config.callers_clock = true;
    config.response_timeout = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(60);
    let postgres = Counters::Shared(Shared::Postgres(Postgres::start(config)));
    agrees_with_the_pure_functions(&runtime, &postgres);
}
