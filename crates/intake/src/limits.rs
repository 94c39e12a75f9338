//! What the intake tells a limiter of a batch.

use std::net::IpAddr;

pub use tidegate_net::limits::{Denial, Limits, LimitsAnswer, Ruling, Unlimited};

/// What is known of a batch when its limits are asked for.
#[derive(Clone, Copy, Debug)]
pub struct LimitedBatch<'a> {
    /// Whose it is.
    pub client: &'a str,
    /// Where it came from.
    pub address: IpAddr,
    /// How many metrics it has.
    pub metrics: u64,
}

/// A limiter of batches.
pub type BatchLimiter = dyn for<'b> Limits<LimitedBatch<'b>>;
