//! Why a service saturates: evidence in, one cause and the findings beside it out.
//!
//! ```text
//!   steps (client side) ----+
//!   kernel counters --------+--> Evidence --> one rule each --> Diagnosis: cause, or unknown
//!   server's threads, fds --+                                              findings beside it
//! ```
//!
//! A rule speaks when its positive signature is there AND what excludes it is not. A rule that lacks the
//! evidence it needs says nothing, so with little to see the answer is `unknown`: a wrong cause is a
//! defect, no cause is not. Rules are independent of each other except for what this file decides:
//!
//! - consequences ([`explains`]): a full descriptor table also fills the accept queue, and the queue is
//!   then not reported;
//! - verdicts of waiting need an idle core ([`cores`]): without one everything waits for the cores;
//! - what a virtual machine's host did to it is nobody's cause ([`host`]);
//! - one cause stands for the plateau. What is true beside it (a stall at every load, a drift, connections
//!   refused or dropped while they were opened) is a finding.

mod cores;
pub mod evidence;
pub mod host;
mod rules;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use cores::CoreUse;
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
    /// Connections were dropped at the listener while they were opened. A finding only.
    OpeningDrops,
    /// Connections were refused. A finding only.
    RefusedConnects,
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
            Self::OpeningDrops => "opening-drops",
            Self::RefusedConnects => "refused-connects",
            Self::Unknown => "unknown",
        }
    }

    /// What someone who wants more throughput, or a better figure, does about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::ServerCpu => "give the server more cores, or less work for each request",
            Self::HotThread => "spread that thread's work over others",
            Self::AcceptQueue => "lengthen the listener's backlog (and net.core.somaxconn), or accept faster",
            Self::ServerDescriptors => "raise the server's limit of open files (LimitNOFILE=, ulimit -n)",
            Self::ClientPorts => "add source addresses with --sources, or widen net.ipv4.ip_local_port_range",
            Self::ClientDescriptors => "raise the generator's `ulimit -n`, or give it more --processes",
            Self::GeneratorCpu => {
                "give the generator more cores: another machine, --threads, or --pin where it shares this one"
            }
            Self::RoundTripFloor => "use more connections, or a shorter way to the server",
            Self::FixedConcurrency => "enlarge the server's pool, or make its work faster",
            Self::Admission => "raise the server's limit if it can do more",
            Self::PeriodicStall => "look for what runs at that period: garbage collection, fsync, a timer",
            Self::Drift => "look for a leak, or for a table that grows",
            Self::Upstream => "look behind the server: what it waits for is the limit",
            Self::OpeningDrops => "lengthen the listener's backlog if connections come in bursts",
            Self::RefusedConnects => "see why nothing listened: a restart, a crash, a firewall",
            Self::Unknown => "see below what was not looked at, and measure again with it",
        }
    }

    /// Whether it is a limit of the client: then no figure is the server's.
    #[must_use]
    pub fn is_clients(self) -> bool {
        matches!(self, Self::GeneratorCpu | Self::ClientPorts | Self::ClientDescriptors)
    }

    /// Whether it says that requests wait while cores are idle.
    fn is_waiting(self) -> bool {
        matches!(self, Self::FixedConcurrency | Self::RoundTripFloor | Self::Upstream | Self::AcceptQueue)
    }

    /// Whether it can be why throughput stops growing. What holds at every load, or happened before any
    /// request, is reported beside that.
    fn makes_plateau(self) -> bool {
        !matches!(self, Self::PeriodicStall | Self::Drift | Self::OpeningDrops | Self::RefusedConnects)
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

/// What the evidence says.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// The one cause, `unknown` when no signature is complete.
    pub cause: Cause,
    /// What is true beside it, the most certain first.
    pub findings: Vec<Cause>,
}

/// The cause of the plateau at the load in question, and what was found beside it.
///
/// Where no rule says why throughput stops, a stall or a drift stands for the cause: it limits at every
/// load. It does so only on a machine with an idle core, for a full one has limits of its own.
#[must_use]
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let mut found: Vec<Cause> = rules::ALL.iter().filter_map(|rule| rule(evidence)).collect();
    if host::taken(evidence).is_some_and(|share| share > host::TAKEN) {
        found.retain(|cause| !host::looks_like(cause.name));
    }
    let full = cores::none_idle(evidence);
    // An overflowing queue is counted, so that it stays true; only that it is the cause is not known.
    found.retain(|c| !(full && c.name.is_waiting() && c.name != CauseName::AcceptQueue));
    let names: Vec<CauseName> = found.iter().map(|c| c.name).collect();
    found.retain(|c| c.confidence >= NAMED_FROM && !names.iter().any(|&n| explains(n, c.name)));
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence).then(a.name.cmp(&b.name)));
    let may_be = |c: &Cause| c.name.makes_plateau() && !(full && c.name.is_waiting());
    let stands_in = |c: &Cause| !full && matches!(c.name, CauseName::PeriodicStall | CauseName::Drift);
    let chosen = found.iter().position(may_be).or_else(|| found.iter().position(stands_in));
    let cause = chosen.map_or_else(|| unknown(evidence), |index| found.remove(index));
    Diagnosis { cause, findings: found }
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
        C::GeneratorCpu => matches!(effect, C::FixedConcurrency | C::Upstream | C::ServerCpu | C::HotThread),
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
    if cores::none_idle(evidence) {
        let used = CoreUse::of(&focus).map_or(String::new(), |used| format!(": {}", used.sentence()));
        cause = cause
            .saw(format!("the machine had no idle core{used}; whether something waits cannot be told there"));
    }
    if focus.iter().all(|s| s.server.is_none()) {
        cause = cause.saw("the server itself was not seen: name its process with --pid or its metrics page");
    }
    if focus.iter().all(|s| s.kernel.is_none()) {
        cause = cause.saw("no kernel counters of the server's machine were seen");
    }
    cause
}
