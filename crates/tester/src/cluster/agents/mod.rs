//! Load from several machines: agents that one coordinator tells what to do.
//!
//! ```text
//!   coordinator (Agents)                        agent 0 .. n-1 (AgentDesk, behind a listener of HTTP)
//!     | ---- profile --------------------------->  |  its version, what its machine allows
//!     | ---- step: a job and a plan, one JSON -->  |  opens its connections
//!     | <--- waiting ----------------------------  |  four times a second, until it begins
//!     | <--- ready ------------------------------  |
//!     | ---- clock, several times --------------->  |  the least round trip says how far their clocks differ
//!     | ---- start: when, by its own clock ------>  |  waits for that moment
//!     | <--- started, progress, done ------------  |  lines of JSON, as they come
//!     | ---- stop ------------------------------->  |  ends early, or is free for others
//! ```
//!
//! An agent's part of a step is what a process's part is (`parent.rs`): a share of the connections, of the requests and of the one
//! schedule. So the sum of the agents is what one machine would have measured, histograms included, bucket by bucket.
//!
//! An agent does one step at a time, and the steps of one run only. Its machine's preflight is its own: a coordinator cannot make it do
//! what that forbids. A coordinator that is gone shows by an answer that nobody reads, and ends the step.
//!
//! An agent is lost when its connection breaks, when it says that it failed, when it begins late, or when it says nothing for 35 s. What
//! it had of the step is left out, the plan of the step becomes that of those who stayed, and the result names it.
//!
//! Deliberately absent: how the bytes travel. [`AgentLink`] is what a coordinator needs of a client, and [`AgentCall`] has the paths.

mod comparison;
mod coordinator;
mod desk;
mod step;
mod teller;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Job, transfer::Transfer};
use crate::{load::Progress, preflight::Machine};
use tidegate_judge::measurement::StepPlan;

pub use coordinator::Agents;
pub use desk::{AgentDesk, AgentRefusal};

/// Most agents of a run.
const MAX_AGENTS: u32 = 1_000;
/// Most bytes of a question: a scenario with its data file, escaped as JSON.
pub const MAX_QUESTION_BYTES: usize = 160 << 20;
/// Most bytes of the answer to a step: its lines, and its histograms.
pub const MAX_ANSWER_BYTES: u64 = 256 << 20;

/// A question to an agent. All are POST requests whose body is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentCall {
    /// Who it is. The answer is JSON.
    Profile,
    /// What its clocks show. The answer is JSON.
    Clock,
    /// To do a part of a step. The answer is a line of JSON for each thing that happens.
    Step,
    /// When the step begins. The answer is JSON.
    Start,
    /// To end the step, and perhaps the run. The answer is JSON.
    Stop,
}

impl AgentCall {
    const ALL: [Self; 5] = [Self::Profile, Self::Clock, Self::Step, Self::Start, Self::Stop];

    /// Its path.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Profile => "/v1/agent/profile",
            Self::Clock => "/v1/agent/clock",
            Self::Step => "/v1/agent/step",
            Self::Start => "/v1/agent/start",
            Self::Stop => "/v1/agent/stop",
        }
    }

    /// The question of a path.
    #[must_use]
    pub fn of_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.path() == path)
    }
}

/// Why an agent gave no answer, in words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AgentError(pub String);

/// How a coordinator reaches one agent.
pub trait AgentLink: Send + Sync {
    /// The agent's address, for messages and reports.
    fn address(&self) -> &str;

    /// Asks a short question, and gives the answer.
    ///
    /// # Errors
    /// When the agent cannot be reached, or refuses.
    fn ask(&self, call: AgentCall, body: &str) -> Result<String, AgentError>;

    /// Asks for a step ([`AgentCall::Step`]), and hands on each line of the answer until `line` wants no more.
    ///
    /// # Errors
    /// When the agent cannot be reached, refuses, or its answer breaks off.
    fn step(&self, body: &str, line: &mut dyn FnMut(&str) -> bool) -> Result<(), AgentError>;
}

/// Who an agent is.
#[derive(Debug, Serialize, Deserialize)]
struct AgentProfile {
    version: String,
    machine: Machine,
}

/// What an agent's clocks show.
#[derive(Debug, Serialize, Deserialize)]
struct AgentClock {
    /// Nanoseconds since the agent was started.
    tick_ns: u64,
    /// Civil time, in nanoseconds since 1970.
    wall_ns: u64,
}

/// A part of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct AgentOrder {
    version: String,
    /// The coordinator's name for its run.
    run: String,
    /// The number of the step within the run.
    step: u64,
    job: Job,
    plan: StepPlan,
    processes: u32,
    /// Whether one connection to the target is tried first.
    contact: bool,
}

/// When a step begins.
#[derive(Debug, Serialize, Deserialize)]
struct AgentStart {
    run: String,
    /// [`AgentOrder::step`].
    step: u64,
    /// By the agent's [`AgentClock::tick_ns`].
    at_ns: u64,
}

/// The end of a step.
#[derive(Debug, Serialize, Deserialize)]
struct AgentStop {
    run: String,
    /// [`AgentOrder::step`]. A stop that comes late does not end the next one.
    step: u64,
    /// No further step of the run follows: whichever is under way is to end.
    is_over: bool,
}

/// A line of the answer to a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AgentLine {
    /// All connections are open.
    Ready,
    /// It still opens connections, or waits for its start.
    Waiting,
    /// It began.
    Started {
        /// How long after the moment that it was told.
        late_us: u64,
    },
    Progress(Progress),
    Done(Box<Transfer>),
    Failed(String),
}

/// The version in a question or a profile, which is read before anything else of it: the rest may differ.
#[derive(Deserialize)]
struct StatedVersion {
    version: String,
}

#[cfg(test)]
mod tests;
