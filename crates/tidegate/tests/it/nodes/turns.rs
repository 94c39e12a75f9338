//! Many writers at two nodes, and a node that stands still in the middle of a change.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;

use crate::nodes::node;
use crate::support::{Tidegate, agent};

/// Writers at each node, and how often each changes the override of a client of its own.
const WRITERS: u64 = 8;
const CHANGES: u64 = 40;

/// The lock that a node holds while it changes something.
const LOCK: &str = "SELECT pg_advisory_xact_lock(8388346167577309804)";

/// Puts the limit of a client; the reply's status and body, and its `Retry-After`.
fn put(agent: &ureq::Agent, node: &Tidegate, client: &str, limit: u64) -> (u16, String, Option<String>) {
    let request = agent.put(node.url(&format!("/v1/clients/{client}/limits")));
    let mut reply = request.send_json(json!({ "default": { "limit": limit } })).unwrap();
    let retry_after = reply.headers().get("retry-after").map(|it| it.to_str().unwrap().to_owned());
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap(), retry_after)
}

fn nodes(server: &PostgresServer) -> [Tidegate; 2] {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let file = "[[policy]]\nname = \"default\"\nlimit = 100\nwindow_seconds = 60\nkey = [\"client_id\"]\n";
    // Counters stay here, so that only the configuration is shared.
    let start = || node(file, &[("TIDEGATE_CONTROL", &url)]);
    [start(), start()]
}

/// A session that executes this in a transaction and then leaves it open, as a node does that stands still.
fn stand_still(server: &PostgresServer, statement: &str) -> Child {
    let mut psql = Command::new("psql");
    let port = server.port.to_string();
    psql.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", "postgres", "-XAtq"]);
    psql.args(["-c", &format!("BEGIN; {statement}; SELECT pg_sleep(600)")]);
    let child = psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").trim() != "1" {}
    child
}

fn go_away(server: &PostgresServer, mut child: Child) {
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    child.wait().unwrap();
}

/// Of a hundred changes one was answered 503, since the other node had always stored something first.
#[test]
fn fault_20_eight_writers_at_each_of_two_nodes_are_all_answered_200_and_lose_nothing() {
    let server = PostgresServer::start(&[]);
    let nodes = nodes(&server);
    thread::scope(|scope| {
        for writer in 0..2 * WRITERS {
            let node = &nodes[usize::from(writer >= WRITERS)];
            scope.spawn(move || {
                let agent = agent();
                for limit in 1..=CHANGES {
                    let (status, said, _) = put(&agent, node, &format!("writer-{writer}"), limit);
                    assert_eq!(status, 200, "{limit} of writer {writer}: {said}");
                }
            });
        }
    });
    let audit = agent().get(nodes[1].url("/v1/audit?limit=1000")).call().unwrap();
    let rows: Vec<Value> = audit.into_body().read_json().unwrap();
    let mut revisions: Vec<_> = rows.iter().map(|row| row["revision"].as_u64().unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=2 * WRITERS * CHANGES).collect::<Vec<_>>(), "each is there, once");
    let mut of_writers: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for row in &rows {
        let limit = row["after"]["default"]["limit"].as_u64().unwrap();
        let change = (row["revision"].as_u64().unwrap(), limit);
        of_writers.entry(row["name"].as_str().unwrap()).or_default().push(change);
    }
    assert_eq!(of_writers.len() as u64, 2 * WRITERS);
    for (writer, mut changes) in of_writers {
        changes.sort_unstable();
        let limits: Vec<_> = changes.into_iter().map(|(_, limit)| limit).collect();
        assert_eq!(limits, (1..=CHANGES).collect::<Vec<_>>(), "{writer}");
    }
}

#[test]
fn fault_24_a_node_that_stands_still_in_a_change_keeps_no_other_from_changing() {
    let server = PostgresServer::start(&[]);
    let [a, b] = nodes(&server);
    let agent = agent();
    assert_eq!(put(&agent, &a, "c", 1).0, 200);
    // It has the turn, and has written nothing yet.
    let still = stand_still(&server, LOCK);
    for (limit, node) in (2..).zip([&a, &b, &a]) {
        let (status, said, _) = put(&agent, node, "c", limit);
        assert_eq!(status, 200, "{said}");
    }
    go_away(&server, still);
    // It has written the next revision, and what becomes of that is not known.
    let columns = "(revision, at_nanos, actor, action, kind, name, before, after)";
    let row = "(5, 0, '', 'put', 'override', 'd', NULL, '1')";
    let insert = format!("INSERT INTO tidegate_control.audit {columns} VALUES {row}");
    let still = stand_still(&server, &format!("{LOCK}; {insert}"));
    let (status, said, retry_after) = put(&agent, &b, "c", 5);
    assert_eq!((status, retry_after.as_deref()), (503, Some("1")), "{said}");
    // What was given up is not left to wait at the server.
    while server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").trim() != "0" {}
    go_away(&server, still);
    let (status, said, _) = put(&agent, &b, "c", 6);
    assert_eq!(status, 200, "{said}");
    a.signal("TERM");
    let ended = a.wait();
    assert!(ended.output.contains("another node takes long to change"), "{}", ended.output);
}
