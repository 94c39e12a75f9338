//! The manifests of `deploy/helm/rendered`, which `cargo xtask charts` makes of the chart: the binary takes their words and
//! their environment, answers their probes, and ends within the time that they give it without losing a request.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use serde_json::json;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_wire::yaml::{Node, Value, read};

use crate::operations::compose::{SECRET, field, texts};
use crate::operations::{repository, text_of};
use crate::support::edge::until;
use crate::support::{Tidegate, agent, binary, keep_asking};

/// Whether a variable of the chart says where to listen.
pub(crate) fn is_listener(name: &str) -> bool {
    ["HTTP", "GRPC", "RESP", "INTAKE"].iter().any(|it| name == format!("TIDEGATE_{it}_LISTEN"))
}

pub(crate) fn at<'n>(node: &'n Node, path: &str) -> &'n Node {
    path.split('.').fold(node, |node, name| match (&node.value, name.parse::<usize>()) {
        (Value::List(items), Ok(number)) => &items[number],
        _ => field(node, name).unwrap_or_else(|| panic!("{path}: there is no {name}")),
    })
}

pub(crate) fn text(node: &Node, path: &str) -> String {
    texts(at(node, path)).concat()
}

fn number(node: &Node, path: &str) -> u64 {
    text(node, path).parse().unwrap()
}

/// The manifests of an example, by kind.
pub(crate) fn manifests(name: &str) -> BTreeMap<String, Node> {
    let rendered = text_of(&format!("deploy/helm/rendered/{name}.yaml"));
    let documents = rendered.split("---\n").filter(|part| !part.trim().is_empty());
    documents.map(|part| read(part.as_bytes()).unwrap()).map(|node| (text(&node, "kind"), node)).collect()
}

pub(crate) fn pod(manifests: &BTreeMap<String, Node>) -> &Node {
    at(&manifests["StatefulSet"], "spec.template.spec")
}

pub(crate) fn environment(container: &Node) -> Vec<(String, String)> {
    let Value::List(entries) = &at(container, "env").value else { panic!("env is no list") };
    entries.iter().map(|entry| (text(entry, "name"), text(entry, "value"))).collect()
}

/// Merges values as Helm does, and compares them with the chart's schema; prints what is wrong, a line each.
const BY_THE_SCHEMA: &str = r#"
import json, sys, yaml
from jsonschema import Draft7Validator

def merged(values, over):
    if not (isinstance(values, dict) and isinstance(over, dict)):
        return over
    return {**values, **{key: merged(values.get(key), value) for key, value in over.items()}}

chart, values = sys.argv[1:]
schema = json.load(open(f"{chart}/values.schema.json"))
Draft7Validator.check_schema(schema)
every = merged(yaml.safe_load(open(f"{chart}/values.yaml")), yaml.safe_load(values))
for error in Draft7Validator(schema).iter_errors(every):
    print(error.json_path, error.message)
"#;

#[test]
fn the_values_schema_takes_the_examples_and_says_what_is_wrong_with_others() {
    let wrong = |values: &str| {
        let mut python = Command::new(repository(".venv/bin/python"));
        python.args(["-c", BY_THE_SCHEMA]).arg(repository("deploy/helm/tidegate")).arg(values);
        let said = python.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    };
    for name in ["one", "cluster", "postgres"] {
        assert_eq!(wrong(&text_of(&format!("deploy/helm/values-{name}.yaml"))), "", "{name}");
    }
    for (values, reason) in [
        ("replicas: 2", "$.replicas 1 was expected"),
        ("stoer: redis", "'stoer' was unexpected"),
        ("autoscaling: { enabled: true }", "$.autoscaling.enabled False was expected"),
        ("autoscaling: { capacityPercent: 101 }", "$.autoscaling.capacityPercent 101 is greater"),
        ("secrets: { adminToken: short }", "$.secrets.adminToken 'short' does not match"),
        ("memoryMaxBytes: 1GB", "$.memoryMaxBytes '1GB' does not match"),
        ("environment: { tidegate_store: memory }", "'tidegate_store' does not match"),
    ] {
        let said = wrong(values);
        assert!(said.lines().any(|line| line.contains(reason)), "{values}: {said}");
    }
}

