//! Faults 4 and 6, and fault 18 on a Cluster: what happens when another server takes over.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::{Bucket, Limit};
use tidegate_algorithms::time::SECOND;
use tidegate_store::redis::config::{Address, RedisConfig, Topology};
use tidegate_store::{Counters, StoreError};
use tidegate_testkit::redis::{RedisCluster, RedisServer, SentinelTrio, command};

use crate::redis::exactness::admitted;
use crate::redis::node::{Clock, bare, charge, hourly, patient, remaining, spend, spend_all};

pub(crate) fn local(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

fn sentinel_config(trio: &SentinelTrio) -> RedisConfig {
    let sentinels = trio.sentinels.iter().map(|port| local(*port)).collect();
    patient(RedisConfig::new(Topology::Sentinel { sentinels, master: "mymaster".to_owned() }))
}

fn cluster_config(cluster: &RedisCluster) -> RedisConfig {
    let seeds = cluster.servers.iter().map(|server| local(server.port)).collect();
    patient(RedisConfig::new(Topology::Cluster { seeds }))
}

/// Spends until an answer comes; how many calls had none. How long an election takes is the
/// Sentinels' affair, and on a busy machine they need several.
pub(crate) async fn until_answered(store: &Counters, clock: &Clock, limit: &Limit, key: &[u8]) -> u64 {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    for failures in 0..6_000 {
        if spend(store, clock, limit, key).await.is_ok() {
            return failures;
        }
        ticks.tick().await;
    }
    panic!("no server takes over");
}

/// The master becomes a replica under an open connection: `READONLY`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_04_readonly_is_followed_to_the_new_master() {
    let trio = SentinelTrio::start();
    let clock = Clock::start();
    let store = bare(sentinel_config(&trio));
    let limit = hourly(100);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    trio.fail_over();
    until_answered(&store, &clock, &limit, b"client").await;
    assert!(trio.replica.command(&["DBSIZE"]).trim() == "1");
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 98, "charged once on either");
}

/// A server that is a replica, and stays one, is an error after one repetition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_04_a_replica_is_an_error_and_never_a_denial() {
    let master = RedisServer::start(&[]);
    let replica = RedisServer::start(&["--replicaof", &format!("127.0.0.1 {}", master.port)]);
    while !replica.command(&["INFO", "replication"]).contains("master_link_status:up") {}
    let clock = Clock::start();
    let store = bare(patient(RedisConfig::single("127.0.0.1", replica.port)));
    let error = spend(&store, &clock, &hourly(100), b"client").await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable(why) if why.contains("ReadOnly")), "{error}");
}

/// Calls of the script that the server turned away so far, whether they were counted as rejected or as failed.
fn turned_away(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap_or_default();
    let counts = line.split(',').filter_map(|field| field.split_once('='));
    counts
        .filter(|(name, _)| name.ends_with("_calls"))
        .map(|(_, count)| count.parse::<u64>().expect("a number"))
        .sum()
}

/// A master that has lost its replicas, a replica that has lost its master, and a server that still loads its data say so
/// while that lasts. Each call is repeated once, charges nothing, and is answered when it is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_04_a_server_in_a_failover_is_an_error_after_one_repetition() {
    let options = ["--enable-debug-command", "local", "--key-load-delay", "0", "--save", ""];
    let server = RedisServer::start(&options);
    let clock = Clock::start();
    let store = bare(patient(RedisConfig::single("127.0.0.1", server.port)));
    let limit = hourly(100);
    spend(&store, &clock, &limit, b"client").await.unwrap();
    let set =
        |name: &str, value: &str| assert!(server.command(&["CONFIG", "SET", name, value]).contains("OK"));
    let refused = async |word: &str| {
        let before = turned_away(&server);
        let error = spend(&store, &clock, &limit, b"client").await.unwrap_err();
        assert!(matches!(&error, StoreError::Unreachable(why) if why.contains(word)), "{word}: {error}");
        before
    };

    set("min-replicas-to-write", "1");
    let before = refused("NOREPLICAS").await;
    assert_eq!(turned_away(&server) - before, 2, "asked, and asked again");
    set("min-replicas-to-write", "0");
    spend(&store, &clock, &limit, b"client").await.expect("a master again");

    // Nobody listens at this port. One that may be written to says this instead of READONLY.
    set("replica-serve-stale-data", "no");
    set("replica-read-only", "no");
    assert!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).contains("OK"));
    let before = refused("MasterDown").await;
    assert_eq!(turned_away(&server) - before, 2, "asked, and asked again");
    assert!(server.command(&["REPLICAOF", "NO", "ONE"]).contains("OK"));
    spend(&store, &clock, &limit, b"client").await.expect("a master again");

    for number in 0..100 {
        server.command(&["SET", &format!("other{number}"), &"x".repeat(2_048)]);
    }
    // 100 ms for each key, with a look at the sockets after each kilobyte. Compressed, these keys would be thirty to a kilobyte.
    set("rdbcompression", "no");
    set("key-load-delay", "100000");
    set("loading-process-events-interval-bytes", "1024");
    let port = server.port;
    let reload = std::thread::spawn(move || command(port, &["DEBUG", "RELOAD"]));
    while !server.command(&["PING"]).starts_with("LOADING") {
        assert!(!reload.is_finished(), "it was not seen to load");
    }
    refused("BusyLoading").await;
    assert!(!reload.is_finished(), "it loaded all the while");
    assert!(reload.join().unwrap().contains("OK"));
    spend(&store, &clock, &limit, b"client").await.expect("it is loaded");
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 96, "charged once each");
}

