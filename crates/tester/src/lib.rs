//! The saturation tester: finds where an HTTP service stops scaling, and says why.

pub mod cluster;
mod epoch;
pub mod load;
pub mod measurement;
mod poller;
pub mod preflight;
pub mod scenario;
pub mod stub;
