//! A candidate that one node is told of is judged by all, each on its own requests, and promoted for all.

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;

use crate::nodes::node;
use crate::support::edge::until;
use crate::support::{Tidegate, agent};

const FILE: &str = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n\
                    route = [{ name = \"hello\", respond = { body = \"old\" } }]\n";

fn hello(node: &Tidegate) -> String {
    let mut reply = agent().get(format!("http://{}/", node.gateway[0])).call().unwrap();
    reply.body_mut().read_to_string().unwrap()
}

/// How many requests a node has counted that would be answered otherwise; `None`: it judges nothing.
fn other_replies(node: &Tidegate) -> Option<u64> {
    let mut reply = agent().get(node.url("/v1/candidate")).call().unwrap();
    let found: Value = reply.body_mut().read_json().unwrap();
    found["judged"]["by_difference"]["other_reply"].as_u64()
}

#[test]
fn a_candidate_is_judged_by_every_node_and_promoted_for_all() {
    let server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let nodes = [(); 2].map(|()| node(FILE, &[("TIDEGATE_CONTROL", &url)]));
    let body = json!({"route": [{"name": "hello", "respond": {"body": "new"}}]});
    assert_eq!(agent().put(nodes[0].url("/v1/candidate")).send_json(&body).unwrap().status(), 200);
    for (node, times) in nodes.iter().zip([2, 3]) {
        until("it is judged", || other_replies(node) == Some(0));
        for _ in 0..times {
            assert_eq!(hello(node), "old");
        }
        assert_eq!(other_replies(node), Some(times));
    }
    assert_eq!(agent().post(nodes[1].url("/v1/candidate/promote")).send_empty().unwrap().status(), 200);
    assert_eq!(hello(&nodes[1]), "new");
    until("it is in force at the other", || hello(&nodes[0]) == "new");
    for node in &nodes {
        assert_eq!(agent().get(node.url("/v1/candidate")).call().unwrap().status(), 404);
    }
}
