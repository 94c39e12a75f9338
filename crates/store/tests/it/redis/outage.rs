//! What becomes of what was given out, and of what was asked, while Redis was away; and opening it ahead.

use std::time::Duration;

use tidegate_algorithms::limit::{Limit, PermitId, Slots};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::SECOND;
use tidegate_store::guard::{Guard, GuardConfig, GuardStats};
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::{Answer, Charge, Counters, Intent};
use tidegate_testkit::redis::RedisServer;

use crate::redis::blind::under_fault;
use crate::redis::node::{Clock, bare, charge, guarded, hourly, patient, recovery, remaining, spend_all};

/// One of two nodes, as in production, but for what it waits for once the store is back.
fn node(server: &RedisServer) -> (Counters, Guard) {
    let config = patient(RedisConfig::single("127.0.0.1", server.port));
    guarded(config, GuardConfig { instances: 2, ..GuardConfig::default() })
}

/// Waits until all that was admitted blindly is accounted for.
async fn settled(guard: &Guard, clock: &Clock) -> GuardStats {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    loop {
        let stats = guard.stats();
        if stats.blind_units == stats.over_admitted_units + stats.charged_units + stats.unsettled_units {
            return stats;
        }
        assert!(clock.elapsed() < Duration::from_secs(120), "not settled: {stats:?}");
        ticks.tick().await;
    }
}

/// Each node alone admitted less than the store had left; together they admitted more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_nodes_over_admitted_adds_up_after_the_outage() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let exact = bare(patient(RedisConfig::single("127.0.0.1", server.port)));
    let ((a, a_guard), (b, b_guard)) = (node(&server), node(&server));
    let limit = hourly(100);
    for store in [&a, &b] {
        recovery(store, &clock, &limit).await;
    }
    assert!(spend_all(&exact, &clock, &[charge(&limit, b"client", 40)]).await.unwrap().allowed);
    server.server.freeze();
    for store in [&a, &b] {
        assert_eq!(under_fault(store, &clock, &limit, b"client").await.admitted, 50, "its share");
    }
    server.server.thaw();
    for store in [&a, &b] {
        recovery(store, &clock, &limit).await;
    }
    let (a_stats, b_stats) = (settled(&a_guard, &clock).await, settled(&b_guard, &clock).await);
    let over = a_stats.over_admitted_units + b_stats.over_admitted_units;
    let unknown = a_stats.unsettled_units + b_stats.unsettled_units;
    let unanswered = a_stats.failures + b_stats.failures;
    assert!(unknown <= unanswered, "{a_stats:?} {b_stats:?}");
    // 100 were admitted where 60 were left. Calls without an answer may have spent some of these 60, and
    // may themselves be among the 100.
    assert!((40 - 40.min(unknown)..=40 + unanswered).contains(&over), "{over}: {a_stats:?} {b_stats:?}");
    assert!(over > 0, "{a_stats:?} {b_stats:?}");
    assert_eq!(remaining(&exact, &clock, &limit, b"client").await, 0, "the store knows of them");

    // An outage with peeks only admits nothing, whatever was admitted before.
    let before = a_guard.stats();
    server.server.freeze();
    let mut answer = Answer::default();
    for _ in 0..50 {
        a.decide(clock.now(), &[charge(&limit, b"client", 1)], Intent::Peek, &mut answer).await.unwrap();
    }
    server.server.thaw();
    recovery(&a, &clock, &limit).await;
    let after = settled(&a_guard, &clock).await;
    assert_eq!(after.over_admitted_units, before.over_admitted_units, "{before:?} {after:?}");
}

