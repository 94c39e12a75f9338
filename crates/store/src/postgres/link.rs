//! One connection, opened when it is needed, and the statement that runs batches on it.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_algorithms::limit::{Verdict, Wait};
use tidegate_algorithms::time::Now;
use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, Statement};

use super::{Durability, PostgresConfig};
use crate::batch::{Executor, Failure, Kind, Operation, Reply, WireLimit};

/// Version of the schema; a change of `decide.sql` raises it.
const VERSION: i32 = 1;
const SCHEMA: &str = include_str!("decide.sql");
/// Name of the advisory lock under which the schema changes: "tidegate" as a number.
const MIGRATION_LOCK: i64 = 0x7469_6465_6761_7465;
const DECIDE: &str = "SELECT tidegate.decide($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                      $15, $16)";
/// Rows that say nothing any more are deleted once in so many batches, and at most so many.
const SWEEP_EVERY: u64 = 1_024;
const SWEEP_ROWS: i32 = 4_096;

/// A connection that is opened when it is needed and dropped when it is of no more use.
#[derive(Debug)]
pub(super) struct Link {
    config: Arc<PostgresConfig>,
    live: Mutex<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    live: Option<Arc<Live>>,
    batches: u64,
}

struct Live {
    client: Client,
    decide: Statement,
    register: Statement,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Live").finish_non_exhaustive()
    }
}

/// A batch as the function takes it.
#[derive(Debug, Default)]
struct Batch<'o> {
    keys: Vec<&'o [u8]>,
    limit_kinds: Vec<i32>,
    limit_numbers: [Vec<i64>; 5],
    kinds: Vec<i32>,
    permits: Vec<i64>,
    counts: Vec<i32>,
    charge_limits: Vec<i32>,
    charge_keys: Vec<i32>,
    costs: Vec<i64>,
    binding: Vec<bool>,
    at: Option<Now>,
}

impl Link {
    pub(super) fn new(config: Arc<PostgresConfig>) -> Self {
        Self { config, live: Mutex::default() }
    }

    async fn live(&self) -> Result<Arc<Live>, Failure> {
        let mut slot = self.live.lock().await;
        slot.batches += 1;
        let live = match &slot.live {
            Some(live) if !live.client.is_closed() => Arc::clone(live),
            _ => {
                let connecting = tokio::time::timeout(self.config.connect_timeout, connect(&self.config));
                let live = match connecting.await {
                    Ok(live) => live.map_err(|error| Failure::Unsent(text(&error)))?,
                    Err(_) => return Err(Failure::Unsent("no connection in time".to_owned())),
                };
                let live = Arc::new(live);
                slot.live = Some(Arc::clone(&live));
                live
            }
        };
        // A sweep goes by the server's clock, so it would misjudge states of another.
        if slot.batches.is_multiple_of(SWEEP_EVERY) && !self.config.callers_clock {
            let live = Arc::clone(&live);
            // Housekeeping: what it does not delete now it deletes later.
            tokio::spawn(async move {
                live.client
                    .query_one("SELECT tidegate.sweep($1)", &[&SWEEP_ROWS])
                    .await
                    .map(drop)
                    .unwrap_or_default();
            });
        }
        Ok(live)
    }

    async fn forget(&self, live: &Arc<Live>) {
        let mut slot = self.live.lock().await;
        if slot.live.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            slot.live = None;
        }
    }

    async fn run(&self, batch: &Batch<'_>) -> Result<Vec<i64>, Failure> {
        let mut repeated = false;
        loop {
            let live = self.live().await?;
            let answer = tokio::time::timeout(self.config.response_timeout, live.decide(batch)).await;
            let failure = match answer {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => classify(&error),
                Err(_) => Failure::Timeout,
            };
            if failure.ends_connection() {
                self.forget(&live).await;
            }
            if repeated || !matches!(failure, Failure::RolledBack | Failure::Elsewhere(_)) {
                return Err(failure);
            }
            repeated = true;
        }
    }
}

impl Executor for Link {
    async fn execute(&self, operations: &[Operation], at: Option<Now>) -> Result<Vec<Reply>, Failure> {
        let batch = Batch::new(operations, at);
        let numbers = self.run(&batch).await?;
        let mut rest = &numbers[..];
        operations
            .iter()
            .map(|operation| read(operation, &mut rest))
            .collect::<Option<_>>()
            .ok_or_else(|| Failure::Lost("the function's answer is too short".to_owned()))
    }
}

impl Live {
    /// Runs the batch; keys that have no row get one first, in a transaction of their own.
    async fn decide(&self, batch: &Batch<'_>) -> Result<Vec<i64>, Error> {
        loop {
            let [a, b, c, d, e] = &batch.limit_numbers;
            let (tick, wall) =
                (batch.at.map(|now| signed(now.tick.0)), batch.at.map(|now| signed(now.wall.0)));
            let row = self
                .client
                .query_one(
                    &self.decide,
                    &[
                        &batch.keys,
                        &batch.limit_kinds,
                        a,
                        b,
                        c,
                        d,
                        e,
                        &batch.kinds,
                        &batch.permits,
                        &batch.counts,
                        &batch.charge_limits,
                        &batch.charge_keys,
                        &batch.costs,
                        &batch.binding,
                        &tick,
                        &wall,
                    ],
                )
                .await?;
            match row.try_get(0)? {
                Some(reply) => return Ok(reply),
                // A sweep may take a row again in between; the caller's timeout bounds the rounds.
                None => self.client.execute(&self.register, &[&batch.keys]).await?,
            };
        }
    }
}

