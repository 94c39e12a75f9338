//! Little's law: in flight = rate x time, for whatever queue lies inside.
//!
//! It needs no assumption on arrivals or service, so a figure that breaks it was not measured as
//! stated. Reference: Little, "A proof for the queuing formula L = lambda W", Operations Research 9
//! (1961).

use serde::{Deserialize, Serialize};

/// Largest deviation that passes, as a share of what was stated: 10 %.
pub const TOLERANCE: f64 = 0.10;

/// The two sides of the law for one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Requests in flight (or thinking) that the rate and the times imply.
    pub implied: f64,
    /// Requests in flight that were stated.
    pub stated: f64,
    /// `implied / stated - 1`; 0 when nothing was stated.
    pub deviation: f64,
}

impl Check {
    /// Whether the two sides agree within [`TOLERANCE`].
    #[must_use]
    pub fn holds(&self) -> bool {
        self.deviation.abs() <= TOLERANCE
    }
}

/// Sets `rate` (per second) x (`latency` + `think`, seconds) against `stated` requests.
#[must_use]
pub fn check(rate: f64, latency: f64, think: f64, stated: f64) -> Check {
    let implied = rate * (latency + think);
    let deviation = if stated > 0.0 { implied / stated - 1.0 } else { 0.0 };
    Check { implied, stated, deviation }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_claims() {
        // 1,693.74/s x 0.55955 s is 948 requests, where 200,000 were claimed.
        let extreme = check(1_693.74, 0.559_55, 0.0, 200_000.0);
        assert!((extreme.implied - 948.0).abs() < 1.0 && !extreme.holds());
        // 5,305.05/s x 9.42 ms is 50 requests, and 50 were stated.
        assert!(check(5_305.05, 0.009_42, 0.0, 50.0).holds());
        // Think time belongs to the loop: 2,000/s x (0.53 ms + 99.5 ms) is 200 clients.
        assert!(check(2_000.0, 0.000_53, 0.099_5, 200.0).holds());
    }
}
