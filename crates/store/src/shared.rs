//! The stores that several nodes share.

use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::time::Now;

use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::{Answer, Charge, Intent, StoreError};

/// A store that several nodes share, without a guard: it may fail and may hang.
#[derive(Debug)]
pub enum Shared {
    /// In Redis.
    Redis(Redis),
    /// In PostgreSQL.
    Postgres(Postgres),
}

impl Shared {
    /// Decides one request over all its limits, atomically.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn decide(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) -> Result<(), StoreError> {
        match self {
            Self::Redis(redis) => redis.decide(now, charges, intent, answer).await,
            Self::Postgres(postgres) => postgres.decide(now, charges, intent, answer).await,
        }
    }

    /// Gives back units.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        match self {
            Self::Redis(redis) => redis.refund(now, charges).await,
            Self::Postgres(postgres) => postgres.refund(now, charges).await,
        }
    }

    /// Extends the lease of a permit. False if it is not held.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn renew(
        &self,
        now: Now,
        limit: &Limit,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Redis(redis) => redis.renew(now, limit, key, permit).await,
            Self::Postgres(postgres) => postgres.renew(now, limit, key, permit).await,
        }
    }

    /// Gives a permit back. False if it is not held.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn release(
        &self,
        now: Now,
        limit: &Limit,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Redis(redis) => redis.release(now, limit, key, permit).await,
            Self::Postgres(postgres) => postgres.release(now, limit, key, permit).await,
        }
    }
}
