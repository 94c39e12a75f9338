//! The report as Markdown, for a pull request or a docs page.
//!
//! Text from outside (target, thread names) is written inside code spans with its backticks and
//! line breaks taken out, and `|` escaped, so that it cannot end a table or start a link.

use std::fmt::Write;

use super::format::{bytes, count, percent, time};
use super::{LevelRow, Report};
use crate::diagnose::CauseName;
use crate::discover::zones::Zone;
use crate::discover::{Bound, Capacity};
use crate::measurement::ServerCloses;
use crate::record::StepRecord;

/// Writes the report as Markdown.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Invariant of every `write!` here: a String takes any text.
    let parts: [fn(&Report, &mut String) -> std::fmt::Result; 8] =
        [head, cause, levels, parts, errors, fit, gates, machine];
    for part in parts {
        part(report, &mut out).expect("writing to a String cannot fail");
    }
    out
}

/// The sentence that answers "how much": also used by the HTML.
#[must_use]
pub fn capacity_sentence(report: &Report) -> String {
    let Some(c) = report.capacity else {
        return "No capacity: no step has a usable figure whose objective holds.".to_owned();
    };
    let bound = if c.bound == Bound::AtLeast { "at least " } else { "" };
    format!(
        "Capacity: {bound}{} good replies/s ({}) at {} {}, from {} usable steps.",
        count(c.throughput),
        interval_words(&c),
        count(c.load),
        report.load_unit(),
        c.repeats,
    )
}

/// The capacity's interval, or that it says nothing.
#[must_use]
pub fn interval_words(c: &Capacity) -> String {
    if c.is_unsteady() {
        return "the repeats differ too much for an interval".to_owned();
    }
    format!("95 % interval {} to {}", count(c.interval.low), count(c.interval.high))
}

/// The interval of a level in a table's cell.
#[must_use]
pub fn interval_cell(row: &LevelRow) -> String {
    match row.interval {
        Some(i) => format!("{} to {}", count(i.low), count(i.high)),
        None if row.unsteady => "too wide: repeats differ".to_owned(),
        None => "-".to_owned(),
    }
}

/// Which cores each had, where they had cores of their own.
#[must_use]
pub fn pinned_words(report: &Report) -> Option<String> {
    let list = |cores: &[usize]| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let split = report.context.pinned.as_ref()?;
    Some(format!(
        "the server ran on cores {}, the generator on {}",
        list(&split.server),
        list(&split.generator)
    ))
}

/// The use of the server's cores, if it was measured.
#[must_use]
pub fn cores_sentence(report: &Report) -> Option<String> {
    report.cores.map(|used| {
        let mut sentence = used.sentence();
        if let Some(first) = sentence.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        format!("{sentence}.")
    })
}

/// The sentence that answers "from where on more load only waits".
#[must_use]
pub fn knee_sentence(report: &Report) -> String {
    match report.knee {
        Some(k) => format!(
            "Knee: {} in flight, with {}/s and p99 {}; it lies between {} and {} {}.",
            count(k.concurrency),
            count(k.throughput),
            time(k.p99_us),
            count(k.between.low),
            count(k.between.high),
            report.load_unit(),
        ),
        None => "Knee: not reached within what was measured.".to_owned(),
    }
}

/// The name of a zone in lower case.
#[must_use]
pub fn zone_name(zone: Zone) -> &'static str {
    match zone {
        Zone::Optimal => "optimal",
        Zone::Stressed => "stressed",
        Zone::Degraded => "degraded",
        Zone::Broken => "broken",
    }
}

fn inline(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() || c == '`' { ' ' } else { c }).collect();
    format!("`{}`", plain.replace('|', "\\|").trim())
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

