//! A breaker that all requests of an upstream or a route share.

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::breaker::{Breaker, Change, Outcome, Pass, Phase, Settings};
use tidegate_algorithms::time::Tick;

/// A breaker behind a lock, which is held for nanoseconds.
#[derive(Debug)]
pub(crate) struct SharedBreaker {
    state: Mutex<Breaker>,
}

/// What a breaker judges by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What it admits.
    pub phase: Phase,
    /// The calls that it judges: those in its window; open, those that opened it; half open, the trials that have ended.
    pub calls: u32,
    /// Those of them that failed.
    pub failed: u32,
    /// Those that were slow.
    pub slow: u32,
    /// Nanoseconds until it lets one through; 0: it would now.
    pub wait: u64,
    /// The rule.
    pub settings: Settings,
}

/// Leave to make one call. Dropped without an outcome, it counts for nothing and gives its trial back.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    breaker: &'a SharedBreaker,
    pass: Option<Pass>,
}

impl SharedBreaker {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { state: Mutex::new(Breaker::new(settings)) }
    }

    /// Leave to make a call, or the nanoseconds until one may be had.
    pub(crate) fn admit(&self, now: Tick) -> Result<Admission<'_>, u64> {
        let mut state = self.state();
        match state.admit(now) {
            Some(pass) => Ok(Admission { breaker: self, pass: Some(pass) }),
            None => Err(state.wait(now)),
        }
    }

    /// Lets trials through, since a health check passed.
    pub(crate) fn end_pause(&self, now: Tick) {
        self.state().end_pause(now);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state().phase()
    }

    /// What it judges by now.
    pub(crate) fn seen(&self, now: Tick) -> Judged {
        let state = self.state();
        let (calls, failed, slow) = state.recent(now);
        let (phase, wait, settings) = (state.phase(), state.wait(now), *state.settings());
        Judged { phase, calls, failed, slow, wait, settings }
    }

    fn state(&self) -> MutexGuard<'_, Breaker> {
        self.state.lock()
    }
}

impl Admission<'_> {
    /// Reports how the call ended.
    pub(crate) fn ended(mut self, outcome: Outcome, now: Tick) -> Change {
        match self.pass.take() {
            Some(pass) => self.breaker.state().report(pass, outcome, now),
            None => Change::None,
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.breaker.state().cancel(pass);
        }
    }
}
