//! `docs/metrics.md`: every family of the metrics pages of nodes that have everything. `INSTA_UPDATE=always` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use tidegate_net::clock::monotonic;

use crate::operations::monitored::Monitored;
use crate::operations::{repository, text_of};
use crate::support::agent;
use crate::support::edge::PATIENCE;

const PAGE: &str = "docs/metrics.md";

const INTRODUCTION: &str = "# Metrics

<!-- Made by `INSTA_UPDATE=always cargo test -p tidegate --test it alerts_dashboards`. -->

What `/metrics` of `http.listen` and of `admin.listen` has, in the form that the scraper asks for (OpenMetrics or Prometheus' text).
No client is ever a label: labels take their values from the configuration, or from lists that are fixed. A family is there when
what it counts is configured; a series of it sometimes only when there was something to count. The
[dashboards](../deploy/grafana) show all of them, the [alerts](../deploy/prometheus/alerts.yml) watch some, the
[rules](../deploy/prometheus/rules.yml) record what all nodes do together, and the [runbook](runbook.md) says what to do.

| family | type | labels | what it says |
|---|---|---|---|
";

/// Names in the code that are no metrics: tables and channels of PostgreSQL, a cookie.
const NO_METRICS: [&str; 8] = [
    "tidegate_asked_from",
    "tidegate_control",
    "tidegate_counts",
    "tidegate_messages",
    "tidegate_nodes",
    "tidegate_secrets",
    "tidegate_session",
    "tidegate_uses",
];

#[derive(Default)]
struct Documented {
    kind: String,
    labels: BTreeSet<String>,
    help: String,
}

/// The committed page is made of what the nodes have.
pub(crate) fn lists_every_family(monitored: &Monitored) {
    if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(repository(PAGE), made_of(monitored)).unwrap();
    }
    let (committed, began) = (text_of(PAGE), monotonic());
    loop {
        let made = made_of(monitored);
        if made == committed {
            return;
        }
        if began.elapsed() > PATIENCE {
            let of = |page: &str| page.lines().map(str::to_owned).collect::<BTreeSet<_>>();
            let (made, committed) = (of(&made), of(&committed));
            let differ: Vec<_> = made.symmetric_difference(&committed).collect();
            panic!("{PAGE} is out of date; its first comment says how it is made: {differ:#?}");
        }
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

fn made_of(monitored: &Monitored) -> String {
    let mut families = BTreeMap::new();
    for node in [&monitored.alone, &monitored.shared] {
        let page = agent().get(node.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
        read_into(&mut families, &page);
    }
    let rows = families.iter().map(|(name, Documented { kind, labels, help })| {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{name}` | {kind} | {} | {} |\n", labels.join(", "), help.trim_end_matches('.'))
    });
    INTRODUCTION.to_owned() + &rows.collect::<String>()
}

/// Adds what a page in Prometheus' text has.
fn read_into(families: &mut BTreeMap<String, Documented>, page: &str) {
    let mut current = String::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            current = name.to_owned();
            let help = help.replace('|', "\\|");
            families.entry(current.clone()).or_default().help = help;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            current = name.to_owned();
            families.entry(current.clone()).or_default().kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            let names = names_of(labels.rsplit_once('}').unwrap().0);
            let known = &mut families.get_mut(&current).unwrap().labels;
            known.extend(names.into_iter().filter(|name| name != "le"));
        }
    }
}

/// The names in `a="b",c="d"`, whose values may have anything in them.
fn names_of(labels: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), labels);
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name.trim_start_matches(',').to_owned());
        let mut is_escaped = false;
        let end = value.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        rest = &value[end.unwrap() + 1..];
    }
    names
}

#[test]
fn names_of_labels_are_found_whatever_their_values_are() {
    assert_eq!(names_of(r#"a="x,b=\"1",c="\\",d="""#), ["a", "c", "d"]);
    let mut families = BTreeMap::new();
    read_into(&mut families, "# HELP a_total Things\n# TYPE a_total counter\na_total{x=\"1\"} 1\n");
    let found = &families["a_total"];
    assert_eq!((found.kind.as_str(), found.help.as_str(), found.labels.len()), ("counter", "Things", 1));
}

/// Adds the texts of the sources below a folder that are names as metrics have them.
fn read_names(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_names(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let is_name = |text: &&str| {
                ["tidegate_", "process_"].iter().any(|start| text.starts_with(start))
                    && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            };
            found.extend(text.split('"').filter(is_name).map(str::to_owned));
        }
    }
}

/// What the nodes of these tests do not have would be on no page, dashboard or alert, and nobody would see it.
#[test]
fn every_metric_that_the_code_names_is_on_the_page() {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(repository("crates")).unwrap() {
        read_names(&entry.unwrap().path().join("src"), &mut names);
    }
    let page = text_of(PAGE);
    let is_row =
        |name: &str| ["", "_total", "_info"].iter().any(|end| page.contains(&format!("| `{name}{end}` |")));
    // A histogram's row has its family's name.
    let is_listed = |name: &str| is_row(name) || name.strip_suffix("_bucket").is_some_and(is_row);
    let unlisted: Vec<_> = names.iter().filter(|name| !is_listed(name)).collect();
    assert_eq!(
        unlisted, NO_METRICS,
        "what else is there must be had by a node of `monitored.rs`, or is no metric"
    );
    assert!(names.len() > 150, "{names:?}");
}
