//! A row that somebody else has locked, and a server that stands still: what is given up here must not go
//! on there.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::{Bucket, FixedWindow, Limit, SlidingLog};
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::postgres::{Postgres, PostgresConfig};
use tidegate_store::shared::Shared;
use tidegate_store::{Answer, Intent};
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

use super::{bare, charge, config, hourly, remaining, spend};

/// Another session's lock on a counter, held until it is released. Then the session may change the counter before it ends.
pub(crate) struct RowLock {
    server: Arc<PostgresServer>,
    holder: Option<std::thread::JoinHandle<String>>,
}

impl RowLock {
    fn take(server: &Arc<PostgresServer>, key: &str) -> Self {
        Self::take_and(server, key, "SELECT 1")
    }

    /// `last` is done before the lock ends.
    pub(crate) fn take_and(server: &Arc<PostgresServer>, key: &str, last: &str) -> Self {
        server.sql("CREATE TABLE IF NOT EXISTS released (at int); TRUNCATE released");
        let hold = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT 1 FROM tidegate.counters WHERE key = '{key}' FOR UPDATE; \
             SELECT pg_advisory_xact_lock(7); \
             DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM released) LOOP PERFORM pg_sleep(0.005); END LOOP; \
             END $$; {last}; COMMIT"
        );
        let holder = std::thread::spawn({
            let server = Arc::clone(server);
            move || server.sql(&hold)
        });
        // Taken after the row.
        let held = "SELECT count(*) FROM pg_locks WHERE granted AND locktype = 'advisory' AND objid = 7";
        while server.sql(held).trim() == "0" {
            assert!(!holder.is_finished(), "the row cannot be locked");
        }
        Self { server: Arc::clone(server), holder: Some(holder) }
    }

    pub(crate) fn release(mut self) {
        self.server.sql("INSERT INTO released VALUES (1)");
        self.holder.take().expect("it is released once").join().expect("psql ends");
    }
}

pub(crate) fn count(server: &PostgresServer, which: &str) -> u64 {
    let sql =
        format!("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND {which}");
    server.sql(&sql).trim().parse().expect("a count")
}

/// 200 requests a second for a key whose row is locked: 91 backends waited after 14 s, when a statement that
/// timed out was left to itself, and then the server took no more clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_07_a_locked_row_leaves_no_backends_waiting() {
    let server = Arc::new(PostgresServer::start(&[]));
    let limit = Arc::new(hourly(100_000));
    let patient = bare(config(&server));
    spend(&patient, &limit, b"locked").await.expect("an answer");
    let production = PostgresConfig::parse(&server.connection_string()).expect("a connection string");
    let guard = Guard::new(Shared::Postgres(Postgres::start(production)), GuardConfig::default());
    let lock = RowLock::take(&server, "locked");
    let start = Instant::now();
    let ask = |guard: Guard, limit: Arc<_>| async move {
        let now = Now::at(SECOND + u64::try_from(start.elapsed().as_nanos()).expect("small"));
        let mut answer = Answer::default();
        let intent = Intent::Spend(tidegate_algorithms::limit::PermitId(1));
        guard.decide(now, &[charge(&limit, b"locked", 1)], intent, &mut answer).await;
        answer.degraded
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let mut most = 0;
    for number in 0..1_000 {
        ticks.tick().await;
        tokio::spawn(ask(guard.clone(), Arc::clone(&limit)));
        if number % 50 == 49 {
            let waiting = tokio::task::block_in_place(|| count(&server, "wait_event_type = 'Lock'"));
            most = most.max(waiting);
        }
    }
    assert!(guard.stats().failures > 0, "nobody met the lock");
    // One for each connection, and one more for each that this machine's pauses made it replace.
    assert!(most <= 4, "{most} backends waited at once");
    tokio::task::block_in_place(|| lock.release());
    while ask(guard.clone(), Arc::clone(&limit)).await.is_some() {
        ticks.tick().await;
        assert!(start.elapsed() < Duration::from_secs(120), "the store is not asked again");
    }
}

/// What another session does with a counter before it lets it go: it spends under a limit of this kind and these numbers.
fn spend_by_function(key: &str, kind: u8, [a, b]: [u64; 2], cost: u64) -> String {
    format!(
        "SELECT tidegate.decide(ARRAY['{key}'::bytea], ARRAY[{kind}], ARRAY[{a}::bigint], ARRAY[{b}::bigint], \
         ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[0::bigint], ARRAY[1], ARRAY[1::bigint], ARRAY[1], ARRAY[1], ARRAY[1], \
         ARRAY[{cost}::bigint], ARRAY[true], NULL, NULL)"
    )
}

