//! How many further attempts all requests together may make.
//!
//! Retries help while a few requests fail, and bury a service that fails altogether: each layer that
//! retries twice multiplies its load by three. So attempts beyond the first are a share of the
//! requests of the last second, and a few per second where there are hardly any. With the defaults
//! an outage at 100 requests a second or more is met with at most 1.1 attempts per request, and ten
//! more in a second in which requests begin or end.
//!
//! The last second is estimated from this whole second and the part of the one before that is
//! still in it, as the sliding counter among the limits does. Reference: Finagle's retry budgets;
//! "Site Reliability Engineering", 2016, chapter 21.

use crate::time::{SECOND, Tick};

/// What further attempts are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Further attempts per hundred requests.
    pub percent: u32,
    /// Further attempts that are allowed in any second, however few requests there are.
    pub least_per_second: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { percent: 10, least_per_second: 10 }
    }
}

/// The requests and further attempts of this second and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    settings: BudgetSettings,
    second: u64,
    requests: [u32; 2],
    attempts: [u32; 2],
}

impl Budget {
    /// An unspent budget.
    #[must_use]
    pub fn new(settings: BudgetSettings) -> Self {
        Self { settings, second: 0, requests: [0; 2], attempts: [0; 2] }
    }

    /// Counts a request's first attempt.
    pub fn request(&mut self, now: Tick) {
        self.turn(now);
        self.requests[0] = self.requests[0].saturating_add(1);
    }

    /// Takes leave for a further attempt. False: there is none left.
    pub fn try_attempt(&mut self, now: Tick) -> bool {
        self.turn(now);
        self.try_attempt_among(self.requests, now)
    }

    /// The same where others count the `requests`: those of this second and of the one before.
    pub fn try_attempt_among(&mut self, requests: [u32; 2], now: Tick) -> bool {
        self.turn(now);
        let before = 1.0 - (now.0.saturating_sub(self.second * SECOND)).min(SECOND) as f64 / SECOND as f64;
        let last = |[this, earlier]: [u32; 2]| f64::from(this) + f64::from(earlier) * before;
        let share = last(requests) * f64::from(self.settings.percent) / 100.0;
        let allowed = share.max(f64::from(self.settings.least_per_second));
        let granted = last(self.attempts) + 1.0 <= allowed;
        if granted {
            self.attempts[0] = self.attempts[0].saturating_add(1);
        }
        granted
    }

    fn turn(&mut self, now: Tick) {
        let second = now.0 / SECOND;
        if second > self.second {
            let follows = second == self.second + 1;
            let turned = |[this, _]: [u32; 2]| [0, if follows { this } else { 0 }];
            (self.requests, self.attempts) = (turned(self.requests), turned(self.attempts));
            self.second = second;
        }
    }
}
