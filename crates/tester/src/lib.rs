//! The saturation tester: finds where an HTTP service stops scaling, and says why.

pub mod audit;
pub mod compare;
pub mod diagnose;
pub mod discover;
pub mod live;
pub mod measurement;
pub mod plan;
pub mod record;
pub mod report;
#[cfg(test)]
mod simulated;
pub mod threshold;
