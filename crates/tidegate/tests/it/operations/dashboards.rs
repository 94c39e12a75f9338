//! The dashboards of `deploy/grafana`: Grafana's own schema has every field of them, every query has a result at a Prometheus
//! that scrapes nodes with everything, every metric that they name is there, and every metric is on one of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::operations::monitored::Monitored;
use crate::operations::reference;
use crate::operations::{alerts, autoscaling};
use crate::operations::{repository, text_of};
use crate::support::agent;

/// Counted only where it has happened, and too much to make it happen here: a listener that is full of connections.
const ONLY_IN_TROUBLE: [&str; 1] = ["tidegate_connections_for_operation_total"];

/// Width of a dashboard in Grafana's units.
const WIDTH: u64 = 24;

fn dashboards() -> Vec<(String, Value)> {
    let files =
        fs::read_dir(repository("deploy/grafana/dashboards")).unwrap().map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), serde_json::from_str(&text).unwrap())
    };
    files.map(read).collect()
}

/// Reads a dashboard strictly by Grafana's schema: `xtask/dashboards`, which `cargo xtask setup` has built.
fn by_the_schema(file: &Path) -> Output {
    let program = repository(".tools/bin/dashboards");
    Command::new(program).arg(file).output().expect("it is missing: run `make setup`")
}

#[test]
fn grafanas_schema_has_every_field_of_every_dashboard_and_refuses_others() {
    let folder = repository("deploy/grafana/dashboards");
    for (name, _) in dashboards() {
        let read = by_the_schema(&folder.join(format!("{name}.json")));
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    }
    let right = text_of("deploy/grafana/dashboards/process.json");
    let mistakes = tempfile::tempdir().unwrap();
    let place = mistakes.path().join("mistake.json");
    for (part, mistake, reason) in [
        ("\"refresh\": \"30s\"", "\"refersh\": \"30s\"", "unexpected field 'refersh'"),
        ("\"schemaVersion\": 39", "\"schemaVersion\": \"39\"", "schemaVersion: "),
        ("\"showPoints\": \"never\"", "\"showPonits\": \"never\"", "unexpected field 'showPonits'"),
        ("\"placement\": \"bottom\"", "\"placement\": 7", "placement: "),
        ("\"showLegend\": true, ", "", "showLegend: required field is missing"),
        ("\"legendFormat\":", "\"legendFromat\":", "unexpected field 'legendFromat'"),
    ] {
        assert!(right.contains(part), "{part}");
        fs::write(&place, right.replacen(part, mistake, 1)).unwrap();
        let read = by_the_schema(&place);
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(!read.status.success() && said.contains(reason), "{mistake}: {said}");
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn grafana_can_take_every_dashboard() {
    let dashboards = dashboards();
    assert_eq!(dashboards.len(), 5);
    for (name, dashboard) in &dashboards {
        assert_eq!(dashboard["uid"], format!("tidegate-{name}"));
        assert!(dashboard["title"].as_str().unwrap().starts_with("Tidegate: "), "{name}");
        assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36, "{name}");
        let variables = list(&dashboard["templating"]["list"]);
        let kinds: Vec<_> = variables.iter().map(|it| (&it["name"], &it["type"])).collect();
        let expected = [("datasource", "datasource"), ("instance", "query")];
        assert!(
            kinds.iter().zip(expected).all(|(found, it)| found.0 == it.0 && found.1 == it.1),
            "{kinds:?}"
        );
        assert_eq!(variables[1]["allValue"], ".*");
        let panels = list(&dashboard["panels"]);
        let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{name}: two panels have one id");
        let mut taken = BTreeSet::new();
        for panel in panels {
            panel_is_whole(name, panel);
            for cell in cells(panel) {
                assert!(cell.0 < WIDTH && taken.insert(cell), "{name}: {} overlaps", panel["title"]);
            }
        }
    }
}

fn panel_is_whole(name: &str, panel: &Value) {
    assert!(!panel["title"].as_str().unwrap().is_empty(), "{name}: {panel}");
    if panel["type"] == "row" {
        return;
    }
    assert_eq!(panel["type"], "timeseries", "{name}: {panel}");
    assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {panel}");
    assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {panel}");
    let targets = list(&panel["targets"]);
    let references: BTreeSet<_> = targets.iter().map(|it| it["refId"].as_str().unwrap()).collect();
    assert!(!targets.is_empty() && references.len() == targets.len(), "{name}: {panel}");
    for target in targets {
        assert!(target["legendFormat"].is_string(), "{name}: {target}");
        // A recorded series is of all nodes of a job.
        let query = target["expr"].as_str().unwrap();
        assert!(query.contains("instance=~\"$instance\"") || query.starts_with("job:"), "{name}: {target}");
    }
}

/// The cells of the grid that a panel takes, as column and row.
fn cells(panel: &Value) -> impl Iterator<Item = (u64, u64)> {
    let [x, y, w, h] = ["x", "y", "w", "h"].map(|field| panel["gridPos"][field].as_u64().unwrap());
    (x..x + w).flat_map(move |column| (y..y + h).map(move |row| (column, row)))
}

/// The queries of all panels, as Grafana sends them for all nodes.
fn queries() -> Vec<String> {
    let dashboards = dashboards();
    let panels = dashboards.iter().flat_map(|(_, dashboard)| list(&dashboard["panels"]));
    let targets = panels.flat_map(|panel| list(&panel["targets"]));
    let text = targets.map(|target| target["expr"].as_str().unwrap());
    text.map(|text| text.replace("$__rate_interval", "1m").replace("$instance", ".*")).collect()
}

/// One start of the nodes for all that needs them.
#[test]
fn alerts_dashboards_and_the_runbook_are_about_what_a_node_has() {
    let monitored = Monitored::start();
    alerts::are_about_what_there_is(&monitored);

    let queries = queries();
    let all = queries.join("\n");
    let seen = queries.into_iter().filter(|query| !ONLY_IN_TROUBLE.iter().any(|name| query.contains(name)));
    let empty = monitored.without_result(seen.collect());
    assert!(empty.is_empty(), "queries of dashboards that have no result: {empty:#?}");

    // The name of a recorded series has colons, and is none of a metric.
    let words: BTreeSet<_> =
        all.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').collect();
    let mut known = BTreeSet::new();
    for node in [&monitored.alone, &monitored.shared] {
        let page = agent().get(node.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
        let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let is_shown = |name: &&str| words.contains(name) || words.contains(&*format!("{name}_bucket"));
        let unseen: Vec<_> = families.clone().filter(|name| !is_shown(name)).collect();
        assert!(unseen.is_empty(), "on no dashboard: {unseen:?}");
        known.extend(families.map(str::to_owned));
    }
    // A query that names several has a result already by one of them.
    let is_known = |name: &&str| {
        let family = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
        known.contains(*name) || family.is_some_and(|name| known.contains(name))
    };
    let ours = words.iter().filter(|name| name.starts_with("tidegate_") || name.starts_with("process_"));
    let seen = ours.filter(|name| !ONLY_IN_TROUBLE.contains(name));
    let unknown: Vec<_> = seen.filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "dashboards name metrics that there are not: {unknown:?}");

    autoscaling::goes_by_what_is_used(&monitored);
    alerts::can_be_looked_into(&monitored);
    reference::lists_every_family(&monitored);
}
