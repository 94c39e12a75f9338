//! The parent's side: starts workers, lets them begin together, adds up what they measured.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Write},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
};

use super::agents::Agents;
use super::{ClusterError, Job, LOOK, Order, WorkerLine, budget, most_parts, part, together, transfer};
use crate::{
    epoch::Epoch,
    load::{Engine, OnProgress, Progress, Stop},
    preflight::raise_descriptors,
};
use tidegate_judge::measurement::{Bench, Measurement, StepPlan};

/// From one step's seed to the next: the golden ratio of 2^64, so that seeds are far apart.
const NEXT_SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Runs steps of a job: in this process, in several, or by agents on other machines.
pub struct Cluster {
    job: Job,
    processes: u32,
    executable: PathBuf,
    arguments: Vec<OsString>,
    stop: Stop,
    on_progress: Option<OnProgress>,
    agents: Option<Agents>,
}

impl Cluster {
    /// A cluster of `processes`; workers are started as `executable arguments...` and must call
    /// [`super::run_worker`]. With one process, no worker is started.
    #[must_use]
    pub fn new(job: Job, processes: u32, executable: PathBuf, arguments: Vec<OsString>) -> Self {
        let processes = processes.max(1);
        let stop = Stop::default();
        Self { job, processes, executable, arguments, stop, on_progress: None, agents: None }
    }

    /// Has agents make the load; this process then makes none.
    #[must_use]
    pub fn over(mut self, agents: Agents) -> Self {
        self.agents = Some(agents);
        self
    }

    /// Calls `callback` about four times a second while a step runs.
    #[must_use]
    pub fn on_progress(mut self, callback: OnProgress) -> Self {
        self.on_progress = Some(callback);
        self
    }

    /// Ends steps early; what was measured until then is still returned.
    #[must_use]
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Listens to this handle in place of its own.
    pub fn stop_with(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// Follows the changing rate of this step of the scenario from now on.
    pub fn follow_profile(&mut self, step: Option<usize>) {
        self.job.profile_of_step = step;
    }

    /// Gives each process one more thread, unless that makes more threads than this machine has cores. Agents have as
    /// many as their cores allow.
    pub fn add_thread(&mut self) -> bool {
        if self.agents.is_some() {
            return false;
        }
        let cores = thread::available_parallelism().map_or(1, |n| n.get() as u64);
        let free = u64::from(self.job.threads + 1) * u64::from(self.processes) <= cores;
        self.job.threads += u32::from(free);
        free
    }

    /// Runs a step in this process or in several. `gate` is called when all connections are open: it holds the step
    /// back until it returns.
    pub(super) fn run_gated(
        &mut self,
        plan: &StepPlan,
        gate: &mut dyn FnMut(),
    ) -> Result<Measurement, ClusterError> {
        if self.processes == 1 { self.run_here(plan, gate) } else { self.run_workers(plan, gate) }
    }

    fn run_here(&mut self, plan: &StepPlan, gate: &mut dyn FnMut()) -> Result<Measurement, ClusterError> {
        // A refusal shows as EMFILE errors in the measurement.
        let _refused = raise_descriptors().is_err();
        let (_, options) = self.job.resolve()?;
        let mut engine = Engine::with_stop(options, self.stop.clone());
        if let Some(callback) = self.on_progress.take() {
            engine = engine.on_progress(callback);
        }
        let measured = engine.run_gated(plan, gate);
        self.on_progress = engine.take_progress();
        Ok(measured?)
    }

    fn run_workers(&mut self, plan: &StepPlan, gate: &mut dyn FnMut()) -> Result<Measurement, ClusterError> {
        let epoch = Epoch::start();
        let processes = most_parts(plan, self.processes);
        // The share of this process, which is the whole unless it is an agent, is split further.
        let (own, of) = self.job.share;
        let (_, options) = self.job.resolve()?;
        let budget = budget(plan, &options);
        let (lines, inbox) = mpsc::sync_channel::<(usize, WorkerLine)>(processes as usize * 4);
        let mut workers = Workers::default();
        for index in 0..processes {
            let order = Order {
                job: Job { share: (own * processes + index, of * processes), ..self.job.clone() },
                plan: part(plan, index, processes),
            };
            workers.start(self.worker_command(), &order, lines.clone())?;
        }
        drop(lines);
        let mut parts = WorkerReports::new(processes as usize);
        let mut opened = 0;
        let mut deadline = tidegate_net::clock::monotonic() + budget;
        let mut told_to_stop = false;
        while !parts.complete() {
            match inbox.recv_timeout(LOOK) {
                Ok((worker, line)) => {
                    if parts.take(worker, line)? {
                        gate();
                        opened = epoch.now();
                        deadline = tidegate_net::clock::monotonic() + budget;
                        workers.tell("go\n");
                    }
                    if let (Some(view), Some(callback)) = (parts.view(), &mut self.on_progress) {
                        callback(&view);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(ClusterError::Worker("it ended without a result".to_owned()));
                }
            }
            if self.stop.is_stopped() && !told_to_stop {
                told_to_stop = true;
                workers.tell("stop\n");
            }
            if tidegate_net::clock::monotonic() > deadline {
                return Err(ClusterError::Worker(format!("no result after {} s", budget.as_secs())));
            }
        }
        let mut measured = parts.into_measurements().into_iter();
        let mut sum = measured.next().ok_or_else(|| ClusterError::Worker("there was none".to_owned()))?;
        for part in measured {
            transfer::add(&mut sum, &part);
        }
        sum.plan = plan.clone();
        // A worker's own account leaves out the time until it was started.
        sum.opening_seconds = opened as f64 / 1e9;
        Ok(sum)
    }

    fn worker_command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        command
    }
}

impl Bench for Cluster {
    type Error = ClusterError;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, ClusterError> {
        let measured = match &mut self.agents {
            Some(agents) => agents.run(&self.job, plan, &self.stop, &mut self.on_progress),
            None => self.run_gated(plan, &mut || {}),
        };
        // Repeats of a step must be independent, and the first seed must still decide all of them.
        self.job.seed = self.job.seed.wrapping_add(NEXT_SEED);
        measured
    }
}

/// Running workers; dropping them kills those that still run.
#[derive(Default)]
struct Workers(Vec<(Child, ChildStdin)>);

impl Workers {
    fn start(
        &mut self,
        mut command: Command,
        order: &Order,
        lines: mpsc::SyncSender<(usize, WorkerLine)>,
    ) -> io::Result<()> {
        let mut child = command.spawn()?;
        let index = self.0.len();
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut text = serde_json::to_string(order)?;
        text.push('\n');
        input.write_all(text.as_bytes())?;
        self.0.push((child, input));
        thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let line =
                    serde_json::from_str(&line).unwrap_or_else(|error| WorkerLine::Failed(error.to_string()));
                if lines.send((index, line)).is_err() {
                    break;
                }
            }
        })?;
        Ok(())
    }

    /// Tells all; one that is gone shows by its missing result.
    fn tell(&mut self, word: &str) {
        for (_, input) in &mut self.0 {
            let _gone = input.write_all(word.as_bytes()).and_then(|()| input.flush()).is_err();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            if !matches!(child.try_wait(), Ok(Some(_))) {
                // A child that has just ended cannot be killed; it is waited for all the same.
                let _ended = child.kill().is_err();
            }
            let _reaped = child.wait().is_ok();
        }
    }
}

