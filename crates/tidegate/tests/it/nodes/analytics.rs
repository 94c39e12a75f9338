//! Requests of several nodes on one PostgreSQL are one answer, and what was counted while it was away is in it afterwards.

use serde_json::Value;
use tidegate_testkit::Signal;
use tidegate_testkit::postgres::PostgresServer;

use crate::nodes::{metric, node};
use crate::support::edge::until;
use crate::support::{Tidegate, agent};

const FILE: &str = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\ngateway.analytics_interval = \"1s\"\n\
                    route = [{ name = \"hello\", respond = { body = \"hello\" } }]\n";

fn start(server: &PostgresServer) -> Tidegate {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    node(FILE, &[("TIDEGATE_CONTROL", &url)])
}

fn greet(node: &Tidegate, times: usize) {
    for _ in 0..times {
        assert_eq!(agent().get(format!("http://{}/", node.gateway[0])).call().unwrap().status(), 200);
    }
}

/// What a node says of all requests since 1970: how many there were, and whether those of others are among them.
fn counted(node: &Tidegate) -> (u64, bool) {
    let mut reply = agent().get(node.url("/v1/analytics?from=1970-01-01")).call().unwrap();
    let answer: Value = reply.body_mut().read_json().unwrap();
    (answer["rows"][0]["requests"].as_u64().unwrap_or_default(), answer["complete"].as_bool().unwrap())
}

#[test]
fn requests_of_all_nodes_are_one_answer_and_an_outage_of_the_database_loses_none() {
    let mut server = PostgresServer::start(&[]);
    let nodes = [start(&server), start(&server)];
    greet(&nodes[0], 3);
    greet(&nodes[1], 5);
    for node in &nodes {
        until("both know of all", || counted(node) == (8, true));
        until("nothing waits", || metric(node, "tidegate_analytics_waiting_requests") == 0);
    }

    server.server.end(Signal::INT);
    for (node, times) in nodes.iter().zip([10, 20]) {
        greet(node, times);
        let own = times as u64;
        until("its own are known", || counted(node) == (own, false));
        assert_eq!(metric(node, "tidegate_analytics_waiting_requests"), own);
        let csv = agent().get(node.url("/v1/analytics?format=csv")).call().unwrap();
        assert_eq!(csv.status(), 503, "a table cannot say what it lacks");
    }

    server.restart();
    for node in &nodes {
        until("both know of all", || counted(node) == (38, true));
        assert_eq!(metric(node, "tidegate_analytics_lost_requests_total"), 0);
    }
    // A third node, which has counted nothing, knows as much; and what a node has not written yet, it writes at its end.
    let third = start(&server);
    assert_eq!(counted(&third), (38, true));
    let [first, second] = nodes;
    greet(&first, 2);
    until("they are counted", || counted(&first).0 >= 40);
    first.signal("TERM");
    assert!(first.wait().status.success());
    assert_eq!([&second, &third].map(counted), [(40, true); 2]);
}
