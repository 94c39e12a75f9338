//! The store contract.
//!
//! Every store gives the same decisions for the same operations at the same times; one conformance
//! suite and one differential property test say so (`tests/conformance/`). What differs is
//! durability, reach and cost, which `docs/stores.md` states.
//!
//! Invariants:
//! - a denial charges nobody, whichever of several limits denied;
//! - a limit that is not binding (shadow mode) is charged with the others and never denies;
//! - after a denial, the verdicts of the limits that had room show what remains *without* this
//!   request's cost, since it was not spent;
//! - charges of one key in one request are one spend: a later one is judged as if the earlier ones
//!   that have room had been made;
//! - a charge is never repeated blindly: an operation whose outcome is unknown is an error.

use smallvec::SmallVec;
use thiserror::Error;
use tidegate_algorithms::limit::{Limit, PermitId, Verdict};
use tidegate_algorithms::policy::OnStoreFailure;
use tidegate_algorithms::time::Now;

/// One limit's share in a request.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// What may be spent.
    pub limit: &'a Limit,
    /// The counter's name, made by `policy::key_of`.
    pub key: &'a [u8],
    /// Units, 0 to ask what remains.
    pub cost: u64,
    /// Whether a denial denies the request; false in shadow mode.
    pub binding: bool,
    /// What to answer while the store cannot.
    pub on_failure: OnStoreFailure,
}

/// Whether a decision spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Charge every limit if all binding ones have room. Concurrency limits hand out this permit.
    Spend(PermitId),
    /// Answer as if spending, and spend nothing.
    Peek,
}

/// Why an answer was given without the store that should have given it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degraded {
    /// Counted in this node's memory, against this node's share.
    Local,
    /// Allowed blindly.
    Open,
    /// Denied blindly.
    Closed,
}

impl Degraded {
    /// The word for it, as every protocol has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// One verdict per charge, in the order asked. The verdicts of a request of one or two limits, as nearly all are,
/// need no allocation.
pub type Verdicts = SmallVec<[Verdict; 2]>;

/// A store's answer: whether the request is allowed, and each limit's verdict in the order asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Every binding limit had room.
    pub allowed: bool,
    /// One per charge.
    pub verdicts: Verdicts,
    /// Set if the answer did not come from the configured store.
    pub degraded: Option<Degraded>,
}

/// Why a store gave no answer. An error never means that the request is denied.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The deadline passed; whether the charge was made is unknown.
    #[error("the store did not answer within its deadline, and may have acted all the same")]
    Timeout,
    /// The connection was lost before the answer came; whether the charge was made is unknown.
    #[error("the connection to the store was lost, and it may have acted all the same: {0}")]
    Lost(String),
    /// The store could not be reached, and nothing was charged.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The store refused the operation, and nothing was charged.
    #[error("the store refused: {0}")]
    Refused(String),
    /// The store holds something under one of these keys that it never wrote; nothing was charged, and
    /// other keys are not affected.
    #[error("the store holds a state that makes no sense: {0}")]
    Unreadable(String),
    /// The store has failed too often and is not asked for a moment; nothing was charged.
    #[error("the store is not asked for a moment, because it failed; nothing was changed")]
    NotAsked,
    /// Too many calls are under way, so this one was not made; nothing was charged.
    #[error("too many calls to the store are under way; nothing was changed")]
    Saturated,
}

impl StoreError {
    /// Whether the operation may have taken effect all the same.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Timeout | Self::Lost(_))
    }
}

/// The store that a process was configured with.
#[derive(Debug)]
pub enum Counters {
    /// In this process.
    Memory(crate::memory::Memory),
    /// In a store that several nodes share, bare: errors reach the caller.
    Shared(crate::shared::Shared),
    /// In a store that several nodes share; while it cannot answer, each policy's own mode does.
    Guarded(crate::guard::Guard),
    /// The same, with units taken in advance for hot keys.
    Leased(crate::lease::Leases),
}

/// What a network store has to remember while it waits is in a box, so that a decision in memory does
/// not carry room for it, which was copied several times a request (decision 0006).
impl Counters {
    /// The guard before a store that nodes share; none for one in this process.
    #[must_use]
    pub fn guard(&self) -> Option<&crate::guard::Guard> {
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
    pub fn memory(&self) -> Option<&crate::memory::Memory> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Shared(_) | Self::Guarded(_) | Self::Leased(_) => None,
        }
    }

    /// The leases, if units are taken ahead: for their figures and bounds.
    #[must_use]
    pub fn leases(&self) -> Option<&crate::lease::Leases> {
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
