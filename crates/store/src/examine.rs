//! Facts about a shared store's server, for `tidegate doctor` and others who ask whether it is fit to count in.
//!
//! Two looks. [`servers`] asks and changes nothing; [`Trial`] has units counted under a key of its own,
//! by the way that every decision goes, so that a right that is lacking, a replica and a full server show
//! as they would show to clients. Of PostgreSQL a schema that is not there yet is not made: a newer program
//! that only looks must not bring a database up to date under older nodes.
//!
//! Deliberately absent: judging, which is the caller's.

use tidegate_algorithms::limit::{FixedWindow, Limit, PermitId};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::{Now, Wall};

pub use crate::facts::{ClockReading, PATIENCE, SchemaFacts, ServerFacts};
use crate::postgres::{self, Postgres, PostgresConfig};
use crate::redis::{self, Redis, RedisConfig};
use crate::shared::Shared;
use crate::{Answer, Charge, Intent, StoreError};

/// How to reach the store.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Redis.
    Redis(RedisConfig),
    /// PostgreSQL.
    Postgres(PostgresConfig),
}

/// Asks every server that decides. `wall` reads this machine's civil time. Call it inside a runtime.
///
/// # Errors
/// When one of them cannot be asked.
pub async fn servers(
    reach: &Reach,
    wall: &(dyn Fn() -> Wall + Sync),
) -> Result<Vec<ServerFacts>, StoreError> {
    let asked = async {
        match reach {
            Reach::Redis(config) => redis::examine(config, wall).await,
            Reach::Postgres(config) => postgres::examine(config, wall).await.map(|facts| vec![facts]),
        }
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(facts) => facts.map_err(StoreError::from),
        Err(_) => Err(late()),
    }
}

/// A store that units are counted in under a key that no request has, and which is forgotten within seconds.
#[derive(Debug)]
pub struct Trial {
    store: Shared,
}

impl Trial {
    /// Begins. Call it inside a runtime.
    #[must_use]
    pub fn open(reach: &Reach) -> Self {
        // Whether it is fast enough is for the caller to say, so a slow answer is one, too.
        let (connect_timeout, response_timeout) = (PATIENCE, PATIENCE);
        let store = match reach.clone() {
            Reach::Redis(config) => {
                Shared::Redis(Redis::start(RedisConfig { connect_timeout, response_timeout, ..config }))
            }
            Reach::Postgres(config) => Shared::Postgres(Postgres::start(PostgresConfig {
                connect_timeout,
                response_timeout,
                ..config
            })),
        };
        Self { store }
    }

    /// Counts one unit. Where there are no tables yet, it makes them.
    ///
    /// # Errors
    /// Why a decision would get no answer.
    pub async fn count(&self, now: Now) -> Result<(), StoreError> {
        let limit = Limit::FixedWindow(FixedWindow { limit: u64::from(u16::MAX), seconds: 1 });
        let on_failure = OnStoreFailure::default();
        let charge = Charge { limit: &limit, key: b"tidegate doctor", cost: 1, binding: false, on_failure };
        let mut answer = Answer::default();
        let counting = async {
            self.store.open().await?;
            self.store.decide(now, &[charge], Intent::Spend(PermitId(0)), &mut answer).await
        };
        let in_time = tokio::time::timeout(PATIENCE, counting).await;
        in_time.unwrap_or_else(|_| Err(late()))
    }
}

fn late() -> StoreError {
    StoreError::Unreachable(format!("no answer within {PATIENCE:?}"))
}
