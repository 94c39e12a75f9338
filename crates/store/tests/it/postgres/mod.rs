//! The PostgreSQL store against a real server: exactness, and fault 7 really produced.

mod damaged;
mod locked;
mod plain;

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::{Limit, PermitId, SlidingLog};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::postgres::{Durability, Postgres, PostgresConfig};
use tidegate_store::shared::Shared;
use tidegate_store::{Answer, Charge, Counters, Degraded, Intent, StoreError};
use tidegate_testkit::Signal;
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

fn config(server: &PostgresServer) -> PostgresConfig {
    let mut config = PostgresConfig::parse(&server.connection_string()).expect("a connection string");
    config.response_timeout = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(60);
    config
}

fn bare(config: PostgresConfig) -> Counters {
    Counters::Shared(Shared::Postgres(Postgres::start(config)))
}

fn hourly(limit: u64) -> Limit {
    Limit::SlidingLog(SlidingLog { limit, window: 3_600 * SECOND })
}

fn charge<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
    Charge { limit, key, cost, binding: true, on_failure: OnStoreFailure::Local }
}

async fn decide(store: &Counters, now: Now, charges: &[Charge<'_>]) -> Result<Answer, StoreError> {
    let mut answer = Answer::default();
    store.decide(now, charges, Intent::Spend(PermitId(1)), &mut answer).await?;
    Ok(answer)
}

async fn spend(store: &Counters, limit: &Limit, key: &[u8]) -> Result<Answer, StoreError> {
    decide(store, Now::at(SECOND), &[charge(limit, key, 1)]).await
}

async fn remaining(store: &Counters, limit: &Limit, key: &[u8]) -> u64 {
    decide(store, Now::at(SECOND), &[charge(limit, key, 0)]).await.expect("an answer").verdicts[0].remaining
}

/// Three nodes ask for one key at once, and for pairs of keys in conflicting orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_three_nodes_one_key() {
    let server = PostgresServer::start(&[]);
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(bare(config(&server)))).collect();
    let (hot, wide) = (Arc::new(hourly(1_000)), Arc::new(hourly(4_000)));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..3_000_usize {
        let (node, hot, wide) = (Arc::clone(&nodes[number % 3]), Arc::clone(&hot), Arc::clone(&wide));
        tasks.spawn(async move {
            let mut charges = vec![charge(&hot, b"hot", 1)];
            match number % 4 {
                0 => charges.push(charge(&wide, b"a wide one", 1)),
                1 => charges.insert(0, charge(&wide, b"wide", 1)),
                _ => {}
            }
            let answer = decide(&node, Now::at(SECOND), &charges).await.expect("an answer");
            (answer.allowed, number % 4 < 2)
        });
    }
    let answers = tasks.join_all().await;
    let admitted = answers.iter().filter(|(allowed, _)| *allowed).count();
    assert_eq!(admitted, 1_000);
    let both = u64::try_from(answers.iter().filter(|(allowed, both)| *allowed && *both).count()).unwrap();
    let wide_spent =
        8_000 - remaining(&nodes[0], &wide, b"wide").await - remaining(&nodes[0], &wide, b"a wide one").await;
    assert_eq!(wide_spent, both, "all or nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_postgres_restart() {
    let mut server = PostgresServer::start(&[]);
    let store = bare(config(&server));
    let limit = hourly(100);
    for _ in 0..10 {
        spend(&store, &limit, b"client").await.unwrap();
    }
    // A fast shutdown ends connections with 57P01.
    server.server.end(Signal::INT);
    assert!(spend(&store, &limit, b"client").await.is_err());
    server.restart();
    spend(&store, &limit, b"client").await.expect("a new connection, without a restart of the node");
    assert_eq!(remaining(&store, &limit, b"client").await, 89, "counts survive a restart");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_a_terminated_connection_is_replaced() {
    let server = PostgresServer::start(&[]);
    let mut config = config(&server);
    config.connections = 1;
    let store = bare(config);
    let limit = hourly(100);
    spend(&store, &limit, b"client").await.unwrap();
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    // The end of an idle connection may be met by a call, which then says so.
    let mut lost = 0;
    while spend(&store, &limit, b"client").await.is_err() {
        lost += 1;
        assert!(lost < 3, "the connection is not replaced");
    }
    assert_eq!(remaining(&store, &limit, b"client").await, 98);
}

/// Another transaction holds the row and then wants one that the batch holds: a real deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_a_deadlock_is_repeated_and_charged_once() {
    // A backend looks for a deadlock once, so long after it began to wait: the other one must wait by then.
    let server = Arc::new(PostgresServer::start(&["deadlock_timeout=3s"]));
    let store = bare(config(&server));
    let limit = hourly(100);
    let both = [charge(&limit, b"a", 1), charge(&limit, b"b", 1)];
    decide(&store, Now::at(SECOND), &both).await.unwrap();
    let other = Arc::clone(&server);
    let opponent = std::thread::spawn(move || {
        // The opponent is patient, so the batch is the one that is rolled back.
        other.sql(
            "BEGIN; SET LOCAL deadlock_timeout = '300s'; \
             SELECT 1 FROM tidegate.counters WHERE key = 'b' FOR UPDATE; SELECT pg_advisory_xact_lock(7); \
             DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks l WHERE NOT l.granted) LOOP \
             PERFORM pg_sleep(0.005); END LOOP; END $$; \
             SELECT 1 FROM tidegate.counters WHERE key = 'a' FOR UPDATE; COMMIT",
        )
    });
    // Taken after the row: the table's own lock is taken before it.
    let held = "SELECT count(*) FROM pg_locks WHERE granted AND locktype = 'advisory' AND objid = 7";
    while server.sql(held).trim() == "0" {
        assert!(!opponent.is_finished(), "{:?}", opponent.join());
    }
    decide(&store, Now::at(SECOND), &both).await.expect("repeated after the deadlock");
    // It was not the one rolled back, so the batch was.
    opponent.join().unwrap();
    assert_eq!(remaining(&store, &limit, b"a").await, 98, "charged once");
    assert_eq!(remaining(&store, &limit, b"b").await, 98, "charged once");
}

