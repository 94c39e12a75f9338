//! What the tests share: nodes, limits, and a clock that goes.

use std::time::Duration;

use tidegate_algorithms::limit::{Limit, PermitId, SlidingLog, Wait};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::lease::{LeaseConfig, Leases};
use tidegate_store::redis::Redis;
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::shared::Shared;
use tidegate_store::{Answer, Charge, Counters, Intent, StoreError};
use tokio::time::Instant;

/// A time that moves with the test.
#[derive(Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Now {
        let elapsed = u64::try_from(self.0.elapsed().as_nanos()).expect("small and answered");
        Now::at(1_767_225_600 * SECOND + elapsed)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A node whose answers come from Redis or not at all.
pub(crate) fn bare(config: RedisConfig) -> Counters {
    Counters::Shared(Shared::Redis(Redis::start(config)))
}

/// A patient configuration: the tests that use it measure correctness, on a busy machine.
pub(crate) fn patient(mut config: RedisConfig) -> RedisConfig {
    config.response_timeout = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(20);
    config
}

/// A node as it runs in production, and its guard for looking at.
pub(crate) fn guarded(config: RedisConfig, guard: GuardConfig) -> (Counters, Guard) {
    let guard = Guard::new(Shared::Redis(Redis::start(config)), guard);
    (Counters::Guarded(guard.clone()), guard)
}

/// A node that leases, behind a guard with so long a deadline that a busy machine does not show.
pub(crate) fn leased(config: RedisConfig, instances: u64) -> Leases {
    let deadline = Duration::from_secs(20);
    let guard = GuardConfig { deadline, max_in_flight: 100_000, instances, ..GuardConfig::default() };
    let guard = Guard::new(Shared::Redis(Redis::start(config)), guard);
    Leases::new(guard, LeaseConfig { instances, ..LeaseConfig::default() })
}

/// `limit` in any hour.
pub(crate) fn hourly(limit: u64) -> Limit {
    Limit::SlidingLog(SlidingLog { limit, window: 3_600 * SECOND })
}

pub(crate) fn charge<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
    Charge { limit, key, cost, binding: true, on_failure: OnStoreFailure::Local }
}

/// Spends one unit.
pub(crate) async fn spend(
    store: &Counters,
    clock: &Clock,
    limit: &Limit,
    key: &[u8],
) -> Result<Answer, StoreError> {
    spend_all(store, clock, &[charge(limit, key, 1)]).await
}

pub(crate) async fn spend_all(
    store: &Counters,
    clock: &Clock,
    charges: &[Charge<'_>],
) -> Result<Answer, StoreError> {
    let mut answer = Answer::default();
    store.decide(clock.now(), charges, Intent::Spend(PermitId(1)), &mut answer).await?;
    assert!(answer.allowed || answer.verdicts.iter().any(|verdict| verdict.wait != Wait::None));
    Ok(answer)
}

/// What a key has left, by the store itself.
pub(crate) async fn remaining(store: &Counters, clock: &Clock, limit: &Limit, key: &[u8]) -> u64 {
    let mut answer = Answer::default();
    let charges = [charge(limit, key, 0)];
    store.decide(clock.now(), &charges, Intent::Peek, &mut answer).await.expect("the store answers");
    assert_eq!(answer.degraded, None, "the store itself answers");
    answer.verdicts[0].remaining
}

/// Asks every 5 ms until the store itself answers, and returns how long that took. It spends nothing, so that what the test counts is the
/// test's own, however long it takes.
pub(crate) async fn recovery(store: &Counters, clock: &Clock, limit: &Limit) -> Duration {
    let start = clock.elapsed();
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut answer = Answer::default();
    loop {
        ticks.tick().await;
        let asked = [charge(limit, b"recovery", 1)];
        store.decide(clock.now(), &asked, Intent::Peek, &mut answer).await.expect("small and answered");
        if answer.degraded.is_none() {
            return clock.elapsed() - start;
        }
        assert!(clock.elapsed() - start < Duration::from_secs(120), "no recovery");
    }
}
