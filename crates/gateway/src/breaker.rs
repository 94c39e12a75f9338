//! A breaker that all requests of an upstream or a route share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_algorithms::breaker::{Breaker, Change, Outcome, Pass, Phase, Settings};
use tidegate_algorithms::time::Tick;

/// A breaker behind a lock, which is held for nanoseconds.
#[derive(Debug)]
pub(crate) struct SharedBreaker {
    state: Mutex<Breaker>,
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

    fn state(&self) -> MutexGuard<'_, Breaker> {
        // Plain numbers: whatever a panicking holder left there is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
