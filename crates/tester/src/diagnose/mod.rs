//! Why a service saturates: evidence in, ranked causes out.
//!
//! ```text
//!   steps (client side) ----+
//!   kernel counters --------+--> Evidence --> one rule per cause --> ranked Causes, or unknown
//!   server's threads, fds --+
//! ```
//!
//! A rule names its cause when the positive signature is there AND what excludes it is not. A rule
//! that lacks the evidence it needs says nothing, so with little to see the answer is `unknown`: a
//! wrong cause is a defect, no cause is not. Rules are independent of each other except for one
//! table of consequences ([`explains`]): a full descriptor table also fills the accept queue, and the
//! queue is then not reported as the cause. What a machine's host did to it is nobody's cause ([`host`]).

pub mod evidence;
pub mod host;
mod rules;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use evidence::{Evidence, Observation, StepEvidence};

/// Confidence below which a cause is not named.
pub const NAMED_FROM: f64 = 0.5;

/// The names of causes, in JSON as in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseName {
    /// The server's CPU, or its CPU quota, is used up.
    ServerCpu,
    /// One thread of the server is busy while the others idle.
    HotThread,
    /// The listener's accept queue overflows.
    AcceptQueue,
    /// The server is out of file descriptors.
    ServerDescriptors,
    /// The client is out of ports.
    ClientPorts,
    /// The client is out of file descriptors.
    ClientDescriptors,
    /// The generator's own CPU.
    GeneratorCpu,
    /// The network's round trip: each connection waits for it, and nothing else.
    RoundTripFloor,
    /// A pool of fixed size inside the server.
    FixedConcurrency,
    /// The server turns work away (429, 503).
    Admission,
    /// The server stops at a stable period (GC or fsync like).
    PeriodicStall,
    /// The server gets slower with time (leak).
    Drift,
    /// What stands behind the server is slower than it.
    Upstream,
    /// No rule's signature is there.
    Unknown,
}

impl CauseName {
    /// The name as it is written everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServerCpu => "server-cpu",
            Self::HotThread => "hot-thread",
            Self::AcceptQueue => "accept-queue",
            Self::ServerDescriptors => "server-descriptors",
            Self::ClientPorts => "client-ports",
            Self::ClientDescriptors => "client-descriptors",
            Self::GeneratorCpu => "generator-cpu",
            Self::RoundTripFloor => "round-trip-floor",
            Self::FixedConcurrency => "fixed-concurrency",
            Self::Admission => "admission",
            Self::PeriodicStall => "periodic-stall",
            Self::Drift => "drift",
            Self::Upstream => "upstream",
            Self::Unknown => "unknown",
        }
    }
}

/// One cause with what speaks for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Its name.
    pub name: CauseName,
    /// 0 to 1; named from [`NAMED_FROM`] on.
    pub confidence: f64,
    /// One sentence for a reader.
    pub summary: String,
    /// What was seen, one sentence each.
    pub evidence: Vec<String>,
    /// The figures behind it, with their unit in the name.
    pub numbers: BTreeMap<String, f64>,
}

impl Cause {
    fn new(name: CauseName, confidence: f64, summary: impl Into<String>) -> Self {
        Self { name, confidence, summary: summary.into(), evidence: Vec::new(), numbers: BTreeMap::new() }
    }

    fn saw(mut self, what: impl Into<String>) -> Self {
        self.evidence.push(what.into());
        self
    }

    fn number(mut self, name: &str, value: f64) -> Self {
        self.numbers.insert(name.to_owned(), value);
        self
    }
}

/// All causes that the evidence supports, the most certain first; never empty: at least `unknown`.
#[must_use]
pub fn diagnose(evidence: &Evidence) -> Vec<Cause> {
    let mut found: Vec<Cause> = rules::ALL.iter().filter_map(|rule| rule(evidence)).collect();
    if host::taken(evidence).is_some_and(|share| share > host::TAKEN) {
        found.retain(|cause| !host::looks_like(cause.name));
    }
    let names: Vec<CauseName> = found.iter().map(|c| c.name).collect();
    found.retain(|c| c.confidence >= NAMED_FROM && !names.iter().any(|&n| explains(n, c.name)));
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.name.cmp(&b.name)));
    if found.is_empty() {
        found.push(unknown(evidence));
    }
    found
}

/// Whether the signature of `effect` is expected wherever `cause` is at work.
fn explains(cause: CauseName, effect: CauseName) -> bool {
    use CauseName as C;
    match cause {
        // A plateau looks like a pool; so it is one only when nothing else makes it.
        // And a pool's size follows from its service time, which a drift does not leave alone.
        C::ServerCpu | C::HotThread | C::Upstream | C::Admission | C::AcceptQueue | C::Drift => {
            effect == C::FixedConcurrency
        }
        C::ServerDescriptors => matches!(effect, C::AcceptQueue | C::FixedConcurrency),
        // A figure that the client limited says nothing about the server's plateau.
        C::ClientPorts | C::ClientDescriptors => matches!(effect, C::FixedConcurrency | C::Upstream),
        C::GeneratorCpu => matches!(
            effect,
            C::FixedConcurrency | C::Upstream | C::ServerCpu | C::HotThread | C::PeriodicStall
        ),
        _ => false,
    }
}

fn unknown(evidence: &Evidence) -> Cause {
    let mut cause = Cause::new(
        CauseName::Unknown,
        0.0,
        "no signature is complete; this is an answer, not a failure to look",
    );
    let focus = evidence.at_focus();
    if evidence.knee.is_none() && focus.iter().all(|s| s.step.error_ratio() < 0.01) {
        cause = cause.saw("no knee was reached: nothing need be saturated yet");
    }
    if let Some(share) = host::taken(evidence).filter(|share| *share > host::TAKEN) {
        cause = cause
            .saw(format!(
                "the machine's host took up to {:.0} % of its cores' time: a plateau, a stall or a drift is not the service's to answer for",
                share * 100.0
            ))
            .number("stolen", share);
    }
    if focus.iter().all(|s| s.server.is_none()) {
        cause = cause.saw("the server itself was not seen: name its process with --pid or its metrics page");
    }
    if focus.iter().all(|s| s.kernel.is_none()) {
        cause = cause.saw("no kernel counters of the server's machine were seen");
    }
    cause
}
