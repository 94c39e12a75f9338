//! One step over all threads of this process: connect, start together, collect.
//!
//! ```text
//!   coordinator            thread 0 .. n-1
//!       |  <---- ready ------  all connections open (or given up for now)
//!     gate                     other processes wait here too
//!       |  ------ go ------->  one common origin
//!       |  <--- snapshots ---  four a second
//!       |  <---- tally ------  joined
//! ```

use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tidegate_algorithms::{
    pacing::{Arrivals, Profile, Schedule, Segment},
    time::SECOND,
};

use super::{
    EngineError,
    options::{Options, Stop},
    progress::{Board, Progress, Snapshot},
    protocol::Protocol,
    tally::Tally,
    worker::{Assignment, Release, Times, Worker},
};
use crate::epoch::{Epoch, nanos};
use tidegate_judge::measurement::{Loop, StepPlan};

/// From the last thread's readiness to the first request.
const RUN_UP: u64 = 1_000_000;
/// How often the coordinator looks up when nothing is reported.
const VIEW: Duration = Duration::from_millis(250);
const MILLI: u64 = 1_000_000;

/// What the coordinator calls while a step runs.
pub(super) struct Hooks<'a> {
    /// All threads are ready; returning lets the step begin.
    pub(super) gate: &'a mut dyn FnMut(),
    /// The live view, if anyone looks.
    pub(super) progress: Option<&'a mut dyn FnMut(&Progress)>,
}

/// Runs a step on `options.threads` threads, each with the protocol that `make(index, of)` gives.
pub(super) fn run_step<P: Protocol>(
    options: &Arc<Options>,
    plan: &StepPlan,
    stop: &Stop,
    mut hooks: Hooks<'_>,
    make: impl Fn(u32, u32) -> P,
) -> Result<Vec<Tally>, EngineError> {
    let threads = options.threads.clamp(1, 256).min(plan.connections.max(1));
    let epoch = Epoch::start();
    let (ready, all_ready) = mpsc::sync_channel::<()>(threads as usize);
    let (snapshots, reports) = mpsc::sync_channel::<Snapshot>(threads as usize * 2);
    let watched = hooks.progress.is_some();
    thread::scope(|scope| {
        let mut starts = Vec::new();
        let mut handles = Vec::new();
        let mut first = 0;
        for index in 0..threads {
            let connections = share(u64::from(plan.connections), index, threads) as u32;
            let (go, wait) = mpsc::sync_channel::<Times>(1);
            let assignment = Assignment {
                epoch,
                options: Arc::clone(options),
                stop: stop.clone(),
                first_connection: first,
                connections,
                connect_rate: options.connect_rate.map(|rate| rate / f64::from(threads)),
                budget: match plan.max_requests {
                    0 => u64::MAX,
                    max => share(max, index, threads),
                },
                release: release(options, plan, index, threads)?,
                tally: Tally::new(plan),
                snapshots: watched.then(|| snapshots.clone()),
            };
            first += connections;
            let (_, processes) = options.share;
            let protocol = make(index + options.share.0 * threads, threads * processes);
            let ready = ready.clone();
            let run = move || -> io::Result<Option<Tally>> {
                let mut worker = Worker::new(assignment, protocol)?;
                worker.connect()?;
                drop(ready);
                // A coordinator that is gone wants no result.
                wait.recv().ok().map(|times| worker.run(times)).transpose()
            };
            let name = format!("load-{index}");
            handles.push(
                thread::Builder::new().name(name).spawn_scoped(scope, run).map_err(EngineError::Setup)?,
            );
            starts.push(go);
        }
        drop((ready, snapshots));
        // Every thread drops its end when it is ready, or fails: the channel then closes.
        while all_ready.recv().is_ok() {}
        (hooks.gate)();
        let times = times(options, plan, epoch.now() + RUN_UP);
        for go in &starts {
            // A thread that failed has no ears; its error is found below.
            let _failed = go.send(times).is_err();
        }
        if let Some(progress) = &mut hooks.progress {
            watch(plan, epoch, times, &reports, progress);
        }
        handles.into_iter().map(join).collect()
    })
}

/// A thread's counts, or why it has none.
fn join(handle: thread::ScopedJoinHandle<'_, io::Result<Option<Tally>>>) -> Result<Tally, EngineError> {
    match handle.join() {
        Ok(Ok(Some(tally))) => Ok(tally),
        Ok(Err(error)) => Err(EngineError::Setup(error)),
        Ok(Ok(None)) | Err(_) => Err(EngineError::Thread),
    }
}

/// Shows the view until all threads have ended.
fn watch(
    plan: &StepPlan,
    epoch: Epoch,
    times: Times,
    reports: &mpsc::Receiver<Snapshot>,
    progress: &mut dyn FnMut(&Progress),
) {
    let mut board = Board::new(plan);
    let mut next = times.origin + nanos(VIEW);
    loop {
        let wait = next.saturating_sub(epoch.now());
        match reports.recv_timeout(Duration::from_nanos(wait)) {
            Ok(snapshot) => board.take(snapshot),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let now = epoch.now();
                next = now + nanos(VIEW);
                progress(&board.view(now.saturating_sub(times.origin) as f64 / SECOND as f64));
            }
        }
    }
}

/// What part `index` of `parts` gets of `whole`, so that the parts add up.
pub(crate) fn share(whole: u64, index: u32, parts: u32) -> u64 {
    let parts = u64::from(parts.max(1));
    whole / parts + u64::from(u64::from(index) < whole % parts)
}

fn times(options: &Options, plan: &StepPlan, origin: u64) -> Times {
    let from = origin + plan.warmup_ms * MILLI;
    let to = from + plan.measure_ms * MILLI;
    Times { origin, from, to, drained: to + nanos(options.drain) }
}

fn release(options: &Options, plan: &StepPlan, index: u32, threads: u32) -> Result<Release, EngineError> {
    let (rate, poisson) = match plan.discipline {
        Loop::Closed { think_us } => return Ok(Release::Closed { think: think_us * 1_000 }),
        Loop::Open { rate, poisson } => (rate, poisson),
    };
    let seconds = |ms: u64| ms as f64 / 1e3;
    let mut segments = match &options.profile {
        Some(profile) => profile.segments().to_vec(),
        None => vec![Segment { from: rate, to: rate, seconds: seconds(plan.measure_ms) }],
    };
    if let (Some(first), 1..) = (segments.first(), plan.warmup_ms) {
        let warmup = Segment { from: first.from, to: first.from, seconds: seconds(plan.warmup_ms) };
        segments.insert(0, warmup);
    }
    let profile = Profile::new(segments)?;
    let arrivals = if poisson { Arrivals::Poisson { seed: options.seed } } else { Arrivals::Even };
    let (process, processes) = options.share;
    let schedule = Schedule::share(profile, arrivals, index + process * threads, threads * processes);
    Ok(Release::Open(Box::new(schedule)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (whole, parts) in [(10, 3), (0, 2), (7, 7), (5, 8)] {
            assert_eq!((0..parts).map(|index| share(whole, index, parts)).sum::<u64>(), whole);
        }
    }
}
