//! The evidence about a run: the client's steps, and the kernel's and the server's figures for each.
//!
//! Everything is per step and already a difference (counter after minus counter before) or a maximum
//! over samples taken during the step, so that the rules compare figures and never clocks. A figure
//! that could not be had is `None`, never 0: a rule must be able to tell "no overflow" from "not
//! looked". What the kernel counted while connections were opened is kept apart ([`Opening`]): it says
//! how a run began and nothing about its plateau. Collecting is the
//! tester's.

use serde::{Deserialize, Serialize};

use crate::discover::{Discovery, Outcome};
use crate::record::StepRecord;

/// How far past the knee a level must be for its plateau to show: 1.5 times.
const PAST_KNEE: f64 = 1.5;
/// The same where the generator was the limit of everything further on.
const NEAR_KNEE: f64 = 1.2;

/// What the kernel counted from a step's beginning to its first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    /// How long it took to open the connections.
    pub seconds: f64,
    /// Connections dropped because an accept queue was full.
    pub listen_overflows: u64,
    /// Connections dropped at a listener for any reason.
    pub listen_drops: u64,
    /// SYNs sent again.
    pub syn_retransmits: u64,
}

/// The kernel's side of one step's measured time, on the machine where the files were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelDelta {
    /// Connections dropped because an accept queue was full (TcpExt ListenOverflows).
    pub listen_overflows: u64,
    /// Connections dropped at a listener for any reason (TcpExt ListenDrops).
    pub listen_drops: u64,
    /// SYNs sent again (TcpExt TCPSynRetrans).
    pub syn_retransmits: u64,
    /// Most TCP sockets in use, TIME_WAIT left out.
    pub sockets_in_use: u64,
    /// Most sockets in TIME_WAIT.
    pub time_wait: u64,
    /// Ports that one source address may use towards one target.
    pub port_range: Option<u64>,
    /// Source addresses that the client used.
    pub sources: Option<u64>,
    /// Descriptors open in the client, most.
    pub client_descriptors: Option<u64>,
    /// Its limit.
    pub client_descriptor_limit: Option<u64>,
    /// Longest accept queue seen at the listener.
    pub accept_queue: Option<u64>,
    /// The listener's limit for it.
    pub accept_queue_limit: Option<u64>,
    /// Cores that the server may use, of this machine; all of them when its process is not seen.
    #[serde(default)]
    pub cores: Option<f64>,
    /// Cores of this machine.
    #[serde(default)]
    pub machine_cores: Option<f64>,
    /// Share of the time of `cores` that was idle, 0 to 1.
    pub idle: Option<f64>,
    /// Share of it that the machine's host took (steal), 0 to 1.
    pub stolen: Option<f64>,
    /// What was counted before the measured time, while connections were opened.
    #[serde(default)]
    pub opening: Option<Opening>,
}

/// One thread of the server over a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Its name.
    pub name: String,
    /// Share of one core that it used, 0 to 1.
    pub cpu: f64,
    /// Share of the time that it was runnable without a core, 0 to 1.
    pub run_delay: f64,
}

/// The server's side of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerDelta {
    /// Cores that the server may use.
    pub cores: f64,
    /// Cores that its CPU quota allows, when it has one.
    #[serde(default)]
    pub quota_cores: Option<f64>,
    /// Cores that it used on average.
    pub cpu: f64,
    /// Its threads, the busiest first; empty when only the total is known.
    pub threads: Vec<ThreadUse>,
    /// Threads waiting on a futex at the samples, mean.
    pub futex_waiting: Option<f64>,
    /// Descriptors open in one process, most.
    pub descriptors: Option<u64>,
    /// Its limit; of several processes the lowest.
    pub descriptor_limit: Option<u64>,
    /// Times that its CPU quota was used up.
    pub throttled: Option<u64>,
    /// Quota periods that passed.
    pub quota_periods: Option<u64>,
    /// Resident memory at the end, in bytes; of several processes the sum, what they share counted for each.
    pub resident_bytes: Option<u64>,
    /// Connections that the server itself holds open towards others, most.
    pub outgoing: Option<u64>,
    /// Mean time that the upstream takes, in microseconds, as the server or the upstream says.
    pub upstream_us: Option<f64>,
}

/// What was observed around one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The kernel's side.
    pub kernel: Option<KernelDelta>,
    /// The server's side.
    pub server: Option<ServerDelta>,
    /// Smallest round trip that TCP measured (TCP_INFO), in microseconds.
    pub min_rtt_us: Option<f64>,
}

