//! The saturation tester: finds where an HTTP service stops scaling, and says why.

pub mod cluster;
pub mod diagnose;
pub mod discover;
mod epoch;
pub mod load;
pub mod measurement;
mod poller;
pub mod preflight;
pub mod record;
pub mod scenario;
#[cfg(test)]
mod simulated;
pub mod stub;
pub mod threshold;
