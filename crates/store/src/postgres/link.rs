//! One connection, opened when it is needed, and the statements that run batches on it.
//!
//! ```text
//!   batch --> buckets ----> bucket.sql, set-wise ---> what was found --> replies
//!         |-> windows ----> windows.sql, set-wise --> what was found --> replies
//!         |                    | a state is strange
//!         `-> the others, and these --> tidegate.decide, charge by charge --> replies
//! ```

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::time::Now;
use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Error, Session, SqlState, Statement, migrate, text};
use tokio::sync::Mutex;

use super::function::{DECIDE, FunctionBatch, read};
use super::plain::{FoundRows, LimitFamily, Plain};
use super::schema::schema;
use super::{Durability, PostgresConfig, signed};
use crate::batch::{Executor, Failure, Operation, Reply};

/// How often a statement is asked: without a row, again once there is one. What it leaves then is of
/// another algorithm or interval, or was swept meanwhile, and is for the function.
const ROUNDS: usize = 2;
/// How often a question that changed nothing is put in all, and the pause before the next time, which
/// grows by itself each time.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(2);
/// The server cancels a statement after `response_timeout`; it may first wait for two others on its
/// connection. After so many times that, the server does not answer at all.
const STATEMENTS_WAITED_FOR: u32 = 4;
/// Rows that say nothing any more are deleted once in so many batches, and at most so many.
const SWEEP_EVERY: u64 = 1_024;
const SWEEP_ROWS: i32 = 4_096;

/// A connection that is opened when it is needed and dropped when it is of no more use.
#[derive(Debug)]
pub(super) struct PostgresLink {
    config: Arc<PostgresConfig>,
    live: Mutex<PostgresSlot>,
}

#[derive(Debug, Default)]
struct PostgresSlot {
    live: Option<Arc<LiveSession>>,
    batches: u64,
}

struct LiveSession {
    client: Session,
    buckets: Statement,
    windows: Statement,
    decide: Statement,
    register: Statement,
}

impl std::fmt::Debug for LiveSession {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LiveSession").finish_non_exhaustive()
    }
}

impl PostgresLink {
    pub(super) fn new(config: Arc<PostgresConfig>) -> Self {
        Self { config, live: Mutex::default() }
    }

    async fn live(&self) -> Result<Arc<LiveSession>, Failure> {
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

    async fn forget(&self, live: &Arc<LiveSession>) {
        let mut slot = self.live.lock().await;
        if slot.live.as_ref().is_some_and(|current| Arc::ptr_eq(current, live)) {
            slot.live = None;
        }
    }

    /// Puts a question to the server; again, if it certainly changed nothing.
    async fn run<Q: BatchQuery>(&self, question: &Q) -> Result<Q::Reply, Failure> {
        let mut attempts = 1;
        loop {
            let live = self.live().await?;
            let patience = self.config.response_timeout * STATEMENTS_WAITED_FOR;
            let answer = tokio::time::timeout(patience, question.put_to(&live)).await;
            let failure = match answer {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => classify(&error),
                Err(_) => Failure::Timeout,
            };
            if failure.ends_connection() {
                self.forget(&live).await;
            }
            if attempts == ATTEMPTS || !matches!(failure, Failure::RolledBack | Failure::Elsewhere(_)) {
                return Err(failure);
            }
            // At once, it could take again what the transaction it was rolled back for waits for.
            tokio::time::sleep(PAUSE * attempts).await;
            attempts += 1;
        }
    }

    /// Has a statement decide a plain part; what that leaves to the function joins the others.
    async fn decide_set<'o>(
        &self,
        mut plain: Plain<'o>,
        operations: &'o [Operation],
        at: Option<Now>,
        replies: &mut [Option<Result<Reply, Failure>>],
        others: &mut Vec<usize>,
    ) {
        for round in 1..=ROUNDS {
            if plain.is_empty() {
                return;
            }
            let asked = match self.run(&PlainKind { plain: &plain, operations, at }).await {
                Ok(said) => {
                    said.decided.into_iter().for_each(|(place, reply)| replies[place] = Some(Ok(reply)));
                    others.extend(said.strange);
                    plain = said.missing;
                    // Apart from deciding, so that repeating it repeats no charge.
                    let done = plain.is_empty() || round == ROUNDS;
                    if done { Ok(()) } else { self.run(&NewRows(plain.keys())).await }
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = asked {
                plain.places().for_each(|place| replies[place] = Some(Err(failure.clone())));
                return;
            }
        }
        others.extend(plain.places());
    }

    /// Has the function decide operations of any kind.
    async fn decide(&self, operations: &[Operation], at: Option<Now>) -> Result<Vec<Reply>, Failure> {
        let batch = FunctionBatch::new(operations);
        let numbers = self.run(&AnyKind { batch, at }).await?;
        let mut rest = &numbers[..];
        let replies = operations.iter().map(|operation| read(operation, &mut rest)).collect::<Option<_>>();
        replies.ok_or_else(|| Failure::Lost("the function's answer is too short".to_owned()))
    }
}

impl Executor for PostgresLink {
    async fn open(&self) -> Result<(), Failure> {
        self.live().await.map(drop)
    }

    async fn execute(&self, operations: &[Operation], at: Option<Now>) -> Vec<Result<Reply, Failure>> {
        let mut replies = vec![None; operations.len()];
        let (parts, mut others) = Plain::split(operations);
        for part in parts {
            self.decide_set(part, operations, at, &mut replies, &mut others).await;
        }
        if !others.is_empty() {
            others.sort_unstable();
            let asked: Vec<_> = others.iter().map(|place| operations[*place].clone()).collect();
            let decided = self.decide(&asked, at).await;
            for (index, place) in others.into_iter().enumerate() {
                let reply = decided.as_ref().map(|replies| replies[index].clone());
                replies[place] = Some(reply.map_err(Failure::clone));
            }
        }
        // Invariant: each place was in a part or in the others, and what parts leave joins these.
        let unasked = || Err(Failure::Unsent("no statement for it".to_owned()));
        replies.into_iter().map(|reply| reply.unwrap_or_else(unasked)).collect()
    }
}

/// A batch, as it is put to the server; again, where that changes nothing.
trait BatchQuery: Sync {
    type Reply: Send;

    fn put_to(&self, live: &LiveSession) -> impl Future<Output = Result<Self::Reply, Error>> + Send;
}

/// Operations of any kind. Keys that have no row get one first, in a transaction of their own.
struct AnyKind<'o> {
    batch: FunctionBatch<'o>,
    at: Option<Now>,
}

/// A plain part of a batch.
struct PlainKind<'p, 'o> {
    plain: &'p Plain<'o>,
    operations: &'o [Operation],
    at: Option<Now>,
}

/// Keys that are to have rows.
struct NewRows<'o>(Vec<&'o [u8]>);

