//! A breaker that all requests of an upstream or a route share.
//!
//! The log has a line when it opens and when it closes: at most one of each in a while, which says how many were left out. A
//! failed trial has no line, since the breaker stays open.

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::breaker::{Breaker, Change, Outcome, Pass, Phase, Settings};
use tidegate_algorithms::time::Tick;
use tidegate_upstream::seldom::SeldomLine;

/// A breaker behind a lock, which is held for nanoseconds.
#[derive(Debug)]
pub(crate) struct SharedBreaker {
    state: Mutex<Breaker>,
    /// `upstream` or `route`, and its name.
    of: (&'static str, Box<str>),
    opened: SeldomLine,
    closed: SeldomLine,
}

/// What a breaker judges by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What it admits.
    pub phase: Phase,
    /// The calls that it judges: those in its window; open, those that opened it; half open, the trials that have ended.
    pub calls: u32,
    /// The calls among them that failed.
    pub failed: u32,
    /// Those that were slow.
    pub slow: u32,
    /// Nanoseconds until it lets one through; 0: it would now.
    pub wait: u64,
    /// The pause that it is in, or whose trials are under way, in nanoseconds; `None`: it is closed.
    pub pause: Option<u64>,
    /// The rule.
    pub settings: Settings,
}

/// Leave to make one call. Dropped without an outcome, it counts for nothing and gives its trial back.
#[derive(Debug)]
pub(crate) struct BreakerAdmission<'a> {
    breaker: &'a SharedBreaker,
    pass: Option<Pass>,
}

impl SharedBreaker {
    /// The breaker of an `upstream` or a `route` of this name.
    pub(crate) fn new(settings: Settings, kind: &'static str, name: &str) -> Self {
        let state = Mutex::new(Breaker::new(settings));
        Self { state, of: (kind, name.into()), opened: SeldomLine::default(), closed: SeldomLine::default() }
    }

    /// Leave to make a call, or the nanoseconds until one may be had.
    pub(crate) fn admit(&self, now: Tick) -> Result<BreakerAdmission<'_>, u64> {
        let mut state = self.state();
        match state.admit(now) {
            Some(pass) => Ok(BreakerAdmission { breaker: self, pass: Some(pass) }),
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
        let (phase, wait, pause) = (state.phase(), state.wait(now), state.pause());
        Judged { phase, calls, failed, slow, wait, pause, settings: *state.settings() }
    }

    /// Has the log say what an operator must know of a change.
    fn tell(&self, change: Change, (calls, failed, slow): (u32, u32, u32), now: Tick) {
        let (kind, name) = (self.of.0, &*self.of.1);
        match change {
            Change::Opened => {
                if let Some(others) = self.opened.unsaid(now) {
                    tracing::warn!(
                        of = kind,
                        name,
                        calls,
                        failed,
                        slow,
                        others,
                        "a breaker is open: requests are refused until a trial succeeds"
                    );
                }
            }
            Change::Closed => {
                if let Some(others) = self.closed.unsaid(now) {
                    tracing::info!(
                        of = kind,
                        name,
                        others,
                        "a breaker is closed: requests are let through again"
                    );
                }
            }
            Change::Reopened => tracing::debug!(of = kind, name, "a breaker stays open: a trial failed"),
            Change::None => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, Breaker> {
        self.state.lock()
    }
}

impl BreakerAdmission<'_> {
    /// Reports how the call ended.
    pub(crate) fn ended(mut self, outcome: Outcome, now: Tick) -> Change {
        match self.pass.take() {
            Some(pass) => {
                let mut state = self.breaker.state();
                let change = state.report(pass, outcome, now);
                if change != Change::None {
                    let judged = state.recent(now);
                    drop(state);
                    self.breaker.tell(change, judged, now);
                }
                change
            }
            None => Change::None,
        }
    }
}

impl Drop for BreakerAdmission<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.breaker.state().cancel(pass);
        }
    }
}
