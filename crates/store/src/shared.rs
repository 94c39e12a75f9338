//! The stores that several nodes share.
//!
//! They differ in how an operation is run, and in nothing else: what the contract's calls mean as
//! operations is said here, once.

use tidegate_algorithms::limit::{Limit, PermitId};
use tidegate_algorithms::time::Now;

use crate::batch::{Failure, Kind, Reply};
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
    /// Opens its connections and prepares what they need, so that the first calls need not wait for that.
    ///
    /// # Errors
    /// Why there is a connection that cannot be had.
    pub async fn open(&self) -> Result<(), StoreError> {
        let opened = match self {
            Self::Redis(redis) => redis.open().await,
            Self::Postgres(postgres) => postgres.open().await,
        };
        opened.map_err(StoreError::from)
    }

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
        let reply = self.call(intent.into(), now, charges).await?;
        *answer = Answer { allowed: reply.yes, verdicts: reply.verdicts.into(), degraded: None };
        Ok(())
    }

    /// Gives back units.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        self.call(Kind::Refund, now, charges).await?;
        Ok(())
    }

    /// Forgets what is known under these keys.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn reset(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        self.call(Kind::Reset, now, charges).await?;
        Ok(())
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
        self.permit(Kind::Renew(permit), now, limit, key).await
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
        match self {
            _ if charges.is_empty() => Ok(Reply { yes: true, verdicts: Vec::new() }),
            Self::Redis(redis) => redis.call(kind, now, charges).await,
            Self::Postgres(postgres) => postgres.call(kind, now, charges).await,
        }
    }
}
