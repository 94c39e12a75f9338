//! `cargo xtask reports [ROW]`: the five performance reports, run again with Tidegate's tester on Tidegate's services.
//!
//! ```text
//!   regression/reports/*.toml --> rows --(stand: servers; conduct: load)--> docs/reports/<report>.json
//!                          '------------------------------------------------------------'--(judge, page, drawing)--> .md, .svg
//! ```
//!
//! `ROW` is a row, or a report for all of its rows. A page is written from results alone, after each row, so that a run which is
//! cut short leaves what it measured; `--pages` writes pages and measures nothing. Rows whose clients are far away run in a
//! network namespace of their own, by this program once more (`--inside`).

mod claims;
mod conduct;
mod drawing;
mod judge;
mod page;
mod results;
mod stand;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use self::claims::{ClaimRow, SeedReport};
use self::results::ResultsFile;
use crate::bench::{build, facts, raise_descriptor_limit};
use crate::chore::run;

/// Runs all rows, or those that are named, and writes the pages.
///
/// # Errors
/// When a row is not known, or could not be measured. Never because of a figure.
pub(crate) fn reports(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let reports = claims::read(root)?;
    match arguments {
        [flag] if flag == "--pages" => {
            reports.iter().try_for_each(|report| write_page(&folder(root), report))
        }
        [flag, row, commit] if flag == "--inside" => {
            raise_descriptor_limit()?;
            let wanted = wanted(&reports, Some(row.as_str()))?;
            wanted.iter().try_for_each(|(report, row)| one(root, report, row, commit))
        }
        [] => all(root, &wanted(&reports, None)?),
        [name] => all(root, &wanted(&reports, Some(name.as_str()))?),
        _ => bail!("one row or report at a time, or none for all; --pages writes the pages alone"),
    }
}

type WantedRow<'a> = (&'a SeedReport, &'a ClaimRow);

fn folder(root: &Path) -> PathBuf {
    root.join("docs/reports")
}

fn wanted<'a>(reports: &'a [SeedReport], name: Option<&str>) -> anyhow::Result<Vec<WantedRow<'a>>> {
    let rows = reports.iter().flat_map(|report| report.row.iter().map(move |row| (report, row)));
    let rows: Vec<WantedRow<'a>> = rows
        .filter(|(report, row)| name.is_none_or(|name| report.name == name || report.full_name(row) == name))
        .collect();
    if rows.is_empty() {
        let names: Vec<String> =
            reports.iter().flat_map(|report| report.row.iter().map(|row| report.full_name(row))).collect();
        bail!("no such row; there are {}", names.join(", "));
    }
    Ok(rows)
}