/// One step with all that is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepEvidence {
    /// The client's side.
    pub step: StepRecord,
    /// The kernel's side.
    pub kernel: Option<KernelDelta>,
    /// The server's side.
    pub server: Option<ServerDelta>,
    /// Smallest round trip that TCP measured, in microseconds.
    pub min_rtt_us: Option<f64>,
}

/// All that is known about a run, and the load whose limit is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The steps in the order in which they ran.
    pub steps: Vec<StepEvidence>,
    /// The knee's load, when there is one.
    pub knee: Option<f64>,
    /// The load at which the question is asked.
    pub focus: f64,
    /// Gain in throughput when the generator got one more worker, as a ratio, when that was tried.
    pub extra_worker_gain: Option<f64>,
}

impl Evidence {
    /// The evidence of a finished search, asking why its knee is where it is. `observations` are in
    /// the order of the steps; missing ones count as not looked.
    #[must_use]
    pub fn of(discovery: &Discovery, outcome: &Outcome, observations: &[Observation]) -> Self {
        let knee = if discovery.is_closed() {
            outcome.knee.map(|k| k.concurrency)
        } else {
            outcome.capacity.filter(|_| outcome.knee.is_some()).map(|c| c.load)
        };
        Self::new(discovery.steps().to_vec(), observations, knee)
    }

    /// The evidence of steps, asking about the first level well past `knee`, or about the highest.
    #[must_use]
    pub fn new(steps: Vec<StepRecord>, observations: &[Observation], knee: Option<f64>) -> Self {
        let steps: Vec<StepEvidence> = steps
            .into_iter()
            .enumerate()
            .map(|(i, step)| {
                let seen = observations.get(i).cloned().unwrap_or_default();
                StepEvidence { step, kernel: seen.kernel, server: seen.server, min_rtt_us: seen.min_rtt_us }
            })
            .collect();
        let highest = steps.iter().map(|s| s.step.load()).fold(0.0, f64::max);
        let past = |knee: f64| {
            let beyond = || steps.iter().filter(move |s| s.step.load() >= PAST_KNEE * knee);
            let lowest = |load: f64, step: &StepEvidence| load.min(step.step.load());
            // A plateau is explained where it was measured; steps that the generator limited come last.
            let measured = beyond().filter(|s| !s.step.generator_bound()).fold(f64::INFINITY, lowest);
            let near = steps.iter().filter(|s| !s.step.generator_bound()).map(|s| s.step.load());
            let near = near.filter(|&load| load >= NEAR_KNEE * knee).fold(0.0, f64::max);
            match (measured.is_finite(), near > 0.0) {
                (true, _) => measured,
                (false, true) => near,
                (false, false) => beyond().fold(f64::INFINITY, lowest),
            }
        };
        let focus = knee.map(past).filter(|l| l.is_finite()).unwrap_or(highest);
        Self { steps, knee, focus, extra_worker_gain: None }
    }

    /// The same run, asking about another of its loads.
    #[must_use]
    pub fn asking_about(mut self, load: f64) -> Self {
        self.focus = load;
        self
    }

    /// The steps at the load in question.
    #[must_use]
    pub fn at_focus(&self) -> Vec<&StepEvidence> {
        self.steps.iter().filter(|s| s.step.load() == self.focus).collect()
    }

    /// The steps at the load in question and above.
    #[must_use]
    pub fn saturated(&self) -> Vec<&StepEvidence> {
        self.steps.iter().filter(|s| s.step.load() >= self.focus).collect()
    }

    /// The steps below the load in question.
    #[must_use]
    pub fn below(&self) -> Vec<&StepEvidence> {
        self.steps.iter().filter(|s| s.step.load() < self.focus).collect()
    }

    /// The smallest round trip known, in microseconds: TCP's own, else the fastest connect.
    #[must_use]
    pub fn round_trip_us(&self) -> Option<f64> {
        let measured = self.steps.iter().filter_map(|s| s.min_rtt_us).fold(f64::INFINITY, f64::min);
        let connects = self.steps.iter().filter(|s| s.step.connect.count > 0);
        let connect = connects.map(|s| s.step.connect.min_us as f64).fold(f64::INFINITY, f64::min);
        Some(measured).filter(|v| v.is_finite()).or(Some(connect).filter(|v| v.is_finite()))
    }
}
