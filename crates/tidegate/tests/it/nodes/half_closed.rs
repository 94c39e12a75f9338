//! A client that has sent its request and closes its side gets its reply, also where that waits for a store or a database.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;
use tidegate_testkit::{freeze_all, thaw_all};

use crate::nodes::node;
use crate::support::{Tidegate, agent};

const POLICY: &str = r#"{"limit":7,"window_seconds":60,"key":["client_id"]}"#;

/// Sends a request on a connection that then only listens.
fn half_closed(node: &Tidegate, line: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.http).unwrap();
    let head = format!("{line} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n", node.http);
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // The node has looked at its sockets since.
    assert_eq!(agent().get(node.url("/livez")).call().unwrap().status(), 200);
    stream
}

fn reply(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// It got no reply, and its change was called another node's.
#[test]
fn a_client_that_half_closes_gets_the_stores_answer_and_its_change_is_its_own() {
    let redis = RedisServer::start(&[]);
    let postgres = PostgresServer::start(&[]);
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let control = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
    let node = node("log.level = \"info\"\n", &[("TIDEGATE_STORE", &store), ("TIDEGATE_CONTROL", &control)]);

    redis.server.freeze();
    let waiting = half_closed(&node, "POST /v1/decisions", r#"{"attributes":{"client_id":"a"}}"#);
    redis.server.thaw();
    let decided = reply(waiting);
    assert!(decided.starts_with("HTTP/1.1 200") && decided.contains("\"allowed\":true"), "{decided}");
    assert!(!decided.contains("degraded"), "{decided}");

    let pids = postgres.clients();
    freeze_all(&pids);
    let waiting = half_closed(&node, "PUT /v1/policies/api", POLICY);
    thaw_all(&pids);
    let changed = reply(waiting);
    assert!(changed.starts_with("HTTP/1.1 200"), "{changed}");

    node.signal("TERM");
    let ended = node.wait();
    assert!(!ended.output.contains("of another node"), "{}", ended.output);
}
