//! Did it get faster: two reports of the same work, with an interval on every difference.
//!
//! Only what is the same is compared: loads that both reports measured in the same loop, with usable
//! figures on both sides and the same mix of good, denied and failed replies. Intervals are bootstrap
//! intervals of the ratio, resampled in two stages: repeats first, then half-second batches within
//! them, because repeats differ for reasons that no single run shows.
//!
//! A difference is called one only when its interval leaves out 0 AND its near end exceeds a floor
//! that depends on how much was measured: with a single repeat nothing is known about the spread
//! between runs, and two runs of one binary commonly differ by a few percent. Everything else is
//! "unchanged", with the interval that says how much could hide in it.

mod resample;

#[cfg(test)]
mod tests;

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::stats::Interval;

use crate::record::StepRecord;
use crate::report::Report;
use crate::report::format::{count, percent};

/// Most that the mix of replies may differ by for the work to be the same.
const SAME_MIX: f64 = 0.05;
/// Smallest difference that is called one, with three repeats or more on both sides.
const FLOOR: f64 = 0.01;
/// The same with fewer repeats.
const FLOOR_UNREPEATED: f64 = 0.05;
/// Smallest difference of a percentile that is called one: the kept histogram has 5 % buckets.
const FLOOR_LATENCY: f64 = 0.05;
/// Repeats from which the spread between runs is known.
const REPEATED: usize = 3;

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// The interval holds no difference that counts.
    Unchanged,
}

/// One figure in both reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// In A.
    pub a: f64,
    /// In B.
    pub b: f64,
    /// `b / a - 1`.
    pub relative: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// The verdict.
    pub change: Change,
}

/// The comparison at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtLoad {
    /// Connections, or requests per second offered.
    pub load: f64,
    /// Good replies per second.
    pub throughput: Delta,
    /// Median response time in microseconds.
    pub p50: Delta,
    /// 99th percentile of the response time in microseconds.
    pub p99: Delta,
    /// Fewest usable repeats of the two.
    pub repeats: usize,
}

/// The whole comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What A tested.
    pub a: String,
    /// What B tested.
    pub b: String,
    /// At every load that both measured, by rising load.
    pub loads: Vec<AtLoad>,
    /// The most that each kept up, when both have it.
    pub capacity: Option<Delta>,
    /// What a reader should know before believing it.
    pub notes: Vec<String>,
}

/// Why two reports cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomparable {
    /// One raised connections, the other a rate, or with other pauses.
    #[error("not the same work: A ran {a}, B ran {b}")]
    Loop {
        /// The loop of A.
        a: String,
        /// The loop of B.
        b: String,
    },
    /// Another scenario.
    #[error("not the same work: A ran scenario `{a}`, B `{b}`")]
    Scenario {
        /// The scenario of A.
        a: String,
        /// The scenario of B.
        b: String,
    },
    /// Other requests.
    #[error("not the same work: A sent `{a}`, B `{b}`, or other data, headers or checks with them")]
    Requests {
        /// What A sent.
        a: String,
        /// What B sent.
        b: String,
    },
    /// No load with usable figures on both sides.
    #[error("no load was measured with usable figures in both reports: measure the same levels")]
    NothingShared,
    /// Another mix of replies at every shared load.
    #[error("not the same work: at {load} A denied or failed {a}, B {b}")]
    Mix {
        /// The first load where they differ.
        load: String,
        /// Share in A.
        a: String,
        /// Share in B.
        b: String,
    },
}

/// Compares B with A. `seed` decides the resampling.
///
/// # Errors
/// When the two did not do the same work.
pub fn compare(a: &Report, b: &Report, seed: u64) -> Result<Comparison, Incomparable> {
    if a.settings.mode != b.settings.mode {
        return Err(Incomparable::Loop {
            a: format!("{:?}", a.settings.mode),
            b: format!("{:?}", b.settings.mode),
        });
    }
    if a.context.scenario != b.context.scenario {
        return Err(Incomparable::Scenario { a: a.context.scenario.clone(), b: b.context.scenario.clone() });
    }
    let (x, y) = (&a.context.requests_digest, &b.context.requests_digest);
    // Of two targets that were named together both requests are wanted: they have no digest.
    if x != y && !x.is_empty() && !y.is_empty() {
        return Err(Incomparable::Requests { a: a.context.requests.clone(), b: b.context.requests.clone() });
    }
    let mut loads = Vec::new();
    let mut other_mix = None;
    for row in &a.levels {
        let (left, right) = (usable(a, row.load), usable(b, row.load));
        if left.is_empty() || right.is_empty() {
            continue;
        }
        let (x, y) = (waste(&left), waste(&right));
        if (x - y).abs() > SAME_MIX {
            other_mix.get_or_insert(Incomparable::Mix {
                load: count(row.load),
                a: percent(x),
                b: percent(y),
            });
            continue;
        }
        loads.push(at_load(row.load, &left, &right, seed));
    }
    if loads.is_empty() {
        return Err(other_mix.unwrap_or(Incomparable::NothingShared));
    }
    Ok(Comparison {
        a: a.context.target.clone(),
        b: b.context.target.clone(),
        loads,
        capacity: capacity(a, b, seed),
        notes: notes(a, b),
    })
}

fn usable(report: &Report, load: f64) -> Vec<&StepRecord> {
    report.steps_at(load).filter(|s| s.usable() && s.good > 0).collect()
}

