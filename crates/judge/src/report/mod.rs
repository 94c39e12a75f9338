//! The report of a run: one value, written as JSON, Markdown or one self-contained HTML file.
//!
//! ```text
//!   Discovery + observations + context --build--> Report --+--> JSON      (the schema, docs/report-schema.md)
//!                                                          +--> Markdown  (for a pull request)
//!                                                          +--> HTML      (for a reader; no network, no script)
//! ```
//!
//! The JSON is the report; the other two are views of it and hold nothing that it has not. It is
//! versioned by [`SCHEMA`]: fields are added without a new version, and changed or removed only with
//! one. Times of day and the machine's facts are arguments, so that a report can be rebuilt exactly.

mod conclusion;
mod first_reply;
pub mod format;
pub mod html;
pub mod machine;
pub mod markdown;
mod summary;
mod verdict;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::stats::Interval;

pub use self::markdown::markdown;
pub use self::summary::{step_line, summary};
pub use conclusion::Conclusion;
pub use first_reply::FirstReply;
pub use machine::Machine;
pub use verdict::{Verdict, evaluate};

use crate::diagnose::{Cause, CauseName, CoreUse, Diagnosis, Evidence, Observation, diagnose, host};
use crate::discover::gates::Gate;
use crate::discover::zones::{self, Zone, ZoneSpan};
use crate::discover::{Bound, Capacity, Discovery, Knee, Level, Outcome, Settings, Stop, UslFit};
use crate::record::{LatencySummary, StepRecord};
use crate::threshold::{Metric, Threshold};

/// Name and version of the JSON schema.
pub const SCHEMA: &str = "tidegate-report/2";

/// What stands for a cause at a load where more load still gives more.
const NOT_SATURATED: &str = "not-saturated";

/// The cores of the server and of the generator on a machine that both share, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The server's.
    pub server: Vec<usize>,
    /// The generator's.
    pub generator: Vec<usize>,
}

/// What the report cannot know from the steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// What was tested: a URL or a name.
    pub target: String,
    /// What made the load: what was spoken, and by which library.
    #[serde(default)]
    pub engine: String,
    /// The scenario's name.
    pub scenario: String,
    /// When the run began, RFC 3339.
    pub started: String,
    /// Version of the tool.
    pub version: String,
    /// The machine that generated the load.
    pub machine: Machine,
    /// What was sent, in words.
    #[serde(default)]
    pub requests: String,
    /// Digest of everything that was asked and of what counts as a reply; empty when it was not made.
    #[serde(default)]
    pub requests_digest: String,
    /// Cores of their own for the server and the generator, when they had some on one machine.
    #[serde(default)]
    pub pinned: Option<Split>,
    /// Gain in throughput by one more generator thread, as a ratio; null when that was not tried.
    #[serde(default)]
    pub extra_worker_gain: Option<f64>,
    /// What the first request was answered before the run, where that is in doubt; not there otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_reply: Option<FirstReply>,
}

/// All repeats of one load in one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LevelRow {
    /// Connections (closed loop) or requests per second (open loop).
    pub load: f64,
    /// Times measured.
    pub repeats: usize,
    /// Good replies per second over the usable repeats; none when every figure was refused.
    pub throughput: Option<f64>,
    /// Its 95 % interval; none when it is so wide that it says nothing.
    pub interval: Option<Interval>,
    /// Whether the repeats differ by that much.
    pub unsteady: bool,
    /// Median over the repeats of the median response time, in microseconds.
    pub p50_us: Option<f64>,
    /// The same of the 95th percentile.
    pub p95_us: Option<f64>,
    /// The same of the 99th percentile.
    pub p99_us: Option<f64>,
    /// Share of errors.
    pub error_ratio: f64,
    /// Share of denials.
    pub denied_ratio: f64,
    /// The zone by the stated rules.
    pub zone: Zone,
    /// Whether the generator was the limit each time: then the figures are not the server's.
    pub generator_bound: bool,
    /// The first cause that the evidence names at this load; `not-saturated` up to the knee when
    /// none is.
    pub cause: String,
}

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Target, scenario, time, version, machine.
    #[serde(flatten)]
    pub context: Context,
    /// The verdict in one sentence, and what to do about it.
    pub conclusion: Conclusion,
    /// What the search was asked for.
    pub settings: Settings,
    /// Why it ended.
    pub stop: Stop,
    /// The most that was kept up; null when nothing was.
    pub capacity: Option<Capacity>,
    /// Where more load stops giving more; null when that was not reached.
    pub knee: Option<Knee>,
    /// The zones along the ladder.
    pub zones: Vec<ZoneSpan>,
    /// The Universal Scalability Law beside the measured curve.
    pub usl: Option<UslFit>,
    /// The verdict gates.
    pub gates: Vec<Gate>,
    /// The one cause of the plateau, `unknown` when none is certain enough.
    pub cause: Cause,
    /// What is true beside it, the most certain first.
    pub findings: Vec<Cause>,
    /// The use of the server's cores at the load in question; null if it was not measured.
    pub cores: Option<CoreUse>,
    /// One row per load.
    pub levels: Vec<LevelRow>,
    /// Every step, in the order in which they ran.
    pub steps: Vec<StepRecord>,
    /// What the kernel and the server showed, by step; empty when nothing was looked at.
    pub observations: Vec<Observation>,
    /// Thresholds of the scenario with their verdicts.
    pub verdicts: Vec<Verdict>,
}

/// Why a text is not a report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Not JSON, or not of the schema's shape.
    #[error("not a tidegate report: {0}")]
    Shape(#[from] serde_json::Error),
    /// Another version of the schema.
    #[error("report schema `{found}` is not `{SCHEMA}`: write the report again with this version")]
    Version {
        /// What the file says.
        found: String,
    },
}

