//! The saturation tester: makes load and takes it, and sees what both sides and the kernel do meanwhile.
//!
//! What the measurements mean (knee, cause, report) is judged by the crate `judge`, which knows no socket.

pub mod cluster;
mod epoch;
pub mod evidence;
pub mod interleave;
pub mod load;
pub mod pin;
mod poller;
pub mod preflight;
pub mod saturate;
pub mod scenario;
pub mod stub;