impl<'o> Batch<'o> {
    fn new(operations: &'o [Operation], at: Option<Now>) -> Self {
        let mut batch = Self { at, ..Self::default() };
        let charges = || operations.iter().flat_map(|operation| &operation.charges);
        batch.keys = charges().map(|charge| &*charge.key).collect();
        batch.keys.sort_unstable();
        batch.keys.dedup();
        let places: HashMap<&[u8], i32> = batch.keys.iter().copied().zip(1..).collect();
        let mut limits: Vec<&WireLimit> = Vec::new();
        for operation in operations {
            let (kind, permit) = operation.kind.code_and_permit();
            batch.kinds.push(kind.into());
            batch.permits.push(permit.cast_signed());
            batch.counts.push(index(operation.charges.len()));
            for charge in &operation.charges {
                let limit = limits.iter().position(|other| **other == charge.limit).unwrap_or_else(|| {
                    limits.push(&charge.limit);
                    limits.len() - 1
                });
                batch.charge_limits.push(index(limit + 1));
                batch.charge_keys.push(places.get(&*charge.key).copied().unwrap_or(0));
                batch.costs.push(charge.cost.into());
                batch.binding.push(charge.binding);
            }
        }
        for limit in limits {
            batch.limit_kinds.push(limit.kind.into());
            for (column, number) in batch.limit_numbers.iter_mut().zip(limit.numbers) {
                column.push(signed(number));
            }
        }
        batch
    }
}

/// Reads the part of a reply that belongs to an operation.
fn read(operation: &Operation, rest: &mut &[i64]) -> Option<Reply> {
    if operation.kind == Kind::Refund {
        return Some(Reply { yes: true, verdicts: Vec::new() });
    }
    let (yes, after) = rest.split_first()?;
    *rest = after;
    let mut reply = Reply { yes: *yes == 1, verdicts: Vec::new() };
    if matches!(operation.kind, Kind::Spend(_) | Kind::Peek) {
        for charge in &operation.charges {
            let ([allowed, remaining, wait, reset, delay], after) = rest.split_first_chunk()?;
            *rest = after;
            let wait = match (*allowed == 1, *wait) {
                (true, _) => Wait::None,
                (false, -1) => Wait::Never,
                (false, nanos) => Wait::For(nanos.max(1).unsigned_abs()),
            };
            let natural = |number: &i64| u64::try_from(*number).unwrap_or(0);
            reply.verdicts.push(Verdict {
                allowed: *allowed == 1,
                limit: charge.limit.quota,
                remaining: natural(remaining),
                wait,
                reset: natural(reset),
                delay: natural(delay),
            });
        }
    }
    Some(reply)
}

async fn connect(config: &PostgresConfig) -> Result<Live, Error> {
    let (client, connection) = config.connection.connect(NoTls).await?;
    // Ends with the client, or with the connection, whose error every later call reports.
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    let commit = if config.durability == Durability::Synchronous { "on" } else { "off" };
    client
        .batch_execute(&format!(
            "SET synchronous_commit = {commit}; SET plan_cache_mode = force_generic_plan; SET jit = off; \
             SET enable_seqscan = off; SET search_path = pg_catalog; SET client_min_messages = warning"
        ))
        .await?;
    migrate(&client, config.durability).await?;
    let decide = client.prepare(DECIDE).await?;
    let register = client.prepare("SELECT tidegate.register($1)").await?;
    Ok(Live { client, decide, register })
}

/// Brings the schema up to date, one node at a time.
async fn migrate(client: &Client, durability: Durability) -> Result<(), Error> {
    let known = client.query_one("SELECT to_regclass('tidegate.migrations') IS NOT NULL", &[]).await?;
    let is_current = "SELECT EXISTS (SELECT FROM tidegate.migrations WHERE version >= $1)";
    if known.try_get(0)? && client.query_one(is_current, &[&VERSION]).await?.try_get(0)? {
        return Ok(());
    }
    client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).await?;
    client
        .batch_execute(
            "CREATE SCHEMA IF NOT EXISTS tidegate; CREATE TABLE IF NOT EXISTS tidegate.migrations \
             (version int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())",
        )
        .await?;
    if !client.query_one(is_current, &[&VERSION]).await?.try_get::<_, bool>(0)? {
        let unlogged = durability == Durability::Unlogged;
        let schema = if unlogged {
            SCHEMA.replace("CREATE TABLE", "CREATE UNLOGGED TABLE")
        } else {
            SCHEMA.to_owned()
        };
        client.batch_execute(&schema).await?;
        client.execute("INSERT INTO tidegate.migrations (version) VALUES ($1)", &[&VERSION]).await?;
    }
    client.batch_execute("COMMIT").await
}

/// What an error says of the charge.
fn classify(error: &Error) -> Failure {
    let Some(code) = error.code() else { return Failure::Lost(text(error)) };
    if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) {
        return Failure::RolledBack;
    }
    let stopping = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    let read_only = SqlState::READ_ONLY_SQL_TRANSACTION;
    if stopping.contains(code) || *code == read_only {
        return Failure::Elsewhere(text(error));
    }
    Failure::Refused(text(error))
}

/// The server's own words, which `tokio_postgres` leaves to the source.
fn text(error: &Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{}: {}", said.code().code(), said.message()),
        None => error.to_string(),
    }
}

/// Times and numbers of limits fit: policies bound them, and 2^63 ns is in the year 2262.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Invariant: a batch has a few thousand charges at most.
fn index(of: usize) -> i32 {
    i32::try_from(of).unwrap_or(i32::MAX)
}
