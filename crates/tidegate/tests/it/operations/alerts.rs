//! The alerts of `deploy/prometheus`: Prometheus takes them, they fire when they should, they are about series that
//! there are, and the runbook has a section for each, whose commands work. Its recording rules record what they say, of series
//! that there are.

use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tidegate_net::clock::monotonic;

use crate::operations::monitored::Monitored;
use crate::operations::{repository, text_of};
use crate::support::Tidegate;
use crate::support::edge::PATIENCE;

/// Programs that the runbook asks and a machine for tests has. `journalctl` is not among them.
const RUN: [&str; 6] = ["curl ", "tidegate ", "redis-cli ", "pg_isready ", "df ", "ss "];

fn promtool(arguments: &[&str]) {
    let ran = Command::new("promtool").args(arguments).current_dir(repository("deploy/prometheus")).output();
    let ran = ran.expect("promtool is missing: run `make setup`");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && !said.contains("FAILED"), "{said}");
}

#[test]
fn promtool_takes_the_alerts_and_each_fires_in_their_tests() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "alerts_test.yml"]);
    let tests = text_of("deploy/prometheus/alerts_test.yml");
    let untested: Vec<_> =
        names().into_iter().filter(|name| !tests.contains(&format!("\"{name}\"}}', value: 1"))).collect();
    assert!(untested.is_empty(), "alerts_test.yml has nothing that makes these fire: {untested:?}");
}

#[test]
fn promtool_takes_the_recording_rules_and_each_records_what_its_test_says() {
    promtool(&["check", "rules", "rules.yml"]);
    promtool(&["test", "rules", "rules_test.yml"]);
    let tests = text_of("deploy/prometheus/rules_test.yml");
    let untested: Vec<_> = records().into_iter().filter(|name| !tests.contains(name.as_str())).collect();
    assert!(untested.is_empty(), "rules_test.yml has nothing about {untested:?}");
}

#[test]
fn every_alert_has_a_section_of_the_runbook_and_every_section_an_alert() {
    let runbook = text_of("docs/runbook.md");
    let sections: BTreeSet<_> =
        runbook.lines().filter_map(|line| line.strip_prefix("### ").map(str::to_owned)).collect();
    assert_eq!(names(), sections);
    for section in runbook.split("\n### ").skip(1) {
        let order: Vec<_> = ["- Users: ", "- Look: ", "- Do: "].map(|part| section.find(part)).to_vec();
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{section}");
    }
}

/// Where the pages of the repository are read.
const PAGES: &str = "https://github.com/tidegate/tidegate/blob/main/";

/// The alerts' names, as the file has them.
fn names() -> BTreeSet<String> {
    let file = text_of("deploy/prometheus/alerts.yml");
    file.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

/// The names of the series that the recording rules make.
fn records() -> BTreeSet<String> {
    let file = text_of("deploy/prometheus/rules.yml");
    file.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).map(str::to_owned).collect()
}

/// Prometheus has loaded every alert and every recording rule, found nothing wrong with them, and knows a series for all that
/// they are about.
pub(crate) fn are_about_what_there_is(monitored: &Monitored) {
    let began = monotonic();
    let rules = loop {
        let rules = rules(monitored);
        if !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown") {
            break rules;
        }
        assert!(began.elapsed() < PATIENCE, "Prometheus does not evaluate its rules: {rules:?}");
        std::thread::park_timeout(Duration::from_millis(200));
    };
    let mut selected = BTreeSet::new();
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        selected.extend(selectors(rule["query"].as_str().unwrap()));
    }
    let (alerts, recorded): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule["type"] == "alerting");
    assert_eq!((alerts.len(), recorded.len()), (names().len(), records().len()));
    for rule in alerts {
        let name = rule["name"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].map(Value::from).contains(&rule["labels"]["severity"]),
            "{rule}"
        );
        assert!(rule["annotations"]["summary"].as_str().unwrap().contains("$labels."), "{rule}");
        // A whole address: Alertmanager and Grafana make a link of it.
        let section = format!("{PAGES}docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], section);
    }
    let unknown = monitored.without_result(selected.into_iter().chain(records()).collect());
    assert!(unknown.is_empty(), "rules are about series that there are not: {unknown:?}");
}

fn rules(monitored: &Monitored) -> Vec<Value> {
    let groups = monitored.api("rules", "")["groups"].as_array().unwrap().clone();
    groups.into_iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The selectors of a query: names of our metrics, each with what stands in braces behind it.
fn selectors(query: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = query;
    while let Some(start) = rest.find(is_name) {
        let end = rest[start..].find(|c| !is_name(c)).map_or(rest.len(), |length| start + length);
        let (name, after) = (&rest[start..end], &rest[end..]);
        let braces = if after.starts_with('{') { after.find('}').map_or(0, |at| at + 1) } else { 0 };
        if name == "up" || name.starts_with("tidegate_") || name.starts_with("process_") {
            found.push(format!("{name}{}", &after[..braces]));
        }
        rest = &after[braces..];
    }
    found
}

#[test]
fn selectors_are_found_in_queries() {
    let query = r#"sum by (job) (rate(tidegate_a_total{b="up"}[5m])) / up > process_max_fds{job="tidegate"}"#;
    let expected = [r#"tidegate_a_total{b="up"}"#, "up", r#"process_max_fds{job="tidegate"}"#];
    assert_eq!(selectors(query), expected);
}

/// What the runbook says to look with finds something, at one of the nodes.
pub(crate) fn can_be_looked_into(monitored: &Monitored) {
    let runbook = text_of("docs/runbook.md");
    let commands: BTreeSet<_> =
        looks(&runbook).into_iter().filter(|it| RUN.iter().any(|program| it.starts_with(program))).collect();
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        let [alone, shared] = [&monitored.alone, &monitored.shared].map(|node| run(monitored, node, command));
        let found = alone.status.success() || shared.status.success();
        assert!(found, "{command}: {alone:?}, {shared:?}");
    }
}

/// Runs a command of the runbook where a node was started.
fn run(monitored: &Monitored, node: &Tidegate, command: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), folder.path().join("tidegate")).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut script =
        command.replace("curl -s ", "curl -sSf ").replace("127.0.0.1:4000", &node.http.to_string());
    if let Some(intake) = node.intake {
        script = script.replace("127.0.0.1:4002", &intake.to_string());
    }
    if let Some(rest) = script.strip_prefix("tidegate explain ") {
        let (what, rest) = rest.split_once(' ').unwrap();
        script = format!("tidegate explain {what} --server http://{} {rest}", node.http);
    }
    let store = if script.starts_with("pg_isready") {
        monitored.postgres.connection_string()
    } else {
        format!("redis://127.0.0.1:{}/0", monitored.redis.port)
    };
    let mut bounded = Command::new("timeout");
    bounded.args(["60", "bash", "-o", "pipefail", "-c", &script]).env("PATH", path);
    bounded.env("TIDEGATE_STORE", store).current_dir(node.path()).output().unwrap()
}

/// The code of the parts that say how to look.
fn looks(runbook: &str) -> Vec<&str> {
    let parts = runbook.split("\n- Look: ").skip(1);
    let parts = parts.map(|part| part.split("\n- ").next().unwrap().split("\n\n").next().unwrap());
    parts.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}
