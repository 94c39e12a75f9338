//! Facts about the Redis servers that decide.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, cmd};
use tidegate_algorithms::time::{SECOND, Wall};

use super::cluster::Cluster;
use super::config::{Address, RedisConfig, Topology};
use super::eviction::dropping;
use super::open::{open, unsent};
use super::{presence, sentinel};
use crate::batch::Failure;
use crate::facts::{ClockReading, PATIENCE, ServerFacts};

/// Nanoseconds of a microsecond.
const MICRO: u64 = 1_000;

/// Asks each server that decides: the one, the master that the Sentinels name, or all masters of a Cluster.
///
/// # Errors
/// When one of them cannot be asked.
pub(crate) async fn examine(
    config: &RedisConfig,
    wall: &(dyn Fn() -> Wall + Sync),
) -> Result<Vec<ServerFacts>, Failure> {
    let config = Arc::new(RedisConfig {
        connect_timeout: config.connect_timeout.max(PATIENCE / 2),
        response_timeout: config.response_timeout.max(PATIENCE / 2),
        ..config.clone()
    });
    let mut addresses = match &config.topology {
        Topology::Single(address) => vec![address.clone()],
        Topology::Sentinel { sentinels, master } => {
            vec![sentinel::resolve(&config, sentinels, master).await?]
        }
        Topology::Cluster { seeds } => Cluster::new(Arc::clone(&config), seeds.clone()).servers().await?,
    };
    addresses.sort_by_key(ToString::to_string);
    let mut facts = Vec::new();
    for address in addresses {
        facts.push(ask(&config, &address, wall).await.map_err(|error| unsent(&address, &error))?);
    }
    Ok(facts)
}

async fn ask(
    config: &RedisConfig,
    address: &Address,
    wall: &(dyn Fn() -> Wall + Sync),
) -> Result<ServerFacts, RedisError> {
    let mut connection = open(config, address, true).await?;
    let asked = wall();
    let time: Result<(u64, u64), _> = cmd("TIME").query_async(&mut connection).await;
    let answered = wall();
    let clock = time.ok().map(|(seconds, micros)| {
        let server = Wall(seconds.saturating_mul(SECOND).saturating_add(micros.saturating_mul(MICRO)));
        ClockReading { asked, server, answered }
    });
    let server = info(&mut connection, "server").await?;
    let memory = info(&mut connection, "memory").await?;
    let version = server.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or_default();
    let version = version.trim().to_owned();
    Ok(ServerFacts {
        address: address.to_string(),
        major: version.split('.').next().and_then(|major| major.parse().ok()),
        version,
        clock,
        drops_keys: dropping(&memory).map(str::to_owned),
        schema: None,
        nodes: presence::versions(connection).await,
    })
}

/// One section; empty for a user without the right to ask for it.
async fn info(connection: &mut MultiplexedConnection, section: &str) -> Result<String, RedisError> {
    let mut question = cmd("INFO");
    question.arg(section);
    match question.query_async(connection).await {
        Err(error) if error.code() == Some("NOPERM") => Ok(String::new()),
        answer => answer,
    }
}
