//! A circuit breaker as a state machine over (outcome, now).
//!
//! ```text
//!          too many failed or slow calls                pause over, or a health check passed
//!   Closed -----------------------------> Open ------------------------------------> Half open
//!     ^                                    ^                                             |
//!     |         the trials went well       |           too many trials failed            |
//!     `------------------------------------+---------------------------------------------'
//! ```
//!
//! Closed, it judges the last calls by number or by time ([`Window`]). It opens when there were at
//! least `minimum_calls`, and the share of failed or of slow ones reached its bound. Half open, it
//! admits `trials` calls and judges them by the same shares: it opens again as soon as the bound
//! cannot be missed any more, and closes as soon as it cannot be reached any more. So one trial
//! that takes its time, as a long upload does, keeps no others out. A trial that never reports, and whose place is
//! needed, keeps it for the longest pause at most: within the first one, a slow server would have reported nothing yet.
//!
//! The first pause is short, since most outages are a restart. Each round of trials that fails doubles it, up to the longest. It begins
//! short again once the breaker was closed for as long as its last pause was: calls that succeed as trials alone, and fail when all
//! come, are not all tried every second.
//!
//! A call is admitted with a [`Pass`], which names the state that admitted it. An outcome that
//! arrives after the state has changed counts for nothing: a burst of old time-outs neither opens
//! a breaker that has just closed nor fails its trials.
//!
//! Used by the guard of a shared counter store and by each upstream of the gateway.
//!
//! Deliberately absent: a clock, randomness, what is done instead of the call. Reference: M. Nygard,
//! "Release It!", 2007; the defaults are those of the Resilience4j library.

mod window;

use crate::time::{SECOND, Tick};
use window::{CallCounts, Recent};
pub use window::{MAX_CALLS, Window};

/// When a breaker opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which calls are judged together.
    pub window: Window,
    /// Fewer calls than this are never judged, >= 1. A window by number holds at least as many.
    pub minimum_calls: u32,
    /// Fewer failures than this never open it, whatever their share; 0 leaves it to the share.
    pub minimum_failures: u32,
    /// Share of failed calls that opens it, in percent, 1 to 100.
    pub failure_percent: u32,
    /// A call that takes longer is slow, in nanoseconds.
    pub slow_after: u64,
    /// Share of slow calls that opens it, in percent, 1 to 100; over 100: slowness never does.
    pub slow_percent: u32,
    /// Nanoseconds from opening to the first trial. It is doubled, up to `pause`, with each round of trials that fails.
    pub first_pause: u64,
    /// The longest that it becomes.
    pub pause: u64,
    /// Calls that are tried before it closes again, >= 1.
    pub trials: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: Window::Calls(100),
            minimum_calls: 20,
            minimum_failures: 0,
            failure_percent: 50,
            slow_after: 3 * SECOND,
            slow_percent: 50,
            first_pause: SECOND,
            pause: 60 * SECOND,
            trials: 10,
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// It failed.
    pub failed: bool,
    /// How long it took, in nanoseconds.
    pub took: u64,
}

impl Outcome {
    /// A call that succeeded.
    #[must_use]
    pub fn success(took: u64) -> Self {
        Self { failed: false, took }
    }

    /// A call that failed.
    #[must_use]
    pub fn failure(took: u64) -> Self {
        Self { failed: true, took }
    }
}

/// Leave to make one call. Its outcome is to be reported, or the pass [given back](Breaker::cancel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    generation: u64,
}

impl Pass {
    /// It as a number, for who hands one pass to many calls.
    #[must_use]
    pub fn number(self) -> u64 {
        self.generation
    }

    /// The pass of this number.
    #[must_use]
    pub fn numbered(number: u64) -> Self {
        Self { generation: number }
    }
}

/// What an outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It was closed and has just opened.
    Opened,
    /// Its trials failed: it is open for another pause.
    Reopened,
    /// It has just closed.
    Closed,
}

/// Which calls are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// All.
    Closed,
    /// None.
    Open,
    /// A few, to see whether the others may follow.
    HalfOpen,
}

