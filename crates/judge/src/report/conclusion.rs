//! The verdict of a run: one sentence, and what to do about it.
//!
//! Everything else in a report supports this sentence, and nothing in it may contradict it: a capacity that
//! the client limited is "at least", here and in the figures.

use serde::{Deserialize, Serialize};

use super::Report;
use super::format::{count, percent};
use crate::diagnose::CauseName;
use crate::discover::{Bound, Capacity, Stop};

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conclusion {
    /// What was found, in one sentence.
    pub sentence: String,
    /// What to do about it.
    pub advice: String,
}

/// Concludes from everything else in the report.
pub(super) fn conclude(report: &Report) -> Conclusion {
    let (sentence, advice) = match report.capacity {
        _ if !report.was_answered() => unanswered(report),
        Some(capacity) if capacity.bound == Bound::Reached => reached(report, capacity),
        Some(capacity) => at_least(report, capacity),
        None => no_figure(report),
    };
    let early = if report.stop == Stop::Interrupted { "Interrupted; until then: " } else { "" };
    let (sentence, advice) = match &report.context.first_reply {
        Some(first) => {
            (format!("{sentence}; {}", first.in_words()), format!("{}; then {advice}", first.advice()))
        }
        None => (sentence, advice),
    };
    Conclusion { sentence: format!("{early}{sentence}."), advice: format!("{}.", capitalised(&advice)) }
}

fn unanswered(report: &Report) -> (String, String) {
    let sum = |part: fn(&crate::record::StepRecord) -> u64| report.steps.iter().map(part).sum::<u64>();
    let (sent, errors, replies) =
        (sum(|s| s.sent), sum(|s| s.error_count()), sum(|s| s.statuses.values().sum()));
    let (sent, errors) = (count(sent as f64), count(errors as f64));
    if replies > 0 {
        let sentence = format!("No reply was good: {sent} requests were sent, {errors} ended in an error");
        return (sentence, "see the errors by class, and what the scenario calls a good reply".to_owned());
    }
    let sentence =
        format!("Nothing was answered: {sent} requests were sent, {errors} ended in an error, no reply came");
    (sentence, "see whether the server works at all, and whether this is its address".to_owned())
}

fn reached(report: &Report, capacity: Capacity) -> (String, String) {
    let cause = &report.cause;
    let what = format!("The server does {}", rate(report, capacity));
    if cause.name == CauseName::Unknown {
        return (format!("{what}; why not more is not known"), cause.name.advice().to_owned());
    }
    (format!("{what}; why not more: {} ({})", cause.summary, cause.name.as_str()), advice(report))
}

fn at_least(report: &Report, capacity: Capacity) -> (String, String) {
    let what = format!("The server does at least {}", rate(report, capacity));
    if report.cause.name != CauseName::Unknown {
        let why = format!("{} ({})", report.cause.summary, report.cause.name.as_str());
        return (format!("{what}; more was not seen, for {why}"), advice(report));
    }
    match report.stop {
        Stop::Generator => {
            let advice = CauseName::GeneratorCpu.advice().to_owned();
            (format!("{what}; above that the generator was the limit"), advice)
        }
        _ => (
            format!("{what}; throughput still grew at the largest load that was measured"),
            "allow more load: a higher --max-connections or --max-rate, or more --levels".to_owned(),
        ),
    }
}

fn no_figure(report: &Report) -> (String, String) {
    let refused = report.levels.iter().all(|level| level.generator_bound);
    if report.cause.name != CauseName::Unknown {
        let why = format!("{} ({})", report.cause.summary, report.cause.name.as_str());
        return (format!("There is no figure of the server: {why}"), advice(report));
    }
    if refused {
        let advice = CauseName::GeneratorCpu.advice().to_owned();
        return (
            "There is no figure of the server: the generator was the limit of every step".to_owned(),
            advice,
        );
    }
    if report.stop == Stop::ObjectiveNeverHolds {
        let sentence = "No load keeps the objective, not even the smallest that was measured".to_owned();
        return (sentence, "look at the latency of the smallest load, or ask for less".to_owned());
    }
    (
        "There is no figure of the server: each step was refused, or its objective or errors missed"
            .to_owned(),
        "see why below, step by step".to_owned(),
    )
}

fn rate(report: &Report, capacity: Capacity) -> String {
    let interval = capacity.interval;
    let sure = if capacity.is_unsteady() {
        ", by repeats that differ too much for an interval".to_owned()
    } else {
        format!(" (95 % interval {} to {})", count(interval.low), count(interval.high))
    };
    format!(
        "{} good replies/s{sure} at {} {}",
        count(capacity.throughput),
        count(capacity.load),
        report.load_unit()
    )
}

/// What to do about the cause; on a shared machine, to begin with that.
fn advice(report: &Report) -> String {
    let own = report.cause.name.advice();
    match &report.cores {
        Some(used) if report.cause.name == CauseName::ServerCpu && used.generator > 0.1 * used.cores => {
            format!(
                "move the generator, which used {} of the same cores, to another machine or give each its own with --pin; then {own}",
                percent(used.generator / used.cores)
            )
        }
        _ => own.to_owned(),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
