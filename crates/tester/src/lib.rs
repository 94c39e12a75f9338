//! The saturation tester: finds where an HTTP service stops scaling, and says why.

mod epoch;
pub mod load;
pub mod measurement;
mod poller;
pub mod scenario;
pub mod stub;
