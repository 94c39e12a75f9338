//! The PostgreSQL store: counters that any number of nodes share, in a table.
//!
//! ```text
//!   decide --> operation --> lane (by key) --> batch --> tidegate.decide(...) --> verdicts
//!                                                rows locked in the order of their keys
//! ```
//!
//! One statement decides a whole batch of requests over all their limits, by the server's clock. Its
//! function mirrors the pure ones of `tidegate_algorithms::limit` in 64-bit nanoseconds, and is
//! checked against them (`tests/differential.rs`), not the other way round.
//!
//! Over-admission: 0 while the same server answers. After a crash it is what was decided since the
//! last durable state: see [`Durability`].
//!
//! Errors: a serialisation failure or deadlock (40001, 40P01) was rolled back and is repeated once;
//! so is a statement that a shutting down server refused (57P01, 57P03), on a new connection. A lost
//! connection or a missed deadline leaves the outcome unknown, and is not repeated.
//!
//! Deliberately absent: deadlines, breaker and what to answer meanwhile ([`crate::guard`]); TLS to
//! the server (run it beside, or through a local proxy).

mod link;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::time::Now;

use self::link::Link;
use crate::batch::{Failure, Kind, Lane, Operation, Reply};
use crate::{Answer, Charge, Intent, StoreError};

/// Most connections.
pub const MAX_CONNECTIONS: usize = 32;

/// How to reach PostgreSQL 15 or later.
#[derive(Clone)]
pub struct PostgresConfig {
    /// Where it is and who asks, as libpq writes it.
    pub connection: tokio_postgres::Config,
    /// Connections, 1 to [`MAX_CONNECTIONS`]. A counter always uses the same one.
    pub connections: usize,
    /// Longest time to connect and to bring the schema up to date.
    pub connect_timeout: Duration,
    /// Longest wait for a batch's answer before its connection is given up.
    pub response_timeout: Duration,
    /// What survives a crash.
    pub durability: Durability,
    /// Whether the caller's clock decides instead of the server's, for tests that replay a history.
    /// Unsafe with several nodes.
    pub callers_clock: bool,
}

/// Why a connection string is none; its own words do not repeat the string.
pub type UrlError = tokio_postgres::Error;

/// What of the counters survives a crash of the database server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the table is not logged and empties itself, so every key starts anew; nor is it
    /// replicated. The fastest. Decided when the table is made.
    Unlogged,
    /// All but the last moments (three times `wal_writer_delay`, 0.6 s by default).
    #[default]
    Asynchronous,
    /// Everything that was answered.
    Synchronous,
}

/// Counters in PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    lanes: Vec<Lane>,
    hasher: RandomState,
    callers_clock: bool,
}

impl PostgresConfig {
    /// Reads a connection string; defaults for the rest.
    ///
    /// # Errors
    /// What is wrong with the string.
    pub fn parse(connection: &str) -> Result<Self, UrlError> {
        Ok(Self {
            connection: connection.parse()?,
            connections: 4,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_millis(200),
            durability: Durability::default(),
            callers_clock: false,
        })
    }
}

impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PostgresConfig")
            .field("hosts", &self.connection.get_hosts())
            .field("connections", &self.connections)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}

impl Postgres {
    /// Starts the tasks that talk to PostgreSQL. They connect when they are first needed, so that a
    /// node starts while its store is down. Call it inside a runtime.
    #[must_use]
    pub fn start(config: PostgresConfig) -> Self {
        let callers_clock = config.callers_clock;
        let config = Arc::new(config);
        let count = config.connections.clamp(1, MAX_CONNECTIONS);
        let lanes = (0..count).map(|_| Lane::start(Link::new(Arc::clone(&config)))).collect();
        Self { lanes, hasher: RandomState::new(), callers_clock }
    }

    /// Decides one request over all its limits.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or refuses.
    pub async fn decide(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) -> Result<(), StoreError> {
        let reply = self.call(intent.into(), now, charges).await?;
        *answer = Answer { allowed: reply.yes, verdicts: reply.verdicts, ..Answer::default() };
        Ok(())
    }

    /// Gives back units.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or refuses.
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        self.call(Kind::Refund, now, charges).await?;
        Ok(())
    }

    /// Extends the lease of a permit. False if it is not held.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or refuses.
    pub async fn renew(
        &self,
        now: Now,
        limit: &Limit,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, StoreError> {
        self.permit(Kind::Renew(permit), now, limit, key).await
    }

    /// Gives a permit back. False if it is not held.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or refuses.
    pub async fn release(
        &self,
        now: Now,
        limit: &Limit,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, StoreError> {
        self.permit(Kind::Release(permit), now, limit, key).await
    }

    async fn permit(&self, kind: Kind, now: Now, limit: &Limit, key: &[u8]) -> Result<bool, StoreError> {
        if !matches!(limit, Limit::Concurrency(_)) {
            return Ok(false);
        }
        let charge = Charge { limit, key, cost: 0, binding: true, on_failure: Default::default() };
        Ok(self.call(kind, now, &[charge]).await?.yes)
    }

    async fn call(&self, kind: Kind, now: Now, charges: &[Charge<'_>]) -> Result<Reply, Failure> {
        let Some(first) = charges.first() else { return Ok(Reply { yes: true, verdicts: Vec::new() }) };
        let hash = self.hasher.hash_one(first.key);
        let lane = &self.lanes[usize::try_from(hash % self.lanes.len() as u64).unwrap_or(0)];
        let operation = Operation::new(kind, now, charges, |key: &[u8]| key.into());
        lane.call(operation, None, self.callers_clock.then_some(now)).await
    }
}
