//! The saturation tester: finds where an HTTP service stops scaling, and says why.

pub mod audit;
pub mod cluster;
pub mod compare;
pub mod diagnose;
pub mod discover;
mod epoch;
pub mod live;
pub mod load;
pub mod measurement;
pub mod pin;
pub mod plan;
mod poller;
pub mod preflight;
pub mod record;
pub mod report;
pub mod saturate;
pub mod scenario;
#[cfg(test)]
mod simulated;
pub mod stub;
pub mod threshold;
