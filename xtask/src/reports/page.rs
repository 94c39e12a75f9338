//! A report's page: a function of its rows and its results, and of nothing else, so that a test can say of every figure that
//! it was measured.
//!
//! A row that is not better than its report begins with that.

use std::fmt::Write as _;

use anyhow::bail;

use super::claims::{ClaimRow, SeedFigure, SeedReport};
use super::drawing::{RatePoint, chart};
use super::judge::{JudgedRow, float, judged, percent};
use super::results::{ResultsFile, RowResult, TesterView};
use crate::bench::{number, thousands};

/// From so many connections on it is said how many were open at once.
const MANY: u32 = 10_000;
const INVARIANT: &str = "a String takes any text";

/// The files of a report: its page, and its chart if it has one; by their names.
///
/// # Errors
/// When a result does not fit its row.
pub(crate) fn written(report: &SeedReport, results: &ResultsFile) -> anyhow::Result<Vec<(String, String)>> {
    if let Some(unknown) = results.rows.keys().find(|name| report.row.iter().all(|row| row.name != **name)) {
        bail!("{} has a result of `{unknown}`, which is no row of it", report.name);
    }
    let mut measured = Vec::new();
    for row in &report.row {
        if let Some(result) = results.rows.get(&row.name) {
            measured.push((row, result, judged(row, result)?));
        }
    }
    let drawn = drawing(report, &measured);
    let mut text = format!(
        "# {}\n\nWritten by `make reports` from [its results]({}.json); not edited by hand.\n\n{}\n",
        report.title,
        report.name,
        report.about.trim()
    );
    if drawn.is_some() {
        write!(
            text,
            "\n![Replies per second against connections, the report's and Tidegate's]({}.svg)\n",
            report.name
        )
        .expect(INVARIANT);
    }
    text.push_str(&overview(&measured));
    for (row, result, judged) in &measured {
        text.push_str(&section(report, row, result, judged));
    }
    text.push_str(&not_measured(report, results));
    let mut files = vec![(format!("{}.md", report.name), text)];
    files.extend(drawn.map(|svg| (format!("{}.svg", report.name), svg)));
    Ok(files)
}

type MeasuredRow<'a> = (&'a ClaimRow, &'a RowResult, JudgedRow);

