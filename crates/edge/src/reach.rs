//! Whether a backend can be reached, as connections to it say: passive health.
//!
//! ```text
//!   reached ──a connect fails──> out for 10 s, 20 s ... 300 s ──> on trial: one connection at a time ──fails──> out for longer
//!      ^                                  │                                      │
//!      └────── reached after all, or a health check passes ────────────────────┘
//! ```
//!
//! One failed connect is enough. It costs little to be wrong about that: the backend comes after all the others, and is
//! used when none of these is left. A backend that comes and goes is out for longer each time, until it has stayed for as
//! long as it was out last.
//!
//! While a health check of the backend fails, it stays out without a trial: no client's time is spent on what is known.

use std::time::Duration;

use tidegate_algorithms::time::{SECOND, Tick};

/// Nanoseconds for which the first failure takes a backend out; each further one for as much longer.
const BASE: u64 = 10 * SECOND;

/// Longest of these times.
const LONGEST: u64 = 300 * SECOND;

/// How long a silent trial keeps other trials away, in nanoseconds.
const TRIAL: u64 = 10 * SECOND;

/// What connections say of a backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reachability {
    /// Failures, those that were forgiven not counted.
    times: u64,
    /// Whether it has not been reached since the last one.
    is_in_doubt: bool,
    /// Whether a connection tries it.
    is_on_trial: bool,
    until: Tick,
    /// When it was reached again.
    back: Tick,
}

impl Reachability {
    /// When it may be tried again; a time that has passed: it may be now.
    pub(crate) fn until(&self) -> Tick {
        self.until
    }

    /// Whether it has not been reached since a connect failed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// A connect failed. True if that has just taken it out.
    pub(crate) fn failed(&mut self, now: Tick) -> bool {
        if now < self.until && self.is_in_doubt && !self.is_on_trial {
            return false;
        }
        if !self.is_in_doubt && now.since(self.back) >= self.length() {
            self.times = 0;
        }
        let is_news = !self.is_in_doubt;
        self.times = self.times.saturating_add(1);
        (self.is_in_doubt, self.is_on_trial, self.until) = (true, false, now.plus(self.length()));
        is_news
    }

    /// A connection was made, or a health check passed. True if it was out until now.
    pub(crate) fn succeeded(&mut self, now: Tick) -> bool {
        if !self.is_in_doubt {
            return false;
        }
        *self = Self { times: self.times, back: now, ..Self::default() };
        true
    }

    /// A health check failed, and the next one will be over in `next`.
    pub(crate) fn check_failed(&mut self, now: Tick, next: Duration) {
        if self.is_in_doubt {
            let next = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX);
            self.until = self.until.max(now.plus(next));
        }
    }

    /// Whether a connection may go there: where it is in doubt, by a trial that begins now.
    pub(crate) fn try_again(&mut self, now: Tick) -> bool {
        if !self.is_in_doubt {
            return true;
        }
        if now < self.until {
            return false;
        }
        (self.is_on_trial, self.until) = (true, now.plus(TRIAL));
        true
    }

    /// How long the last failure took it out, in nanoseconds.
    fn length(&self) -> u64 {
        BASE.saturating_mul(self.times).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Tick {
        Tick(second * SECOND)
    }

    #[test]
    fn one_failure_takes_it_out_and_one_success_brings_it_back() {
        let mut reach = Reachability::default();
        assert!(reach.failed(at(100)) && reach.is_in_doubt());
        assert_eq!(reach.until(), at(110));
        assert!(!reach.failed(at(105)), "it is out already");
        assert_eq!(reach.until(), at(110), "and for no longer");
        assert!(reach.succeeded(at(106)) && reach.until() <= at(106) && !reach.is_in_doubt());
        assert!(!reach.succeeded(at(107)));
    }

    #[test]
    fn who_comes_and_goes_is_out_for_longer_until_it_has_stayed_for_as_long() {
        let mut reach = Reachability::default();
        let mut now = 1_000;
        for length in [10, 20, 30] {
            assert!(reach.failed(at(now)));
            assert_eq!(reach.until(), at(now + length));
            assert!(reach.succeeded(at(now + 1)));
            now += 2;
        }
        // It has stayed for the 30 s that it was out last.
        assert!(reach.failed(at(now + 30)));
        assert_eq!(reach.until(), at(now + 40));
        let mut often = Reachability::default();
        for second in (0..100_000).step_by(400) {
            often.failed(at(second));
        }
        assert_eq!(often.until(), at(99_600 + 300), "never for ever");
    }

    #[test]
    fn one_connection_at_a_time_tries_it_again() {
        let mut reach = Reachability::default();
        assert!(reach.try_again(at(1)), "it is as good as any");
        assert!(reach.failed(at(100)));
        assert!(!reach.try_again(at(109)));
        assert!(reach.try_again(at(110)) && !reach.try_again(at(111)));
        assert!(reach.try_again(at(120)), "one that was never heard of does not keep it out");
    }

    #[test]
    fn a_trial_that_fails_takes_it_out_for_longer() {
        let mut reach = Reachability::default();
        assert!(reach.failed(at(100)) && reach.try_again(at(110)));
        assert!(!reach.failed(at(111)), "which is no news");
        assert_eq!(reach.until(), at(131));
        assert!(!reach.failed(at(112)), "one that was under way says nothing new");
        assert_eq!(reach.until(), at(131));
        assert!(reach.try_again(at(131)) && reach.succeeded(at(132)) && reach.try_again(at(132)));
    }

    #[test]
    fn while_checks_fail_it_is_not_tried() {
        let mut reach = Reachability::default();
        reach.check_failed(at(99), Duration::from_secs(1));
        assert!(!reach.is_in_doubt(), "checks have their own rule");
        assert!(reach.failed(at(100)));
        reach.check_failed(at(109), Duration::from_secs(15));
        assert_eq!(reach.until(), at(124));
    }
}
