//! Errors of requests, named by what the caller can do about them.

use thiserror::Error;
use tidegate_algorithms::policy::MAX_UNITS;
use tidegate_store::StoreError;

/// Most bytes that a permit carries, before they are written as text: so its text fits into a request's target.
pub const MAX_PERMIT_BYTES: usize = 4_096;

/// Why there is no decision. Nothing was charged, except where the store's error says otherwise.
#[derive(Debug, Error)]
pub enum AskError {
    /// Send shorter values: a permit carries those that its policies are keyed on.
    #[error("the permit would carry {0} bytes of attributes and policy names, of at most {MAX_PERMIT_BYTES}")]
    PermitTooLong(usize),
    /// Ask for fewer units.
    #[error("cost is {0}, of at most {MAX_UNITS}")]
    CostTooLarge(u64),
    /// Try again later.
    #[error(transparent)]
    Store(#[from] StoreError),
}
