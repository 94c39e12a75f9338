//! Leases on a real Redis: what they save, what they may cost, what a drain returns.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::{Bucket, Limit, PermitId};
use tidegate_algorithms::time::SECOND;
use tidegate_store::lease::{LeaseConfig, bounds};
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::{Answer, Counters, Intent};
use tidegate_testkit::redis::RedisServer;

use crate::redis::exactness::admitted;
use crate::redis::node::{Clock, bare, charge, leased, patient, remaining};

/// 1,000 at once, and so slow a refill that nothing comes back during a test.
fn slow_bucket() -> Limit {
    Limit::TokenBucket(Bucket::new(1_000, 1_000, 9_000 * SECOND))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_three_leasing_nodes_admit_at_most_a_full_bucket() {
    let server = RedisServer::start(&[]);
    let config = || patient(RedisConfig::single("127.0.0.1", server.port));
    let limit = Limit::TokenBucket(Bucket::new(1_000, 1_000, 60 * SECOND));
    let lease = bounds(&limit, &LeaseConfig { instances: 3, ..LeaseConfig::default() });
    assert!(lease.units > 1, "{lease:?}");
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(Counters::Leased(leased(config(), 3)))).collect();
    let clock = Clock::start();
    let admitted = admitted(&nodes, &limit).await;
    let refilled = u64::try_from(clock.elapsed().as_millis()).unwrap() / 60;
    assert!(admitted <= 1_000 + refilled, "{admitted} admitted from a full bucket");
    assert!(admitted + lease.stranded >= 1_000, "{admitted} admitted, at most {} stranded", lease.stranded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_key_costs_the_store_a_call_per_lease() {
    let server = RedisServer::start(&[]);
    let config = || patient(RedisConfig::single("127.0.0.1", server.port));
    let node = leased(config(), 1);
    let clock = Clock::start();
    let limit = Limit::TokenBucket(Bucket::new(100_000_000, 100_000_000, 60 * SECOND));
    let mut answer = Answer::default();
    for number in 0..20_000 {
        let charges = [charge(&limit, b"hot", 1)];
        node.decide(clock.now(), &charges, Intent::Spend(PermitId(number)), &mut answer).await;
        assert!(answer.allowed && answer.degraded.is_none());
    }
    let stats = node.stats();
    assert!(stats.remote < 500, "{stats:?}");
    assert_eq!(stats.local + stats.remote, 20_000);
    // What is held is returned, so that the store's count is what was really spent.
    node.drain(clock.now()).await;
    let stats = node.stats();
    assert!(stats.returned > 0, "{stats:?}");
    let full = Limit::TokenBucket(Bucket::new(100_000_000, 100_000_000, 60 * SECOND));
    let left = remaining(&bare(config()), &clock, &full, b"hot").await;
    assert!(left + 20_000 >= 100_000_000, "{left} left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_room_costs_the_store_little() {
    let server = RedisServer::start(&[]);
    let node = leased(patient(RedisConfig::single("127.0.0.1", server.port)), 1);
    let clock = Clock::start();
    let limit = Limit::TokenBucket(Bucket::new(10_000, 10_000, 600 * SECOND));
    let mut answer = Answer::default();
    let all = [charge(&limit, b"hot", 10_000)];
    node.decide(clock.now(), &all, Intent::Spend(PermitId(0)), &mut answer).await;
    assert!(answer.allowed);
    let mut denied = 0;
    for _ in 0..20_000 {
        let charges = [charge(&limit, b"hot", 1)];
        node.decide(clock.now(), &charges, Intent::Spend(PermitId(0)), &mut answer).await;
        denied += u64::from(!answer.allowed);
    }
    let stats = node.stats();
    assert!(denied > 10_000 && stats.remote < denied / 10, "{denied} denied, {stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_16_a_denial_gives_back_what_was_held() {
    let server = RedisServer::start(&[]);
    let config = || patient(RedisConfig::single("127.0.0.1", server.port));
    let node = leased(config(), 1);
    let clock = Clock::start();
    let wide = Limit::TokenBucket(Bucket::new(1_000_000, 1_000_000, 60 * SECOND));
    let narrow = slow_bucket();
    let mut answer = Answer::default();
    for number in 0..50 {
        let charges = [charge(&wide, b"wide", 1)];
        node.decide(clock.now(), &charges, Intent::Spend(PermitId(number)), &mut answer).await;
    }
    let held = node.stats();
    assert!(held.taken > held.remote, "a lease is held: {held:?}");
    let both = [charge(&wide, b"wide", 1), charge(&narrow, b"narrow", 1_001)];
    for _ in 0..100 {
        node.decide(clock.now(), &both, Intent::Spend(PermitId(0)), &mut answer).await;
        assert!(!answer.allowed && answer.verdicts[0].allowed && !answer.verdicts[1].allowed);
    }
    node.drain(clock.now()).await;
    let left = remaining(&bare(config()), &clock, &wide, b"wide").await;
    assert!(left + 50 >= 1_000_000, "{left} left: a denial charged someone");
    assert_eq!(remaining(&bare(config()), &clock, &narrow, b"narrow").await, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_keeps_no_key_from_being_leased() {
    let server = RedisServer::start(&[]);
    let node = leased(patient(RedisConfig::single("127.0.0.1", server.port)), 1);
    let clock = Clock::start();
    let limit = Limit::TokenBucket(Bucket::new(1_000_000, 1_000_000, 60 * SECOND));
    let charges = [charge(&limit, b"hot", 1)];
    let mut answer = Answer::default();
    node.decide(clock.now(), &charges, Intent::Spend(PermitId(0)), &mut answer).await;
    server.server.freeze();
    // This one would take a lease, and is not waited for.
    let gone = node.decide(clock.now(), &charges, Intent::Spend(PermitId(1)), &mut answer);
    assert!(tokio::time::timeout(Duration::from_millis(50), gone).await.is_err());
    server.server.thaw();
    for number in 2..50 {
        node.decide(clock.now(), &charges, Intent::Spend(PermitId(number)), &mut answer).await;
        assert!(answer.allowed && answer.degraded.is_none());
    }
    assert!(node.stats().local > 20, "{:?}", node.stats());
}
