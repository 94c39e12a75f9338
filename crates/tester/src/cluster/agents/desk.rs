//! The agent's side: takes orders, one step at a time, and says what becomes of them.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tidegate_net::clock::wall;

use super::{
    AgentCall, AgentClock, AgentLine, AgentOrder, AgentProfile, AgentStart, AgentStop, MAX_AGENTS,
    StatedVersion,
};
use crate::{
    cluster::{Cluster, ClusterError, Job, transfer::Transfer},
    epoch::{Epoch, nanos},
    load::{Reuse, Stop},
    preflight::{self, Decision, Machine, Need, Severity, Unreachable},
};

/// How often an agent says that it is there, while it opens its connections and while it waits for its start.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// Longest wait for a start: the other agents may have many more connections to open.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How long after a step the agent is kept for the run's next one.
const HELD: Duration = Duration::from_secs(10);
/// Most connections of a part, as of any step.
const MAX_CONNECTIONS: u32 = 1_000_000;
/// Longest step: a day, in milliseconds.
const MAX_MILLIS: u64 = 86_400_000;
const MAX_THREADS: u32 = 256;
const MAX_PROCESSES: u32 = 64;
/// Longest name of a run, in bytes.
const MAX_NAME: usize = 100;

/// Writes a line of an answer; false when nobody reads it any more.
type Say = Box<dyn FnMut(String) -> bool + Send>;

