//! What a running intake takes of a file that is read again: alert rules, who is told of them, and forwards. What becomes of batches while a
//! policy is not there.

use std::fs;

use crate::support::edge::{metric, until};
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};

const OWN: [(&str, &str); 1] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];

fn url(service: &Tidegate, path: &str) -> String {
    format!("http://{}{path}", service.intake.unwrap())
}

fn send(service: &Tidegate, value: u32) {
    let batch = json!({"metrics": [{"name": "cpu.usage", "value": value, "tags": {"host": "a"}}]});
    let reply = agent().post(url(service, "/metrics")).send(batch.to_string()).unwrap();
    assert_eq!(reply.status(), 200);
}

/// The values of its lines, in their order.
fn values(service: &Tidegate) -> Vec<String> {
    let mut reply = agent().get(url(service, "/v1/intake/read?from=oldest")).call().unwrap();
    let text = reply.body_mut().read_to_string().unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| format!("{:.0}", line["value"].as_f64().unwrap())).collect()
}

fn alerts(service: &Tidegate) -> Value {
    agent().get(url(service, "/v1/intake/alerts")).call().unwrap().body_mut().read_json().unwrap()
}

/// A file of defaults and these entries; as one step, so that no half of it is read.
fn write(folder: &std::path::Path, entries: &[String]) {
    let text = format!("intake.acknowledge = 'fsync'\n{}", entries.concat());
    fs::write(folder.join("new.toml"), text).unwrap();
    fs::rename(folder.join("new.toml"), folder.join("tidegate.toml")).unwrap();
}

fn reload(service: &Tidegate, entries: &[String]) {
    let applied = || metric(service, "tidegate_config_reloads_total{result=\"applied\"}");
    let before = applied();
    write(service.path(), entries);
    service.signal("HUP");
    until("the file is in force", || applied() > before);
}

#[test]
fn alerts_and_forwards_of_a_file_that_is_read_again_are_in_force_and_keep_what_they_hold() {
    let receivers = [(); 2].map(|()| Tidegate::start(&[], &[]));
    let forward = |to: &Tidegate| {
        format!("[[intake.forward]]\nname = 'on'\nto = 'otlp'\nurl = '{}'\n", url(to, "/v1/metrics"))
    };
    let alert = |above: u32| {
        format!(
            "[[intake.alert]]\nname = 'high'\nmetric = 'cpu.usage'\nabove = {above}\nfor_seconds = 3600\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[]);
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &OWN);
    send(&service, 95);
    assert_eq!(alerts(&service)["rules"], json!([]));

    // Both come, and the forward has what came before.
    reload(&service, &[alert(80), forward(&receivers[0])]);
    until("the first receiver has the line", || values(&receivers[0]) == ["95"]);
    send(&service, 96);
    until("the first receiver has it, too", || values(&receivers[0]) == ["95", "96"]);
    let waiting = "tidegate_intake_forward_waiting_lines{forward=\"on\"}";
    until("nothing waits", || metric(&service, waiting) == 0);
    let pending = alerts(&service)["alerts"][0].clone();
    assert_eq!((&pending["name"], &pending["state"]), (&json!("high"), &json!("pending")));

    // Both change, and go on where they were.
    reload(&service, &[alert(90), forward(&receivers[1])]);
    let shown = alerts(&service);
    assert_eq!(shown["rules"][0]["condition"], "above 90 for 3600 s");
    assert_eq!(shown["alerts"][0]["since"], pending["since"]);
    until("the other one takes its place", || {
        send(&service, 97);
        !values(&receivers[1]).is_empty()
    });
    until("nothing waits", || metric(&service, waiting) == 0);
    let mut came = values(&receivers[0]);
    came.extend(values(&receivers[1]));
    // A batch that was under way when the first one ended may be there twice.
    assert!(came.len() >= values(&service).len(), "{came:?}");
    assert!(values(&receivers[1]).iter().all(|value| value == "97"), "what was delivered is not sent again");

    // Both go.
    reload(&service, &[]);
    let shown = alerts(&service);
    assert_eq!((&shown["rules"], &shown["alerts"]), (&json!([]), &json!([])));
    let page = || agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    until("the forward has ended", || !page().contains(waiting));
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.output);
    assert!(!ended.output.contains("at the next start"), "{}", ended.output);
}

/// As at a route and at a listener of the edge. Without the choice, a policy that is gone would be an outage also where its limit was a
/// courtesy.
#[test]
fn a_policy_that_is_not_there_refuses_batches_unless_that_is_allowed() {
    for (answer, status, counted) in [("deny", 503, 1), ("allow", 200, 0)] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &["intake.policies = ['batches']\n".to_owned()]);
        let environment = [OWN[0], ("TIDEGATE_INTAKE_ON_MISSING_POLICY", answer)];
        let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
        let batch = json!({"metrics": [{"name": "cpu.usage", "value": 1, "tags": {"host": "a"}}]});
        let mut reply = agent().post(url(&service, "/metrics")).send(batch.to_string()).unwrap();
        let said = reply.body_mut().read_to_string().unwrap();
        assert_eq!(reply.status(), status, "{answer}: {said}");
        assert_eq!(said.contains("batches"), status == 503, "{said}");
        assert_eq!(metric(&service, "tidegate_intake_refused_total{reason=\"no_policy\"}"), counted);
    }
}
