//! Policies that are stored in PostgreSQL: changed at one node, in force at all; and what happens
//! without the database.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::Signal;
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

use crate::nodes::{metric, node};
use crate::support::{Tidegate, agent};

const EMPTY: &str = "# policies are stored\n";

fn nodes(server: &PostgresServer) -> [Tidegate; 2] {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    // Counters stay here, so that only the configuration is shared.
    let start = || node(EMPTY, &[("TIDEGATE_CONTROL", &url)]);
    [start(), start()]
}

/// Puts a policy; the reply's status, entity tag and body.
fn put(node: &Tidegate, limit: u64, if_match: &str) -> (u16, String, Value) {
    let document = json!({"name": "api", "limit": limit, "window_seconds": 60, "key": ["client_id"]});
    let request = agent().put(node.url("/v1/policies/api")).header("if-match", if_match);
    let mut reply = request.send_json(&document).unwrap();
    let tag = reply.headers().get("etag").map_or("", |tag| tag.to_str().unwrap()).to_owned();
    (reply.status().as_u16(), tag, reply.body_mut().read_json().unwrap())
}

fn limit_of(node: &Tidegate) -> Option<u64> {
    let mut reply = agent().get(node.url("/v1/policies/api")).call().unwrap();
    reply.body_mut().read_json::<Value>().unwrap()["limit"].as_u64()
}

/// How long until a node has a limit in force.
fn in_force_after(node: &Tidegate, limit: u64) -> Duration {
    let start = Instant::now();
    while limit_of(node) != Some(limit) {
        assert!(start.elapsed() < Duration::from_secs(60), "{limit} is not in force");
    }
    start.elapsed()
}

#[test]
fn a_policy_changed_at_one_node_is_in_force_at_the_other_within_a_second() {
    let server = PostgresServer::start(&[]);
    let [a, b] = nodes(&server);
    let (status, mut tag, reply) = put(&a, 1, "\"0\"");
    assert_eq!(status, 200, "{reply}");
    in_force_after(&b, 1);
    let mut waits = Vec::new();
    for limit in 2..=11 {
        // Entity tags are the same at every node, and turns are taken.
        let (from, other) = if limit % 2 == 0 { (&b, &a) } else { (&a, &b) };
        let stale = tag.clone();
        let (status, next, reply) = put(from, limit, &tag);
        assert_eq!(status, 200, "{reply}");
        tag = next;
        assert_eq!(put(other, 999, &stale).0, 412, "somebody else changed it first");
        waits.push(in_force_after(other, limit));
    }
    // A machine that stands still may be late once or twice.
    waits.sort();
    assert!(waits[waits.len() - 3] < Duration::from_secs(1), "{waits:?}");
    let audit: Value = agent().get(b.url("/v1/audit")).call().unwrap().body_mut().read_json().unwrap();
    assert_eq!(audit.as_array().unwrap().len(), 11, "{audit}");
}

/// Node b goes back to what a stored, while a goes on changing other things: each is whole at both.
#[test]
fn a_revision_that_one_node_goes_back_to_is_in_force_at_the_other_within_a_second() {
    let server = PostgresServer::start(&[]);
    let [a, b] = nodes(&server);
    assert_eq!(put(&a, 1, "\"0\"").0, 200);
    in_force_after(&b, 1);
    assert_eq!(put(&b, 2, "\"1\"").0, 200);
    let revert = |node: &Tidegate, body: Value| {
        let mut reply = agent().post(node.url("/v1/revert")).send_json(body).unwrap();
        (reply.status().as_u16(), reply.body_mut().read_json::<Value>().unwrap())
    };
    // What b knows counts, and a may have changed something that b has not heard of yet.
    assert_eq!(put(&a, 3, "\"2\"").0, 200);
    let (status, problem) = revert(&b, json!({"revision": 1, "if_newest": 2}));
    assert_eq!(status, 412, "{problem}");
    let (status, reply) = revert(&b, json!({"revision": 1, "if_newest": 3}));
    assert_eq!((status, &reply["revision"]), (200, &json!(4)), "{reply}");
    assert_eq!(limit_of(&b), Some(1));
    let waited = in_force_after(&a, 1);
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    let (status, reply) = revert(&a, json!({"revision": 0}));
    assert_eq!((status, &reply["changes"][0]["action"]), (200, &json!("delete")), "{reply}");
    let start = Instant::now();
    while limit_of(&b).is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "the policy stays at b");
    }
}

#[test]
fn without_the_database_the_last_revision_serves_and_both_catch_up() {
    let mut server = PostgresServer::start(&[]);
    let [a, b] = nodes(&server);
    let (status, tag, reply) = put(&a, 5, "\"0\"");
    assert_eq!(status, 200, "{reply}");
    in_force_after(&b, 5);

    server.server.end(Signal::INT);
    for node in [&a, &b] {
        let (status, _, problem) = put(node, 6, &tag);
        assert_eq!(status, 503, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("what is in force stays so"), "{detail}");
        assert_eq!(limit_of(node), Some(5));
        let asked = json!({"attributes": {"client_id": "c"}});
        let mut reply = agent().post(node.url("/v1/decisions")).send_json(&asked).unwrap();
        assert_eq!(reply.body_mut().read_json::<Value>().unwrap()["allowed"], true);
        while metric(node, "tidegate_control_reachable") == 1 {}
    }

    server.restart();
    for node in [&a, &b] {
        while metric(node, "tidegate_control_reachable") == 0 {}
    }
    let mut tag = tag;
    let waits = (7..=11).map(|limit| {
        let (status, next, reply) = put(&b, limit, &tag);
        assert_eq!(status, 200, "{reply}");
        tag = next;
        in_force_after(&a, limit)
    });
    // A machine that stands still may be late, not always.
    let waits: Vec<_> = waits.collect();
    assert!(waits.iter().any(|wait| *wait < Duration::from_secs(1)), "{waits:?}");
}

