//! The store that a process was configured with, as one type: the contract's operations on each kind of store.

use tidegate_algorithms::limit::{Limit, PermitId, Verdict};
use tidegate_algorithms::time::Now;

use crate::contract::{Answer, Charge, Intent, StoreError};
use crate::guard::Guard;
use crate::lease::Leases;
use crate::memory::Memory;
use crate::shared::Shared;

/// The store that a process was configured with.
#[derive(Debug)]
pub enum Counters {
    /// In this process.
    Memory(Memory),
    /// In a store that several nodes share, bare: errors reach the caller.
    Shared(Shared),
    /// In a store that several nodes share; while it cannot answer, each policy's own mode does.
    Guarded(Guard),
    /// The same, with units taken in advance for hot keys.
    Leased(Leases),
}

/// What a network store has to remember while it waits is in a box, so that a decision in memory does
/// not carry room for it, which was copied several times a request (decision 0006).
impl Counters {
    /// The guard before a store that nodes share; none for one in this process.
    #[must_use]
    pub fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Memory(_) | Self::Shared(_) => None,
            Self::Guarded(guard) => Some(guard),
            Self::Leased(leases) => Some(leases.guard()),
        }
    }

    /// Decides one request over all its limits, atomically.
    ///
    /// `answer` is overwritten; its allocation is reused. `now` is the caller's clock, which the
    /// memory store decides by; stores with a clock of their own use that.
    ///
    /// # Errors
    /// When the store cannot say; see [`StoreError`] for what is known of the charge.
    pub async fn decide(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        answer: &mut Answer,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.decide(now, charges, intent, answer);
                Ok(())
            }
            Self::Shared(shared) => Box::pin(shared.decide(now, charges, intent, answer)).await,
            Self::Guarded(guard) => {
                Box::pin(guard.decide(now, charges, intent, answer)).await;
                Ok(())
            }
            Self::Leased(leases) => {
                Box::pin(leases.decide(now, charges, intent, answer)).await;
                Ok(())
            }
        }
    }

    /// Whether decisions need no waiting, so that [`Counters::decide_now`] makes them.
    #[must_use]
    pub fn is_at_hand(&self) -> bool {
        self.memory().is_some()
    }

    /// As [`Counters::decide`], without waiting. False if that cannot be: nothing was charged then, and `decide`
    /// is to be asked.
    #[must_use]
    pub fn decide_now(&self, now: Now, charges: &[Charge<'_>], intent: Intent, answer: &mut Answer) -> bool {
        let Some(memory) = self.memory() else { return false };
        memory.decide(now, charges, intent, answer);
        true
    }

    /// Decides requests of one limit each in their order, without waiting, and appends a verdict for each. False
    /// if that cannot be: nothing was charged then, and `decide` is to be asked for each.
    #[must_use]
    pub fn decide_each_now(
        &self,
        now: Now,
        charges: &[Charge<'_>],
        intent: Intent,
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        let Some(memory) = self.memory() else { return false };
        memory.decide_each(now, charges, intent, verdicts);
        true
    }

    /// The store in this process, if it is that: for its figures and its snapshots.
    #[must_use]
    pub fn memory(&self) -> Option<&Memory> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Shared(_) | Self::Guarded(_) | Self::Leased(_) => None,
        }
    }

    /// The leases, if units are taken ahead: for their figures and bounds.
    #[must_use]
    pub fn leases(&self) -> Option<&Leases> {
        match self {
            Self::Leased(leases) => Some(leases),
            Self::Memory(_) | Self::Shared(_) | Self::Guarded(_) => None,
        }
    }

    /// Gives back units that were charged under these limits and keys. Doing it twice gives them back
    /// twice.
    ///
    /// # Errors
    /// When the store cannot say; see [`StoreError::may_have_happened`].
    pub async fn refund(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.refund(now, charges);
                Ok(())
            }
            Self::Shared(shared) => Box::pin(shared.refund(now, charges)).await,
            Self::Guarded(guard) => Box::pin(guard.refund(now, charges)).await,
            Self::Leased(leases) => Box::pin(leases.guard().refund(now, charges)).await,
        }
    }

    /// Forgets what was spent, and permits that are held, under these limits and keys: they start anew. Units
    /// that other nodes have taken ahead stay with them.
    ///
    /// # Errors
    /// When the store cannot say. A reset can be repeated.
    pub async fn reset(&self, now: Now, charges: &[Charge<'_>]) -> Result<(), StoreError> {
        match self {
            Self::Memory(memory) => {
                memory.reset(now, charges);
                Ok(())
            }
            Self::Shared(shared) => Box::pin(shared.reset(now, charges)).await,
            Self::Guarded(guard) => Box::pin(guard.reset(now, charges)).await,
            Self::Leased(leases) => Box::pin(leases.reset(now, charges)).await,
        }
    }

    /// Extends the lease of a permit held under one concurrency limit. False if it is not held.
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
            Self::Memory(memory) => Ok(memory.renew(now, limit, key, permit)),
            Self::Shared(shared) => Box::pin(shared.renew(now, limit, key, permit)).await,
            Self::Guarded(guard) => Box::pin(guard.renew(now, limit, key, permit)).await,
            Self::Leased(leases) => Box::pin(leases.guard().renew(now, limit, key, permit)).await,
        }
    }

    /// Returns what was taken ahead, since the node is about to stop ([`crate::lease`]).
    pub async fn drain(&self, now: Now) {
        if let Self::Leased(leases) = self {
            leases.drain(now).await;
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
            Self::Memory(memory) => Ok(memory.release(now, limit, key, permit)),
            Self::Shared(shared) => Box::pin(shared.release(now, limit, key, permit)).await,
            Self::Guarded(guard) => Box::pin(guard.release(now, limit, key, permit)).await,
            Self::Leased(leases) => Box::pin(leases.guard().release(now, limit, key, permit)).await,
        }
    }
}
