//! TLS, mTLS and an ACL user that may do only what the store needs: one server, Sentinels, a Cluster.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_store::StoreError;
use tidegate_store::guard::GuardConfig;
use tidegate_store::redis::config::{RedisConfig, Secret, TlsConfig, Topology};
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::redis::{RedisCluster, RedisServer, SentinelTrio};

use crate::redis::failover::{follows_a_moved_slot, local, spans_slots_all_or_nothing, until_answered};
use crate::redis::node::{Clock, bare, guarded, hourly, patient, recovery, remaining, spend};

/// The user's name and password.
const USER: (&str, &str) = ("tidegate", "correct-horse");

/// A node of that user with the first pair as its own.
fn secured(topology: Topology, certificates: &Certificates) -> RedisConfig {
    let read = |path: PathBuf| std::fs::read(path).expect("a scratch file");
    let key = Secret(String::from_utf8(read(certificates.key())).expect("PEM is text"));
    let mut config = patient(RedisConfig::new(topology));
    config.username = Some(USER.0.to_owned());
    config.password = Some(Secret(USER.1.to_owned()));
    config.tls = Some(TlsConfig {
        root: Some(read(certificates.authority())),
        client: Some((read(certificates.certificate()), key)),
    });
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_and_an_acl_user() {
    let certificates = Certificates::make();
    let server = RedisServer::start_with_tls(&certificates, &[]);
    server.add_user(USER.0, USER.1);
    let clock = Clock::start();
    let limit = hourly(100);
    let config = secured(Topology::Single(local(server.public_port())), &certificates);
    assert!(!format!("{config:?}").contains(USER.1), "a secret does not show");

    let store = bare(config.clone());
    spend(&store, &clock, &limit, b"client").await.unwrap();
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 99);

    let wrong = RedisConfig { password: Some(Secret("guess".to_owned())), ..config.clone() };
    let error = spend(&bare(wrong), &clock, &limit, b"client").await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    let anonymous = TlsConfig { client: None, ..config.tls.clone().unwrap() };
    let error =
        spend(&bare(RedisConfig { tls: Some(anonymous), ..config.clone() }), &clock, &limit, b"client").await;
    assert!(error.is_err(), "a client without a certificate");
    let stranger = TlsConfig {
        root: Some(std::fs::read(Certificates::make().authority()).unwrap()),
        ..config.tls.clone().unwrap()
    };
    let error = spend(&bare(RedisConfig { tls: Some(stranger), ..config }), &clock, &limit, b"client")
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
}

/// The first Sentinel that is asked does not answer, and the master changes under open connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_over_mutual_tls_are_followed_through_a_failover() {
    let certificates = Certificates::make();
    let trio = SentinelTrio::start_with_tls(&certificates);
    for server in [&trio.master, &trio.replica] {
        server.add_user(USER.0, USER.1);
    }
    trio.processes[2].freeze();
    let sentinels = trio.sentinels.iter().rev().map(|port| local(*port)).collect();
    let topology = Topology::Sentinel { sentinels, master: "mymaster".to_owned() };
    let mut config = secured(topology, &certificates);
    config.connect_timeout = Duration::from_secs(8);
    let (clock, limit, store) = (Clock::start(), hourly(100), bare(config));
    until_answered(&store, &clock, &limit, b"client").await;
    trio.fail_over();
    until_answered(&store, &clock, &limit, b"client").await;
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 98, "charged once on either");
    assert_eq!(trio.replica.command(&["DBSIZE"]).trim(), "1");
}

/// The first server that is asked for the slots does not answer, and callers wait for 10 ms only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_over_mutual_tls_is_found_past_a_server_that_does_not_answer() {
    let certificates = Certificates::make();
    let cluster = RedisCluster::start_with_tls(3, &certificates);
    cluster.servers.iter().for_each(|server| server.add_user(USER.0, USER.1));
    let seeds = cluster.servers.iter().rev().map(|server| local(server.public_port())).collect();
    let config = secured(Topology::Cluster { seeds }, &certificates);
    // A replica, so that every slot has its master all the same.
    cluster.servers[5].server.freeze();
    let mut hasty = config.clone();
    hasty.connect_timeout = Duration::from_millis(500);
    let (node, _) = guarded(hasty.clone(), GuardConfig::default());
    let clock = Clock::start();
    let mut waited = recovery(&node, &clock, &hourly(1_000_000)).await;
    // A machine that stands still may make a node late, not one after the other.
    for _ in 0..5 {
        if waited >= Duration::from_secs(5) {
            let (node, _) = guarded(hasty.clone(), GuardConfig::default());
            waited = recovery(&node, &clock, &hourly(1_000_000)).await;
        }
    }
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    cluster.servers[5].server.thaw();

    let node = bare(config);
    spans_slots_all_or_nothing(&node).await;
    follows_a_moved_slot(&cluster, &node).await;
}