fn all(root: &Path, rows: &[WantedRow<'_>]) -> anyhow::Result<()> {
    raise_descriptor_limit()?;
    build(root)?;
    // Before a file is written: what is measured is not the results.
    let commit = facts().commit;
    let mut failed = Vec::new();
    for (report, row) in rows {
        let name = report.full_name(row);
        println!("{name}");
        let done = if row.stand.wire { far_away(&name, &commit) } else { one(root, report, row, &commit) };
        if let Err(error) = done.and_then(|()| write_page(&folder(root), report)) {
            println!("{name} was not measured: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("not measured: {}", failed.join(", "));
    }
    Ok(())
}

fn one(root: &Path, report: &SeedReport, row: &ClaimRow, commit: &str) -> anyhow::Result<()> {
    let result = conduct::measure(root, report, row, commit)?;
    ResultsFile::put(&folder(root), &report.name, &row.name, result)
}

/// The same in a network namespace of its own, where a wire can be laid.
fn far_away(name: &str, commit: &str) -> anyhow::Result<()> {
    if !Path::new("/dev/net/tun").exists() {
        bail!("there is no /dev/net/tun for a wire of 200 ms");
    }
    let own = std::env::current_exe().context("this program's own path")?;
    let mut command = Command::new("unshare");
    run(command.args(["--map-root-user", "--net"]).arg(own).args(["reports", "--inside", name, commit]))
}

/// Writes the page and the chart of a report that has results.
fn write_page(folder: &Path, report: &SeedReport) -> anyhow::Result<()> {
    let Some(results) = ResultsFile::read(folder, &report.name)? else { return Ok(()) };
    for (name, text) in page::written(report, &results)? {
        let file = folder.join(name);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"
name = "limiter"
number = 1
title = "Rate limiter"
about = "What it was."
[[row]]
name = "ladder"
title = "A ladder"
said = "4,000/s"
really = "any reply counted"
stand = { service = "limiter" }
work = { kind = "saturate", url = "http://{at}/", arguments = ["--levels", "10,100"] }
seed = [{ load = 10, rate = 4000, p99_ms = 2 }, { load = 100, rate = 4500 }]
chart = true
[[row]]
name = "kill"
title = "kill -9"
said = "nothing"
really = "nothing"
stand = { service = "intake" }
work = { kind = "kill", seconds = 1 }
bound = [{ figure = "metrics lost", at_most = 0, why = "acknowledged is kept" }]
"#;

    fn step(load: u32, good: u64, p99_us: f64) -> serde_json::Value {
        serde_json::json!({
            "plan": {"connections": load}, "seconds": 5.0, "established": load, "good": good, "denied": 0, "errors": {},
            "response": {"mean_us": 500.0, "p50_us": 400, "p99_us": p99_us},
        })
    }

    fn results() -> serde_json::Value {
        let common = serde_json::json!({
            "date": "2026-11-28T20:00:00Z", "commit": "abc", "machine": "two cores", "kernel": "6.18", "command": "",
            "server_cpu_seconds": null, "store_cpu_seconds": null, "store_calls": null, "store_call_us": null,
        });
        let mut ladder = common.clone();
        ladder["report"] = serde_json::json!({
            "cause": {"name": "server-cpu", "summary": "the cores are used up", "evidence": ["1.9 of 2 cores"]},
            "levels": [{"load": 10.0, "zone": "optimal", "cause": "not-saturated"}],
            "steps": [step(10, 301_115, 3_070.0), step(100, 412_345, 900.0)],
        });
        let mut kill = common;
        kill["figures"] = serde_json::json!({"metrics lost": 0.0, "metrics found": 1234.0});
        kill["report"] = serde_json::Value::Null;
        serde_json::json!({"schema": "tidegate-reports/1", "report": "limiter", "rows": {"ladder": ladder, "kill": kill}})
    }

    /// The files of a report that are not what its results say.
    fn stale(folder: &Path, report: &SeedReport) -> Vec<String> {
        let Some(results) = ResultsFile::read(folder, &report.name).unwrap() else {
            let page = folder.join(&report.name).with_extension("md");
            return if page.exists() { vec![format!("{} has no results", report.name)] } else { Vec::new() };
        };
        let files = page::written(report, &results).unwrap().into_iter();
        let differs = |(name, text): &(String, String)| {
            std::fs::read_to_string(folder.join(name)).unwrap_or_default() != *text
        };
        files.filter(differs).map(|(name, _)| name).collect()
    }

    #[test]
    fn every_figure_of_the_pages_is_that_of_their_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for report in claims::read(root).unwrap() {
            let stale = stale(&folder(root), &report);
            assert!(stale.is_empty(), "{stale:?} are not of their results: `cargo xtask reports --pages`");
        }
    }

    #[test]
    fn an_edited_figure_is_found_in_the_page_the_chart_and_the_results() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let report: SeedReport = toml::from_str(REPORT).unwrap();
        std::fs::write(folder.join("limiter.json"), results().to_string()).unwrap();
        write_page(folder, &report).unwrap();
        assert_eq!(stale(folder, &report), Vec::<String>::new());
        let edit = |file: &str, from: &str, to: &str| {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{file} lacks {from}:\n{text}");
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        };
        edit("limiter.md", "60,223", "60,224");
        assert_eq!(stale(folder, &report), ["limiter.md"]);
        write_page(folder, &report).unwrap();
        edit("limiter.svg", "82,469", "92,469");
        assert_eq!(stale(folder, &report), ["limiter.svg"]);
        write_page(folder, &report).unwrap();
        edit("limiter.json", "412345", "422345");
        assert_eq!(stale(folder, &report), ["limiter.md", "limiter.svg"]);
        std::fs::remove_file(folder.join("limiter.json")).unwrap();
        assert_eq!(stale(folder, &report), ["limiter has no results"]);
    }

    #[test]
    fn a_row_that_is_not_better_says_so_first_and_a_row_without_a_result_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let report: SeedReport = toml::from_str(REPORT).unwrap();
        let mut known = results();
        known["rows"].as_object_mut().unwrap().remove("kill");
        std::fs::write(folder.path().join("limiter.json"), known.to_string()).unwrap();
        write_page(folder.path(), &report).unwrap();
        let page = std::fs::read_to_string(folder.path().join("limiter.md")).unwrap();
        let begins = "## A ladder\n\n**Not better**: p99 3.07 ms, the report 2 at 10 connections.\n";
        assert!(page.contains(begins), "{page}");
        assert!(page.contains("the cores are used up (server-cpu); seen: 1.9 of 2 cores"), "{page}");
        assert!(page.contains("These rows have no result: kill -9."), "{page}");
    }

    #[test]
    fn an_unknown_row_lists_the_known_ones() {
        let reports = [toml::from_str::<SeedReport>(REPORT).unwrap()];
        let failure = wanted(&reports, Some("cake")).err().unwrap().to_string();
        assert!(failure.contains("limiter-ladder, limiter-kill"), "{failure}");
        assert_eq!(wanted(&reports, Some("limiter")).unwrap().len(), 2);
        assert_eq!(wanted(&reports, Some("limiter-kill")).unwrap().len(), 1);
    }
}