/// What the chart's own Secret has, where there is one.
fn secrets(manifests: &BTreeMap<String, Node>) -> Vec<(String, String)> {
    let Some(secret) = manifests.get("Secret") else { return Vec::new() };
    let Value::Map(entries) = &at(secret, "stringData").value else { panic!("stringData is no map") };
    entries.iter().map(|(name, _, value)| (name.clone(), texts(value).concat())).collect()
}

#[test]
fn the_manifests_have_settings_that_the_server_accepts_and_what_each_example_promises() {
    let reference = binary().args(["config", "reference"]).output().unwrap().stdout;
    let reference = String::from_utf8(reference).unwrap();
    let version = format!("tidegate:{}", env!("CARGO_PKG_VERSION"));
    for (name, kinds) in [
        ("one", &["PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"][..]),
        (
            "postgres",
            &["ConfigMap", "PodDisruptionBudget", "Secret", "Service", "ServiceAccount", "StatefulSet"],
        ),
        (
            "cluster",
            &[
                "ConfigMap",
                "HorizontalPodAutoscaler",
                "NetworkPolicy",
                "PodDisruptionBudget",
                "Service",
                "ServiceAccount",
                "ServiceMonitor",
                "StatefulSet",
            ],
        ),
    ] {
        let manifests = manifests(name);
        assert_eq!(manifests.keys().collect::<Vec<_>>(), kinds);
        let pod = pod(&manifests);
        let container = at(pod, "containers.0");
        assert_eq!(text(container, "image"), version, "Chart.yaml has another appVersion");
        assert_eq!(text(pod, "enableServiceLinks"), "false");
        let folder = tempfile::tempdir().unwrap();
        let mut command = binary();
        command.args(["config", "explain"]).env("TIDEGATE_ADMIN_TOKEN", SECRET);
        command.env("TIDEGATE_GRPC_TOKEN", SECRET).env("TIDEGATE_RESP_PASSWORD", SECRET);
        for (variable, value) in environment(container) {
            if variable == "TIDEGATE_CONFIG" {
                let file = field(at(&manifests["ConfigMap"], "data"), "tidegate.toml").unwrap();
                std::fs::write(folder.path().join("file"), texts(file).concat()).unwrap();
                command.env(&variable, folder.path().join("file"));
            } else {
                assert!(reference.contains(&format!("`{variable}`")), "{name}: {variable} is no setting");
                command.env(&variable, value);
            }
        }
        command.envs(secrets(&manifests));
        let explained = command.output().unwrap();
        let said = String::from_utf8_lossy(&explained.stdout) + String::from_utf8_lossy(&explained.stderr);
        assert!(explained.status.success(), "{name}: {said}");
    }
    let cluster = manifests("cluster");
    let instances = environment(at(pod(&cluster), "containers.0")).into_iter().collect::<BTreeMap<_, _>>();
    let most = text(&cluster["HorizontalPodAutoscaler"], "spec.maxReplicas");
    assert_eq!(
        instances["TIDEGATE_SHARED_INSTANCES"], most,
        "shares are by the most nodes that there can be"
    );
}