/// The breaker's state.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: Settings,
    /// Counts the changes of `state`.
    generation: u64,
    state: CircuitState,
    recent: Recent,
    /// The pause of the last time that it opened.
    pause: u64,
    /// When it closed last.
    closed: Option<Tick>,
}

#[derive(Clone, Copy, Debug)]
enum CircuitState {
    Closed,
    /// With the calls that opened it.
    Open {
        since: Tick,
        counts: CallCounts,
    },
    HalfOpen {
        since: Tick,
        admitted: u32,
        counts: CallCounts,
    },
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let settings = Settings {
            minimum_calls: settings.minimum_calls.max(1),
            failure_percent: settings.failure_percent.max(1),
            slow_percent: settings.slow_percent.max(1),
            trials: settings.trials.max(1),
            first_pause: settings.first_pause.min(settings.pause),
            ..settings
        };
        let recent = Recent::new(settings.window, settings.minimum_calls);
        let pause = settings.first_pause;
        Self { settings, generation: 0, state: CircuitState::Closed, recent, pause, closed: None }
    }

    /// Leave to make a call at `now`, if it may be made.
    pub fn admit(&mut self, now: Tick) -> Option<Pass> {
        match &mut self.state {
            CircuitState::Closed => {}
            CircuitState::Open { since, .. } => {
                if now.since(*since) < self.pause {
                    return None;
                }
                self.enter(CircuitState::HalfOpen { since: now, admitted: 1, counts: CallCounts::default() });
            }
            CircuitState::HalfOpen { since, admitted, .. } => {
                if *admitted < self.settings.trials {
                    *admitted += 1;
                } else if now.since(*since) >= self.settings.pause {
                    // Trials are missing since the longest pause: their callers are gone.
                    self.enter(CircuitState::HalfOpen {
                        since: now,
                        admitted: 1,
                        counts: CallCounts::default(),
                    });
                } else {
                    return None;
                }
            }
        }
        Some(Pass { generation: self.generation })
    }

    /// The pass that all calls get as long as the breaker stays closed; `None`: it is not closed.
    #[must_use]
    pub fn standing_pass(&self) -> Option<Pass> {
        matches!(self.state, CircuitState::Closed).then_some(Pass { generation: self.generation })
    }

    /// Whether it is closed, judges calls by number, and none of them failed or was slow. Successes then change nothing but
    /// their own number: they may be reported later and together ([`Breaker::succeeded`]), before the next other outcome.
    #[must_use]
    pub fn is_untroubled(&self) -> bool {
        matches!(self.state, CircuitState::Closed) && self.recent.has_successes_alone()
    }

    /// Takes so many successes that were not slow, of calls that `pass` admitted, while it [is untroubled](Breaker::is_untroubled).
    pub fn succeeded(&mut self, pass: Pass, calls: u32) {
        if self.standing_pass() == Some(pass) {
            self.recent.add_successes(calls);
        }
    }

    /// Takes the outcome of the call that `pass` admitted.
    pub fn report(&mut self, pass: Pass, outcome: Outcome, now: Tick) -> Change {
        if pass.generation != self.generation {
            return Change::None;
        }
        let one = CallCounts::of(outcome.failed, outcome.took > self.settings.slow_after);
        match &mut self.state {
            CircuitState::Closed => {
                let counts = self.recent.add(one, now);
                if counts.calls >= self.settings.minimum_calls
                    && self.settings.are_exceeded(counts, counts.calls)
                {
                    self.open(counts, now);
                    return Change::Opened;
                }
                Change::None
            }
            CircuitState::HalfOpen { counts, .. } => {
                *counts = counts.plus(one);
                let (counts, trials) = (*counts, self.settings.trials);
                if self.settings.share_exceeds(counts, trials) {
                    self.open(counts, now);
                    Change::Reopened
                } else if !self.settings.share_exceeds(counts.at_worst(trials), trials) {
                    self.enter(CircuitState::Closed);
                    self.closed = Some(now);
                    Change::Closed
                } else {
                    Change::None
                }
            }
            // Invariant: no pass is of a generation that is open.
            CircuitState::Open { .. } => Change::None,
        }
    }

    /// Takes back a pass whose call has no outcome: it was not made, or its caller left.
    pub fn cancel(&mut self, pass: Pass) {
        if let CircuitState::HalfOpen { admitted, .. } = &mut self.state
            && pass.generation == self.generation
        {
            *admitted = admitted.saturating_sub(1);
        }
    }

    /// Lets trials through without waiting for the pause to end, since a health check passed.
    pub fn end_pause(&mut self, now: Tick) {
        if matches!(self.state, CircuitState::Open { .. }) {
            self.enter(CircuitState::HalfOpen { since: now, admitted: 0, counts: CallCounts::default() });
        }
    }

    /// Which calls are admitted, as the last call left it.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.state {
            CircuitState::Closed => Phase::Closed,
            CircuitState::Open { .. } => Phase::Open,
            CircuitState::HalfOpen { .. } => Phase::HalfOpen,
        }
    }

    /// Whether some calls are being refused.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase() != Phase::Closed
    }

    /// The pause that it is in, or whose trials are under way, in nanoseconds; `None`: it is closed.
    #[must_use]
    pub fn pause(&self) -> Option<u64> {
        (!matches!(self.state, CircuitState::Closed)).then_some(self.pause)
    }

    /// Nanoseconds until a call can be admitted, 0 if one can now. What trials under way will say is
    /// not known: half open, it is the end of the longest pause, in which they may report.
    #[must_use]
    pub fn wait(&self, now: Tick) -> u64 {
        match self.state {
            CircuitState::Closed => 0,
            CircuitState::HalfOpen { admitted, .. } if admitted < self.settings.trials => 0,
            CircuitState::HalfOpen { since, .. } => self.settings.pause.saturating_sub(now.since(since)),
            CircuitState::Open { since, .. } => self.pause.saturating_sub(now.since(since)),
        }
    }

    /// What it was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Calls that are judged at `now`, failed ones among them, and slow ones: those in the window; open, those that opened
    /// it; half open, the trials that have ended.
    #[must_use]
    pub fn recent(&self, now: Tick) -> (u32, u32, u32) {
        let counts = match self.state {
            CircuitState::Closed => self.recent.counts(now),
            CircuitState::Open { counts, .. } | CircuitState::HalfOpen { counts, .. } => counts,
        };
        (counts.calls, counts.failed, counts.slow)
    }

    /// Opens it for the first pause, or for twice the last one: if trials have failed, or it was closed for less than that.
    fn open(&mut self, counts: CallCounts, now: Tick) {
        let is_again = self.is_open() || self.closed.is_some_and(|closed| now.since(closed) < self.pause);
        self.pause = match is_again {
            true => self.pause.saturating_mul(2).min(self.settings.pause),
            false => self.settings.first_pause,
        };
        self.enter(CircuitState::Open { since: now, counts });
    }

    fn enter(&mut self, state: CircuitState) {
        self.generation += 1;
        self.state = state;
        self.recent.clear();
    }
}

impl Settings {
    fn are_exceeded(&self, counts: CallCounts, of: u32) -> bool {
        let failures_suffice = counts.failed >= self.minimum_failures;
        (failures_suffice && reaches(counts.failed, self.failure_percent, of))
            || reaches(counts.slow, self.slow_percent, of)
    }

    /// The same without a floor under the failures, since trials are few.
    fn share_exceeds(&self, counts: CallCounts, of: u32) -> bool {
        reaches(counts.failed, self.failure_percent, of) || reaches(counts.slow, self.slow_percent, of)
    }
}

/// Whether `part` is at least `percent` of `whole`, which is not 0.
fn reaches(part: u32, percent: u32, whole: u32) -> bool {
    u64::from(part) * 100 >= u64::from(percent) * u64::from(whole)
}

#[cfg(test)]
mod tests;