fn head(report: &Report, out: &mut String) -> std::fmt::Result {
    let c = &report.context;
    writeln!(out, "# Saturation of {}\n", inline(&c.target))?;
    writeln!(
        out,
        "Scenario {} ({}), {}, tidegate {}. Load: {}.\n",
        inline(&c.scenario),
        inline(&c.requests),
        inline(&c.started),
        inline(&c.version),
        cell(&c.engine)
    )?;
    let said = &report.conclusion;
    writeln!(out, "**{}** {}\n", cell(&said.sentence), cell(&said.advice))?;
    writeln!(out, "- {}", capacity_sentence(report))?;
    writeln!(out, "- {}", knee_sentence(report))?;
    if let Some(cores) = cores_sentence(report) {
        writeln!(out, "- {cores}")?;
    }
    for zone in &report.zones {
        writeln!(
            out,
            "- Zone {}: {} to {} {}.",
            zone_name(zone.zone),
            count(zone.from),
            count(zone.to),
            report.load_unit()
        )?;
    }
    for v in &report.verdicts {
        let found = v.figure.map_or("no figure".to_owned(), |f| shown(v.threshold.metric, f));
        writeln!(out, "- Threshold `{}`: {} ({found}).", v.threshold, if v.met { "met" } else { "NOT met" })?;
    }
    Ok(())
}

/// A figure in its metric's unit.
#[must_use]
pub fn shown(metric: crate::threshold::Metric, figure: f64) -> String {
    use crate::threshold::Metric;
    match metric {
        Metric::Errors | Metric::Denied => percent(figure),
        Metric::Throughput => format!("{}/s", count(figure)),
        _ => time(figure),
    }
}

fn cause(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## Why: {}\n", report.cause.name.as_str())?;
    let sure = match report.cause.name {
        CauseName::Unknown => String::new(),
        _ => format!(" (confidence {})", percent(report.cause.confidence)),
    };
    writeln!(out, "{}{sure}.\n", cell(&report.cause.summary))?;
    for line in &report.cause.evidence {
        writeln!(out, "- {}", cell(line))?;
    }
    if !report.findings.is_empty() {
        writeln!(out, "\n## Found beside it\n")?;
    }
    for found in &report.findings {
        writeln!(out, "- {}: {}", found.name.as_str(), cell(&found.summary))?;
        for line in &found.evidence {
            writeln!(out, "  - {}", cell(line))?;
        }
    }
    Ok(())
}

fn levels(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## Levels\n")?;
    writeln!(
        out,
        "| {} | good/s | 95 % interval | p50 | p95 | p99 | errors | denied | zone | cause |",
        report.load_unit()
    )?;
    writeln!(out, "|---:|---:|---|---:|---:|---:|---:|---:|---|---|")?;
    for row in &report.levels {
        writeln!(out, "{}", level(row))?;
    }
    Ok(())
}

/// Where the time of a request goes, at the load that stands for the run.
fn parts(report: &Report, out: &mut String) -> std::fmt::Result {
    let Some(step) = report.shown_step() else { return Ok(()) };
    writeln!(out, "\n## Where the time goes\n\nAt {} {}.\n", count(step.load()), report.load_unit())?;
    writeln!(out, "| part | p50 | p99 | largest | count |\n|---|---:|---:|---:|---:|")?;
    for (name, t) in super::times(step) {
        writeln!(
            out,
            "| {name} | {} | {} | {} | {} |",
            time(t.p50_us as f64),
            time(t.p99_us as f64),
            time(t.max_us as f64),
            count(t.count as f64)
        )?;
    }
    Ok(())
}

fn level(row: &LevelRow) -> String {
    let us = |v: Option<f64>| v.map_or("-".to_owned(), time);
    let zone = if row.generator_bound { "refused: the generator was the limit" } else { zone_name(row.zone) };
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {zone} | {} |",
        count(row.load),
        row.throughput.map_or("-".to_owned(), count),
        interval_cell(row),
        us(row.p50_us),
        us(row.p95_us),
        us(row.p99_us),
        percent(row.error_ratio),
        percent(row.denied_ratio),
        row.cause,
    )
}

