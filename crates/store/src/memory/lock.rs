//! The lock that guards a shard: the standard one, or under `cargo test --lib` that of `shuttle`,
//! whose scheduler then tries many interleavings (see `model.rs`).
//!
//! Unit tests of this crate that touch a [`Mutex`] must therefore run inside `shuttle`; the tests
//! in `tests/` are linked against the library as it ships.

#[cfg(test)]
pub(super) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(super) use std::sync::{Mutex, MutexGuard};

use std::sync::PoisonError;

/// Locks, also after a holder panicked.
///
/// A shard's structure is never left half-changed by the arithmetic that could panic, and to refuse
/// all further requests for one key's fault would be an outage instead of one wrong count.
pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads where the lock lies, so that its cache line is near when the lock is taken: reads of many locks
/// overlap, and taking them does not. The value says nothing.
#[cfg(not(test))]
pub(super) fn approach<T>(mutex: &Mutex<T>) -> bool {
    mutex.is_poisoned()
}

/// `shuttle`'s lock has no memory of its own to read.
#[cfg(test)]
pub(super) fn approach<T>(_: &Mutex<T>) -> bool {
    false
}
