//! A key that holds what no version of the script wrote, among others that are as they should be.

use std::sync::Arc;

use tidegate_algorithms::limit::Limit;
use tidegate_store::guard::GuardConfig;
use tidegate_store::redis::config::RedisConfig;
use tidegate_store::{Counters, Degraded};
use tidegate_testkit::redis::RedisServer;

use crate::redis::node::{Clock, bare, charge, guarded, patient, remaining, spend, spend_all};

const OTHERS: u64 = 200;

/// Asks for the damaged key and for all others at once, so that they meet in batches.
async fn ask_all(store: &Arc<Counters>, clock: Clock, limit: &Arc<Limit>) -> Option<Degraded> {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..OTHERS {
        let (store, limit) = (Arc::clone(store), Arc::clone(limit));
        tasks.spawn(async move {
            let key = number.to_be_bytes();
            let mut answer = spend(&store, &clock, &limit, &key).await.expect("a guard always answers");
            if number % 10 == 0 {
                answer = spend(&store, &clock, &limit, b"damaged").await.expect("a guard always answers");
                return (true, answer);
            }
            (false, answer)
        });
    }
    let answers = tasks.join_all().await;
    for (_, answer) in answers.iter().filter(|(damaged, _)| !damaged) {
        assert_eq!((answer.allowed, answer.degraded), (true, None), "another key is affected");
    }
    let damaged: Vec<_> =
        answers.iter().filter(|(damaged, _)| *damaged).map(|(_, answer)| answer.degraded).collect();
    assert!(damaged.iter().all(|degraded| *degraded == damaged[0]), "{damaged:?}");
    damaged[0]
}

/// One key of 200: the breaker opened for all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_03_a_damaged_key_is_trouble_of_that_key_alone() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let config = || patient(RedisConfig::single("127.0.0.1", server.port));
    let deadline = std::time::Duration::from_secs(60);
    let (store, guard) = guarded(config(), GuardConfig { deadline, ..GuardConfig::default() });
    let (store, exact) = (Arc::new(store), bare(config()));
    // Text of a foreign program, another type, and each algorithm's tag with a state cut short, or with
    // a time that is not a number or is infinite.
    let mut damages = vec![
        "redis.call('SET', KEYS[1], 'hello')".to_owned(),
        "redis.call('SET', KEYS[1], '')".to_owned(),
        "redis.call('LPUSH', KEYS[1], 'hello')".to_owned(),
    ];
    for tag in 1..=7 {
        damages.push(format!("redis.call('SET', KEYS[1], string.char({tag}) .. 'xyz')"));
    }
    for limit in crate::redis::exactness::every_limit() {
        let limit = Arc::new(limit);
        server.command(&["FLUSHALL"]);
        assert_eq!(ask_all(&store, clock, &limit).await, None);
        let mut left = remaining(&exact, &clock, &limit, &1_u64.to_be_bytes()).await;
        for damage in &damages {
            let names = server.command(&["KEYS", "*damaged*"]);
            let name = names.lines().next().expect("it has a key").to_owned();
            server.command(&["EVAL", &format!("redis.call('DEL', KEYS[1]) {damage}"), "1", &name]);
            let found = guard.stats();
            assert_eq!(ask_all(&store, clock, &limit).await, Some(Degraded::Local), "{damage}");
            let stats = guard.stats();
            assert!(stats.unreadable >= found.unreadable + OTHERS / 10, "{stats:?}");
            assert_eq!((stats.opened, stats.failures), (0, 0), "{damage}: {stats:?}");
            left -= 1;
            let others = remaining(&exact, &clock, &limit, &1_u64.to_be_bytes()).await;
            assert_eq!(others, left, "another key is charged once: {damage}, {limit:?}");
            server.command(&["DEL", &name]);
            let answer = spend_all(&store, &clock, &[charge(&limit, b"damaged", 1)]).await.unwrap();
            assert_eq!(answer.degraded, None, "it is deleted: {damage}");
        }
    }
}
