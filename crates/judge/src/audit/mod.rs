//! An audit of published claims by arithmetic: whether the figures of a load test agree with one another.
//!
//! The figures of a claim are typed into a TOML file; nothing is measured. The rules ask only what
//! must hold whatever the system: Little's law, what an average over survivors leaves out, how long a
//! step lasted, whether denials were counted as work, whether a rate was offered or reached. A claim with too few
//! figures is "not checkable", which does not mean that it is right.
//!
//! ```toml
//! title = "Edge proxy, stress test"
//! [[claim]]
//! name = "1,000 users"
//! concurrency = 1000
//! rate_per_second = 2928
//! p50_ms = 204
//! ```

mod rules;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::report::format::count;

/// Most claims of one file.
pub const MAX_CLAIMS: usize = 1_000;

/// A file of claims.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimFile {
    /// The author of the claims.
    pub title: String,
    /// The claims.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// Which requests a latency was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyOf {
    /// Every request, failed ones with the time they took.
    All,
    /// Successful ones only.
    Successes,
}

/// One claim, as far as its author stated it. Absent means not stated.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Claim {
    /// Its name, unique within the file.
    pub name: String,
    /// The table it stands in: rules that look at several rows look at one table.
    pub table: String,
    /// The words of the claim.
    pub said: String,
    /// Simultaneous clients, connections or requests that are claimed.
    pub concurrency: Option<f64>,
    /// Requests per second that are claimed.
    pub rate_per_second: Option<f64>,
    /// Requests in all.
    pub requests: Option<f64>,
    /// How long it was measured.
    pub duration_seconds: Option<f64>,
    /// Mean latency.
    pub mean_ms: Option<f64>,
    /// Median latency.
    pub p50_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Largest latency.
    pub max_ms: Option<f64>,
    /// Pause of each client between requests.
    pub think_ms: Option<f64>,
    /// Failed requests, timeouts included.
    pub errors: Option<f64>,
    /// Requests that timed out.
    pub timeouts: Option<f64>,
    /// The deadline of these requests.
    pub timeout_ms: Option<f64>,
    /// Which requests the latency was taken over.
    pub latency_of: Option<LatencyOf>,
    /// Share of the replies that were denials, when it is known.
    pub denied_share: Option<f64>,
    /// Clients (limiter keys) in use.
    pub clients: Option<f64>,
    /// Requests that the limit lets through per client and window.
    pub limit_per_window: Option<f64>,
    /// The length of that window.
    pub window_seconds: Option<f64>,
    /// The load was raised while the average was taken, from this to `concurrency`.
    pub ramp_from: Option<f64>,
    /// A part that the claim names and that the load did not pass through.
    pub bypasses: Option<String>,
    /// False when the figure was never measured.
    pub measured: Option<bool>,
}

/// What is wrong with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objection {
    /// Rate x latency is not the stated concurrency.
    ContradictsLittlesLaw,
    /// The latency leaves out the requests that failed.
    SurvivorsOnly,
    /// The step was too short for its figure to mean anything.
    StepTooShort,
    /// Denials are counted as work done.
    DenialsCountedAsSuccess,
    /// The rate is what was sent, not what the service can do.
    OfferedRateAsCapacity,
    /// An average over a ramp is given as the figure of its end.
    RampAverage,
    /// The load did not pass through what the claim names.
    WrongTarget,
    /// It was not measured.
    NotMeasured,
    /// The figures contradict each other.
    Arithmetic,
}

/// One objection with its figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub objection: Objection,
    /// The figures that show it.
    pub says: String,
}

/// The verdict on one claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audited {
    /// The claim's name.
    pub name: String,
    /// The table it stands in.
    pub table: String,
    /// Requests in flight that rate x latency implies, when both were stated.
    pub in_flight: Option<f64>,
    /// What is wrong; empty when nothing is.
    pub findings: Vec<Finding>,
    /// Whether the stated figures allow Little's law to be checked.
    pub checkable: bool,
}

