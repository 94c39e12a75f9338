//! Batches that are decided set-wise: equal requests on one counter, from one node and from three.

use std::sync::Arc;

use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{Bucket, Calendar, FixedWindow, Limit, SlidingCounter};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::Counters;
use tidegate_store::memory::Memory;
use tidegate_testkit::postgres::PostgresServer;
use tokio::task::JoinSet;

use crate::postgres::{bare, charge, config, decide};

/// 2026-01-01, in the middle of a minute.
const START: u64 = (1_767_225_600 + 25) * SECOND;

fn limits() -> Vec<Limit> {
    vec![
        Limit::TokenBucket(Bucket::new(30, 30, 60 * SECOND)),
        Limit::LeakyBucket(Bucket::new(30, 30, 60 * SECOND)),
        Limit::FixedWindow(FixedWindow { limit: 30, seconds: 60 }),
        Limit::SlidingCounter(SlidingCounter { limit: 30, seconds: 60 }),
        Limit::Calendar(Calendar { limit: 30, period: Period::Day, zone: jiff::tz::TimeZone::UTC }),
    ]
}

/// Twenty requests of two units under each limit at once, over what earlier ones and an earlier window
/// have left: batches hold limits of every statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_requests_in_a_batch_are_decided_as_if_in_turn() {
    let server = PostgresServer::start(&[]);
    let mut config = config(&server);
    (config.connections, config.callers_clock) = (1, true);
    let store = Arc::new(bare(config));
    let model = Counters::Memory(Memory::new(1 << 20));
    let limits: Vec<_> = (0_u8..).zip(limits().into_iter().map(Arc::new)).collect();
    for (later, cost, count) in [(0, 3, 2), (20, 2, 20), (41, 2, 20), (41, 31, 3), (41, 0, 3), (90, 2, 20)] {
        let now = Now::at(START + later * SECOND);
        let mut callers = JoinSet::new();
        let mut expected = Vec::new();
        for (key, limit) in limits.iter().flat_map(|each| vec![each; count]) {
            let (store, key, own) = (Arc::clone(&store), *key, Arc::clone(limit));
            callers.spawn(
                async move { (key, decide(&store, now, &[charge(&own, &[key], cost)]).await.unwrap()) },
            );
            expected.push((key, decide(&model, now, &[charge(limit, &[key], cost)]).await.unwrap()));
        }
        let mut found = callers.join_all().await;
        for answers in [&mut found, &mut expected] {
            answers.sort_by_key(|(key, answer)| {
                let verdict = answer.verdicts[0];
                (*key, verdict.allowed, verdict.remaining, verdict.reset, verdict.delay)
            });
        }
        assert_eq!(found, expected, "{count} of {cost} after {later} s, of each of {limits:?}");
    }
}

/// Some of the requests meet a second limit, so that set-wise batches and the function take turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_three_nodes_one_plain_key() {
    let server = PostgresServer::start(&[]);
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(bare(config(&server)))).collect();
    // Nothing comes back within the test.
    let hot = Arc::new(Limit::TokenBucket(Bucket::new(1_000, 1_000, 90 * 86_400 * SECOND)));
    let wide = Arc::new(Limit::FixedWindow(FixedWindow { limit: 10_000, seconds: 86_400 }));
    let mut callers = JoinSet::new();
    for number in 0..5_000_usize {
        let (node, hot, wide) = (Arc::clone(&nodes[number % 3]), Arc::clone(&hot), Arc::clone(&wide));
        callers.spawn(async move {
            let mut charges = vec![charge(&hot, b"hot", 1)];
            if number.is_multiple_of(10) {
                charges.push(charge(&wide, b"wide", 1));
            }
            decide(&node, Now::at(SECOND), &charges).await.expect("an answer").allowed
        });
    }
    let admitted = callers.join_all().await.into_iter().filter(|allowed| *allowed).count();
    assert_eq!(admitted, 1_000);
}
