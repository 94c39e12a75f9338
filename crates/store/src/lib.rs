//! Where counters live: the store contract, and the stores that keep it.
//!
//! ```text
//!                 Counters  (one enum, no boxing on the memory path)
//!                    |
//!      memory        |   redis, postgres: same decisions, other guarantees
//!   sharded table ---'
//! ```
//!
//! The contract is one atomic read-decide-replace over *all* the limits that a request meets:
//! either every limit has room and each is charged, or nobody is (fault 16).

mod batch;
mod contract;
mod counters;
pub mod examine;
mod facts;
pub mod guard;
pub mod lease;
pub mod memory;
pub mod postgres;
pub mod redis;
pub mod shared;

pub use contract::{Answer, Charge, Degraded, Intent, StoreError, Verdicts};
pub use counters::Counters;
