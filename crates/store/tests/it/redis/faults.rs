//! Faults 1-3, 5, 9 and 24, produced on a real redis-server.

use std::time::Duration;

use tidegate_algorithms::limit::{
    Bucket, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots, Wait,
};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, SECOND};
use tidegate_store::guard::GuardConfig;
use tidegate_store::redis::config::{DecidingClock, RedisConfig};
use tidegate_store::{Answer, Charge, Counters, Degraded, Intent, StoreError};
use tidegate_testkit::SlowProxy;
use tidegate_testkit::redis::{RedisServer, command};

use crate::redis::blind::{assert_p99, assert_recovers, under_fault};
use crate::redis::node::{
    Clock, bare, charge, guarded, hourly, patient, recovery, remaining, spend, spend_all,
};

fn single(server: &RedisServer) -> RedisConfig {
    RedisConfig::single("127.0.0.1", server.port)
}

/// The store without a guard's deadline: what a busy machine delays is answered all the same.
fn exact(server: &RedisServer) -> Counters {
    bare(patient(single(server)))
}

/// Production's guard, of two nodes.
fn guard_config() -> GuardConfig {
    GuardConfig { instances: 2, ..GuardConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_01_redis_killed() {
    let mut server = RedisServer::start(&[]);
    let clock = Clock::start();
    let (store, guard) = guarded(single(&server), guard_config());
    let limit = hourly(100);
    recovery(&store, &clock, &limit).await;
    server.server.kill();
    let blind = under_fault(&store, &clock, &limit, b"client").await;
    assert_p99(&blind);
    assert_eq!(blind.admitted, 50, "this node's share of 100 between 2");
    assert_eq!(blind.degraded, 400, "every blind answer says so");
    let stats = guard.stats();
    assert!(stats.is_open && stats.opened >= 1 && stats.degraded_local >= 400, "{stats:?}");
    server.restart();
    assert_recovers(
        &store,
        &clock,
        &limit,
        |broken| {
            if broken { server.server.kill() } else { server.restart() }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_02_redis_frozen() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let (store, guard) = guarded(single(&server), guard_config());
    let limit = hourly(1_000);
    recovery(&store, &clock, &limit).await;
    spend(&exact(&server), &clock, &limit, b"client").await.unwrap();
    let before = guard.stats().failures;
    server.server.freeze();
    let blind = under_fault(&store, &clock, &limit, b"client").await;
    assert_p99(&blind);
    assert_eq!(blind.degraded, 400);
    let asked = guard.stats().failures - before;
    assert!(asked < 20 + blind.excused, "{asked} calls of 400 were let through to a dead store: {blind:?}");
    server.server.thaw();
    assert_recovers(&store, &clock, &limit, |broken| {
        if broken { server.server.freeze() } else { server.server.thaw() }
    })
    .await;
    // A call that was sent may have been charged once it thawed, and what was admitted blindly is charged
    // afterwards (decision 0055); none of the 400 is charged twice.
    let spent = 1_000 - remaining(&exact(&server), &clock, &limit, b"client").await;
    assert!((1..=1 + 400).contains(&spent), "{spent} spent, {asked} calls without an answer");
}

/// Two seconds more on the way, there and back: the same as a frozen store, and gone as fast.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_02_two_seconds_of_latency() {
    slow_store(|proxy| proxy.delay(Duration::from_secs(2)), |proxy| proxy.delay(Duration::ZERO)).await;
}

/// A kilobyte a second: the script alone would take ten to load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_02_a_kilobyte_a_second() {
    slow_store(|proxy| proxy.bandwidth(1_024), |proxy| proxy.bandwidth(0)).await;
}

async fn slow_store(slow: impl Fn(&SlowProxy), mend: impl Fn(&SlowProxy)) {
    let server = RedisServer::start(&[]);
    let proxy = SlowProxy::start(server.port);
    let clock = Clock::start();
    let (store, guard) = guarded(RedisConfig::single("127.0.0.1", proxy.port), guard_config());
    let limit = hourly(1_000);
    recovery(&store, &clock, &limit).await;
    let before = guard.stats();
    slow(&proxy);
    let blind = under_fault(&store, &clock, &limit, b"client").await;
    assert_p99(&blind);
    let seen = guard.stats();
    let degraded = blind.degraded;
    // The first bytes of a kilobyte may still be in time.
    assert!(degraded >= 390, "{degraded} of 400 say that they are blind");
    let asked = seen.failures - before.failures;
    assert!(asked < 20 + blind.excused, "{asked} calls of 400 were let through to a slow store: {blind:?}");
    mend(&proxy);
    assert_recovers(&store, &clock, &limit, |broken| if broken { slow(&proxy) } else { mend(&proxy) }).await;
    // As after a frozen store: none of the 400 is charged twice.
    let spent = 1_000 - remaining(&exact(&server), &clock, &limit, b"client").await;
    assert!(spent <= 400, "{spent} spent, {asked} calls without an answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_02_calls_in_flight_are_capped() {
    let mut server = RedisServer::start(&[]);
    let clock = Clock::start();
    // So long a deadline that those in flight stay there until everyone else has come.
    let config = GuardConfig { max_in_flight: 8, deadline: Duration::from_secs(120), ..guard_config() };
    let (store, guard) = guarded(patient(single(&server)), config);
    let limit = hourly(1_000);
    recovery(&store, &clock, &limit).await;
    let before = guard.stats();
    server.server.freeze();
    let (store, limit) = (std::sync::Arc::new(store), std::sync::Arc::new(limit));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (store, limit) = (store.clone(), limit.clone());
        tasks.spawn(async move { spend(&store, &clock, &limit, b"client").await.unwrap().degraded });
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while guard.stats().saturated - before.saturated < 92 && clock.elapsed() < Duration::from_secs(20) {
        ticks.tick().await;
    }
    // Those that are in flight hear of it.
    server.server.kill();
    assert!(tasks.join_all().await.iter().all(|degraded| *degraded == Some(Degraded::Local)));
    let stats = guard.stats();
    assert_eq!((stats.failures - before.failures, stats.saturated - before.saturated), (8, 92), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_policy_has_its_own_mode() {
    let mut server = RedisServer::start(&[]);
    let clock = Clock::start();
    let (store, guard) = guarded(single(&server), guard_config());
    let limit = hourly(10);
    server.server.kill();
    let with = |on_failure, key: &'static [u8]| Charge { on_failure, ..charge(&limit, key, 1) };
    let (open, closed) = (with(OnStoreFailure::Open, b"o"), with(OnStoreFailure::Closed, b"c"));
    let answer = spend_all(&store, &clock, &[open]).await.unwrap();
    assert_eq!((answer.allowed, answer.degraded), (true, Some(Degraded::Open)));
    let answer = spend_all(&store, &clock, &[closed, open]).await.unwrap();
    assert_eq!((answer.allowed, answer.degraded), (false, Some(Degraded::Closed)));
    let shadow = Charge { binding: false, ..closed };
    let answer = spend_all(&store, &clock, &[shadow, with(OnStoreFailure::Local, b"l")]).await.unwrap();
    assert_eq!((answer.allowed, answer.degraded), (true, Some(Degraded::Local)));
    assert_eq!(answer.verdicts[1].remaining, 4, "a share of 5");
    let stats = guard.stats();
    assert_eq!((stats.degraded_open, stats.degraded_closed, stats.degraded_local), (1, 1, 1));
    assert_eq!(stats.blind_units, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_03_out_of_memory_is_an_error_and_never_a_denial() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let store = bare(patient(single(&server)));
    let limit = hourly(100);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = spend(&store, &clock, &limit, b"client").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(why) if why.contains("OOM")), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 98, "the refused one was not charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_03_misconf_is_an_error_and_never_a_denial() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let store = bare(patient(single(&server)));
    let limit = hourly(100);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    // A snapshot cannot be written into a folder that is gone, and Redis then refuses writes.
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    std::fs::remove_dir_all(server.folder()).unwrap();
    server.command(&["BGSAVE"]);
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    while !server.command(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {
        ticks.tick().await;
    }
    let error = spend(&store, &clock, &limit, b"client").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(why) if why.contains("MISCONF")), "{error}");
    server.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 99);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_03_every_key_has_a_ttl() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let store = bare(patient(single(&server)));
    let seconds = 60;
    for (number, limit) in crate::redis::exactness::every_limit().into_iter().enumerate() {
        for key in 0..5_u8 {
            let name = [u8::try_from(number).unwrap(), key];
            for _ in 0..=key {
                spend(&store, &clock, &limit, &name).await.unwrap();
            }
        }
    }
    let bucket = Limit::TokenBucket(Bucket::new(1, 1, seconds * SECOND));
    spend(&store, &clock, &bucket, b"short").await.unwrap();
    let count = "local n = 0 for _, k in ipairs(redis.call('KEYS', '*')) do \
                 if redis.call('PTTL', k) < 0 then n = n + 1 end end return n";
    assert_eq!(server.command(&["EVAL", count, "0"]).trim(), "0", "keys without a TTL");
    assert_eq!(server.command(&["DBSIZE"]).trim(), "36");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_03_a_key_that_is_written_in_place_lives_as_long_as_it_says_something() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let store = bare(patient(single(&server)));
    let bucket = Limit::TokenBucket(Bucket::new(60, 60, 60 * SECOND));
    let lives = "return redis.call('PTTL', redis.call('KEYS', '*')[1])";
    for _ in 0..30 {
        spend(&store, &clock, &bucket, b"client").await.unwrap();
        let lives: u64 = server.command(&["EVAL", lives, "0"]).trim().parse().unwrap();
        // Both shrink alike, so the later look at the state is the lesser one.
        let says = 60 - remaining(&store, &clock, &bucket, b"client").await;
        assert!(lives >= (says - 1) * 1_000 + 5_000, "{lives} ms, and {says} units in use");
    }
    let statistics = server.command(&["INFO", "commandstats"]);
    let in_place = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_setrange:calls="));
    let in_place: u64 = in_place.and_then(|rest| rest.split(',').next()).unwrap().parse().unwrap();
    assert!(in_place >= 15, "{in_place} of 30 in place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_05_a_lost_script_is_loaded_again_and_charged_once() {
    let mut server = RedisServer::start(&[]);
    let clock = Clock::start();
    let store = bare(patient(single(&server)));
    let limit = hourly(100);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 98, "charged exactly once");
    server.server.kill();
    server.restart();
    // The connection is lost with the server: one call may say so, and is not repeated.
    while spend(&store, &clock, &limit, b"client").await.is_err() {}
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 99, "an empty server, charged once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_05_busy_is_an_error_and_the_script_is_left_alone() {
    let server = RedisServer::start(&["--busy-reply-threshold", "20"]);
    let clock = Clock::start();
    let store = bare(patient(single(&server)));
    let limit = hourly(100);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    let port = server.port;
    let endless = std::thread::spawn(move || {
        command(port, &["EVAL", "while true do end", "0"]);
    });
    while !server.command(&["PING"]).starts_with("BUSY") {}
    let error = spend(&store, &clock, &limit, b"client").await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(why) if why.contains("BUSY")), "{error}");
    assert!(server.command(&["PING"]).starts_with("BUSY"), "nobody killed it");
    server.command(&["SCRIPT", "KILL"]);
    endless.join().unwrap();
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 99);
}

