//! What the compose files promise holds for the processes that they start.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::operations::compose::{SECRET, Stack};
use crate::support::agent;
use crate::support::edge::until;

/// The status at a URL; 0 if nobody answers.
fn status(url: &str) -> u16 {
    agent().get(url).call().map_or(0, |reply| reply.status().as_u16())
}

/// Whether a decision is made, and allows.
fn decide(address: &str, client: &str) -> (u16, bool) {
    let body = json!({"client_id": client, "resource": "api"});
    let reply = agent().post(format!("http://{address}/api/v1/ratelimit")).send_json(&body);
    let Ok(mut reply) = reply else { return (0, false) };
    let answer = reply.body_mut().read_json::<Value>().unwrap_or_default();
    (reply.status().as_u16(), answer["allowed"] == true)
}

fn ready(address: &str) {
    until(&format!("{address} is ready"), || status(&format!("http://{address}/readyz")) == 200);
}

#[test]
fn one_node_decides_for_everybody_and_tells_its_configuration_to_who_has_the_token() {
    let stack = Stack::up(&["compose.yaml"]);
    let node = stack.published("tidegate", "4000");
    ready(&node);
    assert_eq!(decide(&node, "user123"), (200, true));
    let policies = format!("http://{node}/v1/policies");
    assert_eq!(status(&policies), 401);
    let with_token = agent().get(&policies).header("authorization", format!("Bearer {SECRET}")).call();
    assert_eq!(with_token.unwrap().status(), 200);
}

#[test]
fn three_nodes_behind_nginx_count_together_have_one_configuration_and_outlive_one_of_them() {
    let mut stack = Stack::up(&["compose-cluster.yaml"]);
    let nodes = ["node-1", "node-2", "node-3"].map(|node| stack.published(node, "4000"));
    nodes.iter().for_each(|node| ready(node));
    let nginx = stack.published("nginx", "8080");
    ready(&nginx);

    // A limit that gives nothing back meanwhile, put at one node, is in force at all.
    let policy =
        json!({"algorithm": "token_bucket", "limit": 30, "window_seconds": 86400, "key": ["client_id"]});
    let put = agent().put(format!("http://{}/v1/policies/per-client", nodes[0]));
    let put = put.header("authorization", format!("Bearer {SECRET}")).send_json(&policy).unwrap();
    assert!(put.status().is_success(), "{}", put.status());
    for node in &nodes {
        until("the policy is in force", || {
            let asked = agent().get(format!("http://{node}/v1/policies/per-client"));
            let asked = asked.header("authorization", format!("Bearer {SECRET}")).call();
            asked.is_ok_and(|reply| reply.status() == 200)
        });
    }
    let answers: Vec<_> = (0..45).map(|_| decide(&nginx, "user123")).collect();
    assert!(answers.iter().all(|(status, _)| *status == 200 || *status == 429), "{answers:?}");
    assert_eq!(answers.iter().filter(|(_, allowed)| *allowed).count(), 30);

    stack.kill("node-2");
    for _ in 0..6 {
        assert_eq!(decide(&nginx, "user124"), (200, true), "nginx asks the nodes that are there");
    }
}

#[test]
fn envoy_in_front_of_an_application_is_limited_by_the_node() {
    let stack = Stack::up(&["compose.yaml", "compose-envoy.yaml"]);
    ready(&stack.published("tidegate", "4000"));
    let envoy = format!("http://{}/", stack.published("envoy", "8080"));
    until("Envoy answers for the application", || status(&envoy) == 200);
    let ask = |key: &str| agent().get(&envoy).header("x-api-key", key).call().unwrap().status().as_u16();
    // Envoy does not wait for its limiter to be connected.
    until("Envoy asks the limiter", || (0..150).any(|_| ask("user123") == 429));
    assert_eq!(ask("user124"), 200);
}

#[test]
fn prometheus_scrapes_the_node_and_grafana_finds_prometheus_and_the_dashboards() {
    let stack = Stack::up(&["compose.yaml", "compose-monitoring.yaml"]);
    ready(&stack.published("tidegate", "4000"));
    let prometheus = format!("http://{}", stack.published("prometheus", "9090"));
    until("Prometheus knows the node", || {
        let asked =
            agent().get(format!("{prometheus}/api/v1/query")).query("query", "up{job='tidegate'}").call();
        let answer = asked.ok().and_then(|mut reply| reply.body_mut().read_json::<Value>().ok());
        answer.is_some_and(|answer| answer["data"]["result"][0]["value"][1] == "1")
    });
    let mut rules = agent().get(format!("{prometheus}/api/v1/rules")).call().unwrap();
    let rules: Value = rules.body_mut().read_json().unwrap();
    assert!(rules["data"]["groups"].as_array().unwrap().len() > 3, "{rules}");

    let source = stack.mounted("grafana", "/etc/grafana/provisioning/datasources/prometheus.yaml");
    assert!(
        source.contains("type: prometheus") && source.contains(&format!("url: {prometheus}\n")),
        "{source}"
    );
    let provider = stack.mounted("grafana", "/etc/grafana/provisioning/dashboards/tidegate.yaml");
    assert!(provider.contains("path: /etc/grafana/dashboards"), "{provider}");
    let mounted = ["decisions", "edge", "gateway", "intake", "process"];
    let uids: BTreeSet<String> = mounted
        .iter()
        .map(|name| stack.mounted("grafana", &format!("/etc/grafana/dashboards/{name}.json")))
        .map(|text| serde_json::from_str::<Value>(&text).unwrap()["uid"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(uids.len(), mounted.len());
}