impl Report {
    /// Concludes a search, finished or interrupted.
    #[must_use]
    pub fn build(
        context: Context,
        discovery: &Discovery,
        observations: &[Observation],
        thresholds: &[Threshold],
    ) -> Self {
        let outcome = discovery.outcome();
        let mut evidence = Evidence::of(discovery, &outcome, observations);
        evidence.extra_worker_gain = context.extra_worker_gain;
        let Diagnosis { cause, findings } = diagnose(&evidence);
        let settings = discovery.settings().clone();
        let outcome = if cause.name.is_clients() { at_least(outcome, &settings) } else { outcome };
        let levels = rows(&settings, &outcome, &evidence);
        let mut gates = outcome.gates;
        gates.extend(host::gate(&evidence));
        let mut report = Self {
            schema: SCHEMA.to_owned(),
            context,
            conclusion: Conclusion::default(),
            settings,
            stop: outcome.stop,
            capacity: outcome.capacity,
            knee: outcome.knee,
            zones: outcome.zones,
            usl: outcome.usl,
            gates,
            cause,
            findings,
            cores: CoreUse::of(&evidence.at_focus()),
            levels,
            steps: discovery.steps().to_vec(),
            observations: observations.to_vec(),
            verdicts: Vec::new(),
        };
        report.verdicts = evaluate(thresholds, &report);
        report.conclusion = conclusion::conclude(&report);
        report
    }

    /// Reads a report from its JSON.
    ///
    /// # Errors
    /// When the text is not a report of this version.
    pub fn from_json(text: &str) -> Result<Self, ReportError> {
        #[derive(Deserialize)]
        struct SchemaHead {
            schema: String,
        }
        let head: SchemaHead = serde_json::from_str(text)?;
        if head.schema != SCHEMA {
            return Err(ReportError::Version { found: head.schema });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Writes the report as JSON.
    ///
    /// # Errors
    /// When a figure cannot be written, which no report built here has.
    pub fn to_json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Whether any reply was good or a denial. Without one nothing was measured.
    #[must_use]
    pub fn was_answered(&self) -> bool {
        self.steps.iter().any(|step| step.good + step.denied > 0)
    }

    /// Whether connections were raised rather than a rate.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.settings.is_closed()
    }

    /// What a load is called: `connections` or `requests/s`.
    #[must_use]
    pub fn load_unit(&self) -> &'static str {
        if self.is_closed() { "connections" } else { "requests/s offered" }
    }

    /// The steps at one load.
    pub fn steps_at(&self, load: f64) -> impl Iterator<Item = &StepRecord> {
        self.steps.iter().filter(move |s| s.load() == load)
    }

    /// The step that stands for the run where only one can: the capacity's longest, else the last.
    #[must_use]
    pub fn shown_step(&self) -> Option<&StepRecord> {
        let by_count = |s: &&StepRecord| s.response.count;
        self.capacity_steps().into_iter().max_by_key(by_count).or_else(|| self.steps.last())
    }

    /// The usable steps behind the capacity.
    #[must_use]
    pub fn capacity_steps(&self) -> Vec<&StepRecord> {
        self.capacity.map_or_else(Vec::new, |c| self.steps_at(c.load).filter(|s| s.usable()).collect())
    }
}

/// The parts of a request's time that a step has seen, each told apart.
fn times(step: &StepRecord) -> impl Iterator<Item = (&'static str, &LatencySummary)> {
    [
        ("TCP connect", &step.connect),
        ("TLS handshake", &step.handshake),
        ("first byte, from the send", &step.first_byte),
        ("whole reply, from the send (service)", &step.service),
        ("whole reply, from the planned send (response)", &step.response),
    ]
    .into_iter()
    .filter(|(_, times)| times.count > 0)
}

/// The outcome of a search that ended at the client's own limit: the server may do more, and where its knee
/// is was not seen.
fn at_least(outcome: Outcome, settings: &Settings) -> Outcome {
    let capacity = outcome.capacity.map(|c| Capacity { bound: Bound::AtLeast, ..c });
    let zones = zones::spans(&outcome.levels, settings, None, capacity.map(|c| c.throughput));
    Outcome { capacity, knee: None, zones, ..outcome }
}

fn rows(settings: &Settings, outcome: &Outcome, evidence: &Evidence) -> Vec<LevelRow> {
    let knee = if settings.is_closed() {
        outcome.knee.map(|k| k.concurrency)
    } else {
        outcome.capacity.map(|c| c.load)
    };
    let row = |level: &Level| {
        let figure = |metric| Some(level.figure(metric)).filter(|v| v.is_finite());
        let throughput = level.throughput();
        let first = diagnose(&evidence.clone().asking_about(level.load)).cause.name;
        // Up to the knee more load gives more work: there is nothing to explain.
        let growing = first == CauseName::Unknown && knee.is_none_or(|k| level.load <= k);
        LevelRow {
            load: level.load,
            repeats: level.repeats(),
            throughput: throughput.map(|t| t.mean),
            interval: level.interval().filter(|_| !level.is_unsteady()),
            unsteady: level.is_unsteady(),
            p50_us: figure(Metric::P50),
            p95_us: figure(Metric::P95),
            p99_us: figure(Metric::P99),
            error_ratio: level.error_ratio(),
            denied_ratio: level.denied_ratio(),
            zone: zones::at(&outcome.zones, level.load),
            generator_bound: level.generator_bound(),
            cause: if growing { NOT_SATURATED } else { first.as_str() }.to_owned(),
        }
    };
    outcome.levels.iter().map(row).collect()
}