/// What a server wrote whose clock was an hour ahead is read by one whose clock is right, as after a
/// failover. (libfaketime and redis-server's allocator do not work together, so the first server's
/// clock is given by the caller.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_09_the_stores_clock_jumps_back() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let ahead = bare(RedisConfig { clock: DecidingClock::Caller, ..patient(single(&server)) });
    let right = bare(patient(single(&server)));
    let seconds: u64 = server.command(&["TIME"]).lines().next().unwrap().parse().unwrap();
    for (number, limit) in every_limit(10).into_iter().enumerate() {
        let key = [u8::try_from(number).unwrap()];
        let mut answer = Answer::default();
        let an_hour_ahead = Now::at((seconds + 3_600) * SECOND);
        let charges = [charge(&limit, &key, 3)];
        ahead.decide(an_hour_ahead, &charges, Intent::Spend(PermitId(1)), &mut answer).await.unwrap();
        let mut answer = Answer::default();
        let charges = [charge(&limit, &key, 10)];
        right.decide(clock.now(), &charges, Intent::Peek, &mut answer).await.unwrap();
        let Wait::For(wait) = answer.verdicts[0].wait else { panic!("a free refill: {limit:?} {answer:?}") };
        assert!(wait <= longest(&limit), "{limit:?} locked out for {wait} ns");
    }
}