/// Where transactions keep their snapshot, a row that another one changed meanwhile is 40001.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_a_serialization_failure_is_repeated_and_charged_once() {
    let server = Arc::new(PostgresServer::start(&["default_transaction_isolation=repeatable read"]));
    let store = Arc::new(bare(config(&server)));
    let limit = hourly(100);
    spend(&store, &limit, b"locked").await.unwrap();
    let change = "UPDATE tidegate.counters SET expires = expires WHERE key = 'locked'";
    let lock = locked::RowLock::take_and(&server, "locked", change);
    let asked = tokio::spawn({
        let (store, limit) = (Arc::clone(&store), limit.clone());
        async move { spend(&store, &limit, b"locked").await }
    });
    let rolled_back = || -> u64 {
        let count = "SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'";
        server.sql(count).trim().parse().unwrap()
    };
    let before = tokio::task::block_in_place(|| {
        while locked::count(&server, "wait_event_type = 'Lock'") == 0 {
            assert!(!asked.is_finished(), "it does not wait");
        }
        let before = rolled_back();
        lock.release();
        before
    });
    assert!(asked.await.unwrap().expect("repeated after the failure").allowed);
    assert_eq!(remaining(&store, &limit, b"locked").await, 98, "charged once");
    // Backends tell what they have counted when they are idle for a while.
    let start = Instant::now();
    while tokio::task::block_in_place(rolled_back) == before {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing was rolled back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_frozen_and_back() {
    let server = PostgresServer::start(&[]);
    let mut quick = config(&server);
    quick.response_timeout = Duration::from_millis(200);
    let store = Shared::Postgres(Postgres::start(quick));
    let guard =
        Guard::new(store, GuardConfig { deadline: Duration::from_millis(500), ..GuardConfig::default() });
    let start = Instant::now();
    let now = || Now::at(SECOND + u64::try_from(start.elapsed().as_nanos()).unwrap());
    let limit = hourly(100);
    let mut answer = Answer::default();
    let charges = [charge(&limit, b"client", 1)];
    let intent = Intent::Spend(PermitId(1));
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut took = Duration::MAX;
    // A machine that stops for a while is late once or twice, a guard that is late by itself each time.
    for _ in 0..10 {
        // On a connection, which can then be frozen.
        loop {
            guard.decide(now(), &charges, intent, &mut answer).await;
            if answer.degraded.is_none() {
                break;
            }
            ticks.tick().await;
        }
        // Every backend is a process of its own: the postmaster takes none that are new.
        let backends = server.clients();
        server.server.freeze();
        tidegate_testkit::freeze_all(&backends);
        for _ in 0..20 {
            guard.decide(now(), &charges, intent, &mut answer).await;
            assert_eq!(answer.degraded, Some(Degraded::Local));
        }
        tidegate_testkit::thaw_all(&backends);
        server.server.thaw();
        let thawed = Instant::now();
        while answer.degraded.is_some() {
            ticks.tick().await;
            guard.decide(now(), &charges, intent, &mut answer).await;
        }
        took = thawed.elapsed();
        if took <= Duration::from_secs(2) {
            return;
        }
    }
    panic!("recovered after {took:?}");
}

/// Ten nodes start at once on an empty database: one makes the schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_migrations_run_under_an_advisory_lock() {
    let server = PostgresServer::start(&[]);
    let limit = Arc::new(hourly(100));
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (mut config, limit) = (config(&server), Arc::clone(&limit));
        config.connections = 1;
        nodes.spawn(async move { spend(&bare(config), &limit, b"client").await.expect("an answer").allowed });
    }
    assert!(nodes.join_all().await.iter().all(|allowed| *allowed));
    assert_eq!(server.sql("SELECT count(*) FROM tidegate.migrations").trim(), "1");
    let spent = "SELECT totals[cardinality(totals)] - b FROM tidegate.counters";
    assert_eq!(server.sql(spent).trim(), "10");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_functions_of_an_older_version_are_replaced() {
    let server = PostgresServer::start(&[]);
    let limit = hourly(100);
    spend(&bare(config(&server)), &limit, b"client").await.unwrap();
    let body = "SELECT md5(prosrc) FROM pg_proc WHERE proname = 'used'";
    let current = server.sql(body);
    server.sql(
        "CREATE OR REPLACE FUNCTION tidegate.used(st tidegate.counters, now_ bigint, wall_ bigint) \
         RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 0::bigint'; \
         UPDATE tidegate.migrations SET version = version - 1",
    );
    assert_ne!(server.sql(body), current);
    assert_eq!(remaining(&bare(config(&server)), &limit, b"client").await, 99, "the rows stay");
    assert_eq!(server.sql(body), current);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_survives_a_crash_is_as_stated() {
    for (durability, expected) in [(Durability::Unlogged, 100), (Durability::Synchronous, 99)] {
        let mut server = PostgresServer::start(&["fsync=on"]);
        let mut config = config(&server);
        config.durability = durability;
        config.connections = 1;
        let store = bare(config);
        let limit = hourly(100);
        spend(&store, &limit, b"client").await.unwrap();
        server.crash();
        server.restart();
        while spend(&store, &limit, b"other").await.is_err() {}
        assert_eq!(remaining(&store, &limit, b"client").await, expected, "{durability:?}");
    }
}
