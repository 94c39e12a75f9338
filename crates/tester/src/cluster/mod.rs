//! One step of load from several processes, because one process may not hold enough descriptors; and from several
//! machines (`agents/`), because one address has too few ports and one machine too few cores.
//!
//! ```text
//!   parent                          worker 0 .. n-1   (this executable, a hidden command)
//!     | ---- job, one JSON line -->   |
//!     | <--- ready ---------------    |  its connections are open
//!     | ---- go ----------------->    |  written to all at once
//!     | <--- progress ------------    |
//!     | ---- stop, or end of input -> |  ends early, with what it measured
//!     | <--- done, a record ------    |
//! ```
//!
//! A worker whose parent dies sees the end of its input and stops. Workers lead process groups of
//! their own: an interrupt from the terminal reaches the parent only, which then ends them cleanly.

pub mod agents;
mod parent;
mod transfer;
mod worker;

use std::{net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    load::{EngineError, Options, Progress, Target, Trust, share},
    scenario::{Scenario, ScenarioError},
};
use tidegate_judge::measurement::StepPlan;

pub use parent::Cluster;
use transfer::Transfer;
pub use worker::run_worker;

/// How often whoever leads others looks whether it was asked to stop.
const LOOK: Duration = Duration::from_millis(100);
/// What a step may take beyond the time that its plan and its timeouts account for.
const GRACE: Duration = Duration::from_secs(30);

/// What to do, in a form that can be handed to another process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Target.
    pub url: String,
    /// Text of the scenario file.
    pub scenario: String,
    /// Text of its data file, if it names one.
    pub data: Option<String>,
    /// HTTP/2 where the URL says HTTP, whatever the scenario says.
    pub http2: bool,
    /// Whom to trust beside the scenario's word.
    pub trust: Trust,
    /// Threads of each process, at least 1.
    pub threads: u32,
    /// Local addresses; empty: the scenario's, or the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// Connections in the making at a time, per thread, at least 1.
    pub max_connecting: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Number of the scenario's step whose changing rate to follow, if any.
    pub profile_of_step: Option<usize>,
    /// This process's place among those that share the load: `(index, count)`.
    pub share: (u32, u32),
}

/// Why a job cannot be done.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// The scenario or its target is not valid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The load could not be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A worker process could not be started or spoken with.
    #[error("a worker process failed: {0}")]
    Process(#[from] std::io::Error),
    /// A worker said why it failed.
    #[error("a worker process failed: {0}")]
    Worker(String),
    /// An agent did not do its part, and no step can be run without it.
    #[error("agent {agent}: {reason}")]
    Agent {
        /// Its address.
        agent: String,
        /// Why.
        reason: String,
    },
}

impl Job {
    /// A job for one thread, with everything else at its default.
    #[must_use]
    pub fn new(url: String, scenario: String, data: Option<String>, seed: u64) -> Self {
        Self {
            url,
            scenario,
            data,
            http2: false,
            trust: Trust::default(),
            threads: 1,
            sources: Vec::new(),
            max_connecting: 512,
            seed,
            profile_of_step: None,
            share: (0, 1),
        }
    }

    /// The scenario and the engine's options.
    ///
    /// # Errors
    /// When the scenario or the target is not valid.
    pub fn resolve(&self) -> Result<(Scenario, Options), ScenarioError> {
        let mut scenario = Scenario::parse(&self.scenario, |_| {
            self.data.clone().ok_or_else(|| std::io::ErrorKind::NotFound.into())
        })?;
        let target = Target::parse(&self.url)?;
        scenario.http2 |= self.http2;
        scenario.trust.anyone |= self.trust.anyone;
        if self.trust.authorities.is_some() {
            scenario.trust.authorities.clone_from(&self.trust.authorities);
        }
        if self.trust.pem.is_some() {
            scenario.trust.pem.clone_from(&self.trust.pem);
        }
        let mut options = scenario.options(&target)?;
        options.threads = self.threads;
        options.seed = self.seed;
        options.share = self.share;
        options.max_connecting = self.max_connecting;
        if !self.sources.is_empty() {
            options.sources.clone_from(&self.sources);
        }
        let step = self.profile_of_step.and_then(|index| scenario.steps.get(index));
        options.profile = step.and_then(|step| step.profile.clone());
        let (_, processes) = self.share;
        options.connect_rate = options.connect_rate.map(|rate| rate / f64::from(processes.max(1)));
        Ok((scenario, options))
    }
}

/// What number `index` of `parts` does of a plan. The rate stays: each takes its share of the one schedule.
fn part(plan: &StepPlan, index: u32, parts: u32) -> StepPlan {
    StepPlan {
        connections: share(plan.connections.into(), index, parts) as u32,
        max_requests: share(plan.max_requests, index, parts),
        ..plan.clone()
    }
}

/// In how many parts a plan can be done, at most `parts`: each has a connection, and a request where they are counted.
fn most_parts(plan: &StepPlan, parts: u32) -> u32 {
    let parts = parts.min(plan.connections);
    // A share of 0 requests would mean no bound.
    if plan.max_requests == 0 {
        parts
    } else {
        parts.min(u32::try_from(plan.max_requests).unwrap_or(u32::MAX))
    }
}

/// How long a step may take from its first request to its result.
fn budget(plan: &StepPlan, options: &Options) -> Duration {
    Duration::from_millis(plan.warmup_ms + plan.measure_ms)
        + options.connect_timeout
        + options.request_timeout
        + options.drain
        + GRACE
}

/// The views of parts of a step as one; none when there are none.
fn together(views: impl Iterator<Item = Progress>) -> Option<Progress> {
    views.reduce(|sum, view| Progress {
        elapsed_seconds: sum.elapsed_seconds.max(view.elapsed_seconds),
        planned_seconds: sum.planned_seconds,
        good: sum.good + view.good,
        denied: sum.denied + view.denied,
        errors: sum.errors + view.errors,
        throughput: sum.throughput + view.throughput,
        in_flight: sum.in_flight + view.in_flight,
        established: sum.established + view.established,
        // Of percentiles only the largest can be said without the histograms.
        p50_us: sum.p50_us.max(view.p50_us),
        p99_us: sum.p99_us.max(view.p99_us),
    })
}

/// The first line of a worker's input.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    job: Job,
    plan: StepPlan,
}

/// A line of a worker's output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WorkerLine {
    Ready,
    Progress(Progress),
    Done(Box<Transfer>),
    Failed(String),
}