/// Share of replies that are not good.
fn waste(steps: &[&StepRecord]) -> f64 {
    let (good, ended) = steps.iter().fold((0, 0), |(g, e), s| (g + s.good, e + s.ended()));
    if ended == 0 { 0.0 } else { 1.0 - good as f64 / ended as f64 }
}

fn at_load(load: f64, a: &[&StepRecord], b: &[&StepRecord], seed: u64) -> AtLoad {
    let repeats = a.len().min(b.len());
    let quantile = |q: f64| {
        let floor = FLOOR_LATENCY.max(floor(repeats));
        let value = |steps: &[&StepRecord]| resample::quantile(steps, q);
        // A shorter time is the better one.
        delta(value(a), value(b), resample::quantile_ratio(a, b, q, seed), floor, false)
    };
    AtLoad {
        load,
        throughput: delta(
            resample::rate(a),
            resample::rate(b),
            resample::rate_ratio(a, b, seed),
            floor(repeats),
            true,
        ),
        p50: quantile(0.50),
        p99: quantile(0.99),
        repeats,
    }
}

fn floor(repeats: usize) -> f64 {
    if repeats >= REPEATED { FLOOR } else { FLOOR_UNREPEATED }
}

fn delta(a: f64, b: f64, ratio: Interval, floor: f64, more_is_better: bool) -> Delta {
    let interval = Interval { low: ratio.low - 1.0, high: ratio.high - 1.0 };
    let change = match (interval.low > floor, interval.high < -floor) {
        (true, _) if more_is_better => Change::Better,
        (true, _) => Change::Worse,
        (_, true) if more_is_better => Change::Worse,
        (_, true) => Change::Better,
        _ => Change::Unchanged,
    };
    Delta { a, b, relative: if a > 0.0 { b / a - 1.0 } else { 0.0 }, interval, change }
}

fn capacity(a: &Report, b: &Report, seed: u64) -> Option<Delta> {
    let (left, right) = (a.capacity_steps(), b.capacity_steps());
    if left.is_empty() || right.is_empty() {
        return None;
    }
    let ratio = resample::rate_ratio(&left, &right, seed);
    let repeats = left.len().min(right.len());
    Some(delta(a.capacity?.throughput, b.capacity?.throughput, ratio, floor(repeats), true))
}

fn notes(a: &Report, b: &Report) -> Vec<String> {
    let mut found = Vec::new();
    if a.context.machine != b.context.machine {
        found.push("the reports come from different machines: a difference may be theirs".to_owned());
    }
    if a.settings.measure_ms != b.settings.measure_ms || a.settings.warmup_ms != b.settings.warmup_ms {
        found.push("the steps had different lengths".to_owned());
    }
    if a.context.requests != b.context.requests {
        let (a, b) = (&a.context.requests, &b.context.requests);
        found.push(format!("A was sent `{a}`, B `{b}`"));
    }
    for (name, report) in [("A", a), ("B", b)] {
        for gate in report.gates.iter().filter(|g| !g.passed) {
            found.push(format!("{name} fails gate ({}): {}", gate.id, gate.rule));
        }
    }
    found
}

/// The difference in words: `faster by 12-15 %`, `slower by 3-5 %`, `unchanged (-0.8 to +0.6 %)`.
#[must_use]
pub fn words(delta: &Delta, better: &str, worse: &str) -> String {
    let ends = [delta.interval.low.abs() * 100.0, delta.interval.high.abs() * 100.0];
    let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
    let digits = usize::from(high < 10.0);
    let [low, high] = [low, high].map(|end| format!("{end:.digits$}"));
    let range = if low == high { format!("{low} %") } else { format!("{low}-{high} %") };
    match delta.change {
        Change::Better => format!("{better} by {range}"),
        Change::Worse => format!("{worse} by {range}"),
        Change::Unchanged => {
            format!("unchanged ({:+.1} to {:+.1} %)", delta.interval.low * 100.0, delta.interval.high * 100.0)
        }
    }
}

impl Comparison {
    /// The verdict in one line, from the highest load that both measured.
    #[must_use]
    pub fn headline(&self) -> String {
        // Invariant: `compare` refuses an empty list of loads.
        let last = &self.loads[self.loads.len() - 1];
        let throughput = self.capacity.as_ref().unwrap_or(&last.throughput);
        let rate = match throughput.change {
            Change::Unchanged => format!("throughput {}", words(throughput, "faster", "slower")),
            _ => words(throughput, "faster", "slower"),
        };
        let p99 = match last.p99.change {
            Change::Unchanged => "p99 unchanged".to_owned(),
            _ => format!("p99 {}", words(&last.p99, "shorter", "longer")),
        };
        format!("{rate}, {p99}")
    }

    /// The comparison as text for a terminal or a pull request.
    #[must_use]
    pub fn text(&self, unit: &str) -> String {
        let mut out = format!("{}\n\nA: {}\nB: {}\n\n", self.headline(), self.a, self.b);
        for l in &self.loads {
            let part = |name: &str, d: &Delta, better: &str, worse: &str| {
                format!("{name} {}", words(d, better, worse))
            };
            // Invariant: a String takes any text.
            writeln!(
                out,
                "at {} {unit}: {}/s -> {}/s, {}; {}; {} ({} repeats)",
                count(l.load),
                count(l.throughput.a),
                count(l.throughput.b),
                words(&l.throughput, "faster", "slower"),
                part("p50", &l.p50, "shorter", "longer"),
                part("p99", &l.p99, "shorter", "longer"),
                l.repeats,
            )
            .expect("writing to a String cannot fail");
        }
        for note in &self.notes {
            out.push_str(&format!("note: {note}\n"));
        }
        out
    }
}
