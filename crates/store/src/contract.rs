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
