//! The rows of the five reports: `regression/reports/*.toml`. Their fields are described in `regression/README.md`.

use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;

/// One of the reports.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeedReport {
    /// What its page and its results file are called; its rows' names begin with it.
    pub(crate) name: String,
    /// Its place among the five.
    pub(crate) number: u32,
    /// Heading of its page.
    pub(crate) title: String,
    /// What stands below the heading.
    pub(crate) about: String,
    /// Requests of the rows that bring steps of their own, as a part of a scenario.
    #[serde(default)]
    pub(crate) requests: String,
    /// Settings of every server of its rows.
    #[serde(default)]
    pub(crate) config: String,
    /// Its rows, in its order.
    pub(crate) row: Vec<ClaimRow>,
}

/// One claim, and how it is measured again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimRow {
    /// Unique within its report.
    pub(crate) name: String,
    /// Its heading.
    pub(crate) title: String,
    /// What the report says.
    pub(crate) said: String,
    /// What it really measured.
    pub(crate) really: String,
    /// What is different here.
    #[serde(default)]
    pub(crate) here: String,
    /// The servers.
    pub(crate) stand: StandPlan,
    /// What is done to them.
    pub(crate) work: RowWork,
    /// Its figures, by step.
    #[serde(default)]
    pub(crate) seed: Vec<SeedFigure>,
    /// Figures of ours that have a bound; for work that is not the tester's.
    #[serde(default)]
    pub(crate) bound: Vec<FigureBound>,
    /// Whether all steps are one figure: replies over their time.
    #[serde(default)]
    pub(crate) whole: bool,
    /// Whether the time in which connections were opened counts.
    #[serde(default)]
    pub(crate) opening: bool,
    /// Whether a denial is a reply as good as another.
    #[serde(default)]
    pub(crate) denials_count: bool,
    /// Whether its steps are points of the page's chart.
    #[serde(default)]
    pub(crate) chart: bool,
}

/// What a report states about one step.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeedFigure {
    /// Connections.
    pub(crate) load: u32,
    /// Requests per second that it calls served.
    pub(crate) rate: Option<f64>,
    /// Requests per second that its clients offered.
    pub(crate) offered: Option<f64>,
    /// Mean, in milliseconds.
    pub(crate) mean_ms: Option<f64>,
    /// 99th percentile, in milliseconds.
    pub(crate) p99_ms: Option<f64>,
    /// Successes, in per cent.
    pub(crate) success: Option<f64>,
}

/// What a figure of ours may be at most.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FigureBound {
    /// Its name in the results.
    pub(crate) figure: String,
    /// Upper end.
    pub(crate) at_most: f64,
    /// Where the bound is from.
    pub(crate) why: String,
}

/// The servers of a row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StandPlan {
    /// Which service is asked.
    pub(crate) service: AskedService,
    /// Processes that share its port.
    #[serde(default = "one")]
    pub(crate) processes: u32,
    /// Settings, before those of the report; `{backend}` stands for the port of the server behind.
    #[serde(default)]
    pub(crate) config: String,
    /// Where limits are counted.
    #[serde(default)]
    pub(crate) store: CountedIn,
    /// How long the server behind takes for a request; none: there is none, and its port is closed.
    pub(crate) backend_ms: Option<u32>,
    /// What is done before the load.
    #[serde(default)]
    pub(crate) before: Preparation,
    /// Whether clients are 200 ms away.
    #[serde(default)]
    pub(crate) wire: bool,
}

/// The service that the load goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AskedService {
    /// Decisions over HTTP.
    Limiter,
    /// Decisions over gRPC.
    Grpc,
    /// Decisions over the protocol of Redis.
    Resp,
    /// The metrics intake.
    Intake,
    /// The gateway.
    Gateway,
    /// The TCP edge.
    Edge,
}

/// Where limits are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CountedIn {
    /// In each process.
    #[default]
    Memory,
    /// In one Redis.
    Redis,
    /// In a Redis Cluster of three.
    RedisCluster,
}

/// What is done before the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Preparation {
    /// Nothing.
    #[default]
    Nothing,
    /// The clients that must be denied use up what they have, in each process.
    Spend,
    /// Requests fail until the breaker is open.
    Break,
}

/// What is done to the servers.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum RowWork {
    /// `tidegate saturate`.
    Saturate {
        /// Where to; `{at}` stands for the address.
        url: String,
        /// A built-in scenario, in place of the report's requests and the row's steps.
        scenario: Option<String>,
        /// Steps of a scenario whose requests are the report's.
        steps: Option<String>,
        /// Further arguments.
        #[serde(default)]
        arguments: Vec<String>,
    },
    /// Load until kill -9, then a start, and what is there.
    Kill {
        /// Seconds until then.
        seconds: u32,
    },
    /// Decisions without a socket.
    InProcess,
}

fn one() -> u32 {
    1
}

impl SeedReport {
    /// A row's name over all reports.
    pub(crate) fn full_name(&self, row: &ClaimRow) -> String {
        format!("{}-{}", self.name, row.name)
    }
}

/// Reads all reports, in their order.
///
/// # Errors
/// When a file is malformed, or two rows have one name.
pub(crate) fn read(root: &Path) -> anyhow::Result<Vec<SeedReport>> {
    let folder = root.join("regression/reports");
    let mut reports: Vec<SeedReport> = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        reports.push(toml::from_str(&text).with_context(|| file.display().to_string())?);
    }
    reports.sort_by_key(|report| report.number);
    let mut names: Vec<String> =
        reports.iter().flat_map(|report| report.row.iter().map(|row| report.full_name(row))).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("two rows are called {}", twice[0]);
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_reports_can_be_measured() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let reports = read(root).unwrap();
        assert_eq!(reports.iter().map(|report| report.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        for report in &reports {
            for row in &report.row {
                let name = report.full_name(row);
                let RowWork::Saturate { url, scenario, steps, arguments } = &row.work else {
                    assert!(!row.bound.is_empty(), "{name} has no bound");
                    continue;
                };
                assert!(url.contains("{at}"), "{name}: where is the server in {url}?");
                let loads = [scenario.is_some(), steps.is_some(), !arguments.is_empty()];
                assert!(loads.contains(&true), "{name} has no load");
                assert!(scenario.is_none() || steps.is_none(), "{name} has two scenarios");
                assert!(steps.is_none() || report.requests.contains("[[request]]"), "{name} has no requests");
                let file = scenario.as_ref().map(|it| root.join("scenarios").join(it).with_extension("toml"));
                assert!(file.is_none_or(|file| file.is_file()), "{name}: no such scenario");
                assert!(row.stand.processes > 0, "{name} has no server");
                let text = format!("{}\n{}", report.requests, steps.as_deref().unwrap_or_default());
                assert!(toml::from_str::<serde_json::Value>(&text).is_ok(), "{name} is no scenario:\n{text}");
            }
        }
    }
}
