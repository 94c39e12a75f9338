//! Nodes by name: those that share a database are listed with what each says of itself, and those that are gone with when
//! they were seen last.

use std::process::Command;

use serde_json::{Value, json};
use tidegate_testkit::postgres::PostgresServer;
use tokio::time::{Duration, Instant};

use crate::nodes::node;
use crate::support::{Tidegate, agent, binary};

const EMPTY: &str = "# policies are stored\n";

fn nodes_of(asked: &Tidegate) -> Value {
    agent().get(asked.url("/v1/nodes")).call().unwrap().body_mut().read_json().unwrap()
}

/// What `asked` lists, once it is so.
fn listed(asked: &Tidegate, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let list = nodes_of(asked);
        let nodes = list["nodes"].as_array().unwrap();
        if list["current"] == true && is_so(nodes) {
            return nodes.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{list:#}");
    }
}

/// Names, and whether each is there.
fn names(nodes: &[Value]) -> Vec<(&str, bool)> {
    nodes.iter().map(|it| (it["name"].as_str().unwrap_or(""), it["present"] == true)).collect()
}

fn doctor(folder: &std::path::Path, url: &str) -> String {
    let mut command: Command = binary();
    command.args(["doctor", "--json"]).current_dir(folder).env("TIDEGATE_CONTROL", url);
    for listener in ["HTTP", "GRPC", "RESP", "INTAKE"] {
        command.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn a_node_that_is_gone_is_listed_as_last_seen_and_two_of_one_name_are_told_apart() {
    let server = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
    let start = |name: &str| node(EMPTY, &[("TIDEGATE_CONTROL", &url), ("TIDEGATE_NODE_NAME", name)]);
    let (a, b) = (start("a"), start("b"));
    let both = listed(&a, |nodes| names(nodes) == [("a", true), ("b", true)]);
    let of_a = listed(&b, |nodes| names(nodes) == [("a", true), ("b", true)]);
    let version = env!("CARGO_PKG_VERSION");
    for (node, own) in [(&both[0], true), (&both[1], false), (&of_a[0], false), (&of_a[1], true)] {
        assert_eq!((&node["self"], &node["version"]), (&json!(own), &json!(version)), "{node:#}");
        assert!(node["started_unix_ms"].as_u64().unwrap() > 1_700_000_000_000, "{node:#}");
        assert_eq!(node["same_name"], false, "{node:#}");
    }
    assert_eq!(both[1]["api"], format!("http://{}", b.http));

    b.signal("KILL");
    let left = listed(&a, |nodes| names(nodes) == [("a", true), ("b", false)]);
    assert!(left[1]["last_seen_unix_ms"].as_u64().unwrap() > 1_700_000_000_000, "{left:#?}");
    let folder = tempfile::tempdir().unwrap();
    let said = doctor(folder.path(), &url);
    assert!(said.contains("its nodes are a, b (gone, last seen 20"), "{said}");

    // It starts anew and is one node; a third one has a name that is taken.
    let (again, third) = (start("b"), start("a"));
    let three = listed(&again, |nodes| {
        names(nodes) == [("a", true), ("a", true), ("b", true)] && nodes[0]["same_name"] == true
    });
    assert_ne!(three[0]["number"], three[1]["number"]);
    assert_eq!((&three[1]["same_name"], &three[2]["same_name"]), (&json!(true), &json!(false)));
    let said = doctor(folder.path(), &url);
    assert!(said.contains("several nodes have the name a"), "{said}");
    // What a node lists it has warned of before.
    listed(&third, |nodes| nodes.iter().filter(|it| it["same_name"] == true).count() == 2);
    third.signal("TERM");
    let output = third.wait().output;
    assert!(output.contains("another node that shares the database has the name of this one"), "{output}");
}

#[test]
fn a_node_alone_is_listed_by_the_name_of_its_machine_and_a_name_that_is_none_is_refused() {
    let alone = node(EMPTY, &[]);
    let list = nodes_of(&alone);
    let own = &list["nodes"][0];
    assert_eq!((&list["shared"], &own["self"], &own["present"]), (&json!(false), &json!(true), &json!(true)));
    assert_eq!(list["nodes"].as_array().unwrap().len(), 1);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(own["name"], machine.trim());
    let folder = tempfile::tempdir().unwrap();
    let mut check = binary();
    check.args(["serve", "--node-name", "a b"]).current_dir(folder.path());
    let refused = check.output().unwrap();
    let said = format!("{refused:?}");
    assert!(!refused.status.success() && said.contains("node.name: is \\\"a b\\\""), "{said}");
}