/// The master dies with writes that its replica never saw: at most one more limit is admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_06_counters_lost_in_a_failover() {
    let mut trio = SentinelTrio::start();
    let clock = Clock::start();
    let store = bare(sentinel_config(&trio));
    let limit = hourly(100);
    let mut admitted = 0;
    trio.replica.server.freeze();
    // Or the writes would wait in its socket, and be there after all.
    assert_eq!(trio.master.command(&["CLIENT", "KILL", "TYPE", "replica"]).trim(), "1");
    for _ in 0..150 {
        admitted += u64::from(spend(&store, &clock, &limit, b"client").await.unwrap().allowed);
    }
    assert_eq!(admitted, 100);
    trio.master.server.kill();
    trio.replica.server.thaw();
    until_answered(&store, &clock, &limit, b"other").await;
    for _ in 0..150 {
        admitted += u64::from(spend(&store, &clock, &limit, b"client").await.unwrap().allowed);
    }
    println!("fault 6: {admitted} admitted of a limit of 100, over a failover that lost every write");
    assert_eq!(admitted, 200, "the one more limit, and not more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_three_nodes_one_key_on_a_cluster() {
    let mut cluster = RedisCluster::start(3);
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(bare(cluster_config(&cluster)))).collect();
    let limit = Limit::TokenBucket(Bucket::new(1_000, 1_000, 90 * 86_400 * SECOND));
    assert_eq!(admitted(&nodes, &limit).await, 1_000);

    spans_slots_all_or_nothing(&nodes[0]).await;
    follows_a_moved_slot(&cluster, &nodes[0]).await;
    survives_the_loss_of_a_master(&mut cluster, &nodes[0]).await;
}

/// One request over keys in several slots: reserved, and rolled back when one denies.
pub(crate) async fn spans_slots_all_or_nothing(node: &Counters) {
    let clock = Clock::start();
    let (wide, narrow) = (hourly(100), hourly(2));
    let names: Vec<Vec<u8>> = (0..6).map(|number| format!("spread {number}").into_bytes()).collect();
    for round in 0..5 {
        let mut charges: Vec<_> = names.iter().map(|name| charge(&wide, name, 3)).collect();
        charges.push(charge(&narrow, b"narrow", 1));
        let answer = spend_all(node, &clock, &charges).await.expect("an answer");
        assert_eq!(answer.allowed, round < 2);
        assert_eq!(answer.verdicts.len(), 7);
        let left = if round < 2 { 97 - 3 * round } else { 94 };
        assert!(answer.verdicts[..6].iter().all(|verdict| verdict.remaining == left), "{answer:?}");
    }
    for name in &names {
        assert_eq!(remaining(node, &clock, &wide, name).await, 94, "a denial charged someone");
    }
}

/// A slot moves to another master: `MOVED`.
pub(crate) async fn follows_a_moved_slot(cluster: &RedisCluster, node: &Counters) {
    let clock = Clock::start();
    let limit = hourly(100);
    for number in 0..20_u8 {
        spend(node, &clock, &limit, &[number]).await.expect("an answer");
    }
    let from = cluster.master_of("tg:{00}:");
    let to = (0..3).find(|other| *other != from).expect("three masters");
    let id = |index: usize| cluster.servers[index].command(&["CLUSTER", "MYID"]).trim().to_owned();
    let slot = cluster.servers[0].command(&["CLUSTER", "KEYSLOT", "tg:{00}:"]).trim().to_owned();
    let target = id(to);
    cluster.servers[from].command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    // The slot's keys are lost with it here, which the test of the same name does not look at.
    for server in [to, from] {
        cluster.servers[server].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
    }
    for number in 0..=255_u8 {
        until_answered(node, &clock, &limit, &[b'm', number]).await;
    }
}

/// A master is killed and its replica takes over: `CLUSTERDOWN` in between.
async fn survives_the_loss_of_a_master(cluster: &mut RedisCluster, node: &Counters) {
    let limit = hourly(100);
    let master = cluster.master_of("tg:{07}:");
    cluster.servers[master].server.kill();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    // The election is the Cluster's affair; `master_of` gives up if there is none.
    while cluster.master_of("tg:{07}:") == master {
        ticks.tick().await;
    }
    let clock = Clock::start();
    for number in 0..=255_u8 {
        until_answered(node, &clock, &limit, &[b'k', number]).await;
    }
    assert!(clock.elapsed() < Duration::from_secs(30), "every slot is served again: {:?}", clock.elapsed());
}
