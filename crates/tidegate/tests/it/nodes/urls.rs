//! Every form of `TIDEGATE_STORE`, against the real servers, through the built binary.

use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::{RedisCluster, RedisServer, SentinelTrio};

use crate::nodes::{allowed_of, node};

const POLICY: &str = "[[policy]]\nname = \"hot\"\nalgorithm = \"sliding_log\"\nlimit = 100\n\
                      window_seconds = 600\nkey = [\"client_id\"]\n";
/// Must not show anywhere.
const PASSWORD: &str = "canary-p%40ss";

/// Two nodes on `url` share one limit, and neither says a word about the password.
fn shared_by_two(url: &str) {
    let environment = [("TIDEGATE_STORE", url), ("TIDEGATE_LOG_LEVEL", "trace")];
    let nodes = [node(POLICY, &environment), node(POLICY, &environment)];
    assert_eq!(allowed_of(&[&nodes[0], &nodes[1]], 150), 100, "through both nodes");
    for node in nodes {
        node.signal("TERM");
        let ended = node.wait();
        assert!(ended.status.success() && !ended.output.contains("canary"), "{}", ended.output);
    }
}

/// The user and password of a URL, and the same for the servers.
const USER: (&str, &str) = ("limiter", "canary-p@ss");

/// The part of a URL behind its place.
fn query(certificates: &Certificates) -> String {
    let (ca, cert, key) = (certificates.authority(), certificates.certificate(), certificates.key());
    format!("?ca={}&cert={}&key={}", ca.display(), cert.display(), key.display())
}

/// `127.0.0.1:port` for each, with commas between.
fn places(ports: impl IntoIterator<Item = u16>) -> String {
    let places: Vec<_> = ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect();
    places.join(",")
}

/// Redis with TLS and an ACL user, and the part of a URL behind its place.
fn secured(certificates: &Certificates) -> (RedisServer, u16, String) {
    let server = RedisServer::start_with_tls(certificates, &[]);
    server.add_user(USER.0, USER.1);
    let port = server.public_port();
    (server, port, query(certificates))
}

#[test]
fn redis_with_tls_and_an_acl_user() {
    let certificates = Certificates::make();
    let (server, port, query) = secured(&certificates);
    shared_by_two(&format!("rediss://limiter:{PASSWORD}@127.0.0.1:{port}{query}"));
    assert!(server.command(&["KEYS", "tg:*"]).contains("hot"), "the counters are there");
}

#[test]
fn a_wrong_password_or_authority_is_no_store_and_does_not_show() {
    let certificates = Certificates::make();
    let (_server, port, query) = secured(&certificates);
    let stranger = Certificates::make();
    for url in [
        format!("rediss://limiter:canary-wrong@127.0.0.1:{port}{query}"),
        format!("rediss://limiter:{PASSWORD}@127.0.0.1:{port}?ca={}", stranger.authority().display()),
    ] {
        let node = node(POLICY, &[("TIDEGATE_STORE", &url), ("TIDEGATE_LOG_LEVEL", "trace")]);
        let explained = crate::nodes::explained(&node);
        assert_eq!(explained["degraded"], "local", "{explained}");
        node.signal("TERM");
        let ended = node.wait();
        assert!(ended.status.success() && !ended.output.contains("canary"), "{}", ended.output);
    }
}

#[test]
fn the_master_that_sentinels_name() {
    let trio = SentinelTrio::start();
    shared_by_two(&format!("redis-sentinel://{}/mymaster", places(trio.sentinels.clone())));
    assert!(trio.master.command(&["KEYS", "tg:*"]).contains("hot"), "the counters are there");
}

#[test]
fn sentinels_with_tls_and_an_acl_user() {
    let certificates = Certificates::make();
    let trio = SentinelTrio::start_with_tls(&certificates);
    trio.master.add_user(USER.0, USER.1);
    let (places, query) = (places(trio.sentinels.clone()), query(&certificates));
    shared_by_two(&format!("rediss-sentinel://limiter:{PASSWORD}@{places}/mymaster{query}"));
    assert!(trio.master.command(&["KEYS", "tg:*"]).contains("hot"), "the counters are there");
}

#[test]
fn a_cluster_found_through_any_of_its_servers() {
    let cluster = RedisCluster::start(3);
    // The first place is wrong, as after a move; the second is a replica.
    let places = places([free_port(), cluster.servers[5].port]);
    shared_by_two(&format!("redis-cluster://{places}"));
}

#[test]
fn a_cluster_with_tls_and_an_acl_user() {
    let certificates = Certificates::make();
    let cluster = RedisCluster::start_with_tls(3, &certificates);
    cluster.servers.iter().for_each(|server| server.add_user(USER.0, USER.1));
    let (places, query) = (places([cluster.servers[5].public_port()]), query(&certificates));
    shared_by_two(&format!("rediss-cluster://limiter:{PASSWORD}@{places}{query}"));
}

#[test]
fn postgres_with_tls() {
    let certificates = Certificates::make();
    let server = PostgresServer::start_with_tls(&certificates);
    server.sql("CREATE ROLE limiter SUPERUSER LOGIN PASSWORD 'canary-p@ss'");
    let (port, ca) = (server.port, certificates.authority().display().to_string());
    let url = format!("postgres://limiter:{PASSWORD}@127.0.0.1:{port}/postgres");
    shared_by_two(&format!("{url}?sslmode=verify-full&sslrootcert={ca}"));
    assert_eq!(server.sql("SELECT count(*) FROM tidegate.counters").trim(), "1");
}

#[test]
fn a_url_that_cannot_be_used_is_refused_at_start_without_being_shown() {
    for (url, said) in [
        ("redis-sentinel://u:canary@127.0.0.1:1", "names no master"),
        ("rediss://u:canary@127.0.0.1:1?ca=/nowhere", "as ca cannot be read: entity not found"),
        ("redis-cluster://u:canary@127.0.0.1:port", "an invalid port"),
        ("postgres://u:canary@127.0.0.1/db?sslmode=on", "sslmode is not one of"),
        ("postgres://u:canary@127.0.0.1/db?sslmode=require&sslrootcert=/nowhere", "sslrootcert"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = crate::support::binary();
        serve.arg("serve").current_dir(folder.path()).env("TIDEGATE_STORE", url);
        serve.env("TIDEGATE_INTAKE_LISTEN", "off");
        serve.env("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0").env("TIDEGATE_CONTROL", "local");
        let output = serve.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!output.status.success() && text.contains(said) && !text.contains("canary"), "{text}");
    }
}
