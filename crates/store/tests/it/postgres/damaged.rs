//! A row that holds what nothing here wrote, among others that are as they should be; and connections that
//! are opened ahead.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::{FixedWindow, Limit, PermitId};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::postgres::Postgres;
use tidegate_store::shared::Shared;
use tidegate_store::{Answer, Degraded, Intent};
use tidegate_testkit::postgres::PostgresServer;

use super::{charge, config, hourly};

fn guarded(server: &PostgresServer) -> Guard {
    let store = Shared::Postgres(Postgres::start(config(server)));
    Guard::new(store, GuardConfig { deadline: Duration::from_secs(60), ..GuardConfig::default() })
}

async fn ask(guard: &Guard, limit: &Limit, key: &[u8]) -> Answer {
    let mut answer = Answer::default();
    let intent = Intent::Spend(PermitId(1));
    guard.decide(Now::at(SECOND), &[charge(limit, key, 1)], intent, &mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_a_damaged_row_is_trouble_of_that_key_alone() {
    let server = PostgresServer::start(&[]);
    let guard = guarded(&server);
    for limit in [hourly(100), Limit::FixedWindow(FixedWindow { limit: 100, seconds: 86_400 * 90 })] {
        let limit = Arc::new(limit);
        guard.open(Duration::from_secs(60)).await.expect("it is there");
        server.sql("TRUNCATE tidegate.counters");
        assert_eq!(ask(&guard, &limit, b"damaged").await.degraded, None);
        // A bucket without an interval: what is used of it is a division by zero.
        server.sql("UPDATE tidegate.counters SET kind = 1, b = 0, expires = 9000000000000000000");
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..200_u64 {
            let (guard, limit) = (guard.clone(), Arc::clone(&limit));
            tasks.spawn(async move {
                let answer = ask(&guard, &limit, &number.to_be_bytes()).await;
                assert_eq!((answer.allowed, answer.degraded), (true, None), "another key is affected");
                if number % 10 == 0 {
                    let answer = ask(&guard, &limit, b"damaged").await;
                    assert_eq!(answer.degraded, Some(Degraded::Local));
                }
            });
        }
        tasks.join_all().await;
        let stats = guard.stats();
        assert_eq!((stats.opened, stats.failures), (0, 0), "{stats:?}");
        assert!(stats.unreadable >= 20, "{stats:?}");
        assert_eq!(server.sql("SELECT count(*) FROM tidegate.counters").trim(), "201");
        assert_eq!(ask(&guard, &limit, &1_u64.to_be_bytes()).await.verdicts[0].remaining, 98, "charged once");
        server.sql("DELETE FROM tidegate.counters WHERE key = 'damaged'");
        assert_eq!(ask(&guard, &limit, b"damaged").await.degraded, None, "it is deleted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_open_before_the_first_request() {
    let server = PostgresServer::start(&[]);
    let guard = guarded(&server);
    guard.open(Duration::from_secs(60)).await.expect("it is there");
    let opened = server.clients();
    assert_eq!(opened.len(), 2, "{opened:?}");
    let limit = hourly(100);
    for number in 0..20_u8 {
        assert_eq!(ask(&guard, &limit, &[number]).await.degraded, None);
    }
    assert_eq!(server.clients(), opened, "the same connections");
}
