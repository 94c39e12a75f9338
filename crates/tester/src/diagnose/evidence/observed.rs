//! A bench that also looks at the kernel and the server while each step runs.
//!
//! ```text
//!   run(plan):  read --+-- inner.run(plan) --+-- read --> Observation
//!                      +-- reads every 250 ms +
//! ```
//!
//! The sampler thread ends with the step: it waits on a channel with a timeout, and the channel
//! closes when the step is over. At most [`MAX_READINGS`] are kept, so that a long step is sampled to
//! its middle rather than without bound; the last reading is always taken.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use super::Observation;
use super::collect::{Probe, Reading};
use crate::measurement::{Bench, Measurement, StepPlan};

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
        let probe = &self.probe;
        let inner = &mut self.inner;
        let (result, readings) = thread::scope(|scope| {
            let (end, ended) = sync_channel::<()>(0);
            let mut readings = vec![probe.read()];
            let sampler = scope.spawn(move || {
                let mut sampled: Vec<Reading> = Vec::new();
                while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    if sampled.len() < MAX_READINGS {
                        sampled.push(probe.read());
                    }
                }
                sampled
            });
            let result = inner.run(plan);
            drop(end);
            // Invariant: the sampler only reads files, and every reading failure is a `None`.
            readings.extend(sampler.join().expect("the sampler does not panic"));
            readings.push(probe.read());
            (result, readings)
        });
        let measurement = result?;
        // The readings stand outside of the warm-up too, so the time is the whole step's.
        let seconds = measurement.seconds + plan.warmup_ms as f64 / 1e3;
        self.observations.push(self.probe.delta(&readings, seconds));
        Ok(measurement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Service, closed};

    #[test]
    fn each_step_has_its_observation() {
        let probe = Probe { server_pid: Some(std::process::id()), ..Probe::default() };
        let mut bench = Observed::new(Service::new(4, 1_000.0), probe);
        for connections in [1, 2] {
            bench.run(&closed(connections)).unwrap();
        }
        assert_eq!(bench.observations().len(), 2);
        assert!(bench.observations().iter().all(|o| o.kernel.is_some() && o.server.is_some()));
    }
}
