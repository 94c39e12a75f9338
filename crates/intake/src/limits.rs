//! The intake's view of a limiter: a trait that the binary implements.

use std::net::IpAddr;

pub use tidegate_net::limits::{Denial, LimitsAnswer, Ruling};

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

/// A limiter.
pub trait Limits: Send + Sync + 'static {
    /// Charges a batch: under all limits, or under none.
    fn charge<'a>(&'a self, batch: &'a LimitedBatch<'a>) -> LimitsAnswer<'a, Ruling>;

    /// Gives back what a batch was charged that could not be kept.
    fn refund<'a>(&'a self, batch: &'a LimitedBatch<'a>) -> LimitsAnswer<'a, ()>;
}

/// No limits at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    fn charge<'a>(&'a self, _batch: &'a LimitedBatch<'a>) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async { Ruling::default() })
    }

    fn refund<'a>(&'a self, _batch: &'a LimitedBatch<'a>) -> LimitsAnswer<'a, ()> {
        Box::pin(async {})
    }
}