fn every_limit(quota: u64) -> Vec<Limit> {
    let bucket = Bucket::new(quota, quota, 60 * SECOND);
    vec![
        Limit::TokenBucket(bucket),
        Limit::LeakyBucket(bucket),
        Limit::FixedWindow(FixedWindow { limit: quota, seconds: 60 }),
        Limit::SlidingLog(SlidingLog { limit: quota, window: 60 * SECOND }),
        Limit::SlidingCounter(SlidingCounter { limit: quota, seconds: 60 }),
        Limit::Concurrency(Slots { limit: quota, lease: 60 * SECOND }),
    ]
}

/// The longest that a fresh full charge can make anyone wait.
fn longest(limit: &Limit) -> u64 {
    if matches!(limit, Limit::SlidingCounter(_)) { 120 * SECOND } else { 60 * SECOND }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_24_fifty_nodes_restart_at_once() {
    let server = RedisServer::start(&[]);
    let clock = Clock::start();
    let limit = std::sync::Arc::new(hourly(1_000));
    let mut config = patient(single(&server));
    config.connections = 1;
    let before = scripts_run(&server);
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (config, limit) = (config.clone(), limit.clone());
        nodes.spawn(async move {
            let store = bare(config);
            spend(&store, &clock, &limit, b"client").await.unwrap();
        });
    }
    nodes.join_all().await;
    let commands = scripts_run(&server) - before;
    assert!(commands <= 100, "{commands} commands for 50 decisions: a decision and a load each");
}

/// Decisions and loads so far.
fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:calls=")));
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("script|load")
}
