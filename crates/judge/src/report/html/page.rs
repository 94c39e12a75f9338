//! The page: what stands where.

use super::{charts, escape};
use crate::diagnose::{Cause, CauseName};
use crate::discover::Bound;
use crate::report::format::{bytes, count, percent, time};
use crate::report::markdown::{
    UNKNOWN, closes_sentence, cores_sentence, error_totals, interval_cell, interval_words, knee_sentence,
    known, pinned_words, shown, stop_name, zone_name,
};
use crate::report::{LevelRow, Report, times};

const STYLE: &str = include_str!("style.css");

/// Columns that hold words: aligned to the left.
const TEXT_COLUMNS: [&str; 5] = ["zone", "cause", "refused", "class", "part"];

/// Writes the report as one HTML file.
#[must_use]
pub fn html(report: &Report) -> String {
    let parts =
        [head(report), facts(report), verdicts(report), cause(report), curves(report), levels(report)];
    let rest =
        [self::parts(report), steps(report), errors(report), fit(report), gates(report), machine(report)];
    let body: String = parts.into_iter().chain(rest).collect();
    format!(
        r#"<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Saturation of {}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>
"#,
        escape(&report.context.target),
    )
}

fn head(report: &Report) -> String {
    let c = &report.context;
    format!(
        r#"<h1>Saturation of <code>{}</code></h1><p id="conclusion"><b>{}</b> {}</p><p class="dim">Scenario {} (<code>{}</code>), {}, tidegate {}<br>Load: {}</p>"#,
        escape(&c.target),
        escape(&report.conclusion.sentence),
        escape(&report.conclusion.advice),
        escape(&c.scenario),
        escape(&c.requests),
        escape(&c.started),
        escape(&c.version),
        escape(&c.engine),
    )
}

