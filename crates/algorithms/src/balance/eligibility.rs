//! Whether a backend may be used: active checks, and ejection after failures.
//!
//! ```text
//!   checks:     Up --fall failures in a row--> Down --rise successes in a row--> Up
//!   ejection:   so many failed requests in a row --> out for a time that grows, never for ever; then one more is enough
//! ```
//!
//! Hysteresis keeps a backend that flaps from coming and going with each check. If no backend is left, the set
//! decides which are used all the same.

use crate::time::{SECOND, Tick};

/// How many checks in a row change a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Successes that bring a backend up, >= 1.
    pub rise: u32,
    /// Failures that take it down, >= 1.
    pub fall: u32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { rise: 2, fall: 3 }
    }
}

/// What the checks of one backend say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    is_up: bool,
    /// Results in a row that contradict `is_up`.
    against: u32,
}

impl Health {
    /// A backend that nobody has checked yet.
    #[must_use]
    pub fn new(is_up: bool) -> Self {
        Self { is_up, against: 0 }
    }

    /// One that is down until its first check has passed, which alone is enough. One that fails has it come up as any other.
    #[must_use]
    pub fn before_its_first_check() -> Self {
        Self { is_up: false, against: u32::MAX }
    }

    /// Whether it may be used.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Takes the result of a check. True if the verdict has changed.
    pub fn checked(&mut self, passed: bool, thresholds: Thresholds) -> bool {
        if passed == self.is_up {
            self.against = 0;
            return false;
        }
        self.against = self.against.saturating_add(1);
        let needed = if self.is_up { thresholds.fall } else { thresholds.rise };
        if self.against < needed {
            return false;
        }
        *self = Self::new(passed);
        true
    }
}

/// When failed requests take a backend out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EjectionSettings {
    /// Failed requests in a row that eject it; 0: none do.
    pub failures: u32,
    /// Nanoseconds of the first ejection; each further one is longer by as much.
    pub base: u64,
    /// Longest ejection in nanoseconds.
    pub longest: u64,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self { failures: 5, base: 10 * SECOND, longest: 300 * SECOND }
    }
}

/// What the requests of one backend say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ejection {
    failures: u32,
    times: u32,
    until: Tick,
}

impl Ejection {
    /// Whether it is out at `now`.
    #[must_use]
    pub fn is_ejected(&self, now: Tick) -> bool {
        now < self.until
    }

    /// When it is back, unless it is ejected again.
    #[must_use]
    pub fn until(&self) -> Tick {
        self.until
    }

    /// A request succeeded. One ejection is forgiven for each time that it stays in for as long as the
    /// last one was.
    pub fn succeeded(&mut self, now: Tick, settings: EjectionSettings) {
        self.failures = 0;
        if self.times > 0 && now >= self.until.plus(settings.length(self.times)) {
            self.times -= 1;
            self.until = now;
        }
    }

    /// A request failed. True if the backend has just been ejected, which `may_eject` can forbid, so that the only
    /// backend stays.
    pub fn failed(&mut self, now: Tick, settings: EjectionSettings, may_eject: bool) -> bool {
        if self.is_ejected(now) || settings.failures == 0 {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < settings.failures || !may_eject {
            return false;
        }
        self.times = self.times.saturating_add(1);
        // When it is back, one request finds out whether it is well: its success starts the count anew.
        self.failures = settings.failures - 1;
        self.until = now.plus(settings.length(self.times));
        true
    }
}

impl EjectionSettings {
    fn length(&self, times: u32) -> u64 {
        self.base.saturating_mul(u64::from(times)).min(self.longest)
    }
}