/// Why an agent does not do what it is asked.
#[derive(Debug, Error)]
pub enum AgentRefusal {
    /// The question is not JSON, or not this question's.
    #[error("the question cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The coordinator is another version.
    #[error("this agent is tidegate {ours}, and the coordinator is {theirs}: run the same version on both")]
    Version {
        /// The agent's version.
        ours: String,
        /// The coordinator's.
        theirs: String,
    },
    /// A run is under way.
    #[error("this agent works for another run: one at a time")]
    Busy,
    /// A start or a stop for a step that is not there.
    #[error("there is no such step here")]
    NoStep,
    /// A number is out of range.
    #[error("{0}")]
    OutOfRange(&'static str),
    /// Its machine does not allow it.
    #[error("its machine does not allow it: {0}")]
    Machine(String),
    /// The target cannot be reached from here.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The step could not be run.
    #[error(transparent)]
    Step(#[from] ClusterError),
    /// The system gave no thread for it.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
}

/// An agent: the one step that it does, if any, and for whom.
pub struct AgentDesk {
    version: String,
    executable: PathBuf,
    arguments: Vec<OsString>,
    epoch: Epoch,
    state: Mutex<DeskState>,
}

#[derive(Default)]
struct DeskState {
    /// The run that it works for, or worked for last.
    run: String,
    /// Until when that run keeps it between two steps.
    held_until: u64,
    step: Option<DeskStep>,
}

struct DeskStep {
    /// Its number within the run.
    number: u64,
    starts: mpsc::SyncSender<u64>,
    stop: Stop,
}

impl AgentDesk {
    /// An agent of this version, whose processes are started as `executable arguments...` and call
    /// [`run_worker`](crate::cluster::run_worker).
    #[must_use]
    pub fn new(version: &str, executable: PathBuf, arguments: Vec<OsString>) -> Self {
        let state = Mutex::default();
        Self { version: version.to_owned(), executable, arguments, epoch: Epoch::start(), state }
    }

    /// Answers a question that is no step.
    ///
    /// # Errors
    /// When it is not understood, or is about a step that is not there.
    pub fn answer(&self, call: AgentCall, body: &[u8]) -> Result<String, AgentRefusal> {
        Ok(match call {
            AgentCall::Profile => {
                let profile = AgentProfile { version: self.version.clone(), machine: Machine::read() };
                serde_json::to_string(&profile)?
            }
            AgentCall::Clock => {
                let clock = AgentClock { tick_ns: self.epoch.now(), wall_ns: wall().0 };
                serde_json::to_string(&clock)?
            }
            AgentCall::Start => {
                self.start(&read(body)?)?;
                "{}".to_owned()
            }
            AgentCall::Stop => {
                self.stop(&read(body)?);
                "{}".to_owned()
            }
            AgentCall::Step => return Err(AgentRefusal::NoStep),
        })
    }

    /// Begins a step; `say` is told its lines, the last of which is its result.
    ///
    /// # Errors
    /// When the order is not understood or out of range, or the agent works already.
    pub fn begin(self: &Arc<Self>, body: &[u8], say: Say) -> Result<(), AgentRefusal> {
        let StatedVersion { version: theirs } = read(body)?;
        if theirs != self.version {
            return Err(AgentRefusal::Version { ours: self.version.clone(), theirs });
        }
        let order: AgentOrder = read(body)?;
        within_bounds(&order)?;
        let (starts, start) = mpsc::sync_channel(1);
        let stop = Stop::default();
        let place = self.occupy(&order.run, DeskStep { number: order.step, starts, stop: stop.clone() })?;
        let work = DeskWork { desk: Arc::clone(self), order, start, stop, say: Arc::new(Mutex::new(say)) };
        let run = move || work.run(place);
        thread::Builder::new().name("agent".to_owned()).spawn(run).map(drop).map_err(AgentRefusal::Thread)
    }

    fn occupy(self: &Arc<Self>, run: &str, step: DeskStep) -> Result<DeskPlace, AgentRefusal> {
        let mut state = self.state.lock();
        let is_held = state.run != run && self.epoch.now() < state.held_until;
        if state.step.is_some() || is_held {
            return Err(AgentRefusal::Busy);
        }
        run.clone_into(&mut state.run);
        state.step = Some(step);
        Ok(DeskPlace { desk: Arc::clone(self), is_kept: true })
    }

    /// Keeps the agent for this run no longer.
    fn release(&self, run: &str) {
        let mut state = self.state.lock();
        if state.run == run {
            state.held_until = 0;
        }
    }

    fn start(&self, start: &AgentStart) -> Result<(), AgentRefusal> {
        if start.at_ns > self.epoch.now() + nanos(LONGEST_WAIT) {
            return Err(AgentRefusal::OutOfRange("a step begins within 600 s"));
        }
        let state = self.state.lock();
        let step = state.step.as_ref().filter(|step| state.run == start.run && step.number == start.step);
        let step = step.ok_or(AgentRefusal::NoStep)?;
        // A second start of the same step says nothing new.
        let _told = step.starts.try_send(start.at_ns).is_ok();
        Ok(())
    }

    fn stop(&self, stop: &AgentStop) {
        let mut state = self.state.lock();
        if state.run != stop.run {
            return;
        }
        if let Some(step) = state.step.as_ref().filter(|step| stop.is_over || step.number == stop.step) {
            step.stop.stop();
        }
        if stop.is_over {
            state.held_until = 0;
            state.run.clear();
        }
    }
}

/// The one step's place; dropping it makes the agent free for the run's next step, or for anybody.
struct DeskPlace {
    desk: Arc<AgentDesk>,
    /// For the run.
    is_kept: bool,
}

impl Drop for DeskPlace {
    fn drop(&mut self) {
        let mut state = self.desk.state.lock();
        state.step = None;
        // A run that is over has no name any more, and keeps nothing.
        let is_kept = self.is_kept && !state.run.is_empty();
        state.held_until = if is_kept { self.desk.epoch.now() + nanos(HELD) } else { 0 };
    }
}

/// A step under way.
struct DeskWork {
    desk: Arc<AgentDesk>,
    order: AgentOrder,
    start: mpsc::Receiver<u64>,
    stop: Stop,
    say: Arc<Mutex<Say>>,
}

impl DeskWork {
    fn run(self, mut place: DeskPlace) {
        let outcome = self.measure();
        // A coordinator leaves out an agent that failed.
        place.is_kept = outcome.is_ok();
        // Whoever reads the result may order the next step at once.
        drop(place);
        let line = match outcome {
            Ok(measured) => AgentLine::Done(Box::new(measured)),
            Err(refusal) => AgentLine::Failed(refusal.to_string()),
        };
        if !tell(&self.say, &line) {
            // The coordinator is gone, and orders no further step.
            self.desk.release(&self.order.run);
        }
    }

    fn measure(&self) -> Result<Transfer, AgentRefusal> {
        let AgentOrder { job, plan, processes, contact, .. } = &self.order;
        let mut opening = Some(self.heartbeat()?);
        let (_, options) = job.resolve().map_err(ClusterError::from)?;
        let need = Need {
            connections: plan.connections,
            target: options.target,
            sources: options.sources.clone(),
            per_request: options.reuse == Reuse::PerRequest,
        };
        let decision = preflight::decide(&Machine::read(), &need);
        if decision.blocked() {
            return Err(AgentRefusal::Machine(objections(&decision)));
        }
        if *contact {
            preflight::contact(&options)?;
        }
        let job = Job { sources: decision.sources, ..job.clone() };
        let (say, stop) = (Arc::clone(&self.say), self.stop.clone());
        let mut cluster =
            Cluster::new(job, *processes, self.desk.executable.clone(), self.desk.arguments.clone())
                .on_progress(Box::new(move |progress| {
                    if !tell(&say, &AgentLine::Progress(*progress)) {
                        stop.stop();
                    }
                }));
        cluster.stop_with(self.stop.clone());
        let measured = cluster.run_gated(plan, &mut || {
            drop(opening.take());
            self.wait_for_start();
        })?;
        Ok(Transfer::from(&measured))
    }

    /// Says that it is there until what this returns is dropped. When nobody hears it, the step is stopped.
    fn heartbeat(&self) -> Result<mpsc::SyncSender<()>, AgentRefusal> {
        let (beating, end) = mpsc::sync_channel::<()>(1);
        let (say, stop) = (Arc::clone(&self.say), self.stop.clone());
        let beat = move || {
            while end.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                if !tell(&say, &AgentLine::Waiting) {
                    return stop.stop();
                }
            }
        };
        let name = "agent-waits".to_owned();
        thread::Builder::new().name(name).spawn(beat).map_err(AgentRefusal::Thread)?;
        Ok(beating)
    }

    /// Returns at the moment that the coordinator names, or stops the step when there will be none.
    fn wait_for_start(&self) {
        let epoch = self.desk.epoch;
        let until = epoch.now() + nanos(LONGEST_WAIT);
        let mut line = AgentLine::Ready;
        let at = loop {
            if self.stop.is_stopped() || epoch.now() > until || !tell(&self.say, &line) {
                return self.stop.stop();
            }
            line = AgentLine::Waiting;
            match self.start.recv_timeout(HEARTBEAT) {
                Ok(at) => break at,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop.stop(),
            }
        };
        while !self.stop.is_stopped() && epoch.now() < at {
            let left = Duration::from_nanos(at.saturating_sub(epoch.now()));
            thread::park_timeout(left.min(HEARTBEAT));
        }
        let late_us = epoch.now().saturating_sub(at) / 1_000;
        tell(&self.say, &AgentLine::Started { late_us });
    }
}

/// Says a line; false when nobody hears it.
fn tell(say: &Mutex<Say>, line: &AgentLine) -> bool {
    let Ok(mut text) = serde_json::to_string(line) else { return false };
    text.push('\n');
    (*say.lock())(text)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, AgentRefusal> {
    Ok(serde_json::from_slice(body)?)
}

fn within_bounds(order: &AgentOrder) -> Result<(), AgentRefusal> {
    let AgentOrder { run, job, plan, processes, .. } = order;
    let (index, parts) = job.share;
    let mistakes = [
        (run.is_empty() || run.len() > MAX_NAME, "a run has a name of 1 to 100 bytes"),
        (
            !(1..=MAX_CONNECTIONS).contains(&plan.connections),
            "a part of a step has 1 to 1,000,000 connections",
        ),
        (
            plan.warmup_ms.saturating_add(plan.measure_ms) > MAX_MILLIS || plan.measure_ms == 0,
            "a step takes 1 ms to a day",
        ),
        (!(1..=MAX_THREADS).contains(&job.threads), "a process has 1 to 256 threads"),
        (job.max_connecting == 0, "a thread opens at least one connection at a time"),
        (!(1..=MAX_PROCESSES).contains(processes), "an agent has 1 to 64 processes"),
        (parts > MAX_AGENTS || index >= parts, "a share is one of 1 to 1,000 parts"),
    ];
    match mistakes.into_iter().find(|(is_one, _)| *is_one) {
        Some((_, mistake)) => Err(AgentRefusal::OutOfRange(mistake)),
        None => Ok(()),
    }
}

/// What forbids it, with the commands that help.
fn objections(decision: &Decision) -> String {
    let found = decision.findings.iter().filter(|finding| finding.severity == Severity::Blocked);
    found.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