fn facts(report: &Report) -> String {
    let fact = |id: &str, name: &str, value: String, more: String| {
        format!(r#"<div class="fact" id="{id}"><span class="dim">{name}</span><b>{value}</b>{more}</div>"#)
    };
    let capacity = match report.capacity {
        Some(c) => fact(
            "capacity",
            "Capacity",
            format!("{}{}/s", if c.bound == Bound::AtLeast { "at least " } else { "" }, count(c.throughput)),
            format!("{}, at {} {}", interval_words(&c), count(c.load), report.load_unit()),
        ),
        None => {
            fact("capacity", "Capacity", "none".to_owned(), "no usable step keeps its objective".to_owned())
        }
    };
    let knee = match report.knee {
        Some(k) => {
            let more = format!("{}/s, p99 {}", count(k.throughput), time(k.p99_us));
            fact("knee", "Knee", format!("{} in flight", count(k.concurrency)), more)
        }
        None => fact("knee", "Knee", "not reached".to_owned(), escape(&knee_sentence(report))),
    };
    let why = fact(
        "cause",
        "Why",
        report.cause.name.as_str().to_owned(),
        match report.cause.name {
            CauseName::Unknown => "no signature is complete".to_owned(),
            _ => format!("confidence {}", percent(report.cause.confidence)),
        },
    );
    let zones: String = report
        .zones
        .iter()
        .map(|z| {
            let name = zone_name(z.zone);
            format!(r#"<li><span class="tag {name}">{name}</span> {} to {}</li>"#, count(z.from), count(z.to))
        })
        .collect();
    format!(
        r#"<div class="facts">{capacity}{knee}{why}<div class="fact" id="zones"><span class="dim">Zones by {}</span><ul class="legend">{zones}</ul></div></div>"#,
        report.load_unit(),
    )
}

fn verdicts(report: &Report) -> String {
    if report.verdicts.is_empty() {
        return String::new();
    }
    let items: String = report
        .verdicts
        .iter()
        .map(|v| {
            let found = v.figure.map_or("no figure".to_owned(), |f| shown(v.threshold.metric, f));
            let (class, word) = if v.met { ("met", "met") } else { ("not", "not met") };
            format!(
                r#"<li><code>{}</code> <span class="{class}">{word}</span> ({found})</li>"#,
                escape(&v.threshold.to_string())
            )
        })
        .collect();
    format!(r#"<h2>Thresholds</h2><ul id="thresholds">{items}</ul>"#)
}

fn cause(report: &Report) -> String {
    let lines: String = report.cause.evidence.iter().map(|e| format!("<li>{}</li>", escape(e))).collect();
    let cores = cores_sentence(report)
        .map_or(String::new(), |said| format!(r#"<p id="cores">{}</p>"#, escape(&said)));
    format!(
        r#"<h2>Why: {}</h2><p>{}</p><ul id="evidence">{lines}</ul>{cores}{}"#,
        report.cause.name.as_str(),
        escape(&report.cause.summary),
        findings(report),
    )
}

/// What is true beside the cause.
fn findings(report: &Report) -> String {
    let found = |c: &Cause| {
        let seen: Vec<String> = c.evidence.iter().map(|line| escape(line)).collect();
        let seen = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join("; ")) };
        format!("<li><b>{}</b>: {}{seen}</li>", c.name.as_str(), escape(&c.summary))
    };
    let all: String = report.findings.iter().map(found).collect();
    if all.is_empty() { all } else { format!(r#"<h2>Found beside it</h2><ul id="findings">{all}</ul>"#) }
}

fn curves(report: &Report) -> String {
    let mut all = charts::throughput(report) + &charts::latency(report);
    if let Some(step) = report.shown_step().filter(|s| s.response.count > 0) {
        all += &charts::histogram(step);
        all += &charts::percentiles(step);
    }
    all += &charts::timeline(report);
    let totals = error_totals(&report.steps);
    if !totals.is_empty() {
        all += &charts::errors(&totals);
    }
    format!(r#"<h2>Curves</h2><div class="charts">{all}</div>"#)
}

fn table(id: &str, head: &[&str], rows: &str) -> String {
    let cell = |h: &&str| {
        let class = if TEXT_COLUMNS.contains(h) { " class=\"text\"" } else { "" };
        format!("<th{class}>{}</th>", escape(h))
    };
    let head: String = head.iter().map(cell).collect();
    format!(
        r#"<div class="scroll" tabindex="0"><table id="{id}"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"#
    )
}

fn levels(report: &Report) -> String {
    let rows: String = report.levels.iter().map(level).collect();
    let head = [
        report.load_unit(),
        "good/s",
        "95 % interval",
        "p50",
        "p95",
        "p99",
        "errors",
        "denied",
        "zone",
        "cause",
    ];
    format!("<h2>Levels</h2>{}", table("levels", &head, &rows))
}

fn level(row: &LevelRow) -> String {
    let us = |v: Option<f64>| v.map_or("-".to_owned(), time);
    let zone = zone_name(row.zone);
    let zone = if row.generator_bound {
        r#"<span class="not">refused: generator</span>"#.to_owned()
    } else {
        format!(r#"<span class="tag {zone}">{zone}</span>"#)
    };
    format!(
        r#"<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class="text">{zone}</td><td class="text">{}</td></tr>"#,
        count(row.load),
        row.throughput.map_or("-".to_owned(), count),
        interval_cell(row),
        us(row.p50_us),
        us(row.p95_us),
        us(row.p99_us),
        percent(row.error_ratio),
        percent(row.denied_ratio),
        escape(&row.cause),
    )
}

fn steps(report: &Report) -> String {
    let rows: String = report
        .steps
        .iter()
        .map(|s| {
            let refused: Vec<String> = s
                .refusals
                .iter()
                .filter_map(|r| serde_json::to_value(r).ok()?.get("reason")?.as_str().map(str::to_owned))
                .collect();
            format!(
                "<tr><td>{}</td><td>{:.1} s</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
                count(s.load()),
                s.seconds,
                count(s.throughput.mean),
                time(s.response.p99_us as f64),
                time(s.service.p99_us as f64),
                count(s.mean_in_flight),
                percent(s.little.deviation),
                time(s.generator.send_lag_p99_us as f64),
                percent(s.generator.busiest_thread),
                escape(&refused.join(", ")),
            )
        })
        .collect();
    let head = [
        report.load_unit(),
        "time",
        "good/s",
        "response p99",
        "service p99",
        "in flight",
        "Little",
        "send lag p99",
        "generator",
        "refused",
    ];
    format!("<h2>Steps</h2>{}", table("steps", &head, &rows))
}

/// Where the time of a request goes, at the load that stands for the run.
fn parts(report: &Report) -> String {
    let Some(step) = report.shown_step() else { return String::new() };
    let rows: String = times(step)
        .map(|(name, t)| {
            format!(
                r#"<tr><td class="text">{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>"#,
                time(t.p50_us as f64),
                time(t.p99_us as f64),
                time(t.max_us as f64),
                count(t.count as f64),
            )
        })
        .collect();
    format!(
        "<h2>Where the time goes at {} {}</h2>{}",
        count(step.load()),
        report.load_unit(),
        table("times", &["part", "p50", "p99", "largest", "count"], &rows),
    )
}

fn errors(report: &Report) -> String {
    let rows: String = error_totals(&report.steps)
        .iter()
        .map(|(class, n)| {
            format!(r#"<tr><td class="text">{}</td><td>{}</td></tr>"#, escape(class), count(*n as f64))
        })
        .collect();
    let closes = closes_sentence(&report.steps);
    let closes = closes.map_or_else(String::new, |sentence| format!("<p>{}</p>", escape(&sentence)));
    if rows.is_empty() {
        return format!(r#"<h2>Errors by class</h2><p id="errors">None.</p>{closes}"#);
    }
    format!("<h2>Errors by class</h2>{}{closes}", table("errors", &["class", "count"], &rows))
}

fn fit(report: &Report) -> String {
    let Some(u) = report.usl else { return String::new() };
    format!(
        r#"<h2>Universal Scalability Law</h2><p id="usl">Contention {:.4} ({:.4} to {:.4}), coherency {:.2e} ({:.2e} to {:.2e}), R2 {:.3}, peak {}.{}</p>"#,
        u.sigma,
        u.sigma_interval.low,
        u.sigma_interval.high,
        u.kappa,
        u.kappa_interval.low,
        u.kappa_interval.high,
        u.r2,
        u.peak.map_or("none".to_owned(), count),
        if u.poor { r#" <b class="not">The fit is poor: do not use it.</b>"# } else { "" },
    )
}

fn gates(report: &Report) -> String {
    let items: String = report
        .gates
        .iter()
        .map(|g| {
            let (class, word) = if g.passed { ("met", "passed") } else { ("not", "failed") };
            format!(
                r#"<li>({}) {}: <span class="{class}">{word}</span> <span class="dim">{}</span></li>"#,
                g.id,
                escape(&g.rule),
                escape(&g.detail)
            )
        })
        .collect();
    format!(r#"<h2>Gates</h2><ul id="gates">{items}</ul>"#)
}

fn machine(report: &Report) -> String {
    let (m, s) = (&report.context.machine, &report.settings);
    format!(
        r#"<h2>Machine and settings</h2><ul id="machine"><li>{}, {}, {} cores, memory {}</li><li>{} descriptors, ports {}</li>{}<li>steps of {} s after {} s of warm-up, {} repeats near the knee; {} steps in all; ended: {}</li></ul>"#,
        escape(known(&m.system)),
        escape(known(&m.processor)),
        m.cores,
        if m.memory_bytes > 0 { bytes(m.memory_bytes) } else { UNKNOWN.to_owned() },
        if m.descriptor_limit > 0 { m.descriptor_limit.to_string() } else { UNKNOWN.to_owned() },
        escape(known(&m.port_range)),
        pinned_words(report).map_or(String::new(), |words| format!("<li>{}</li>", escape(&words))),
        s.measure_ms as f64 / 1e3,
        s.warmup_ms as f64 / 1e3,
        s.repeats,
        report.steps.len(),
        escape(&stop_name(report)),
    )
}
