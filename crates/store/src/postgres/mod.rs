//! The PostgreSQL store: counters that any number of nodes share, in a table.
//!
//! ```text
//!   decide --> operation --> lane (by key) --> batch --> bucket.sql, windows.sql, tidegate.decide --> verdicts
//!                                                rows locked in the order of their keys
//! ```
//!
//! A whole batch of requests is decided at once, by the server's clock: spends from one bucket each
//! by one statement, requests under one window or counter each by another, and all others by a function
//! (`schema/`). The statements charge and return what they found, and the pure functions of
//! `tidegate_algorithms::limit` make verdicts of it; the function mirrors these in 64-bit nanoseconds. All are
//! checked against them (`tests/it/differential.rs`), not the other way round.
//!
//! Over-admission: 0 while the same server answers. After a crash it is what was decided since the
//! last durable state: see [`Durability`].
//!
//! Errors: a serialisation failure or deadlock (40001, 40P01) was rolled back and is repeated, twice at most;
//! so is a statement that a shutting down server refused (57P01, 57P03), on a new connection. A lost
//! connection or a missed deadline leaves the outcome unknown, and is not repeated. A statement that takes
//! too long (a row that is locked elsewhere) is cancelled by the server and changed nothing (57014): nobody
//! waits for it any more, and its backend is free for the next.
//!
//! Deliberately absent: deadlines, breaker and what to answer meanwhile ([`crate::guard`]).

mod examine;
mod function;
mod link;
mod plain;
mod schema;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::time::Now;
use tidegate_postgres::Place;
pub use tidegate_postgres::UrlError;

pub(crate) use self::examine::examine;
use self::link::PostgresLink;
use crate::Charge;
use crate::batch::{Failure, Kind, Lane, Operation, Reply, open_all};

/// Most connections.
pub const MAX_CONNECTIONS: usize = 32;

/// How to reach PostgreSQL 15 or later.
#[derive(Clone, Debug)]
pub struct PostgresConfig {
    /// Where it is, who asks, and whether by TLS.
    pub place: Place,
    /// Connections, 1 to [`MAX_CONNECTIONS`]. A counter always uses the same one.
    pub connections: usize,
    /// Longest time to connect and to bring the schema up to date.
    pub connect_timeout: Duration,
    /// Longest that the server works on a statement, waiting for locks included, before it cancels it.
    pub response_timeout: Duration,
    /// What survives a crash.
    pub durability: Durability,
    /// Whether the caller's clock decides instead of the server's, for tests that replay a history.
    /// Unsafe with several nodes.
    pub callers_clock: bool,
}

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
    /// Reads a URL and the files that it names; defaults for the rest.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            place: Place::parse(url)?,
            connections: 2,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_millis(200),
            durability: Durability::default(),
            callers_clock: false,
        })
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
        let lanes = (0..count).map(|_| Lane::start(PostgresLink::new(Arc::clone(&config)))).collect();
        Self { lanes, hasher: RandomState::new(), callers_clock }
    }

    /// Opens its connections and prepares its statements, so that the first calls need not wait for that.
    ///
    /// # Errors
    /// Of the first connection that cannot be had.
    pub(crate) async fn open(&self) -> Result<(), Failure> {
        open_all(&self.lanes).await
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or refuses.
    pub(crate) async fn call(&self, kind: Kind, now: Now, charges: &[Charge<'_>]) -> Result<Reply, Failure> {
        let Some(first) = charges.first() else { return Ok(Reply::default()) };
        let hash = self.hasher.hash_one(first.key);
        let lane = &self.lanes[usize::try_from(hash % self.lanes.len() as u64).unwrap_or(0)];
        let operation = Operation::new(kind, now, charges, |key: &[u8]| key.into());
        lane.call(operation, None, self.callers_clock.then_some(now)).await
    }
}

/// Times and numbers of limits fit: policies bound them, and 2^63 ns is in the year 2262.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What the server computed and cannot be negative.
fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Invariant: a batch has a few thousand charges at most.
fn index(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}
