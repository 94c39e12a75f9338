//! API keys that are stored in PostgreSQL: issued and revoked at one node, in force at all.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::Instant;

use crate::node;
use crate::support::{Tidegate, agent};

const FILE: &str = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n\
    route = [{ name = \"api\", auth = \"key\", respond = { body = \"ok\" } }]\n";

fn status(node: &Tidegate, key: &str) -> u16 {
    let request = agent().get(format!("http://{}/", node.gateway[0])).header("x-api-key", key);
    request.call().unwrap().status().as_u16()
}

/// How long until a node answers so.
fn answers_after(node: &Tidegate, key: &str, expected: u16) -> Duration {
    let start = Instant::now();
    while status(node, key) != expected {
        assert!(start.elapsed() < Duration::from_secs(60), "{expected} is never answered");
    }
    start.elapsed()
}

#[test]
fn a_revoked_key_is_unknown_at_the_other_node_within_a_second() {
    let server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let [a, b] = [(); 2].map(|()| node(FILE, &[("TIDEGATE_CONTROL", &url)]));
    let mut waits = Vec::new();
    for (from, other) in [(&a, &b), (&b, &a)].into_iter().cycle().take(10) {
        let mut reply = agent().post(from.url("/v1/keys")).send_json(json!({"consumer": "acme"})).unwrap();
        let issued: Value = reply.body_mut().read_json().unwrap();
        let (id, key) = (issued["id"].as_str().unwrap(), issued["key"].as_str().unwrap());
        assert_eq!(status(from, key), 200, "in force when it is answered");
        answers_after(other, key, 200);
        let revoked = agent().delete(from.url(&format!("/v1/keys/{id}"))).call().unwrap().status();
        assert_eq!((revoked.as_u16(), status(from, key)), (204, 401));
        waits.push(answers_after(other, key, 401));
    }
    // A machine that stands still may be late once or twice.
    waits.sort();
    assert!(waits[waits.len() - 3] < Duration::from_secs(1), "{waits:?}");
}
