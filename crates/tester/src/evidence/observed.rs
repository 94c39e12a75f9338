//! A bench that also looks at the kernel and the server while each step runs.
//!
//! ```text
//!   run(plan):  read --+-- inner.run(plan) --------------------+-- read --> Observation
//!                      +-- reads every 250 ms -----------------+
//!               | connections open | warm-up | measured time | drain |
//!               +---- opening -----+         +-- the rest ---+
//! ```
//!
//! The measured time begins with the first reading within it, so that nothing of the opening is counted
//! there. A step that is shorter than the distance of two readings is taken as a whole.
//!
//! The sampler thread ends with the step: it waits on a channel with a timeout, and the channel
//! closes when the step is over. At most [`MAX_READINGS`] are kept, so that a long step is sampled to
//! its middle rather than without bound; the last reading is always taken.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::collect::{Probe, Reading};
use crate::epoch::Epoch;
use tidegate_judge::diagnose::Observation;
use tidegate_judge::measurement::{Bench, Measurement, StepPlan};

/// Time between readings.
const EVERY: Duration = Duration::from_millis(250);
/// Readings kept of one step.
const MAX_READINGS: usize = 2_000;

/// A bench with a probe beside it.
#[derive(Debug)]
pub struct Observed<B> {
    inner: B,
    probe: Probe,
    observations: Vec<Observation>,
}

impl<B> Observed<B> {
    /// Puts `probe` beside `inner`.
    pub fn new(inner: B, probe: Probe) -> Self {
        Self { inner, probe, observations: Vec::new() }
    }

    /// What was seen, one entry per step, in order.
    #[must_use]
    pub fn observations(&self) -> &[Observation] {
        &self.observations
    }

    /// The bench itself.
    pub fn inner(&mut self) -> &mut B {
        &mut self.inner
    }
}

impl<B: Bench> Bench for Observed<B> {
    type Error = B::Error;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, Self::Error> {
        let (probe, epoch) = (&self.probe, Epoch::start());
        let read = || (epoch.now() as f64 / 1e9, probe.read());
        let inner = &mut self.inner;
        let (result, readings) = thread::scope(|scope| {
            let (end, ended) = sync_channel::<()>(0);
            let mut readings = vec![read()];
            let sampler = scope.spawn(move || {
                let mut sampled = Vec::new();
                while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    if sampled.len() < MAX_READINGS {
                        sampled.push(read());
                    }
                }
                sampled
            });
            let result = inner.run(plan);
            drop(end);
            // Invariant: the sampler only reads files, and every reading failure is a `None`.
            readings.extend(sampler.join().expect("the sampler does not panic"));
            readings.push(read());
            (result, readings)
        });
        let measurement = result?;
        let (at, readings): (Vec<f64>, Vec<Reading>) = readings.into_iter().unzip();
        self.observations.push(observation(probe, &at, &readings, &measurement));
        Ok(measurement)
    }
}

/// The figures of a step from its readings, at least two, each `at` a moment since the step began.
fn observation(probe: &Probe, at: &[f64], readings: &[Reading], step: &Measurement) -> Observation {
    let parts = StepBounds::of(at, step);
    let seconds = |from: usize, to: usize| at[to] - at[from];
    let mut seen = probe.delta(&readings[parts.from..=parts.to], seconds(parts.from, parts.to));
    let whole = probe.delta(readings, seconds(0, at.len() - 1));
    seen.min_rtt_us = whole.min_rtt_us;
    if let (Some(kernel), Some(opened)) = (&mut seen.kernel, parts.opened) {
        kernel.opening = Probe::opening(&readings[0], &readings[opened], seconds(0, opened));
    }
    seen
}

/// Where the parts of a step end among its readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StepBounds {
    /// The first reading with all connections open; none in a step that is not told apart.
    opened: Option<usize>,
    /// First and last reading of the measured time.
    from: usize,
    to: usize,
}

impl StepBounds {
    fn of(at: &[f64], step: &Measurement) -> Self {
        let last = at.len() - 1;
        let first_from = |moment: f64| at.iter().position(|t| *t >= moment).unwrap_or(last);
        let opened = first_from(step.opening_seconds);
        let measured = step.opening_seconds + step.plan.warmup_ms as f64 / 1e3;
        let (from, to) = (first_from(measured), first_from(measured + step.seconds));
        if from < to {
            Self { opened: Some(opened), from, to }
        } else {
            Self { opened: None, from: 0, to: last }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_judge::simulated::{Service, closed};

    #[test]
    fn each_step_has_its_observation() {
        let probe = Probe { server_pids: vec![std::process::id()], ..Probe::default() };
        let mut bench = Observed::new(Service::new(4, 1_000.0), probe);
        for connections in [1, 2] {
            bench.run(&closed(connections)).unwrap();
        }
        assert_eq!(bench.observations().len(), 2);
        assert!(bench.observations().iter().all(|o| o.kernel.is_some() && o.server.is_some()));
    }

    #[test]
    fn what_was_read_while_connections_were_opened_is_told_apart() {
        let mut step = Service::new(4, 1_000.0).run(&closed(1)).unwrap();
        (step.opening_seconds, step.plan.warmup_ms, step.seconds) = (0.6, 200, 1.0);
        let every_quarter: Vec<f64> = (0..9).map(|i| f64::from(i) * 0.25).collect();
        assert_eq!(StepBounds::of(&every_quarter, &step), StepBounds { opened: Some(3), from: 4, to: 8 });
        // Nothing was read between: the whole step, and nothing is said of its opening.
        assert_eq!(StepBounds::of(&[0.0, 2.0], &step), StepBounds { opened: None, from: 0, to: 1 });
    }
}
