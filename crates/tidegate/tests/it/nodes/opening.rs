//! A shared store at the start of a node: open before requests come, or said to be away, and every answer
//! that is then given without it marked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

use crate::nodes::{allowed_of, metric, node};
use crate::support::{Tidegate, agent};

const POLICIES: &str = "[[policy]]\nname = \"api\"\nlimit = 100\nwindow_seconds = 60\nkey = [\"client_id\"]\n\
    [[policy]]\nname = \"jobs\"\nalgorithm = \"concurrency\"\nlimit = 5\nlease_seconds = 60\nkey = [\"job\"]\n";

fn page(node: &Tidegate, path: &str) -> (u16, String) {
    let mut reply = agent().get(node.url(path)).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

/// Nothing was asked of it yet, and its connections are there, with what they need.
#[test]
fn a_ready_node_has_opened_its_store() {
    let redis = RedisServer::start(&[]);
    let at = format!("redis://127.0.0.1:{}", redis.port);
    let one = node(POLICIES, &[("TIDEGATE_STORE", &at)]);
    let clients = redis.command(&["CLIENT", "LIST"]);
    let opened = clients.lines().filter(|line| line.contains("cmd=script|load") || line.contains("cmd=info"));
    assert_eq!(opened.count(), 2, "{clients}");
    assert_eq!(page(&one, "/readyz").0, 200);

    let postgres = PostgresServer::start(&[]);
    let at = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
    let other = node(POLICIES, &[("TIDEGATE_STORE", &at), ("TIDEGATE_CONTROL", "local")]);
    assert_eq!(postgres.clients().len(), 2);
    assert_eq!(page(&other, "/readyz").0, 200);
}

/// Of 40 first requests 40 were denied on PostgreSQL, where a policy is closed without its store: the node opened its
/// connections when it was asked. Here neither server takes a further connection once the node is ready.
#[test]
fn a_ready_nodes_first_answers_are_the_stores() {
    let closed = "[[policy]]\nname = \"api\"\nlimit = 100\nwindow_seconds = 60\nkey = [\"client_id\"]\n\
        on_store_failure = \"closed\"\n";
    let soon = ("TIDEGATE_SHARED_DEADLINE", "10s");

    let redis = RedisServer::start(&[]);
    let at = format!("redis://127.0.0.1:{}", redis.port);
    let one = node(closed, &[("TIDEGATE_STORE", &at), soon]);
    assert_eq!(page(&one, "/readyz").0, 200);
    // The node has two connections.
    assert!(redis.command(&["CONFIG", "SET", "maxclients", "2"]).contains("OK"));
    assert_eq!(allowed_of(&[&one], 40), 40);

    let postgres = PostgresServer::start(&[]);
    let at = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
    let other = node(closed, &[("TIDEGATE_STORE", &at), ("TIDEGATE_CONTROL", "local"), soon]);
    assert_eq!(page(&other, "/readyz").0, 200);
    // What a connection is told last, after its statements were prepared.
    let prepared = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' \
                    AND pid <> pg_backend_pid() AND query LIKE 'SET statement_timeout%'";
    assert_eq!(postgres.sql(prepared).trim(), "2");
    postgres.server.freeze();
    assert_eq!(allowed_of(&[&other], 40), 40);
    postgres.server.thaw();
}

/// It refilled limits in silence.
#[test]
fn a_redis_that_drops_keys_is_warned_of() {
    for (policy, warned) in [("allkeys-lru", true), ("volatile-random", true), ("noeviction", false)] {
        let redis = RedisServer::start(&["--maxmemory", "64mb", "--maxmemory-policy", policy]);
        let at = format!("redis://127.0.0.1:{}", redis.port);
        let node = node(POLICIES, &[("TIDEGATE_STORE", &at)]);
        node.signal("TERM");
        let ended = node.wait();
        let said = ended.output.contains("maxmemory-policy to noeviction");
        assert_eq!(said, warned, "{policy}: {}", ended.output);
    }
}

/// What RESP clients see of a node.
fn info(node: &Tidegate) -> String {
    resp(node, "INFO")
}

fn resp(node: &Tidegate, command: &str) -> String {
    let mut stream = TcpStream::connect(node.resp).unwrap();
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A permit for a job.
fn permit_of(node: &Tidegate, job: &str) -> String {
    let asked = json!({"attributes": {"job": job}});
    let mut reply = agent().post(node.url("/v1/permits")).send_json(&asked).unwrap();
    let reply: Value = reply.body_mut().read_json().unwrap();
    reply["permit"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

#[test]
fn a_store_that_is_away_at_the_start_is_said_and_every_answer_is_marked() {
    let options = ["--user", "user", "on", ">canary", "~*", "+@all"];
    let mut redis = RedisServer::start(&options);
    let at = format!("redis://user:canary@127.0.0.1:{}", redis.port);
    let granted = {
        let other = node(POLICIES, &[("TIDEGATE_STORE", &at)]);
        permit_of(&other, "a")
    };
    redis.server.kill();
    let node = node(POLICIES, &[("TIDEGATE_STORE", &at)]);
    let (status, short) = page(&node, "/readyz");
    assert!(status == 200 && short.contains("the counters' store does not answer"), "{short}");
    assert!(!short.contains("refused"), "addresses and errors are for those who ask: {short}");
    let (_, long) = page(&node, "/readyz?verbose");
    assert!(long.contains("refused") && long.contains(&redis.port.to_string()), "{long}");

    let asked = [
        agent().get(node.url("/v1/check")).call().unwrap(),
        agent()
            .post(node.url("/api/v1/ratelimit"))
            .send_json(json!({"client_id": "a", "resource": "r"}))
            .unwrap(),
        agent().post(node.url("/v1/decisions")).send_json(json!({"attributes": {"client_id": "a"}})).unwrap(),
    ];
    for reply in asked {
        let mark = reply.headers().get("tidegate-degraded").map(|mark| mark.to_str().unwrap().to_owned());
        assert_eq!(mark.as_deref(), Some("local"), "{reply:?}");
    }
    let said = info(&node);
    assert!(said.contains("store_answers:0"), "{said}");
    assert!(said.contains("degraded_answers:3"), "{said}");
    resp(&node, "CL.THROTTLE k 2 3 60");
    let said = info(&node);
    assert!(said.contains("degraded_answers:4"), "{said}");

    // What no answer can be made up for is to be asked again.
    let refund = json!({"attributes": {"client_id": "unknown"}});
    let reply = agent().post(node.url("/v1/refunds")).send_json(&refund).unwrap();
    assert_eq!((reply.status().as_u16(), reply.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    for request in [
        agent().post(node.url(&format!("/v1/permits/{granted}/renew"))).send_empty(),
        agent().delete(node.url(&format!("/v1/permits/{granted}"))).call(),
    ] {
        let mut reply = request.unwrap();
        let problem: Value = reply.body_mut().read_json().unwrap();
        assert_eq!(reply.status().as_u16(), 503, "{problem}");
        assert_eq!(reply.headers()["retry-after"].to_str().unwrap(), "1");
    }
    // A permit that was given out meanwhile is known here.
    let permit = permit_of(&node, "b");
    assert_eq!(agent().delete(node.url(&format!("/v1/permits/{permit}"))).call().unwrap().status(), 204);

    redis.restart();
    // The node may find by itself that the store is there, before anybody asks.
    while info(&node).contains("store_answers:0") {
        agent().get(node.url("/v1/check")).call().unwrap();
    }
    assert!(info(&node).contains("store_answers:1"));
    assert!(!page(&node, "/readyz").1.contains("does not answer"));
    assert_eq!(metric(&node, "tidegate_store_breaker_open"), 0);
    redis.server.kill();
    an_open_breaker_is_said(&node);
    drop(redis);
    node.signal("TERM");
    let ended = node.wait();
    assert!(ended.output.contains("the counters' store cannot be reached"), "{}", ended.output);
    assert!(ended.output.contains("the counters' store fails"), "{}", ended.output);
    assert!(!ended.output.contains("canary"), "{}", ended.output);
}

/// The store went away while the node serves: that is said as well, and why.
fn an_open_breaker_is_said(node: &Tidegate) {
    while metric(node, "tidegate_store_breaker_open") == 0 {
        agent().get(node.url("/v1/check")).call().unwrap();
    }
    let (short, long) = (page(node, "/readyz").1, page(node, "/readyz?verbose").1);
    assert!(short.contains("the counters' store does not answer"), "{short}");
    assert!(long.contains("the counters' store does not answer") && long.len() > short.len(), "{long}");
}

#[test]
fn more_memory_than_the_process_may_have_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.toml"), "[memory]\nmax_bytes = \"16 GiB\"\n").unwrap();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -v 8388608; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tidegate")]);
    let output = limited.args(["check", "t.toml"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("warning: memory.max_bytes is 16 GiB"), "{said}");
    assert!(output.status.success(), "{said}");

    let file = "[memory]\nmax_bytes = \"15 GiB\"\nsnapshot = false\n";
    std::fs::write(folder.path().join("t.toml"), file).unwrap();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -v 16777216; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_tidegate")]);
    limited.args(["serve", "--config", "t.toml"]).stdin(Stdio::null());
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let node = Tidegate::spawn(folder, limited, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    node.signal("TERM");
    let ended = node.wait();
    assert!(ended.output.contains("memory.max_bytes is 15 GiB"), "{}", ended.output);
}
