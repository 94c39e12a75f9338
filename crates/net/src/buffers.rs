//! Bytes that are held for peers - bodies that are being read, replies that are being sent - and how many
//! there may be: for a connection, and for the process (fault 60).
//!
//! ```text
//!   Charge ── so many bytes ──> Account: of one connection, at most its own limit
//!                                  └── beyond FREE_BYTES, in steps ──> Buffers: the process's limit
//! ```
//!
//! The first [`FREE_BYTES`] of a connection are not the process's matter, so that a few greedy peers cannot
//! keep the others from being answered, and so that cores do not write one counter at every request.
//! What does not fit is refused at once: to wait would be to hold more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

/// Bytes that each connection may hold, whatever the others do.
pub const FREE_BYTES: usize = 64 << 10;
/// Bytes that a connection takes from the process's limit at a time.
const STEP_BYTES: usize = 64 << 10;

/// The process's limit; clones share it.
#[derive(Clone, Debug)]
pub struct Buffers {
    process: Arc<ProcessBuffers>,
}

#[derive(Debug)]
struct ProcessBuffers {
    limit: usize,
    taken: AtomicUsize,
    refused: AtomicU64,
}

impl Buffers {
    /// Allows `limit` bytes beyond what each connection has free.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let process = ProcessBuffers { limit, taken: AtomicUsize::new(0), refused: AtomicU64::new(0) };
        Self { process: Arc::new(process) }
    }

    /// The most that connections may take together, in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.process.limit
    }

    /// Bytes that connections have taken now.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.process.taken.load(Relaxed)
    }

    /// Times that a connection was refused bytes, for its own limit or the process's.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.process.refused.load(Relaxed)
    }

    /// The account of a connection that may hold `limit` bytes.
    #[must_use]
    pub fn account(&self, limit: usize) -> Arc<Account> {
        Arc::new(Account { buffers: self.clone(), limit, state: Mutex::default() })
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.process.limit);
        self.process.taken.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.process.taken.fetch_sub(bytes, Relaxed);
    }
}

/// What one connection holds.
#[derive(Debug)]
pub struct Account {
    buffers: Buffers,
    limit: usize,
    state: Mutex<AccountState>,
}

#[derive(Debug, Default)]
struct AccountState {
    /// Bytes held.
    held: usize,
    /// Bytes taken from the process's limit.
    taken: usize,
}

impl Account {
    /// Holds `bytes`, if there is room.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let mut charge = Charge { account: Arc::clone(self), bytes: 0 };
        charge.grow(bytes).then_some(charge)
    }

    fn hold(&self, bytes: usize) -> bool {
        let mut state = self.state();
        let held = state.held.saturating_add(bytes);
        let missing = held.saturating_sub(FREE_BYTES + state.taken).next_multiple_of(STEP_BYTES);
        if held > self.limit || (missing > 0 && !self.buffers.take(missing)) {
            self.buffers.process.refused.fetch_add(1, Relaxed);
            return false;
        }
        state.held = held;
        state.taken += missing;
        true
    }

    fn release(&self, bytes: usize) {
        let mut state = self.state();
        state.held -= bytes;
        // One step is kept, so that a connection at its edge does not go to and fro.
        let needed = state.held.saturating_sub(FREE_BYTES).next_multiple_of(STEP_BYTES);
        let kept = if state.held <= FREE_BYTES / 2 { 0 } else { needed + STEP_BYTES };
        if state.taken > kept {
            self.buffers.give_back(state.taken - kept);
            state.taken = kept;
        }
    }

    /// Nothing panics while it is held.
    fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let taken = self.state().taken;
        self.buffers.give_back(taken);
    }
}

/// Bytes that are held on an account, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: usize,
}

impl Charge {
    /// Holds `more` bytes; false, and nothing has changed, if there is no room for them.
    pub fn grow(&mut self, more: usize) -> bool {
        let grown = self.account.hold(more);
        if grown {
            self.bytes += more;
        }
        grown
    }

    /// Holds `bytes` from now on, instead of as many as before; false, and nothing has changed, if there is no
    /// room for them.
    pub fn resize(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            return self.grow(bytes - self.bytes);
        }
        if bytes < self.bytes {
            self.account.release(self.bytes - bytes);
            self.bytes = bytes;
        }
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_connection_has_its_limit_and_the_process_its_own() {
        let buffers = Buffers::new(3 * STEP_BYTES);
        let (one, other) = (buffers.account(4 * STEP_BYTES), buffers.account(4 * STEP_BYTES));
        let first = one.charge(FREE_BYTES).unwrap();
        assert_eq!(buffers.taken(), 0, "what is free for everyone is not taken");
        let second = one.charge(3 * STEP_BYTES).unwrap();
        assert!(one.charge(1).is_none(), "its own limit");
        assert!(other.charge(FREE_BYTES + 1).is_none(), "the process's limit");
        let free = other.charge(FREE_BYTES).expect("what is free for everyone is there for everyone");
        assert_eq!((buffers.taken(), buffers.refused()), (3 * STEP_BYTES, 2));
        drop(second);
        assert!(other.charge(1).is_some());
        drop((first, free));
        drop((one, other));
        assert_eq!(buffers.taken(), 0);
    }

    proptest! {
        #[test]
        fn what_is_held_is_within_the_limits_and_all_of_it_comes_back(
            steps in prop::collection::vec((0_usize..3, 0_u8..3, 0_usize..300_000), 1..60),
        ) {
            let buffers = Buffers::new(8 * STEP_BYTES);
            let accounts: Vec<_> = (0..3).map(|_| buffers.account(6 * STEP_BYTES)).collect();
            let mut charges: Vec<Vec<Charge>> = vec![Vec::new(), Vec::new(), Vec::new()];
            for (who, what, bytes) in steps {
                match (what, charges[who].last_mut()) {
                    (0, _) | (_, None) => charges[who].extend(accounts[who].charge(bytes)),
                    (1, Some(charge)) => {
                        let (before, resized) = (charge.bytes, charge.resize(bytes));
                        prop_assert_eq!(charge.bytes, if resized { bytes } else { before });
                    }
                    _ => drop(charges[who].pop()),
                }
                let held = |who: usize| charges[who].iter().map(|charge| charge.bytes).sum::<usize>();
                prop_assert!(held(who) <= 6 * STEP_BYTES);
                let beyond: usize = (0..3).map(|who| held(who).saturating_sub(FREE_BYTES)).sum();
                prop_assert!(beyond <= buffers.taken() && buffers.taken() <= buffers.limit());
            }
            drop((charges, accounts));
            prop_assert_eq!(buffers.taken(), 0);
        }
    }
}
