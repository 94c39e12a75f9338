//! Results of rows: `docs/reports/<report>.json`, beside the page that is made of them.
//!
//! The tester's report is kept as it is written (`docs/report-schema.md`), without what no page shows: histograms,
//! timelines and observations are nine tenths of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and version of the file's form.
const FORM: &str = "tidegate-reports/1";
/// Fields of the tester's report that are left out, wherever they are.
const LEFT_OUT: [&str; 3] = ["histogram", "timeline", "observations"];

/// All results of one report.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResultsFile {
    /// [`FORM`].
    pub(crate) schema: String,
    /// The report's name.
    pub(crate) report: String,
    /// By row.
    pub(crate) rows: BTreeMap<String, RowResult>,
}

/// One row, measured.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RowResult {
    /// When, RFC 3339.
    pub(crate) date: String,
    /// The sources, as `git describe` names them.
    pub(crate) commit: String,
    /// Processor, cores and memory.
    pub(crate) machine: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// What was run.
    pub(crate) command: String,
    /// CPU seconds of Tidegate's processes in all of the load, warm-up included; none where there were none.
    pub(crate) server_cpu_seconds: Option<f64>,
    /// The same of the store's servers.
    pub(crate) store_cpu_seconds: Option<f64>,
    /// Calls of the store.
    pub(crate) store_calls: Option<f64>,
    /// What one took on average, in microseconds.
    pub(crate) store_call_us: Option<f64>,
    /// Figures of work that is not the tester's.
    #[serde(default)]
    pub(crate) figures: BTreeMap<String, f64>,
    /// The tester's report.
    pub(crate) report: Option<Value>,
}

/// What a page shows of the tester's report.
#[derive(Deserialize)]
pub(crate) struct TesterView {
    /// The one cause of the limit.
    pub(crate) cause: CauseView,
    /// A row for each load.
    #[serde(default)]
    pub(crate) levels: Vec<LevelView>,
    /// In the order in which they ran.
    pub(crate) steps: Vec<StepView>,
}

/// A cause, with what was seen.
#[derive(Deserialize)]
pub(crate) struct CauseView {
    /// Its name.
    pub(crate) name: String,
    /// In a sentence.
    pub(crate) summary: String,
    /// What was seen.
    #[serde(default)]
    pub(crate) evidence: Vec<String>,
}

/// One load.
#[derive(Deserialize)]
pub(crate) struct LevelView {
    /// Connections.
    pub(crate) load: f64,
    /// Its zone, by the tester's rules.
    pub(crate) zone: String,
    /// The cause of its limit.
    pub(crate) cause: String,
}

/// One step.
#[derive(Deserialize)]
pub(crate) struct StepView {
    /// What was asked for.
    pub(crate) plan: PlannedView,
    /// Seconds in which connections were opened.
    #[serde(default)]
    pub(crate) opening_seconds: f64,
    /// Seconds that were measured.
    pub(crate) seconds: f64,
    /// Most connections at a time.
    pub(crate) established: u32,
    /// Replies with the expected content.
    pub(crate) good: u64,
    /// Denials.
    pub(crate) denied: u64,
    /// Errors by class.
    pub(crate) errors: BTreeMap<String, u64>,
    /// From the planned send.
    pub(crate) response: TimesView,
    /// Why its figure is not the server's.
    #[serde(default)]
    pub(crate) refusals: Vec<RefusalView>,
}

/// What a step was asked for.
#[derive(Deserialize)]
pub(crate) struct PlannedView {
    /// Connections.
    pub(crate) connections: u32,
}

/// Times of a step.
#[derive(Deserialize)]
pub(crate) struct TimesView {
    /// Mean, in microseconds.
    pub(crate) mean_us: f64,
    /// Median.
    pub(crate) p50_us: f64,
    /// 99th percentile.
    pub(crate) p99_us: f64,
}

/// A refusal of a step.
#[derive(Deserialize)]
pub(crate) struct RefusalView {
    /// Its name.
    pub(crate) reason: String,
}

impl ResultsFile {
    /// Where a report's are.
    pub(crate) fn path(folder: &Path, report: &str) -> PathBuf {
        folder.join(report).with_extension("json")
    }

    /// Reads a report's; none when nothing of it was measured.
    ///
    /// # Errors
    /// When the file is not of this form.
    pub(crate) fn read(folder: &Path, report: &str) -> anyhow::Result<Option<Self>> {
        let path = Self::path(folder, report);
        if !path.exists() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file: Self = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        if file.schema != FORM || file.report != report {
            bail!("{} is {} of {}, not {FORM} of {report}", path.display(), file.schema, file.report);
        }
        Ok(Some(file))
    }

    /// Puts one row's result into a report's file, in the place of an earlier one.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(crate) fn put(folder: &Path, report: &str, row: &str, result: RowResult) -> anyhow::Result<()> {
        let empty = || Self { schema: FORM.to_owned(), report: report.to_owned(), rows: BTreeMap::new() };
        let mut file = Self::read(folder, report)?.unwrap_or_else(empty);
        file.rows.insert(row.to_owned(), result);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = Self::path(folder, report);
        let text = serde_json::to_string_pretty(&file).context("results are JSON")? + "\n";
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

impl RowResult {
    /// What a page shows of the tester's report; none for other work.
    ///
    /// # Errors
    /// When the report is not of the tester's form.
    pub(crate) fn view(&self) -> anyhow::Result<Option<TesterView>> {
        let view = self.report.as_ref().map(TesterView::deserialize).transpose();
        view.context("a report of the tester")
    }
}

impl StepView {
    /// Errors of every class.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// The tester's report without what is left out.
pub(crate) fn condensed(mut report: Value) -> Value {
    match &mut report {
        Value::Object(fields) => {
            fields.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
            for value in fields.values_mut() {
                *value = condensed(value.take());
            }
        }
        Value::Array(items) => {
            for value in items {
                *value = condensed(value.take());
            }
        }
        _ => {}
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_and_timelines_are_left_out_at_any_depth() {
        let report = serde_json::json!({
            "steps": [{"good": 1, "timeline": [1, 2], "response": {"p50_us": 3, "histogram": [[1, 1]]}}],
            "observations": [1],
        });
        let kept = serde_json::json!({"steps": [{"good": 1, "response": {"p50_us": 3}}]});
        assert_eq!(condensed(report), kept);
    }

    #[test]
    fn a_row_that_is_measured_again_takes_the_place_of_the_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let result = |commit: &str| RowResult {
            date: String::new(),
            commit: commit.to_owned(),
            machine: String::new(),
            kernel: String::new(),
            command: String::new(),
            server_cpu_seconds: None,
            store_cpu_seconds: None,
            store_calls: None,
            store_call_us: None,
            figures: BTreeMap::new(),
            report: None,
        };
        assert_eq!(ResultsFile::read(folder.path(), "edge").unwrap(), None);
        for (row, commit) in [("a", "1"), ("b", "1"), ("a", "2")] {
            ResultsFile::put(folder.path(), "edge", row, result(commit)).unwrap();
        }
        let file = ResultsFile::read(folder.path(), "edge").unwrap().unwrap();
        assert_eq!((file.rows["a"].commit.as_str(), file.rows["b"].commit.as_str()), ("2", "1"));
        std::fs::copy(folder.path().join("edge.json"), folder.path().join("other.json")).unwrap();
        assert!(ResultsFile::read(folder.path(), "other").is_err());
    }
}