/// A call asks for a counter, waits for its row, and gets it after another session that asked later has spent. Its time is
/// read after the wait, in each of the statements: what the other spent is not given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_56_a_call_that_waited_for_its_row_gives_nothing_back() {
    let server = Arc::new(PostgresServer::start(&[]));
    let store = Arc::new(bare(config(&server)));
    spend(&store, &hourly(1), b"first").await.expect("the schema is made");
    let row = |what: &str| server.sql(&format!("SELECT {what} FROM tidegate.counters WHERE key = 'locked'"));
    let waited = async |limit: Limit, last: String, what: &str| {
        server.sql("DELETE FROM tidegate.counters");
        spend(&store, &limit, b"locked").await.expect("an answer");
        server.sql("CREATE TABLE IF NOT EXISTS noted (row text); TRUNCATE noted");
        let note = format!("INSERT INTO noted SELECT {what} FROM tidegate.counters WHERE key = 'locked'");
        let lock = RowLock::take_and(&server, "locked", &format!("{last}; {note}"));
        let asked = tokio::spawn({
            let (store, limit) = (Arc::clone(&store), limit.clone());
            async move { spend(&store, &limit, b"locked").await }
        });
        tokio::task::block_in_place(|| {
            while count(&server, "wait_event_type = 'Lock'") == 0 {
                assert!(!asked.is_finished(), "it does not wait");
            }
            lock.release();
        });
        let answer = asked.await.expect("no panic").expect("an answer");
        (answer.allowed, server.sql("SELECT row FROM noted").trim().to_owned(), row(what).trim().to_owned())
    };

    // A bucket that is emptied: with an older time its debt would be cut to its capacity from there.
    let bucket = Bucket { interval: 3_600 * SECOND, burst: 10 };
    let emptied = spend_by_function("locked", 1, [bucket.interval, bucket.burst], 9);
    let (allowed, before, after) = waited(Limit::TokenBucket(bucket), emptied, "a::text").await;
    assert_eq!((allowed, after), (false, before));
    // A log, which the function decides: its times stay in order.
    let log = Limit::SlidingLog(SlidingLog { limit: 100, window: 3_600 * SECOND });
    let in_order = "(ticks = ARRAY(SELECT unnest(ticks) ORDER BY 1))::text || cardinality(ticks)";
    let spent = spend_by_function("locked", 4, [100, 3_600 * SECOND], 1);
    let (allowed, before, after) = waited(log, spent, in_order).await;
    assert_eq!((allowed, &*before, &*after), (true, "true2", "true3"));
    // A window that began while the call waited, and is used up: of the end and the count nothing goes back.
    let window = Limit::FixedWindow(FixedWindow { limit: 10, seconds: 1 });
    // A cast to an integer rounds, and windows begin with whole seconds.
    let next = "DO $$ DECLARE began numeric := floor(extract(epoch FROM clock_timestamp())); BEGIN \
                WHILE floor(extract(epoch FROM clock_timestamp())) <= began LOOP PERFORM pg_sleep(0.001); END LOOP; END $$";
    let used_up = format!("{next}; {}", spend_by_function("locked", 3, [10, 1], 10));
    let (_, before, after) = waited(window, used_up, "a || ' ' || b").await;
    let numbers =
        |text: &str| -> Vec<u64> { text.split(' ').map(|one| one.parse().expect("numbers")).collect() };
    let (before, after) = (numbers(&before), numbers(&after));
    assert_eq!(before[1], 10, "used up");
    assert!(after[0] > before[0] || after == before, "{before:?} became {after:?}");
}

/// A call reads its clock and waits for the store until its deadline; by then the fallback has decided one that read its
/// clock later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_56_a_call_that_waited_to_its_deadline_gives_the_fallback_nothing_back() {
    let server = PostgresServer::start(&[]);
    server.server.freeze();
    let store = Shared::Postgres(Postgres::start(config(&server)));
    let guard =
        Guard::new(store, GuardConfig { deadline: Duration::from_millis(100), ..GuardConfig::default() });
    let bucket = Limit::TokenBucket(Bucket { interval: SECOND, burst: 10 });
    let ask = async |at: u64, cost: u64| {
        let mut answer = Answer::default();
        let intent = Intent::Spend(tidegate_algorithms::limit::PermitId(1));
        guard.decide(Now::at(at * SECOND), &[charge(&bucket, b"key", cost)], intent, &mut answer).await;
        assert!(answer.degraded.is_some(), "the store does not answer");
        answer
    };
    assert!(ask(1_020, 10).await.allowed);
    assert!(!ask(1_015, 1).await.allowed);
    assert_eq!(ask(1_020, 0).await.verdicts[0].remaining, 0);
    server.server.thaw();
}

/// The server says that it has cancelled the statement; that charged nothing, and the connection goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_statement_charges_nothing() {
    let server = Arc::new(PostgresServer::start(&[]));
    let limit = hourly(100);
    let mut quick = config(&server);
    quick.connections = 1;
    quick.response_timeout = Duration::from_millis(300);
    let store = bare(quick);
    let patient = bare(config(&server));
    spend(&patient, &limit, b"locked").await.expect("an answer");
    // The first answer may be late where the machine stands still.
    while spend(&store, &limit, b"free").await.is_err() {}
    let before = server.clients();
    let lock = RowLock::take(&server, "locked");
    let error = spend(&store, &limit, b"locked").await.expect_err("the row is locked");
    assert!(error.to_string().contains("57014"), "{error}");
    tokio::task::block_in_place(|| lock.release());
    assert_eq!(server.clients(), before, "the same connections");
    assert_eq!(remaining(&patient, &limit, b"locked").await, 99, "charged once, by the patient one");
}

/// A session that is given up while the server owes it an answer does not stay open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_given_up_is_closed() {
    let server = PostgresServer::start(&[]);
    let place = tidegate_postgres::Place::parse(&server.connection_string()).expect("a connection string");
    let session = place.connect(|_, _| {}).await.expect("a connection");
    let asked = session.query_one("SELECT pg_sleep(600)", &[]);
    assert!(tokio::time::timeout(Duration::from_millis(100), asked).await.is_err());
    drop(session);
    // The server looks at the socket only between statements, so the statement itself has to be ended;
    // what is tested is that the socket is closed, which /proc of this process says.
    let port = format!(":{:04X}", server.port);
    let open = || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
        // 01: established. The remote address is the third column.
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(2);
            words.next().is_some_and(|remote| remote.ends_with(&port)) && words.next() == Some("01")
        })
    };
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    while open() {
        ticks.tick().await;
        assert!(start.elapsed() < Duration::from_secs(60), "the socket is still open");
    }
}