/// Errors of all steps by class, the most frequent first.
#[must_use]
pub fn error_totals(steps: &[StepRecord]) -> Vec<(String, u64)> {
    let mut totals: Vec<(String, u64)> = Vec::new();
    for (class, n) in steps.iter().flat_map(|s| &s.errors) {
        let name = serde_json::to_value(class).ok().and_then(|v| v.as_str().map(str::to_owned));
        let name = name.unwrap_or_else(|| "other".to_owned());
        match totals.iter_mut().find(|t| t.0 == name) {
            Some(total) => total.1 += n,
            None => totals.push((name, *n)),
        }
    }
    totals.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    totals
}

/// What the server ended between two requests, over all steps; nothing to say where it ended nothing.
#[must_use]
pub(crate) fn closes_sentence(steps: &[StepRecord]) -> Option<String> {
    let mut sum = ServerCloses::default();
    for step in steps {
        sum.add(&step.closes);
    }
    (!sum.is_none()).then(|| format!("Between two requests the server ended {}: no errors.", sum.in_words()))
}

fn errors(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## Errors by class\n")?;
    let totals = error_totals(&report.steps);
    if totals.is_empty() {
        writeln!(out, "None.")?;
    }
    for (class, n) in totals {
        writeln!(out, "- {class}: {}", count(n as f64))?;
    }
    if let Some(sentence) = closes_sentence(&report.steps) {
        writeln!(out, "\n{sentence}")?;
    }
    Ok(())
}

fn fit(report: &Report, out: &mut String) -> std::fmt::Result {
    let Some(u) = report.usl else { return Ok(()) };
    writeln!(out, "\n## Universal Scalability Law\n")?;
    writeln!(
        out,
        "Contention {:.4} ({:.4} to {:.4}), coherency {:.2e} ({:.2e} to {:.2e}), R2 {:.3}, peak {}.{}",
        u.sigma,
        u.sigma_interval.low,
        u.sigma_interval.high,
        u.kappa,
        u.kappa_interval.low,
        u.kappa_interval.high,
        u.r2,
        u.peak.map_or("none".to_owned(), count),
        if u.poor { " The fit is poor: do not use it." } else { "" },
    )
}

fn gates(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n## Gates\n")?;
    for g in &report.gates {
        writeln!(
            out,
            "- ({}) {}: {} ({})",
            g.id,
            g.rule,
            if g.passed { "passed" } else { "FAILED" },
            g.detail
        )?;
    }
    Ok(())
}

/// What is written where a fact could not be read.
pub const UNKNOWN: &str = "unknown";

/// A fact of the machine, or that it is not known.
#[must_use]
pub fn known(fact: &str) -> &str {
    if fact.trim().is_empty() { UNKNOWN } else { fact }
}

fn machine(report: &Report, out: &mut String) -> std::fmt::Result {
    let (m, s) = (&report.context.machine, &report.settings);
    writeln!(out, "\n## Machine and settings\n")?;
    writeln!(
        out,
        "- {}, {}, {} cores, memory {}; {} descriptors; ports {}",
        inline(known(&m.system)),
        inline(known(&m.processor)),
        m.cores,
        if m.memory_bytes > 0 { bytes(m.memory_bytes) } else { UNKNOWN.to_owned() },
        if m.descriptor_limit > 0 { m.descriptor_limit.to_string() } else { UNKNOWN.to_owned() },
        inline(known(&m.port_range)),
    )?;
    if let Some(pinned) = pinned_words(report) {
        writeln!(out, "- {pinned}")?;
    }
    writeln!(
        out,
        "- steps of {} s after {} s of warm-up, {} repeats near the knee; {} steps in all; ended: {}",
        s.measure_ms as f64 / 1e3,
        s.warmup_ms as f64 / 1e3,
        s.repeats,
        report.steps.len(),
        stop_name(report),
    )
}

/// Why the search ended, as the JSON has it.
#[must_use]
pub fn stop_name(report: &Report) -> String {
    serde_json::to_value(report.stop).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
