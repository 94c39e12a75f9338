//! Finding the master that Sentinels watch.

use redis::cmd;
use tokio::time::timeout;

use super::config::{Address, RedisConfig};
use super::open::{open, unsent};
use crate::batch::Failure;

/// Asks each Sentinel in turn, each for its share of the time to connect, so that one that does not
/// answer leaves time for the others and for the master. A Sentinel that lags behind a failover may
/// name the old master: it will answer `READONLY` or not at all, and the next connection asks again.
pub(super) async fn resolve(
    config: &RedisConfig,
    sentinels: &[Address],
    master: &str,
) -> Result<Address, Failure> {
    let mut last = Failure::Unsent("no Sentinel is configured".to_owned());
    let shares = u32::try_from(sentinels.len()).unwrap_or(u32::MAX).saturating_add(1);
    for sentinel in sentinels {
        let asking = timeout(config.connect_timeout / shares, ask(config, sentinel, master)).await;
        match asking {
            Ok(Ok(address)) => return Ok(address),
            Ok(Err(failure)) => last = failure,
            Err(_) => last = Failure::Unsent(format!("{sentinel} does not answer")),
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
