//! Key identity: 64 bits of SipHash-1-3 under a random key.
//!
//! The table keeps this hash instead of the key, which bounds an entry at 32 bytes and keeps client
//! names out of memory dumps and snapshots. The price is that two keys may share a counter: among
//! `n` keys some pair does with probability `n^2 / 2^65`, 3e-6 at ten million keys, and a given key
//! is one of such a pair with `n / 2^64`, 5e-13. An attacker cannot search for such a pair (fault 11): the hash key
//! is drawn at random when the store is made and leaves the process only in its snapshot.
//!
//! 128 bits would make even that chance vanish; they were rejected because the entry could keep
//! only half of them, so that a snapshot could not be restored into another number of shards.
//!
//! Reference: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.

use std::hash::{BuildHasher, RandomState};

use siphasher::sip::SipHasher13;

/// The secret under which keys are hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey(pub [u8; 16]);

/// Hashes keys.
#[derive(Clone, Copy)]
pub(super) struct Identity(SipHasher13);

impl HashKey {
    /// A key from the operating system's randomness.
    #[must_use]
    pub fn random() -> Self {
        // The standard hasher is a keyed pseudo-random function whose key the OS drew.
        let source = RandomState::new();
        let mut key = [0; 16];
        key[..8].copy_from_slice(&source.hash_one(0_u8).to_le_bytes());
        key[8..].copy_from_slice(&source.hash_one(1_u8).to_le_bytes());
        Self(key)
    }
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl Identity {
    pub(super) fn new(key: HashKey) -> Self {
        Self(SipHasher13::new_with_key(&key.0))
    }

    pub(super) fn key(&self) -> HashKey {
        HashKey(self.0.key())
    }

    /// The identity of `key`, never 0: that marks an empty slot.
    pub(super) fn of(&self, key: &[u8]) -> u64 {
        self.0.hash(key).max(1)
    }
}