impl BatchQuery for AnyKind<'_> {
    type Reply = Vec<i64>;

    async fn put_to(&self, live: &LiveSession) -> Result<Vec<i64>, Error> {
        let (tick, wall) = times(self.at);
        let parameters: Vec<&(dyn ToSql + Sync)> =
            self.batch.columns().into_iter().chain([&tick as &(dyn ToSql + Sync), &wall]).collect();
        loop {
            let row = live.client.query_one(&live.decide, &parameters).await?;
            match row.try_get(0)? {
                Some(reply) => return Ok(reply),
                // A sweep may take a row again in between; the caller's timeout bounds the rounds.
                None => live.client.execute(&live.register, &[&self.batch.keys]).await?,
            };
        }
    }
}

impl<'o> BatchQuery for PlainKind<'_, 'o> {
    type Reply = FoundRows<'o>;

    async fn put_to(&self, live: &LiveSession) -> Result<FoundRows<'o>, Error> {
        let statement = match self.plain.family {
            LimitFamily::Buckets => &live.buckets,
            LimitFamily::Windows => &live.windows,
        };
        let parameters = self.plain.parameters(self.at);
        let parameters: Vec<_> = parameters.iter().map(|one| &**one as &(dyn ToSql + Sync)).collect();
        let rows = live.client.query(statement, &parameters).await?;
        self.plain.read(&rows, self.operations)
    }
}

impl BatchQuery for NewRows<'_> {
    type Reply = ();

    async fn put_to(&self, live: &LiveSession) -> Result<(), Error> {
        live.client.execute(&live.register, &[&self.0]).await.map(drop)
    }
}

/// The caller's times, if these decide.
fn times(at: Option<Now>) -> (Option<i64>, Option<i64>) {
    (at.map(|now| signed(now.tick.0)), at.map(|now| signed(now.wall.0)))
}

async fn connect(config: &PostgresConfig) -> Result<LiveSession, Error> {
    let client = config.place.connect(|_, _| {}).await?;
    // Also for migrations, which wait for those of other nodes.
    client.bound(config.connect_timeout).await?;
    let commit = if config.durability == Durability::Synchronous { "on" } else { "off" };
    client
        .batch_execute(&format!(
            "SET synchronous_commit = {commit}; SET plan_cache_mode = force_generic_plan; SET jit = off; \
             SET enable_seqscan = off; SET search_path = pg_catalog; SET client_min_messages = warning"
        ))
        .await?;
    migrate(&client, &schema(config.durability)).await?;
    let buckets = client.prepare(LimitFamily::Buckets.sql()).await?;
    let windows = client.prepare(LimitFamily::Windows.sql()).await?;
    let decide = client.prepare(DECIDE).await?;
    let register = client.prepare("SELECT tidegate.register($1)").await?;
    client.bound(config.response_timeout).await?;
    Ok(LiveSession { client, buckets, windows, decide, register })
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
    // Data exceptions, and a state that the function has no case for.
    let damaged = code.code().starts_with("22") || *code == SqlState::DATA_CORRUPTED;
    if damaged { Failure::Unreadable(text(error)) } else { Failure::Refused(text(error)) }
}