/// A permit of the store is neither held nor not held while the store does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_is_not_called_lost_while_the_store_does_not_answer() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let (store, guard) = node(&server);
    let slots = Limit::Concurrency(Slots { limit: 10, lease: 3_600 * SECOND });
    recovery(&store, &clock, &hourly(100)).await;
    let mut answer = Answer::default();
    let exact = bare(patient(RedisConfig::single("127.0.0.1", server.port)));
    let charges = [charge(&slots, b"job", 1)];
    let (of_the_store, of_this_node) = (PermitId(7), PermitId(8));
    exact.decide(clock.now(), &charges, Intent::Spend(of_the_store), &mut answer).await.unwrap();
    server.server.freeze();
    // Until the breaker is open the store is asked, and does not answer; then it is not asked.
    while !guard.stats().is_open {
        let renewed = store.renew(clock.now(), &slots, b"job", of_the_store).await;
        assert!(renewed.unwrap_err().may_have_happened());
    }
    let released = store.release(clock.now(), &slots, b"job", of_the_store).await;
    assert!(released.is_err(), "{released:?}");
    // What was given out meanwhile is known.
    loop {
        store.decide(clock.now(), &charges, Intent::Spend(of_this_node), &mut answer).await.unwrap();
        if answer.allowed {
            break;
        }
    }
    assert!(store.renew(clock.now(), &slots, b"job", of_this_node).await.unwrap());
    assert!(store.release(clock.now(), &slots, b"job", of_this_node).await.unwrap());
    server.server.thaw();
    recovery(&store, &clock, &hourly(100)).await;
    // A release without an answer may have been made.
    store.release(clock.now(), &slots, b"job", of_the_store).await.unwrap();
    assert!(!exact.release(clock.now(), &slots, b"job", of_the_store).await.unwrap(), "it is given back");
    assert_eq!(remaining(&exact, &clock, &slots, b"job").await, 10);
}

/// Units that were spent in the store cannot be given back to this node's share, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_is_not_acknowledged_while_the_store_does_not_answer() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let (store, guard) = node(&server);
    let limit = hourly(100);
    recovery(&store, &clock, &limit).await;
    let exact = bare(patient(RedisConfig::single("127.0.0.1", server.port)));
    spend_all(&exact, &clock, &[charge(&limit, b"there", 5)]).await.unwrap();
    server.server.freeze();
    under_fault(&store, &clock, &limit, b"warm").await;
    assert!(guard.stats().is_open);
    let there = [charge(&limit, b"there", 5)];
    assert!(store.refund(clock.now(), &there).await.is_err(), "spent in the store");
    // A probe that goes out may be the one that spends here; its outcome is unknown, so it is not followed.
    let here = [charge(&limit, b"here", 5)];
    let mut given_back = false;
    while !given_back {
        spend_all(&store, &clock, &here).await.unwrap();
        given_back = store.refund(clock.now(), &here).await.is_ok();
    }
    server.server.thaw();
    recovery(&store, &clock, &limit).await;
    assert!(store.refund(clock.now(), &there).await.is_ok());
    assert_eq!(remaining(&exact, &clock, &limit, b"there").await, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_open_before_the_first_request() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let (store, guard) = node(&server);
    guard.open(Duration::from_secs(60)).await.unwrap();
    let seen = || {
        let clients = server.command(&["CLIENT", "LIST"]);
        let mut ids: Vec<_> = clients
            .lines()
            .filter(|line| !line.contains("cmd=client"))
            .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
            .collect();
        ids.sort();
        let statistics = server.command(&["INFO", "commandstats"]);
        let loads = statistics.lines().find(|line| line.starts_with("cmdstat_script|load:calls=2,"));
        (ids, loads.is_some())
    };
    let (ids, loaded) = seen();
    assert_eq!((ids.len(), loaded), (2, true), "two connections, with the script");
    let limit = hourly(100);
    let keys: Vec<_> = (0..20_u8).map(|number| [number]).collect();
    for key in &keys {
        spend_all(&store, &clock, &[charge(&limit, key, 1)]).await.unwrap();
    }
    assert_eq!(seen(), (ids, true), "the same connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_at_the_start_says_why_and_is_found_later() {
    let mut server = RedisServer::start(&[]);
    server.server.kill();
    let clock = Clock::start();
    let (store, guard) = node(&server);
    guard.open(Duration::from_secs(60)).await.unwrap_err();
    let why = guard.trouble().expect("it is away");
    assert!(why.contains(&server.port.to_string()) && why.contains("refused"), "{why}");
    server.restart();
    guard.open(Duration::from_secs(60)).await.unwrap();
    assert_eq!(guard.trouble(), None);
    server.server.kill();
    let limit = hourly(100);
    while !guard.stats().is_open {
        let with = Charge { on_failure: OnStoreFailure::Open, ..charge(&limit, b"client", 1) };
        spend_all(&store, &clock, &[with]).await.unwrap();
    }
    assert!(guard.trouble().is_some(), "so is an open breaker");
    server.restart();
    recovery(&store, &clock, &limit).await;
    assert_eq!(guard.trouble(), None);
}