/// Why a file cannot be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// Not TOML, or not of this shape; the message names line and key.
    #[error("{0}")]
    Shape(#[from] toml::de::Error),
    /// Figures that no claim can have.
    #[error("claim `{claim}`: {field} is {value}: use a finite number of at least 0")]
    Figure {
        /// The claim.
        claim: String,
        /// The figure.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// Nothing to audit, or too much.
    #[error("a file holds 1 to {MAX_CLAIMS} claims; this one has {0}")]
    Count(usize),
    /// Two claims of one name.
    #[error("claim `{0}` stands twice: names tell verdicts apart")]
    Twice(String),
}

/// Reads a file of claims.
///
/// # Errors
/// When it is no such file, or a figure is out of range.
pub fn read(text: &str) -> Result<ClaimFile, AuditError> {
    let file: ClaimFile = toml::from_str(text)?;
    if file.claims.is_empty() || file.claims.len() > MAX_CLAIMS {
        return Err(AuditError::Count(file.claims.len()));
    }
    let mut seen = BTreeMap::new();
    for claim in &file.claims {
        if seen.insert((&claim.table, &claim.name), ()).is_some() {
            return Err(AuditError::Twice(claim.name.clone()));
        }
        let bad = |v: f64| !v.is_finite() || v < 0.0;
        if let Some((field, value)) =
            claim.figures().into_iter().find_map(|(f, v)| Some((f, v.filter(|v| bad(*v))?)))
        {
            return Err(AuditError::Figure { claim: claim.name.clone(), field, value });
        }
    }
    Ok(file)
}

impl Claim {
    fn figures(&self) -> [(&'static str, Option<f64>); 17] {
        [
            ("concurrency", self.concurrency),
            ("rate_per_second", self.rate_per_second),
            ("requests", self.requests),
            ("duration_seconds", self.duration_seconds),
            ("mean_ms", self.mean_ms),
            ("p50_ms", self.p50_ms),
            ("p99_ms", self.p99_ms),
            ("max_ms", self.max_ms),
            ("think_ms", self.think_ms),
            ("errors", self.errors),
            ("timeouts", self.timeouts),
            ("timeout_ms", self.timeout_ms),
            ("denied_share", self.denied_share),
            ("clients", self.clients),
            ("limit_per_window", self.limit_per_window),
            ("window_seconds", self.window_seconds),
            ("ramp_from", self.ramp_from),
        ]
    }
}

/// Audits every claim of a file.
#[must_use]
pub fn audit(file: &ClaimFile) -> Vec<Audited> {
    file.claims.iter().map(|claim| rules::judge(claim, &file.claims)).collect()
}

/// The verdicts as text.
#[must_use]
pub fn text(file: &ClaimFile, verdicts: &[Audited]) -> String {
    let mut out = format!("{}\n", file.title);
    let objected = verdicts.iter().filter(|v| !v.findings.is_empty()).count();
    let mut table = "";
    for verdict in verdicts {
        if verdict.table != table {
            table = &verdict.table;
            out.push_str(&format!("\n{table}\n"));
        }
        let word = match (verdict.findings.is_empty(), verdict.checkable) {
            (false, _) => "objection",
            (true, true) => "consistent",
            (true, false) => "not checkable",
        };
        let implied = verdict.in_flight.map_or(String::new(), |n| format!(" (about {} in flight)", count(n)));
        // Invariant: a String takes any text.
        writeln!(out, "  {}: {word}{implied}", verdict.name).expect("writing to a String cannot fail");
        for finding in &verdict.findings {
            let name = serde_json::to_value(finding.objection).ok();
            let name = name.as_ref().and_then(|v| v.as_str()).unwrap_or_default();
            writeln!(out, "    {name}: {}", finding.says).expect("writing to a String cannot fail");
        }
    }
    out.push_str(&format!("\n{objected} of {} claims meet an objection\n", verdicts.len()));
    out
}
