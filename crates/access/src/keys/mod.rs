//! API keys: whose request it is, and which tier of limits is theirs.
//!
//! ```text
//!   admin API ── issue, rotate ──> text of the key, shown once       documents of kind `key`: its digests
//!                                                                          |  (every node, within a second)
//!   request ── text ──> id ──> ApiKeys, the keys in force <────────────────'
//!                              `── digest compared in constant time ── whose it is, or why not
//! ```
//!
//! A key is `tgk_ID_SECRET`: the id finds it, so that a look-up is one step however many there are, and the secret
//! proves it. What is kept is HMAC-SHA256 of the whole text, under the secret of the setting `gateway.key_secret`. The
//! text has 256 bits of chance; so its digest gives nothing away where that setting is empty, either.
//!
//! A rotated key has two secrets for a while ([`MAX_SECRETS`]). A revoked one is deleted: the audit log remembers it.
//! Times are civil time. When a key was last used is known to each node since its start, and is written nowhere.
//!
//! Bounds: the documents that the control store takes.
//!
//! Deliberately absent: where a request has its key, and HTTP.

mod document;
mod set;
mod text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;
use tidegate_algorithms::time::{SECOND, Wall};
use tidegate_control::{Kind, Revision};

pub use document::{
    KeyDocument, MAX_CONSUMER_BYTES, MAX_LIFETIME_SECONDS, MAX_SECRETS, Secret, read_consumer, read_tier,
    shown_time,
};
pub use set::{KeyDocuments, KeySet};
pub use text::{CHANCE_BYTES, KeyText};

/// Documents that are API keys; their names are the keys' ids.
pub const KEY: Kind = Kind::new("key");

/// Never used since this node's start.
const NEVER: u64 = 0;

/// The keys in force, and how they fare.
pub struct ApiKeys {
    hasher: Hmac<Sha256>,
    in_force: ArcSwap<KeySet>,
    counts: [AtomicU64; 4],
}

/// A key in force.
#[derive(Debug)]
pub struct ApiKey {
    id: Arc<str>,
    document: KeyDocument,
    revision: Revision,
    /// Whole seconds of civil time; shared by all versions of the key.
    last_used: Arc<AtomicU64>,
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyDenial {
    /// There is none.
    #[error("an API key is needed")]
    Missing,
    /// There is no such key, or it was revoked, or the time of its old secret is over.
    #[error("the API key is not known")]
    Unknown,
    /// Its own time is over.
    #[error("the API key has expired")]
    Expired,
}

/// What became of requests that needed a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStats {
    /// Their key was good.
    pub accepted: u64,
    /// They had none.
    pub missing: u64,
    /// It was not known.
    pub unknown: u64,
    /// It had expired.
    pub expired: u64,
    /// Keys in force.
    pub keys: usize,
}

impl ApiKeys {
    /// No keys yet, of which the digests are made under `secret`.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        let hasher = Hmac::new_from_slice(secret.as_bytes());
        // Invariant: HMAC takes a key of any length.
        let hasher = hasher.expect("a key of any length");
        Self { hasher, in_force: ArcSwap::default(), counts: Default::default() }
    }

    /// What is kept of a key's text.
    #[must_use]
    pub fn digest(&self, text: &[u8]) -> [u8; 32] {
        let mut hasher = self.hasher.clone();
        hasher.update(text);
        hasher.finalize().into_bytes().into()
    }

    /// The key of this text, if it is good at `now`. What is compared with a known key's digests takes the same time
    /// whatever differs.
    ///
    /// # Errors
    /// Why it is not.
    pub fn look(&self, text: Option<&[u8]>, now: Wall) -> Result<Arc<ApiKey>, KeyDenial> {
        let text = text.ok_or(KeyDenial::Missing)?;
        let id = KeyText::id(text).ok_or(KeyDenial::Unknown)?;
        let set = self.in_force.load();
        let key = set.get(id).ok_or(KeyDenial::Unknown)?;
        let given = self.digest(text);
        let secrets = key.document.secrets.iter();
        let same = secrets.fold(Choice::from(0), |found, secret| {
            let lasts = secret.until.is_none_or(|until| now < until);
            found | (secret.digest.ct_eq(&given) & Choice::from(u8::from(lasts)))
        });
        if !bool::from(same) {
            return Err(KeyDenial::Unknown);
        }
        if key.document.expires.is_some_and(|expires| now >= expires) {
            return Err(KeyDenial::Expired);
        }
        Ok(Arc::clone(key))
    }

    /// As [`ApiKeys::look`], of a request that is made by it: counted, and noted as the key's last use.
    ///
    /// # Errors
    /// As [`ApiKeys::look`].
    pub fn admit(&self, text: Option<&[u8]>, now: Wall) -> Result<Arc<ApiKey>, KeyDenial> {
        let found = self.look(text, now);
        let outcome = match &found {
            Ok(key) => {
                // Written once a second, since all cores share it.
                let second = now.0 / SECOND;
                if key.last_used.load(Relaxed) != second {
                    key.last_used.store(second, Relaxed);
                }
                0
            }
            Err(KeyDenial::Missing) => 1,
            Err(KeyDenial::Unknown) => 2,
            Err(KeyDenial::Expired) => 3,
        };
        self.counts[outcome].fetch_add(1, Relaxed);
        found
    }

    /// The key of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<ApiKey>> {
        self.in_force.load().get(id).cloned()
    }

    /// At most `limit` keys whose ids come after `id`, in the order of their ids.
    #[must_use]
    pub fn after(&self, id: &str, limit: usize) -> Vec<Arc<ApiKey>> {
        self.in_force.load().after(id).take(limit).cloned().collect()
    }

    /// What became of requests.
    #[must_use]
    pub fn stats(&self) -> KeyStats {
        let [accepted, missing, unknown, expired] = [0, 1, 2, 3].map(|at| self.counts[at].load(Relaxed));
        KeyStats { accepted, missing, unknown, expired, keys: self.in_force.load().len() }
    }

    fn put_in_force(&self, set: Arc<KeySet>) {
        self.in_force.store(set);
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ApiKeys").field("keys", &self.in_force.load().len()).finish_non_exhaustive()
    }
}

impl ApiKey {
    /// What it is called: not secret, and the same under every secret that it has had.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who uses it.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.document.consumer
    }

    /// Which tier's numbers hold for it.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        self.document.tier.as_deref()
    }

    /// What is stored of it.
    #[must_use]
    pub fn document(&self) -> &KeyDocument {
        &self.document
    }

    /// The change that wrote that.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// When this node was last asked with it, since its start.
    #[must_use]
    pub fn last_used(&self) -> Option<Wall> {
        let second = self.last_used.load(Relaxed);
        (second != NEVER).then(|| Wall(second * SECOND))
    }
}

#[cfg(test)]
mod tests;
