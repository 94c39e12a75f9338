//! A run in words for a terminal or a log: one line per step, and the answer at the end.
//!
//! Pure: records and reports in, text out. Figures of a step that was refused are not printed as the
//! server's; the line says why instead.

use std::fmt::Write;

use crate::diagnose::CauseName;
use crate::discover::Stop;
use crate::discover::gates::{LATENCIES, too_few_latencies};
use crate::discover::zones::Zone;
use crate::measurement::Loop;
use crate::record::{Refusal, StepRecord};
use crate::report::Report;
use crate::report::format::{count, percent, time};
use crate::report::markdown::{
    capacity_sentence, closes_sentence, cores_sentence, error_totals, knee_sentence, pinned_words, shown,
    zone_name,
};

/// One line for step `number`, counted from 1.
#[must_use]
pub fn step_line(number: usize, step: &StepRecord) -> String {
    let unit = match step.plan.discipline {
        Loop::Closed { .. } => "connections",
        Loop::Open { .. } => "requests/s offered",
    };
    let mut line = format!("step {number}: {} {unit}: ", count(step.load()));
    if let Some(why) = step.refusals.iter().find_map(|refusal| refused(refusal, step)) {
        line.push_str(&why);
    } else {
        let response = &step.response;
        line.push_str(&format!(
            "{}/s, p50 {}, p99 {}",
            count(step.throughput.mean),
            time(response.p50_us as f64),
            time(response.p99_us as f64)
        ));
    }
    for (n, what) in [(step.denied, "denied"), (step.error_count(), "errors")] {
        if n > 0 {
            line.push_str(&format!(", {} {what}", count(n as f64)));
        }
    }
    line
}

/// Why a step's figure is not the server's.
fn refused(refusal: &Refusal, step: &StepRecord) -> Option<String> {
    match refusal {
        Refusal::GeneratorBound { send_lag_p99_us, busiest_thread, run_delay } => Some(format!(
            "not counted: the generator was the limit (sends late by {} at p99, busiest thread {}, {} of its time without a core)",
            time(*send_lag_p99_us as f64),
            percent(*busiest_thread),
            percent(*run_delay)
        )),
        Refusal::LittlesLaw { check } => Some(format!(
            "not counted: rate x latency misses the stated concurrency by {}{}",
            percent(check.deviation.abs()),
            too_short(step)
        )),
        Refusal::TooShort { .. } => None,
    }
}

/// What to do about a step too short for its latencies; nothing to say about others.
fn too_short(step: &StepRecord) -> String {
    too_few_latencies(step).map_or_else(String::new, |lasted| {
        let seconds = (LATENCIES * step.response.mean_us / 1e6).ceil();
        format!(" (it lasted only {lasted:.1} mean latencies: measure {seconds} s or more)")
    })
}

/// The answer of a run: capacity, knee, zones, cause with its evidence, what to distrust.
#[must_use]
pub fn summary(report: &Report) -> String {
    let mut out = String::new();
    // Invariant: a String takes any text.
    write(report, &mut out).expect("writing to a String cannot fail");
    out
}

fn write(report: &Report, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}", report.conclusion.sentence)?;
    writeln!(out, "What to do: {}\n", report.conclusion.advice)?;
    writeln!(out, "{}", capacity_sentence(report))?;
    writeln!(out, "{}", knee_sentence(report))?;
    let zones: Vec<String> = report
        .zones
        .iter()
        .map(|z| format!("{} {} to {}", zone_name(z.zone), count(z.from), count(z.to)))
        .collect();
    if !zones.is_empty() {
        writeln!(out, "Zones ({}): {}.", report.load_unit(), zones.join(", "))?;
    }
    writeln!(out, "Ended: {}.", ended(report.stop))?;
    cause(report, out)?;
    for (class, n) in error_totals(&report.steps) {
        writeln!(out, "Errors {class}: {}.", count(n as f64))?;
    }
    if let Some(sentence) = closes_sentence(&report.steps) {
        writeln!(out, "{sentence}")?;
    }
    for gate in report.gates.iter().filter(|g| !g.passed) {
        writeln!(out, "Gate ({}) FAILED: {} ({}).", gate.id, gate.rule, gate.detail)?;
    }
    let broken = report.zones.iter().find(|z| z.zone == Zone::Broken);
    if let Some(zone) = broken {
        writeln!(out, "From {} {} on the service is broken.", count(zone.from), report.load_unit())?;
    }
    for verdict in &report.verdicts {
        let found = verdict.figure.map_or("no figure".to_owned(), |f| shown(verdict.threshold.metric, f));
        let word = if verdict.met { "met" } else { "MISSED" };
        writeln!(out, "Threshold {}: {word} ({found}).", verdict.threshold)?;
    }
    Ok(())
}

fn cause(report: &Report, out: &mut String) -> std::fmt::Result {
    let cause = &report.cause;
    let sure = match cause.name {
        CauseName::Unknown => String::new(),
        _ => format!(" ({} sure)", percent(cause.confidence)),
    };
    writeln!(out, "Cause: {}{sure}: {}.", cause.name.as_str(), cause.summary)?;
    for line in &cause.evidence {
        writeln!(out, "  - {line}")?;
    }
    if let Some(cores) = cores_sentence(report) {
        writeln!(out, "  - {cores}")?;
    }
    if let Some(pinned) = pinned_words(report) {
        writeln!(out, "  - {pinned}")?;
    }
    for found in &report.findings {
        writeln!(out, "Found beside it: {}: {}.", found.name.as_str(), found.summary)?;
        for line in &found.evidence {
            writeln!(out, "  - {line}")?;
        }
    }
    Ok(())
}

fn ended(stop: Stop) -> &'static str {
    match stop {
        Stop::Found => "the knee is bracketed and replicated",
        Stop::LevelsDone => "every step asked for was measured",
        Stop::Ceiling => "the largest load allowed was reached while throughput still grew",
        Stop::Generator => "the generator was the limit before the server was",
        Stop::ObjectiveNeverHolds => "not even the smallest load meets the objective",
        Stop::Steps => "the bound on steps was reached",
        Stop::Time => "the bound on time was reached",
        Stop::Interrupted => "it was interrupted; this is what was measured until then",
    }
}