/// The database fails over to a server that lacks the newest revision, and the next change gets its number,
/// all while one node is out of contact: it knew the number, and kept the old policy for ever.
#[test]
fn fault_06_a_node_that_was_out_of_contact_drops_a_revision_that_the_database_lost() {
    let mut server = PostgresServer::start(&[]);
    let [a, b] = nodes(&server);
    let (status, tag, reply) = put(&a, 1, "\"0\"");
    assert_eq!(status, 200, "{reply}");
    server.back_up();
    while metric(&a, "tidegate_control_reachable") == 0 {}
    let (status, _, reply) = put(&a, 2, &tag);
    assert_eq!(status, 200, "{reply}");
    in_force_after(&b, 2);

    server.server.end(Signal::INT);
    server.go_back();
    let known_port = std::mem::replace(&mut server.port, tidegate_testkit::free_port());
    server.restart();
    let [c, d] = nodes(&server);
    assert_eq!(limit_of(&c), Some(1), "the newest revision is lost");
    let (status, _, reply) = put(&c, 3, &tag);
    assert_eq!(status, 200, "{reply}");
    in_force_after(&d, 3);
    assert_eq!([&a, &b, &c].map(|node| metric(node, "tidegate_control_revision")), [2, 2, 2]);
    drop([c, d]);

    server.server.end(Signal::INT);
    server.port = known_port;
    server.restart();
    for node in [&a, &b] {
        in_force_after(node, 3);
        assert_eq!(metric(node, "tidegate_control_replaced_total"), 1);
    }
    let (status, _, reply) = put(&b, 4, "\"2\"");
    assert_eq!(status, 200, "{reply}");
    in_force_after(&a, 4);
    a.signal("TERM");
    let ended = a.wait();
    assert!(ended.output.contains("has another history"), "{}", ended.output);
}

#[test]
fn a_node_that_starts_without_the_database_serves_its_copy_and_follows_later() {
    let mut server = PostgresServer::start(&[]);
    let [a, b] = nodes(&server);
    let (status, tag, reply) = put(&a, 5, "\"0\"");
    assert_eq!(status, 200, "{reply}");
    in_force_after(&b, 5);
    while metric(&b, "tidegate_control_copy_revision") < 1 {}
    b.signal("TERM");
    let (folder, ended) = b.wait_keeping_data();
    assert!(ended.status.success(), "{}", ended.output);

    server.server.end(Signal::INT);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_CONTROL", &url)];
    let b = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    assert_eq!(limit_of(&b), Some(5), "the last revision it knew");
    let (status, _, problem) = put(&b, 6, &tag);
    assert_eq!(status, 503, "{problem}");
    let mut ready = agent().get(b.url("/readyz")).call().unwrap();
    let said = ready.body_mut().read_to_string().unwrap();
    assert!(ready.status() == 200 && said.contains("this node's copy"), "{said}");
    let signs = |node: &Tidegate| {
        ["reachable", "from_copy", "revision"].map(|name| metric(node, &format!("tidegate_control_{name}")))
    };
    assert_eq!(signs(&b), [0, 1, 1]);

    server.restart();
    while metric(&a, "tidegate_control_reachable") == 0 {}
    let (status, _, reply) = put(&a, 7, &tag);
    assert_eq!(status, 200, "{reply}");
    in_force_after(&b, 7);
    assert_eq!(signs(&b), [1, 0, 2]);
    assert_eq!(
        agent().get(b.url("/readyz")).call().unwrap().body_mut().read_to_string().unwrap().find("degraded"),
        None
    );
    b.signal("TERM");
    let ended = b.wait();
    assert!(ended.output.contains("started from this node's copy"), "{}", ended.output);
}

#[test]
fn the_configuration_follows_a_store_in_postgres_and_says_so_when_there_is_none() {
    let server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let first = node(EMPTY, &[("TIDEGATE_STORE", &url)]);
    assert_eq!(put(&first, 3, "\"0\"").0, 200);
    first.signal("KILL");
    drop(first);
    let second = node(EMPTY, &[("TIDEGATE_STORE", &url)]);
    assert_eq!(limit_of(&second), Some(3), "nothing of it is in the first node's folder");

    let folder = tempfile::tempdir().unwrap();
    let nobody = tidegate_testkit::free_port();
    let mut serve = crate::support::binary();
    serve.arg("serve").current_dir(folder.path()).env("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0");
    serve.env("TIDEGATE_INTAKE_LISTEN", "off");
    serve.env("TIDEGATE_CONTROL", format!("postgres://u:canary@127.0.0.1:{nobody}/d"));
    let output = serve.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("cannot start: the configuration database cannot be used now"), "{said}");
    assert!(
        said.contains("nor the copy of its last revision, ./tidegate-data/control-copy.json: there is none"),
        "{said}"
    );
    assert!(said.contains("`--control local`"), "{said}");
    assert!(!output.status.success() && !said.contains("canary"), "{said}");
}
