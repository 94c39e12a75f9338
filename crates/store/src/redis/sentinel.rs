//! Finding the master that Sentinels watch.

use redis::cmd;

use super::config::{Address, RedisConfig};
use super::link::{open, unsent};
use crate::batch::Failure;

/// Asks each Sentinel in turn. A Sentinel that lags behind a failover may name the old master: it
/// will answer `READONLY` or not at all, and the next connection asks again.
pub(super) async fn resolve(
    config: &RedisConfig,
    sentinels: &[Address],
    master: &str,
) -> Result<Address, Failure> {
    let mut last = Failure::Unsent("no Sentinel is configured".to_owned());
    for sentinel in sentinels {
        match ask(config, sentinel, master).await {
            Ok(address) => return Ok(address),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn ask(config: &RedisConfig, sentinel: &Address, master: &str) -> Result<Address, Failure> {
    let mut connection = open(config, sentinel, false).await.map_err(|error| unsent(sentinel, &error))?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let found: Option<(String, u16)> =
        question.query_async(&mut connection).await.map_err(|error| unsent(sentinel, &error))?;
    let (host, port) =
        found.ok_or_else(|| Failure::Unsent(format!("{sentinel} knows no master {master}")))?;
    Ok(Address { host, port })
}
