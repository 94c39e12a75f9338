//! A circuit breaker as a state machine over (outcome, now).
//!
//! ```text
//!            enough failures in one span                 pause over
//!   Closed --------------------------------> Open ----------------------> Half open
//!     ^                                       ^                              |
//!     |            probe succeeds             |        probe fails           |
//!     `---------------------------------------+------------------------------'
//! ```
//!
//! It opens when a span has seen at least `least_failures` and failures make up at least half of
//! its calls: a store that fails every call is given up within milliseconds under load, and one
//! slow call among many opens nothing. While half open, one probe at a time goes through; a probe
//! that never reports (its caller was cancelled) stops blocking after another pause.
//!
//! Outcomes that arrive late, from calls admitted before it opened, change nothing.
//!
//! Deliberately absent: a clock, randomness, what is done instead of the call. Reference: M. Nygard,
//! "Release It!", 2007.

use crate::time::Tick;

/// When a breaker opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Failures within one span that can open it, >= 1.
    pub least_failures: u32,
    /// Length of a span in nanoseconds, >= 1.
    pub span: u64,
    /// Nanoseconds from opening to the first probe, and between probes.
    pub pause: u64,
}

/// The breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    settings: Settings,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed {
        since: Tick,
        successes: u32,
        failures: u32,
    },
    Open {
        since: Tick,
    },
    /// One probe is under way.
    HalfOpen {
        since: Tick,
    },
}

/// What an outcome changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It has just opened.
    Opened,
    /// It has just closed.
    Closed,
}

impl Default for Settings {
    fn default() -> Self {
        Self { least_failures: 5, span: 500_000_000, pause: 250_000_000 }
    }
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, phase: Phase::Closed { since: Tick(0), successes: 0, failures: 0 } }
    }

    /// Whether a call may be made at `now`. If so, its outcome is to be reported.
    pub fn admits(&mut self, now: Tick) -> bool {
        match self.phase {
            Phase::Closed { .. } => true,
            Phase::Open { since } | Phase::HalfOpen { since } => {
                let due = now.since(since) >= self.settings.pause;
                if due {
                    self.phase = Phase::HalfOpen { since: now };
                }
                due
            }
        }
    }

    /// Whether calls are being refused.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Closed { .. })
    }

    /// A call that was admitted succeeded.
    pub fn succeeded(&mut self, now: Tick) -> Change {
        match &mut self.phase {
            Phase::Closed { since, successes, failures } => {
                if now.since(*since) >= self.settings.span {
                    (*since, *successes, *failures) = (now, 0, 0);
                }
                *successes = successes.saturating_add(1);
                Change::None
            }
            Phase::HalfOpen { .. } => {
                self.phase = Phase::Closed { since: now, successes: 1, failures: 0 };
                Change::Closed
            }
            Phase::Open { .. } => Change::None,
        }
    }

    /// A call that was admitted failed.
    pub fn failed(&mut self, now: Tick) -> Change {
        match &mut self.phase {
            Phase::Closed { since, successes, failures } => {
                if now.since(*since) >= self.settings.span {
                    (*since, *successes, *failures) = (now, 0, 0);
                }
                *failures = failures.saturating_add(1);
                if *failures >= self.settings.least_failures && failures >= successes {
                    self.phase = Phase::Open { since: now };
                    return Change::Opened;
                }
                Change::None
            }
            Phase::HalfOpen { .. } => {
                self.phase = Phase::Open { since: now };
                Change::None
            }
            Phase::Open { .. } => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn opened() -> Breaker {
        let mut breaker = Breaker::new(Settings::default());
        for number in 0..5 {
            assert!(breaker.admits(Tick(number)));
            let change = breaker.failed(Tick(number));
            assert_eq!(change, if number == 4 { Change::Opened } else { Change::None });
        }
        breaker
    }

    #[test]
    fn opens_after_five_failures_and_probes_once_a_pause() {
        let mut breaker = opened();
        assert!(!breaker.admits(Tick(249 * MS)));
        assert!(breaker.admits(Tick(251 * MS)), "the probe");
        assert!(!breaker.admits(Tick(252 * MS)), "one probe at a time");
        assert_eq!(breaker.failed(Tick(261 * MS)), Change::None);
        assert!(!breaker.admits(Tick(500 * MS)));
        assert!(breaker.admits(Tick(511 * MS)));
        assert_eq!(breaker.succeeded(Tick(512 * MS)), Change::Closed);
        assert!(breaker.admits(Tick(512 * MS)));
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_probe_that_never_reports_blocks_for_one_pause_only() {
        let mut breaker = opened();
        assert!(breaker.admits(Tick(300 * MS)));
        assert!(!breaker.admits(Tick(549 * MS)));
        assert!(breaker.admits(Tick(550 * MS)));
    }

    #[test]
    fn a_few_failures_among_many_calls_open_nothing() {
        let mut breaker = Breaker::new(Settings::default());
        for number in 0..10_000_u64 {
            let now = Tick(number * MS / 10);
            let change = if number % 3 == 1 { breaker.failed(now) } else { breaker.succeeded(now) };
            assert_eq!(change, Change::None);
        }
    }

    #[test]
    fn failures_far_apart_open_nothing() {
        let mut breaker = Breaker::new(Settings::default());
        for number in 0..100_u64 {
            assert_eq!(breaker.failed(Tick(number * 200 * MS)), Change::None);
        }
    }

    #[test]
    fn late_outcomes_change_nothing() {
        let mut breaker = opened();
        assert_eq!(breaker.succeeded(Tick(6)), Change::None);
        assert_eq!(breaker.failed(Tick(7)), Change::None);
        assert!(breaker.is_open());
    }
}
