//! The headline run: load and evidence in, one report out.
//!
//! ```text
//!   Course --next plan--> Discovery --plan--> Watched bench --measurement--> Discovery
//!                             |                   +-- kernel and server, before and after
//!                             +--> Spectator (a terminal, a log, a test)
//!                             +--> Report: capacity, knee, ranked causes
//! ```
//!
//! This module owns the order of things and what happens when a run ends early: a stop, or a step
//! that could not be run, ends the search with the report of what was measured until then. It knows
//! no terminal and no signal; the bench may be sockets or a simulation.
//!
//! Deliberately absent: every judgement (`tidegate_judge::discover` and `tidegate_judge::diagnose` make it), and
//! what is printed where.

mod witness;

#[cfg(test)]
mod tests;

pub use witness::{MetricsPage, Seen, Watched};

use crate::load::Stop;
use tidegate_judge::diagnose::Observation;
use tidegate_judge::discover::{Discovery, Mode, Settings};
use tidegate_judge::measurement::{Bench, Loop, StepPlan};
use tidegate_judge::report::{Context, Report};
use tidegate_judge::threshold::Threshold;

/// A step that was ended early is kept from this many measured seconds on.
const SHORTEST_KEPT_SECONDS: f64 = 1.0;

/// Which steps are run.
#[derive(Clone, Debug)]
pub enum Course {
    /// The search chooses, within its settings.
    Search(Settings),
    /// These, in this order: a scenario's own.
    Steps(Vec<StepPlan>),
}

impl Course {
    /// The most connections that any step can hold.
    #[must_use]
    pub fn most_connections(&self) -> u32 {
        match self {
            Self::Search(settings) => match settings.mode {
                Mode::Open { connections, .. } => connections,
                Mode::Closed { .. } => {
                    settings.levels.iter().copied().reduce(f64::max).unwrap_or(settings.ceiling) as u32
                }
            },
            Self::Steps(steps) => steps.iter().map(|step| step.connections).max().unwrap_or(0),
        }
    }

    fn settings(&self) -> Settings {
        match self {
            Self::Search(settings) => settings.clone(),
            Self::Steps(steps) => listed(steps),
        }
    }
}

/// Settings that describe given steps: each load once, and no bound that would end them early.
fn listed(steps: &[StepPlan]) -> Settings {
    let load = |step: &StepPlan| match step.discipline {
        Loop::Closed { .. } => f64::from(step.connections),
        Loop::Open { rate, .. } => rate,
    };
    let mut settings = Settings { repeats: 1, max_repeats: 1, ..Settings::default() };
    settings.levels = steps.iter().map(load).collect();
    settings.max_steps = steps.len() + 1;
    settings.max_total_ms = u64::MAX / 4;
    if let Some(first) = steps.first() {
        settings.mode = match first.discipline {
            Loop::Closed { think_us } => Mode::Closed { think_us },
            Loop::Open { poisson, .. } => Mode::Open { connections: first.connections, poisson },
        };
        (settings.warmup_ms, settings.measure_ms) = (first.warmup_ms, first.measure_ms);
    }
    settings
}

/// Follows a run while it goes on.
pub trait Spectator<B> {
    /// Step `number`, counted from 0, is about to run; the bench may still be prepared for it.
    fn begins(&mut self, bench: &mut B, number: usize, plan: &StepPlan, so_far: &Discovery);
    /// The last of `so_far`'s steps has just ended.
    fn ended(&mut self, so_far: &Discovery);
    /// Gives the generator one more thread; false when this machine has no core for it.
    fn add_thread(&mut self, _bench: &mut B) -> bool {
        false
    }
}

/// A run that is over.
#[derive(Debug)]
pub struct Finished<E> {
    /// The search with its steps.
    pub discovery: Discovery,
    /// What was seen around each step, in their order.
    pub observations: Vec<Observation>,
    /// Gain in throughput by one more generator thread, as a ratio, where the generator was a limit
    /// and a core was free for it.
    pub extra_worker_gain: Option<f64>,
    /// Why it could not go on, when it could not.
    pub failure: Option<E>,
}

impl<E> Finished<E> {
    /// The report; none when nothing was measured.
    #[must_use]
    pub fn report(&self, context: Context, thresholds: &[Threshold]) -> Option<Report> {
        let context = Context { extra_worker_gain: self.extra_worker_gain, ..context };
        (!self.discovery.steps().is_empty())
            .then(|| Report::build(context, &self.discovery, &self.observations, thresholds))
    }
}

/// Runs a course to its end, to a failure or to `stop`.
pub fn run<B: Bench>(
    bench: &mut Watched<B>,
    course: &Course,
    stop: &Stop,
    spectator: &mut dyn Spectator<B>,
) -> Finished<B::Error> {
    let mut discovery = Discovery::new(course.settings());
    let mut failure = None;
    for number in 0.. {
        let next = match course {
            Course::Search(_) => discovery.next_step(),
            // Asking at the end lets the search say that its levels are done.
            Course::Steps(steps) => steps.get(number).cloned().or_else(|| discovery.next_step()),
        };
        let Some(plan) = next else { break };
        if stop.is_stopped() {
            discovery.interrupt();
            break;
        }
        spectator.begins(bench.inner(), number, &plan, &discovery);
        match bench.run(&plan) {
            Ok(cut) if stop.is_stopped() && cut.seconds < SHORTEST_KEPT_SECONDS => discovery.interrupt(),
            Ok(measurement) => {
                discovery.observe(&measurement);
                spectator.ended(&discovery);
            }
            Err(error) => {
                failure = Some(error);
                discovery.interrupt();
                break;
            }
        }
    }
    let extra_worker_gain =
        if failure.is_none() { one_more_thread(bench, &discovery, stop, spectator) } else { None };
    let mut observations = bench.take_observations();
    observations.truncate(discovery.steps().len());
    Finished { discovery, observations, extra_worker_gain, failure }
}

/// Whether the generator was the limit of its last refused step is settled by an experiment: the same
/// step with one more thread. The report's curve leaves out that step.
fn one_more_thread<B: Bench>(
    bench: &mut Watched<B>,
    discovery: &Discovery,
    stop: &Stop,
    spectator: &mut dyn Spectator<B>,
) -> Option<f64> {
    let bound = discovery.steps().iter().rev().find(|step| step.generator_bound())?;
    let before = bound.throughput.mean;
    if stop.is_stopped() || before <= 0.0 || !spectator.add_thread(bench.inner()) {
        return None;
    }
    spectator.begins(bench.inner(), discovery.steps().len(), &bound.plan, discovery);
    let again = bench.run(&bound.plan).ok()?;
    (!stop.is_stopped() && again.seconds > 0.0).then(|| again.throughput() / before - 1.0)
}
