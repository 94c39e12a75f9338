//! Measures one row: starts its servers, puts its load on them, and gives the result.
//!
//! A row whose load could not be put on (the machine does not allow it, nothing was answered) has no result, and the
//! reason is printed. A threshold that is missed is a result.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::claims::{ClaimRow, RowWork, SeedReport, StandPlan};
use super::results::{RowResult, condensed};
use super::stand::{ServersUse, Stand, empty_folder};
use crate::bench::{BenchServer, MachineFacts, binary, facts};
use crate::chore::{capture, cargo, run};

/// Exit codes of the tester with a report: all thresholds met, one missed.
const MEASURED: [i32; 2] = [0, 3];
/// Metrics in each body of the reports' requests for the intake.
const METRICS_EACH: f64 = 2.0;

/// What a load gave.
#[derive(Default)]
struct LoadDone {
    command: String,
    figures: BTreeMap<String, f64>,
    report: Option<Value>,
    /// What servers used in it, and whether one of them is a store.
    used: Option<(ServersUse, bool)>,
}

/// Measures a row; `commit` is where the sources stood when the chore began.
///
/// # Errors
/// When a server does not start or the load cannot be put on it.
pub(crate) fn measure(
    root: &Path,
    report: &SeedReport,
    row: &ClaimRow,
    commit: &str,
) -> anyhow::Result<RowResult> {
    let MachineFacts { machine, kernel, .. } = facts();
    let date = capture(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let done = match &row.work {
        RowWork::Saturate { .. } => saturated(root, report, row)?,
        RowWork::Kill { seconds } => killed(root, report, &row.stand, *seconds)?,
        RowWork::InProcess => in_process(root)?,
    };
    let used = done.used.map(|(used, _)| used);
    let calls = used.and_then(|used| used.calls).filter(|(count, _)| *count > 0.0);
    Ok(RowResult {
        date: date.trim().to_owned(),
        commit: commit.to_owned(),
        machine,
        kernel,
        command: done.command,
        server_cpu_seconds: used.map(|used| used.nodes),
        store_cpu_seconds: done.used.filter(|(_, has_store)| *has_store).map(|(used, _)| used.stores),
        store_calls: calls.map(|(count, _)| count),
        store_call_us: calls.map(|(count, seconds)| seconds / count * 1e6),
        figures: done.figures,
        report: done.report,
    })
}

/// The tester's search or steps.
fn saturated(root: &Path, report: &SeedReport, row: &ClaimRow) -> anyhow::Result<LoadDone> {
    let RowWork::Saturate { url, scenario, steps, arguments } = &row.work else {
        bail!("{} is not the tester's", row.name)
    };
    let folder = empty_folder(root, &report.full_name(row))?;
    let mut command = Command::new(binary(root));
    let mut words: Vec<String> = vec!["saturate".to_owned(), url.clone()];
    match (scenario, steps) {
        (Some(name), _) => words.extend(["--scenario".to_owned(), name.clone()]),
        (None, Some(steps)) => {
            let file = folder.join("scenario.toml");
            let text = format!("name = \"{}\"\n{}\n{steps}", report.full_name(row), report.requests);
            std::fs::write(&file, text).with_context(|| file.display().to_string())?;
            words.extend(["--scenario".to_owned(), file.display().to_string()]);
        }
        (None, None) => {}
    }
    words.extend(arguments.iter().cloned());
    let stand = Stand::start(root, &row.stand, &report.config, None)?;
    command.args(words.iter().map(|word| word.replace("{at}", &stand.at)));
    let json = folder.join("report.json");
    command.args(["--plain", "--json"]).arg(&json);
    if let Some(pid) = stand.only_pid() {
        command.args(["--pid", &pid.to_string()]);
    }
    let before = stand.used();
    let output = command.output().context("the tester does not start")?;
    let after = stand.used();
    if !output.status.code().is_some_and(|code| MEASURED.contains(&code)) {
        bail!("the tester ended with {}:\n{}", output.status, said(&output));
    }
    let text = std::fs::read_to_string(&json).with_context(|| json.display().to_string())?;
    let found = serde_json::from_str(&text).context("the tester's report")?;
    // As anybody would type it: no path of this machine, and the port that a server has by default.
    let own = words.iter().map(|word| word.replace(&format!("{}/", root.display()), ""));
    let shown: Vec<String> = own.map(|word| word.replace("{at}", "SERVER")).collect();
    Ok(LoadDone {
        command: format!("tidegate {}", shown.join(" ")),
        report: Some(condensed(found)),
        used: Some((between(before, after), stand.has_store())),
        ..LoadDone::default()
    })
}

/// What was used from one look to the next.
fn between(before: ServersUse, after: ServersUse) -> ServersUse {
    let calls = after.calls.map(|(count, seconds)| {
        let (earlier, took) = before.calls.unwrap_or_default();
        (count - earlier, seconds - took)
    });
    ServersUse { nodes: after.nodes - before.nodes, stores: after.stores - before.stores, calls }
}

/// Load until kill -9, a start on the same data, and how many metrics of those that were acknowledged are there.
fn killed(root: &Path, report: &SeedReport, plan: &StandPlan, seconds: u32) -> anyhow::Result<LoadDone> {
    let folder = empty_folder(root, "kill")?;
    let data = folder.join("data");
    let file = folder.join("scenario.toml");
    // Longer than until the kill, without warm-up: every acknowledged request counts.
    let step = format!("[[step]]\nconnections = 64\nduration_s = {}\nwarmup_s = 0\n", seconds + 3);
    let text = format!("name = \"kill\"\n{}\n{step}", report.requests);
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    let stand = Stand::start(root, plan, &report.config, Some(&data))?;
    let load = Command::new(binary(root))
        .args(["load", &format!("http://{}/", stand.at), "--json", "--scenario"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("the tester does not start")?;
    run(Command::new("sleep").arg(seconds.to_string()))?;
    stand.nodes.iter().try_for_each(kill)?;
    let output = load.wait_with_output().context("the tester")?;
    drop(stand);
    let printed = String::from_utf8_lossy(&output.stdout);
    let line = printed.lines().next().with_context(|| format!("no record: {}", said(&output)))?;
    let record: Value = serde_json::from_str(line).context("the tester's record")?;
    let acknowledged = record["good"].as_f64().context("no `good` in the tester's record")? * METRICS_EACH;
    // It recovers, and is stopped as usual.
    drop(Stand::start(root, plan, &report.config, Some(&data))?);
    let verify = capture(Command::new(binary(root)).args(["intake", "verify"]).arg(data.join("intake")))?;
    let found = lines_found(&verify);
    let figures = [
        ("metrics acknowledged", acknowledged),
        ("metrics found", found),
        ("metrics lost", (acknowledged - found).max(0.0)),
    ];
    Ok(LoadDone {
        command: "tidegate load http://SERVER/ --scenario scenario.toml; kill -9; tidegate intake verify"
            .to_owned(),
        figures: figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect(),
        ..LoadDone::default()
    })
}

fn kill(node: &BenchServer) -> anyhow::Result<()> {
    let pid = i32::try_from(node.pid()).ok().and_then(Pid::from_raw).context("a process without a number")?;
    kill_process(pid, Signal::KILL).context("kill -9")
}

/// Lines by partition, as `tidegate intake verify` prints them.
fn lines_found(verify: &str) -> f64 {
    let counts = verify.lines().filter_map(|line| line.strip_prefix("partition ")?.split_once(": "));
    counts.filter_map(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok()).sum()
}

/// Decisions of the memory store by a program that is nothing else.
fn in_process(root: &Path) -> anyhow::Result<LoadDone> {
    let words = [
        "run",
        "--quiet",
        "--release",
        "--locked",
        "-p",
        "tidegate-store",
        "--example",
        "memory_store",
        "--",
        "speed",
    ];
    let printed = capture(cargo().args(words).current_dir(root))?;
    let figures = speeds(&printed);
    if figures.is_empty() {
        bail!("the memory store says nothing of its speed:\n{printed}");
    }
    Ok(LoadDone { command: format!("cargo {}", words.join(" ")), figures, ..LoadDone::default() })
}

/// `name TAB number TAB ns`, of the memory store itself.
fn speeds(printed: &str) -> BTreeMap<String, f64> {
    let cells = printed.lines().filter_map(|line| {
        let mut cells = line.split('\t');
        Some((cells.next()?, cells.next()?.parse::<f64>().ok()?, cells.next()?))
    });
    let own = cells.filter(|(name, _, unit)| name.starts_with("memory store") && *unit == "ns");
    own.map(|(name, figure, unit)| (format!("{name}, {unit}"), figure)).collect()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_partitions_are_found() {
        let verify = "partition 0: 12 lines in 1 segments of 3 bytes, offsets 0 to 12\npartition 1: 30 lines in 2\nall is well\n";
        assert!((lines_found(verify) - 42.0).abs() < 1e-9);
    }

    #[test]
    fn speeds_of_the_memory_store_are_read_and_no_others() {
        let printed = "memory store: uniform, 1 thread\t150\tns\nhashbrown: uniform\t90\tns\nmemory store: keys\t9\tMB\n";
        let read: Vec<_> = speeds(printed).into_iter().collect();
        assert_eq!(read, [("memory store: uniform, 1 thread, ns".to_owned(), 150.0)]);
    }

    #[test]
    fn what_was_used_before_a_load_is_not_of_it() {
        let before = ServersUse { nodes: 1.0, stores: 2.0, calls: Some((10.0, 0.5)) };
        let after = ServersUse { nodes: 1.5, stores: 3.0, calls: Some((30.0, 2.5)) };
        let used = between(before, after);
        assert_eq!((used.nodes, used.stores, used.calls), (0.5, 1.0, Some((20.0, 2.0))));
    }
}
