//! The Redis store: counters that any number of nodes share.
//!
//! ```text
//!   decide --> operation --> lane (by hash tag) --> batch --> script --> verdicts
//! ```
//!
//! One script decides a whole batch of requests over all their limits, atomically and by the
//! server's clock. It mirrors the pure functions of `tidegate_algorithms::limit`, and is checked
//! against them (`tests/it/differential.rs`), not the other way round.
//!
//! A counter's key is `tg:{tt}:` and the contract's key. The tag `tt` is one of 64, taken from the
//! first attribute that the counter is keyed on, so that a client's counters under several policies
//! share a Cluster slot. Why 64: a Cluster decides a batch per slot, so fewer tags mean fuller
//! batches; 64 still spread evenly over a dozen masters.
//!
//! Over-admission: 0 while the same server answers; at most one limit per key after a failover that
//! lost the latest writes (fault 6), since replication is asynchronous.
//!
//! A server that drops keys to make room gives those clients their limit anew, and nobody hears of it:
//! a node warns of one ([`eviction`]).
//!
//! Deliberately absent: deadlines, breaker and what to answer meanwhile ([`crate::guard`]); retries
//! of anything whose outcome is unknown; `SCRIPT KILL`.

mod cluster;
pub mod config;
mod eviction;
mod examine;
mod failure;
mod keys;
mod link;
mod open;
mod presence;
mod script;
mod sentinel;
mod spread;
mod url;
mod wire;

use std::sync::Arc;

use tidegate_algorithms::time::Now;

use self::cluster::Cluster;
pub use self::config::RedisConfig;
use self::config::{DecidingClock, Topology};
pub(crate) use self::examine::examine;
use self::link::{RedisLink, Target};
pub use self::url::UrlError;
use crate::Charge;
use crate::batch::{Failure, Kind, Lane, Operation, Reply, open_all};

/// Most connections to one server.
pub const MAX_CONNECTIONS: usize = 16;

/// Counters in Redis.
#[derive(Debug)]
pub struct Redis {
    route: RedisRoute,
    clock: DecidingClock,
}

/// The way to the server that decides.
#[derive(Debug)]
enum RedisRoute {
    /// One server at a time decides everything.
    One(Vec<Lane>),
    /// Each decides its slots.
    Cluster(Cluster),
}

impl Redis {
    /// Starts the tasks that talk to Redis. They connect when they are first needed, so that a node
    /// starts while its store is down. Call it inside a runtime.
    #[must_use]
    pub fn start(config: RedisConfig) -> Self {
        let clock = config.clock;
        let topology = config.topology.clone();
        let config = Arc::new(config);
        let one = |target: &Target| {
            let link = |index| RedisLink::new(target.clone(), Arc::clone(&config), true, index == 0);
            let count = config.connections.clamp(1, MAX_CONNECTIONS);
            RedisRoute::One((0..count).map(|index| Lane::start(link(index))).collect())
        };
        let route = match topology {
            Topology::Single(address) => one(&Target::Fixed(address)),
            Topology::Sentinel { sentinels, master } => one(&Target::Sentinel { sentinels, master }),
            Topology::Cluster { seeds } => RedisRoute::Cluster(Cluster::new(Arc::clone(&config), seeds)),
        };
        Self { route, clock }
    }

    /// Opens its connections and loads the script, so that the first calls need not wait for that.
    ///
    /// # Errors
    /// Of the first connection that cannot be had.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        match &self.route {
            RedisRoute::One(lanes) => open_all(lanes).await,
            RedisRoute::Cluster(cluster) => open_all(&cluster.lanes().await?).await,
        }
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// When Redis does not answer or refuses.
    pub(crate) async fn call(&self, kind: Kind, now: Now, charges: &[Charge<'_>]) -> Result<Reply, Failure> {
        let Some(first) = charges.first() else { return Ok(Reply::default()) };
        let tag = keys::tag_of(first.key);
        let cluster = matches!(self.route, RedisRoute::Cluster(_));
        if cluster && charges.iter().any(|charge| keys::tag_of(charge.key) != tag) {
            return spread::call(self, kind, now, charges).await;
        }
        self.call_one(tag, kind, now, charges).await
    }

    /// Runs an operation on the server that has this tag's counters.
    async fn call_one(
        &self,
        tag: u8,
        kind: Kind,
        now: Now,
        charges: &[Charge<'_>],
    ) -> Result<Reply, Failure> {
        let at = (self.clock == DecidingClock::Caller).then_some(now);
        let operation = Operation::new(kind, now, charges, keys::tagged);
        match &self.route {
            RedisRoute::One(lanes) => lanes[usize::from(tag) % lanes.len()].call(operation, None, at).await,
            RedisRoute::Cluster(cluster) => cluster.call(tag, at, operation).await,
        }
    }
}