fn drawing(report: &SeedReport, measured: &[MeasuredRow<'_>]) -> Option<String> {
    let drawn = || measured.iter().filter(|(row, _, _)| row.chart);
    let ours: Vec<RatePoint> = drawn()
        .flat_map(|(_, _, judged)| judged.figures.iter().map(|it| (f64::from(it.load), it.rate)))
        .collect();
    let theirs: Vec<RatePoint> = drawn()
        .flat_map(|(row, _, _)| row.seed.iter().filter_map(|it| Some((f64::from(it.load), it.rate?))))
        .collect();
    chart(&report.title, &theirs, &ours)
}

fn overview(measured: &[MeasuredRow<'_>]) -> String {
    let mut text = "\n| row | rate to the report's, at least | |\n|---|---:|---|\n".to_owned();
    for (row, _, judged) in measured {
        let ratio = judged.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{} x", number(ratio)));
        writeln!(text, "| {} | {ratio} | {} |", row.title, judged.word()).expect(INVARIANT);
    }
    text
}

fn section(report: &SeedReport, row: &ClaimRow, result: &RowResult, judged: &JudgedRow) -> String {
    let mut text = format!("\n## {}\n\n{}\n\n", row.title, judged.verdict());
    let mut line = |name: &str, said: &str| {
        if !said.trim().is_empty() {
            writeln!(text, "- {name}: {}", said.trim()).expect(INVARIANT);
        }
    };
    line("The report says", &row.said);
    line("What it measured", &row.really);
    line("Here", &row.here);
    if let Some(view) = &judged.view {
        line("The limit", &limit(view));
        let open = view.steps.iter().map(|step| step.established).max().unwrap_or(0);
        if open >= MANY {
            line("Open at once", &thousands(f64::from(open)));
        }
    }
    line("CPU and store", &used(result, judged));
    text.push_str(&if judged.figures.is_empty() { bounds(row, result) } else { table(row, judged) });
    writeln!(
        text,
        "\n`make reports ROW={}`: {}, commit {}, Linux {}, {}.",
        report.full_name(row),
        result.date,
        result.commit,
        result.kernel,
        result.machine
    )
    .expect(INVARIANT);
    text
}

/// The cause with its evidence.
fn limit(view: &TesterView) -> String {
    let seen = if view.cause.evidence.is_empty() {
        "nothing more".to_owned()
    } else {
        view.cause.evidence.join("; ")
    };
    format!("{} ({}); seen: {seen}", view.cause.summary, view.cause.name)
}

/// What servers used, for each reply.
fn used(result: &RowResult, judged: &JudgedRow) -> String {
    let replies: f64 = judged.figures.iter().map(|it| it.replies).sum();
    let mut parts = Vec::new();
    if let Some(seconds) = result.server_cpu_seconds {
        parts.push(format!("{} CPU s of the servers, warm-up included", number(seconds)));
        if seconds > 0.0 && replies > 0.0 {
            parts.push(format!("{} replies in a CPU second", thousands(replies / seconds)));
        }
    }
    if let Some(seconds) = result.store_cpu_seconds {
        parts.push(format!("{} CPU s of the store", number(seconds)));
    }
    if let (Some(calls), Some(each)) = (result.store_calls, result.store_call_us) {
        parts.push(format!("{} calls of the store, {} us each", thousands(calls), number(each)));
    }
    parts.join("; ")
}

fn table(row: &ClaimRow, judged: &JudgedRow) -> String {
    let mut text = "\n| connections | report, requests/s | Tidegate, replies/s | ratio | mean, ms | p50, ms | p99, ms | report's p99, ms | \
                    denied | failed | good, % | zone | limit |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|\n"
        .to_owned();
    for (index, ours) in judged.figures.iter().enumerate() {
        let seed = row.seed.get(index);
        let stated = seed.map_or_else(|| "-".to_owned(), rate_stated);
        let ratio =
            seed.and_then(|seed| seed.rate).map_or_else(|| "-".to_owned(), |rate| number(ours.rate / rate));
        let p99 = seed.and_then(|seed| seed.p99_ms).map_or_else(|| "-".to_owned(), number);
        writeln!(
            text,
            "| {} | {stated} | {} | {ratio} | {} | {} | {} | {p99} | {} | {} | {} | {} | {} |",
            thousands(f64::from(ours.load)),
            thousands(ours.rate),
            number(ours.mean_ms),
            number(ours.p50_ms),
            number(ours.p99_ms),
            count(ours.denied),
            count(ours.errors),
            percent(ours.success),
            ours.zone,
            ours.limit,
        )
        .expect(INVARIANT);
    }
    text
}

fn rate_stated(seed: &SeedFigure) -> String {
    match (seed.rate, seed.offered) {
        (Some(rate), _) => thousands(rate),
        (None, Some(offered)) => format!("{} offered", thousands(offered)),
        (None, None) => "-".to_owned(),
    }
}

/// The figures of work that is not the tester's.
fn bounds(row: &ClaimRow, result: &RowResult) -> String {
    let mut text = "\n| figure | Tidegate | at most | |\n|---|---:|---:|---|\n".to_owned();
    for (name, figure) in &result.figures {
        let bound = row.bound.iter().find(|bound| bound.figure == *name);
        let most = bound.map_or_else(|| "-".to_owned(), |bound| number(bound.at_most));
        let why = bound.map_or("", |bound| bound.why.as_str());
        writeln!(text, "| {name} | {} | {most} | {why} |", number(*figure)).expect(INVARIANT);
    }
    text
}

fn not_measured(report: &SeedReport, results: &ResultsFile) -> String {
    let missing: Vec<&str> = report
        .row
        .iter()
        .filter(|row| !results.rows.contains_key(&row.name))
        .map(|row| row.title.as_str())
        .collect();
    if missing.is_empty() {
        return String::new();
    }
    format!("\n## Not measured\n\nThese rows have no result: {}.\n", missing.join("; "))
}

fn count(value: u64) -> String {
    thousands(float(value))
}
