//! One multiplexed connection to whichever server decides, kept open.
//!
//! A link resolves its server anew each time it connects, so that a failover is followed by
//! dropping the connection. Connecting includes loading the script: its name (a SHA-1) comes from
//! the server, and `NOSCRIPT` after a restart or `SCRIPT FLUSH` loads it again.
//!
//! A batch is repeated at most once, and only after a reply that says it was not executed
//! ([`super::failure`]).

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value, cmd};
use tidegate_algorithms::time::{Now, SECOND};
use tokio::sync::Mutex;

use super::config::{Address, RedisConfig};
use super::failure::classify;
use super::open::{open, unsent};
use super::script::SCRIPT;
use super::wire;
use crate::batch::{Executor, Failure, Operation, Reply};

/// How a link finds its server.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// Always this one.
    Fixed(Address),
    /// The master that the Sentinels name.
    Sentinel { sentinels: Vec<Address>, master: String },
}

/// A connection that is opened when it is needed and dropped when it is of no more use.
#[derive(Debug)]
pub(super) struct RedisLink {
    target: Target,
    config: Arc<RedisConfig>,
    /// Whether to resolve the server again when this one turns out not to decide. A Cluster does
    /// that itself.
    follow: bool,
    /// Whether to warn of a server that drops keys, and to tell it this node's version: one of the links to it does.
    warns: bool,
    live: Mutex<RedisSlot>,
}

#[derive(Debug, Default)]
struct RedisSlot {
    live: Option<LiveConnection>,
    /// Counts connections, so that only the one that failed is dropped.
    generation: u64,
}

#[derive(Clone, Debug)]
struct LiveConnection {
    connection: MultiplexedConnection,
    script: Arc<str>,
    generation: u64,
}

/// A batch as it goes to the script.
#[derive(Debug)]
struct ScriptBatch<'b> {
    packed: Vec<u8>,
    keys: Vec<&'b [u8]>,
    /// The caller's time, if that decides.
    at: Option<Now>,
}

impl RedisLink {
    pub(super) fn new(target: Target, config: Arc<RedisConfig>, follow: bool, warns: bool) -> Self {
        Self { target, config, follow, warns, live: Mutex::default() }
    }

    /// Runs a batch and returns the script's reply.
    async fn run(&self, batch: &ScriptBatch<'_>) -> Result<Vec<u8>, Failure> {
        let mut repeated = false;
        loop {
            let live = self.live().await?;
            let failure = match live.evaluate(batch).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            if failure.ends_connection() {
                self.forget(live.generation).await;
            }
            let again = match failure {
                Failure::NoScript => {
                    live.load().await?;
                    true
                }
                Failure::Elsewhere(_) => self.follow,
                _ => false,
            };
            if repeated || !again {
                return Err(failure);
            }
            repeated = true;
        }
    }

    async fn live(&self) -> Result<LiveConnection, Failure> {
        let mut slot = self.live.lock().await;
        if let Some(live) = &slot.live {
            return Ok(live.clone());
        }
        slot.generation += 1;
        let generation = slot.generation;
        let connecting = self.connect(generation);
        let live = tokio::time::timeout(self.config.connect_timeout, connecting)
            .await
            .unwrap_or_else(|_| Err(Failure::Unsent("no connection in time".to_owned())))?;
        slot.live = Some(live.clone());
        Ok(live)
    }

    async fn forget(&self, generation: u64) {
        let mut slot = self.live.lock().await;
        if slot.live.as_ref().is_some_and(|live| live.generation == generation) {
            slot.live = None;
        }
    }

    async fn connect(&self, generation: u64) -> Result<LiveConnection, Failure> {
        let address = match &self.target {
            Target::Fixed(address) => address.clone(),
            Target::Sentinel { sentinels, master } => {
                super::sentinel::resolve(&self.config, sentinels, master).await?
            }
        };
        let connection =
            open(&self.config, &address, true).await.map_err(|error| unsent(&address, &error))?;
        let mut live = LiveConnection { connection, script: Arc::from(""), generation };
        live.script = live.load().await?;
        if self.warns {
            super::presence::announce(live.connection.clone()).await;
            super::eviction::warn_of(live.connection.clone(), &address).await;
        }
        Ok(live)
    }
}

impl Executor for RedisLink {
    async fn open(&self) -> Result<(), Failure> {
        self.live().await.map(drop)
    }

    async fn execute(&self, operations: &[Operation], at: Option<Now>) -> Vec<Result<Reply, Failure>> {
        match self.decide(operations, at).await {
            Ok(replies) => replies.into_iter().map(Ok).collect(),
            Err(failure) => vec![Err(failure); operations.len()],
        }
    }
}

impl RedisLink {
    async fn decide(&self, operations: &[Operation], at: Option<Now>) -> Result<Vec<Reply>, Failure> {
        let (packed, keys) = wire::encode(operations.iter());
        let bytes = self.run(&ScriptBatch { packed, keys, at }).await?;
        let mut rest = &bytes[..];
        let mut replies = Vec::with_capacity(operations.len());
        for operation in operations {
            let mut reply = Reply::default();
            rest = wire::read(operation, rest, &mut reply)
                .map_err(|wire::Garbled| Failure::Lost("the script's answer is too short".to_owned()))?;
            replies.push(reply);
        }
        Ok(replies)
    }
}

impl LiveConnection {
    async fn load(&self) -> Result<Arc<str>, Failure> {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(SCRIPT);
        let name: String = load
            .query_async(&mut self.connection.clone())
            .await
            .map_err(|error: RedisError| Failure::Unsent(format!("the script cannot be loaded: {error}")))?;
        Ok(Arc::from(name))
    }

    async fn evaluate(&self, batch: &ScriptBatch<'_>) -> Result<Vec<u8>, Failure> {
        let mut evaluate = cmd("EVALSHA");
        evaluate.arg(&*self.script).arg(batch.keys.len());
        for key in &batch.keys {
            evaluate.arg(*key);
        }
        evaluate.arg(&batch.packed[..]);
        if let Some(now) = batch.at {
            for nanos in [now.tick.0, now.wall.0] {
                evaluate.arg(nanos / SECOND).arg(nanos % SECOND);
            }
        }
        match self.connection.clone().send_packed_command(&evaluate).await {
            Ok(Value::BulkString(reply)) => Ok(reply),
            Ok(Value::ServerError(error)) => Err(classify(&RedisError::from(error))),
            Ok(_) => Err(Failure::Refused("the script did not answer with a string".to_owned())),
            Err(error) => Err(classify(&error)),
        }
    }
}