/// What the workers have said so far.
struct WorkerReports {
    ready: usize,
    progress: Vec<Option<Progress>>,
    done: Vec<Option<Measurement>>,
}

impl WorkerReports {
    fn new(count: usize) -> Self {
        Self { ready: 0, progress: vec![None; count], done: (0..count).map(|_| None).collect() }
    }

    /// Takes a line; true when it makes all workers ready.
    fn take(&mut self, worker: usize, line: WorkerLine) -> Result<bool, ClusterError> {
        match line {
            WorkerLine::Ready => {
                self.ready += 1;
                return Ok(self.ready == self.done.len());
            }
            WorkerLine::Progress(progress) => self.progress[worker] = Some(progress),
            WorkerLine::Done(record) => self.done[worker] = Some((*record).into()),
            WorkerLine::Failed(reason) => return Err(ClusterError::Worker(reason)),
        }
        Ok(false)
    }

    /// The sum of the workers' views, once each worker that is not done has one; they are then used up.
    fn view(&mut self) -> Option<Progress> {
        let mut workers = self.progress.iter().zip(&self.done);
        if workers.any(|(progress, done)| progress.is_none() && done.is_none()) {
            return None;
        }
        together(self.progress.iter_mut().filter_map(Option::take))
    }

    fn complete(&self) -> bool {
        self.done.iter().all(Option::is_some)
    }

    fn into_measurements(self) -> Vec<Measurement> {
        self.done.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_judge::measurement::Loop;

    #[test]
    fn parts_of_a_plan_add_up() {
        let plan = StepPlan {
            connections: 10,
            discipline: Loop::Open { rate: 100.0, poisson: false },
            warmup_ms: 1,
            measure_ms: 2,
            max_requests: 7,
        };
        let parts: Vec<StepPlan> = (0..3).map(|index| part(&plan, index, 3)).collect();
        assert_eq!(parts.iter().map(|part| part.connections).sum::<u32>(), 10);
        assert_eq!(parts.iter().map(|part| part.max_requests).sum::<u64>(), 7);
        assert!(parts.iter().all(|part| part.discipline == plan.discipline));
    }

    #[test]
    fn workers_begin_when_all_are_ready_and_the_view_is_their_sum() {
        let mut parts = WorkerReports::new(2);
        assert!(!parts.take(0, WorkerLine::Ready).unwrap());
        assert!(parts.take(1, WorkerLine::Ready).unwrap());
        let view = Progress { good: 3, p99_us: 7, ..Progress::default() };
        parts.take(0, WorkerLine::Progress(view)).unwrap();
        assert_eq!(parts.view(), None);
        parts.take(1, WorkerLine::Progress(Progress { p99_us: 9, ..view })).unwrap();
        assert_eq!(parts.view(), Some(Progress { good: 6, p99_us: 9, ..Progress::default() }));
        assert!(parts.take(0, WorkerLine::Failed("no".to_owned())).is_err());
    }

    #[test]
    fn a_worker_that_is_done_hides_no_view_of_the_others() {
        let plan = StepPlan {
            connections: 2,
            discipline: Loop::Closed { think_us: 0 },
            warmup_ms: 0,
            measure_ms: 1,
            max_requests: 0,
        };
        let mut parts = WorkerReports::new(2);
        let view = Progress { good: 3, ..Progress::default() };
        for worker in 0..2 {
            parts.take(worker, WorkerLine::Progress(view)).unwrap();
        }
        assert!(parts.view().is_some());
        let measured = Measurement::empty(&plan, 1.0, 100);
        parts.take(0, WorkerLine::Done(Box::new(transfer::Transfer::from(&measured)))).unwrap();
        assert_eq!(parts.view(), None, "the other worker has said nothing new");
        parts.take(1, WorkerLine::Progress(view)).unwrap();
        assert_eq!(parts.view(), Some(view));
    }
}