#[test]
fn nodes_of_the_example_on_postgresql_count_together_and_take_metrics_with_the_charts_secret() {
    let manifests = manifests("postgres");
    assert_eq!(text(&manifests["StatefulSet"], "spec.replicas"), "2");
    let mounted = text(&manifests["StatefulSet"], "spec.volumeClaimTemplates.0.metadata.name");
    let container = at(pod(&manifests), "containers.0");
    assert_eq!(text(container, "volumeMounts.0.name"), mounted);
    assert_eq!(text(container, "envFrom.0.secretRef.name"), text(&manifests["Secret"], "metadata.name"));
    let file = texts(field(at(&manifests["ConfigMap"], "data"), "tidegate.toml").unwrap()).concat();
    let database = PostgresServer::start(&[]);
    let mut settings = environment(container);
    settings.extend(secrets(&manifests));
    settings.retain(|(name, _)| {
        !is_listener(name) && !["TIDEGATE_DATA_DIR", "TIDEGATE_CONFIG"].contains(&&**name)
    });
    for (name, value) in &mut settings {
        if name == "TIDEGATE_STORE" {
            assert!(value.starts_with("postgres://"), "{value}");
            *value = format!("postgres://postgres@127.0.0.1:{}/postgres", database.port);
        }
    }
    settings.push(("TIDEGATE_HTTP_LISTEN".to_owned(), "127.0.0.1:0".to_owned()));
    let settings: Vec<_> = settings.iter().map(|(name, value)| (&**name, &**value)).collect();
    let nodes = [(); 2].map(|()| {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("tidegate.toml"), &file).unwrap();
        Tidegate::start_in(data, &["--config", "tidegate.toml"], &settings)
    });
    let remaining = || {
        nodes.each_ref().map(|node| {
            let body = json!({"client_id": "user123", "resource": "orders"});
            let mut reply = agent().post(node.url("/api/v1/ratelimit")).send_json(&body).unwrap();
            reply.body_mut().read_json::<serde_json::Value>().unwrap()["remaining"].as_u64().unwrap()
        })
    };
    // Units come back all the time, so that the second node may have as many left as the first one had. Nodes that count
    // for themselves never have one less: each has been asked as often as the other.
    let count_together = (0..100).map(|_| remaining()).any(|[first, second]| first == second + 1);
    assert!(count_together, "they do not count together");
    let token = text_of("deploy/helm/values-postgres.yaml");
    let token = token.split("the digest of ").nth(1).unwrap().split(':').next().unwrap();
    let batch = json!({"metrics": [{"name": "cpu.usage", "value": 1.5, "tags": {"host": "a"}}]});
    for (token, status) in [(token, 200), ("another-token-of-nobody", 401)] {
        let sent = agent().post(format!("http://{}/metrics", nodes[0].intake.unwrap()));
        let sent = sent.header("authorization", format!("Bearer {token}")).send_json(&batch).unwrap();
        assert_eq!(sent.status(), status);
    }
}

#[test]
fn a_pod_answers_its_probes_and_ends_in_its_time_without_losing_a_request() {
    let manifests = manifests("one");
    let pod = pod(&manifests);
    let container = at(pod, "containers.0");
    let environment: Vec<_> = environment(container)
        .into_iter()
        .filter(|(name, _)| !is_listener(name) && name != "TIDEGATE_DATA_DIR")
        .collect();
    let drain = environment.iter().find(|(name, _)| name == "TIDEGATE_LIMITS_DRAIN_DEADLINE").unwrap();
    let drain: u64 = drain.1.trim_end_matches('s').parse().unwrap();
    let wait = number(container, "lifecycle.preStop.sleep.seconds");
    assert!(number(pod, "terminationGracePeriodSeconds") > wait + drain);
    // The kubelet has looked, and told others, before the node hears of its end.
    let unready = number(container, "readinessProbe.periodSeconds")
        * number(container, "readinessProbe.failureThreshold");
    assert!(unready <= wait, "{unready} and {wait}");
    assert_eq!(texts(at(container, "args")), ["serve"]);

    let mut settings: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    settings.push(("TIDEGATE_ADMIN_TOKEN", SECRET));
    let node = Tidegate::start(&[], &settings);
    let status = |probe: &str| {
        let path = text(container, &format!("{probe}.httpGet.path"));
        assert_eq!(text(container, &format!("{probe}.httpGet.port")), "http");
        agent().get(node.url(&path)).call().map_or(0, |reply| reply.status().as_u16())
    };
    assert_eq!(["startupProbe", "livenessProbe", "readinessProbe"].map(status), [200; 3]);

    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (until_end, count, address) = (Arc::clone(&stop), Arc::clone(&answered), node.http);
    let asking = std::thread::spawn(move || {
        let request = "GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
        keep_asking(address, request, &until_end, &count);
    });
    until("requests are answered", || answered.load(SeqCst) > 100);
    node.signal("TERM");
    let ended = node.wait();
    stop.store(true, SeqCst);
    // It panics if a request that was sent got no answer.
    asking.join().unwrap();
    assert!(ended.status.success(), "{}", ended.output);
}
