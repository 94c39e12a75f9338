//! Limits, policies, balancing, pacing and statistics as functions of (state, input, now).
//!
//! Nothing here knows of a runtime, a clock, a socket or a store: that is what lets one property
//! test compare the memory store with a Redis script and a PostgreSQL function.

pub mod alert;
pub mod backoff;
pub mod balance;
pub mod breaker;
pub mod cardinality;
pub mod distinct;
pub mod document;
pub mod limit;
mod nearest;
pub mod overload;
pub mod pacing;
pub mod policy;
pub mod random;
pub mod recent;
pub mod sketch;
pub mod stats;
pub mod time;
