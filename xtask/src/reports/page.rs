//! A report's page: a function of its rows and its results, and of nothing else, so that a test can say of every figure that
//! it was measured.
//!
//! Compared are those of rate, mean, p99 and success that the report states for a step. A row with one figure that is not
//! better begins with that; an offered rate is shown, and compared with nothing.

use std::fmt::Write as _;

use anyhow::bail;

use super::claims::{ClaimRow, SeedFigure, SeedReport};
use super::drawing::{RatePoint, chart};
use super::results::{ResultsFile, RowResult, StepView, TesterView};
use crate::bench::{number, thousands};

/// From so many connections on it is said how many were open at once.
const MANY: u32 = 10_000;
const INVARIANT: &str = "a String takes any text";

/// Our figures of one step, or of all of them together.
struct OurFigures {
    load: u32,
    replies: f64,
    rate: f64,
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    denied: u64,
    errors: u64,
    /// In per cent.
    success: f64,
    zone: String,
    limit: String,
}

/// One row, judged.
struct JudgedRow {
    figures: Vec<OurFigures>,
    view: Option<TesterView>,
    /// What is not better, each in words.
    misses: Vec<String>,
    /// How many figures were compared.
    compared: usize,
    /// The least ratio of rates over its steps.
    ratio: Option<f64>,
}

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

impl JudgedRow {
    fn word(&self) -> &'static str {
        match (self.misses.is_empty(), self.compared) {
            (false, _) => "**not better**",
            (true, 0) => "nothing to compare",
            (true, _) => "better",
        }
    }

    fn verdict(&self) -> String {
        match (self.misses.is_empty(), self.compared) {
            (false, _) => format!("**Not better**: {}.", self.misses.join("; ")),
            (true, 0) => "The report states no figure that was served, so nothing is compared.".to_owned(),
            (true, 1) => "Better in the one figure that the report states.".to_owned(),
            (true, compared) => format!("Better in each of the {compared} figures that the report states."),
        }
    }
}

fn judged(row: &ClaimRow, result: &RowResult) -> anyhow::Result<JudgedRow> {
    let view = result.view()?;
    let figures = match &view {
        Some(view) if row.whole => vec![together(row, view)],
        Some(view) => {
            view.steps.iter().map(|step| figures_of(row, view, std::slice::from_ref(step))).collect()
        }
        None => Vec::new(),
    };
    let mut judged = JudgedRow { figures, view, misses: Vec::new(), compared: 0, ratio: None };
    for (ours, seed) in judged.figures.iter().zip(&row.seed) {
        if !row.whole && ours.load != seed.load {
            bail!(
                "{}: a step has {} connections, and the report's figure is of {}",
                row.name,
                ours.load,
                seed.load
            );
        }
        let at = if row.seed.len() > 1 {
            format!(" at {} connections", thousands(f64::from(seed.load)))
        } else {
            String::new()
        };
        for (miss, is_better) in comparisons(seed, ours) {
            judged.compared += 1;
            if !is_better {
                judged.misses.push(format!("{miss}{at}"));
            }
        }
        if let Some(rate) = seed.rate {
            let ratio = ours.rate / rate;
            judged.ratio = Some(judged.ratio.map_or(ratio, |least: f64| least.min(ratio)));
        }
    }
    for bound in &row.bound {
        judged.compared += 1;
        match result.figures.get(&bound.figure) {
            Some(figure) if *figure <= bound.at_most => {}
            Some(figure) => judged.misses.push(format!(
                "{} {}, at most {}",
                bound.figure,
                number(*figure),
                number(bound.at_most)
            )),
            None => judged.misses.push(format!("{} was not measured", bound.figure)),
        }
    }
    Ok(judged)
}

/// What is compared, in words, and whether ours is at least as good.
fn comparisons(seed: &SeedFigure, ours: &OurFigures) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    if let Some(rate) = seed.rate {
        let said = format!("{} replies/s, the report {}", thousands(ours.rate), thousands(rate));
        all.push((said, ours.rate >= rate));
    }
    if let Some(mean) = seed.mean_ms {
        all.push((
            format!("a mean of {} ms, the report {}", number(ours.mean_ms), number(mean)),
            ours.mean_ms <= mean,
        ));
    }
    if let Some(p99) = seed.p99_ms {
        all.push((format!("p99 {} ms, the report {}", number(ours.p99_ms), number(p99)), ours.p99_ms <= p99));
    }
    if let Some(success) = seed.success {
        let said = format!("{} % good, the report {} %", percent(ours.success), percent(success));
        all.push((said, ours.success >= success));
    }
    all
}

/// All steps as one: replies over all of their time; the worst p99.
fn together(row: &ClaimRow, view: &TesterView) -> OurFigures {
    figures_of(row, view, &view.steps)
}

fn figures_of(row: &ClaimRow, view: &TesterView, steps: &[StepView]) -> OurFigures {
    let sum = |value: &dyn Fn(&StepView) -> f64| steps.iter().map(value).sum::<f64>();
    let most = |value: &dyn Fn(&StepView) -> f64| steps.iter().map(value).fold(0.0, f64::max);
    let good = sum(&|step| float(step.good));
    let (denied, errors) =
        (steps.iter().map(|step| step.denied).sum(), steps.iter().map(StepView::error_count).sum());
    let replies = good + if row.denials_count { float(denied) } else { 0.0 };
    let ended = good + float(denied) + float(errors);
    let seconds = sum(&|step| step.seconds + if row.opening { step.opening_seconds } else { 0.0 });
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let load = steps.iter().map(|step| step.plan.connections).max().unwrap_or(0);
    let level = view.levels.iter().find(|level| (level.load - f64::from(load)).abs() < 0.5);
    let mut limits: Vec<&str> = level.map(|level| level.cause.as_str()).into_iter().collect();
    for refusal in steps.iter().flat_map(|step| &step.refusals) {
        if !limits.contains(&refusal.reason.as_str()) {
            limits.push(&refusal.reason);
        }
    }
    OurFigures {
        load,
        replies,
        rate: share(replies, seconds),
        mean_ms: share(sum(&|step| step.response.mean_us * float(step.good)), good) / 1e3,
        p50_ms: most(&|step| step.response.p50_us) / 1e3,
        p99_ms: most(&|step| step.response.p99_us) / 1e3,
        denied,
        errors,
        success: share(replies, ended) * 100.0,
        zone: level.map_or("-", |level| level.zone.as_str()).to_owned(),
        limit: limits.join(", "),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of one run; 2^53 of them are not reached")]
fn float(count: u64) -> f64 {
    count as f64
}

/// Two places; what failed once in a million is not shown as whole.
fn percent(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "100.00" && value < 100.0 {
        return "under 100".to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn count(value: u64) -> String {
    thousands(float(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_failure_is_not_rounded_away() {
        assert_eq!(
            [100.0, 99.9999, 64.08, 99.5, 0.0].map(percent),
            ["100", "under 100", "64.08", "99.5", "0"]
        );
    }
}
