//! Leases as a setting: what they admit, what a drain gives back, and where their bounds are said.

use tidegate_testkit::redis::RedisServer;

use crate::nodes::{allowed_of, explained, metric, node};
use crate::support::{Tidegate, binary};

/// Nothing of it comes back within a test, so that what was admitted can be counted.
const POLICY: &str = "[[policy]]\nname = \"hot\"\nalgorithm = \"sliding_log\"\nlimit = 1000\n\
                      window_seconds = 600\nkey = [\"client_id\"]\n\
                      [shared]\nleases = true\ninstances = 2\nlease_lifetime = \"600s\"\n";

fn leasing(server: &RedisServer) -> Tidegate {
    node(POLICY, &[("TIDEGATE_STORE", &format!("redis://127.0.0.1:{}", server.port))])
}

#[test]
fn fault_18_two_leasing_nodes_admit_at_most_the_limit() {
    let server = RedisServer::start(&[]);
    let (a, b) = (leasing(&server), leasing(&server));
    // In bursts: a node leases a key once it has seen a demand for it.
    let allowed: usize = (0..10).map(|_| allowed_of(&[&a, &b], 500)).sum();
    let stranded = usize::try_from(explained(&a)["policies"][0]["lease"]["stranded"].as_u64().unwrap());
    assert!(allowed <= 1_000 && allowed + stranded.unwrap() >= 1_000, "{allowed} admitted");
    for node in [&a, &b] {
        assert!(metric(node, "tidegate_lease_requests_total{answered_by=\"lease\"}") > 0);
    }
}

#[test]
fn sigterm_gives_back_what_was_taken_ahead() {
    let server = RedisServer::start(&[]);
    let (exact, _) = POLICY.split_once("[shared]").unwrap();
    let at = format!("redis://127.0.0.1:{}", server.port);
    let (a, b) = (leasing(&server), node(exact, &[("TIDEGATE_STORE", &at)]));
    let mut spent = allowed_of(&[&a], 300);
    // What the store has left tells what the node holds: on until it is something.
    while explained(&a)["policies"][0]["verdict"]["remaining"] == 1_000 - spent {
        spent += allowed_of(&[&a], 1);
    }
    a.signal("TERM");
    let ended = a.wait();
    assert!(ended.status.success(), "{}", ended.output);
    assert_eq!(allowed_of(&[&b], 1_000), 1_000 - spent, "what the first node held is there for the second");
}

#[test]
fn the_bounds_are_said_by_check_and_explain() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.toml");
    let small = "[[policy]]\nname = \"login\"\nlimit = 5\nwindow_seconds = 60\nkey = [\"ip\"]\n";
    std::fs::write(&file, format!("{small}{POLICY}")).unwrap();
    let output = binary().arg("check").arg(&file).env("TIDEGATE_STORE", "redis://h").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = said.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "leases, with 2 nodes (shared.instances):",
            "  login: not leased, so counted exactly",
            "  hot: up to 17 units for 600000 ms at a node; in any window at most 32 above the limit, and \
             at most 32 stranded",
        ]
    );
    let server = RedisServer::start(&[]);
    let lease = explained(&leasing(&server))["policies"][0]["lease"].clone();
    let stated = serde_json::json!({
        "nodes": 2, "units": 17, "lifetime_ms": 600_000, "over_admission": 32, "stranded": 32
    });
    assert_eq!(lease, stated);
}
