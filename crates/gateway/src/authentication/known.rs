//! The identities that were verified lately, each until it ends: a bounded table, by the digest of the credential.
//!
//! A digest belongs to one of [`SETS`] sets, and a set has room for [`WAYS`]. One more replaces the one that
//! ends first, and a counter counts it: the replaced credential is verified again when it comes next, and is not refused for that.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use tidegate_algorithms::time::Tick;

use crate::authentication::identity::Identity;

const SETS: usize = 4_096;
const WAYS: usize = 4;

/// Most identities that are remembered.
pub const MAX_KNOWN: usize = SETS * WAYS;

/// Identities by digests of what proved them.
#[derive(Default)]
pub(crate) struct KnownIdentities {
    /// Made at the first use: a gateway without routes that need it has no table.
    sets: OnceLock<Box<[IdentitySet]>>,
    evicted: AtomicU64,
}

type IdentitySet = Mutex<[Option<KnownIdentity>; WAYS]>;

struct KnownIdentity {
    digest: [u8; 32],
    until: Tick,
    identity: Identity,
}

impl KnownIdentities {
    /// The identity of a credential, if it still holds.
    pub(crate) fn get(&self, digest: &[u8; 32], now: Tick) -> Option<Identity> {
        let set = self.set(digest)?.lock();
        let found = set.iter().flatten().find(|entry| entry.digest == *digest && now < entry.until);
        found.map(|entry| entry.identity.clone())
    }

    /// Remembers an identity until then.
    pub(crate) fn put(&self, digest: [u8; 32], identity: Identity, until: Tick, now: Tick) {
        self.sets.get_or_init(|| (0..SETS).map(|_| IdentitySet::default()).collect());
        let Some(set) = self.set(&digest) else { return };
        let mut set = set.lock();
        let same = set.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.digest == digest));
        // An empty place, or else the one that ends first.
        let first_to_end = (0..WAYS).min_by_key(|way| set[*way].as_ref().map(|entry| entry.until));
        let Some(way) = same.or(first_to_end) else { return };
        if same.is_none() && set[way].as_ref().is_some_and(|entry| now < entry.until) {
            self.evicted.fetch_add(1, Relaxed);
        }
        set[way] = Some(KnownIdentity { digest, until, identity });
    }

    /// How many had to go before their time.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    fn set(&self, digest: &[u8; 32]) -> Option<&IdentitySet> {
        let [first, second, ..] = *digest;
        let place = usize::from(u16::from_le_bytes([first, second])) % SETS;
        self.sets.get().map(|sets| &sets[place])
    }
}

impl fmt::Debug for KnownIdentities {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("KnownIdentities").field("evicted", &self.evicted()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::authentication::identity::Attested;

    fn named(name: &str) -> Identity {
        Identity::Attested(Arc::new(Attested { subject: Some(name.into()), ..Attested::default() }))
    }

    fn digest(number: u8) -> [u8; 32] {
        let mut digest = [7; 32];
        digest[31] = number;
        digest
    }

    #[test]
    fn an_identity_is_known_until_its_end_and_a_full_set_forgets_the_first_to_end() {
        let (known, name) =
            (KnownIdentities::default(), |it: Option<Identity>| it?.client().map(str::to_owned));
        assert!(known.get(&digest(0), Tick(0)).is_none());
        for number in 0..4 {
            known.put(digest(number), named(&number.to_string()), Tick(100 + u64::from(number)), Tick(0));
        }
        assert_eq!(name(known.get(&digest(0), Tick(99))).as_deref(), Some("0"));
        assert!(known.get(&digest(0), Tick(100)).is_none());
        known.put(digest(1), named("again"), Tick(90), Tick(0));
        assert_eq!((name(known.get(&digest(1), Tick(0))).as_deref(), known.evicted()), (Some("again"), 0));
        known.put(digest(9), named("nine"), Tick(200), Tick(0));
        assert!(known.get(&digest(1), Tick(0)).is_none(), "it would have ended first");
        assert_eq!((name(known.get(&digest(9), Tick(0))).as_deref(), known.evicted()), (Some("nine"), 1));
        known.put(digest(8), named("eight"), Tick(300), Tick(101));
        assert!(known.get(&digest(0), Tick(0)).is_none() && known.evicted() == 1, "it had ended");
    }
}
