//! The conformance suite: what every store must do, as functions over [`Counters`].
//!
//! ```text
//!   suite.rs          one case per promise of the contract
//!   differential.rs   random operations, compared with the pure functions over a map
//!   memory.rs         both, on the memory store
//!   redis.rs, postgres.rs   the cases, on real servers
//! ```
//!
//! A store joins by implementing [`Subject`] and calling [`conformance!`]. Cases use keys of their
//! own, so that one store can serve them all.

mod differential;
mod memory;
mod postgres;
mod redis;
mod suite;

use tidegate_algorithms::time::Now;
use tidegate_store::Counters;

/// A store under test, and the way to set the time that it decides by.
pub(crate) trait Subject {
    /// The store.
    fn counters(&self) -> &Counters;

    /// Makes `now` the store's time, and returns what to pass to the store as the caller's.
    async fn at(&self, now: Now) -> Now;
}

/// Runs a case to its end.
pub(crate) fn block_on<F: Future>(case: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers").block_on(case)
}
