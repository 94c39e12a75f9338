//! The saturation tester: finds where an HTTP service stops scaling, and says why.

pub mod diagnose;
pub mod discover;
pub mod measurement;
pub mod record;
#[cfg(test)]
mod simulated;
pub mod threshold;
