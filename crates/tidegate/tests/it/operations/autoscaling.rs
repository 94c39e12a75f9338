//! The chart's autoscaler, from a node's metrics page to the number of nodes:
//!
//! ```text
//!   POST /v1/capacity ─> tidegate_capacity_used_ratio ─> Prometheus ─> query of rendered/adapter.json ─> HorizontalPodAutoscaler
//! ```
//!
//! The query is what the Prometheus adapter's own code makes of `deploy/prometheus/adapter.yaml`; here Prometheus answers it
//! about nodes whose load is known. The adapter itself and Kubernetes are not started: the number of nodes is worked out as
//! the autoscaler's documentation says.

use std::fs;

use serde_json::{Value, json};

use crate::operations::charts::{manifests, text};
use crate::operations::monitored::Monitored;
use crate::operations::text_of;
use crate::support::edge::until;
use crate::support::{Tidegate, agent, binary};

/// A load test that is over at once.
const SHORT: [&str; 11] = [
    "--levels",
    "1,2",
    "--step-seconds",
    "0.3",
    "--warmup-seconds",
    "0.1",
    "--repeats",
    "1",
    "--plain",
    "--force",
    "--no-pin",
];

/// A report of the tester about the node.
pub(crate) fn measured(node: &Tidegate) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let ran = binary().args(["saturate", &node.url("/livez")]).args(SHORT).arg("--json").arg(&file).output();
    let said = String::from_utf8_lossy(&ran.unwrap().stdout).into_owned();
    let report = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {said}"));
    serde_json::from_str(&report).unwrap()
}

/// Has the node accept the report, as if it had found this capacity.
pub(crate) fn accept(node: &Tidegate, mut report: Value, per_second: f64) {
    report["knee"] = Value::Null;
    report["capacity"] = json!({
        "throughput": per_second,
        "interval": {"low": per_second, "high": per_second},
        "bound": "reached",
        "load": 2,
        "repeats": 3,
    });
    for level in report["levels"].as_array_mut().unwrap() {
        level["error_ratio"] = json!(0);
        level["denied_ratio"] = json!(0);
    }
    let mut accepted = agent().post(node.url("/v1/capacity?server=api")).send_json(&report).unwrap();
    let answer = accepted.body_mut().read_to_string().unwrap();
    assert_eq!(accepted.status(), 200, "{answer}");
}

/// Nodes that there should be, by the load of those that there are.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "few"
)]
fn wanted(used: &[f64], target: f64) -> usize {
    let ratio = used.iter().sum::<f64>() / used.len() as f64 / target;
    if (ratio - 1.0).abs() <= 0.1 { used.len() } else { (ratio * used.len() as f64).ceil() as usize }
}

/// A node that has used its capacity brings others, one that has not takes one away.
pub(crate) fn goes_by_what_is_used(monitored: &Monitored) {
    let offered: Value = serde_json::from_str(&text_of("deploy/helm/rendered/adapter.json")).unwrap();
    let scaler = &manifests("cluster")["HorizontalPodAutoscaler"];
    assert_eq!(text(scaler, "spec.metrics.1.type"), "Pods");
    assert_eq!(text(scaler, "spec.metrics.1.pods.metric.name"), offered["metric"].as_str().unwrap());
    let target = text(scaler, "spec.metrics.1.pods.target.averageValue");
    let target = target.strip_suffix('m').unwrap().parse::<f64>().unwrap() / 1_000.0;

    let series = offered["series"].as_str().unwrap().to_owned();
    assert!(monitored.without_result(vec![series]).is_empty(), "the adapter does not find the series");
    let query = offered["query"].as_str().unwrap();
    let used = |pod: &str| {
        let answer = monitored.api("query", query);
        let found = answer["result"].as_array()?.iter().find(|it| it["metric"]["pod"] == pod)?;
        found["value"][1].as_str()?.parse::<f64>().ok()
    };
    // Prometheus itself asks once a second, which is all that the first can do, and nothing for the second.
    until("the first node has used its capacity", || {
        used("tidegate-0").is_some_and(|used| wanted(&[used; 2], target) > 2)
    });
    until("the second node's load is known", || used("tidegate-1").is_some());
    assert_eq!(wanted(&[used("tidegate-1").unwrap(); 2], target), 1);
}

#[test]
fn nodes_are_wanted_as_the_autoscaler_says() {
    assert_eq!(wanted(&[0.6, 0.6], 0.6), 2);
    assert_eq!(wanted(&[0.65, 0.6], 0.6), 2, "a tenth more or less changes nothing");
    assert_eq!(wanted(&[0.9, 0.9], 0.6), 3);
    assert_eq!(wanted(&[0.1, 0.1, 0.1], 0.6), 1);
}
