//! The statistics behind every verdict of the tester: how sure a mean is, whether two differ,
//! whether a series repeats or drifts, and how a throughput curve bends.
//!
//! ```text
//!   buckets of a step --batch means--> Estimate --Welch--> gain significant, or noise
//!   repeats of a level --pooled-----> Estimate
//!   (concurrency, rate) ---USL------> contention, coherency, peak, R2
//!   buckets over time --acf, trend--> period, drift
//! ```
//!
//! Written here rather than taken from a statistics crate, because few functions are needed and each
//! is checked against a published table. Knee finders that look at the shape of a curve only
//! (Kneedle) are deliberately absent: on ladders of 7 to 12 unreplicated points they gave 50, 100,
//! 500 or nothing for the same service, and replicated steps with a test of significance decide
//! better (see the tester's `discover`).

pub mod autocorrelation;
pub mod bootstrap;
pub mod little;
pub mod mean;
pub mod student;
pub mod trend;
pub mod usl;
pub mod welch;

use serde::{Deserialize, Serialize};

/// The confidence that every interval has unless it says otherwise: 95 %.
pub const CONFIDENCE: f64 = 0.95;

/// A closed interval, `low <= high`, in the unit of what it bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Centre and half width to interval.
    #[must_use]
    pub fn around(centre: f64, half: f64) -> Self {
        Self { low: centre - half, high: centre + half }
    }

    /// Whether `value` lies inside, ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Half of the width.
    #[must_use]
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}
