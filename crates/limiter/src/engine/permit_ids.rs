//! Names for permits.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tidegate_algorithms::limit::PermitId;

use crate::tally::thread_number;

/// Names for permits that nobody can guess: a counter under a keyed hash (SipHash, random key). Each
/// thread counts by itself, so that cores do not wait for each other at every decision.
#[derive(Debug, Default)]
pub(super) struct PermitIds {
    key: RandomState,
}

impl PermitIds {
    pub(super) fn next(&self) -> PermitId {
        thread_local! {
            static COUNT: Cell<u64> = const { Cell::new(0) };
        }
        let count = COUNT.get();
        COUNT.set(count + 1);
        PermitId(self.key.hash_one((thread_number(), count)))
    }
}
