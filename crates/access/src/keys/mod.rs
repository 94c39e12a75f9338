//! API keys: the consumer that a request is from, and its tier of limits.
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
//! text has 256 random bits, so that its digest gives nothing away even where that setting is empty.
//!
//! A rotated key has two secrets for a while ([`MAX_SECRETS`]). A revoked one is deleted: the audit log remembers it.
//! A key may name the routes that it opens, and the scopes that its requests have. Both are asked once it has proved itself, by who
//! knows the route.
//!
//! Times are civil time. The times at which keys were last used are written now and then, which no request waits for, and read
//! from the other nodes ([`ApiKeys::unkept_uses`], [`ApiKeys::learn`]). Where this node's keys may be too old to be believed,
//! all of them can be refused ([`ApiKeys::refuse_all`]).
//!
//! Bounds: the documents that the control store takes.
//!
//! Deliberately absent: where a request has its key, and HTTP.

mod document;
mod set;
mod text;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;
use tidegate_algorithms::time::{SECOND, Wall};
use tidegate_control::{Kind, Revision, Use};

pub use document::{
    KeyDocument, MAX_CONSUMER_BYTES, MAX_KEY_SCOPE_BYTES, MAX_LIFETIME_SECONDS, MAX_SECRETS, Secret,
    is_key_scope, read_consumer, read_routes, read_scopes, read_tier, shown_time,
};
pub use set::{KeyDocuments, KeySet};
pub use text::{CHANCE_BYTES, KeyText};

/// Documents that are API keys; their names are the keys' ids.
pub const KEY: Kind = Kind::new("key");

/// Not known to have been used.
const NEVER: u64 = 0;

/// The keys in force, with their counters.
pub struct ApiKeys {
    hasher: Hmac<Sha256>,
    in_force: ArcSwap<KeySet>,
    counts: [AtomicU64; 7],
    /// Whether every key is refused.
    are_stale: AtomicBool,
}

/// A key in force.
#[derive(Debug)]
pub struct ApiKey {
    id: Arc<str>,
    document: KeyDocument,
    revision: Revision,
    /// Shared by all versions of the key.
    last_used: Arc<LastUsed>,
}

/// When a key was last used, in whole seconds of civil time.
#[derive(Debug)]
struct LastUsed {
    /// At this node, since its start.
    here: AtomicU64,
    /// At any node, by the times that nodes have written.
    known: AtomicU64,
}

impl Default for LastUsed {
    fn default() -> Self {
        Self { here: AtomicU64::new(NEVER), known: AtomicU64::new(NEVER) }
    }
}

/// Why a text is no key, or the key does not open what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyDenial {
    /// There is none.
    #[error("an API key is needed")]
    Missing,
    /// There is no such key, or it was revoked, or the time of its old secret is over.
    #[error("the API key is not known")]
    Unknown,
    /// Its lifetime is over.
    #[error("the API key has expired")]
    Expired,
    /// This node has not heard of the others' changes for too long: the key may have been revoked.
    #[error("API keys cannot be checked now: this gateway has not heard of changes to them for too long")]
    Stale,
    /// It is good, and names other routes only.
    #[error("the API key is not for this route")]
    Route,
    /// It is good, and lacks the scope that is asked for.
    #[error("the API key does not have the scope that this route asks for")]
    Scope,
}

/// Counts of requests that needed a key, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStats {
    /// Their key was good, and opened what they asked for.
    pub accepted: u64,
    /// They had none.
    pub missing: u64,
    /// It was not known.
    pub unknown: u64,
    /// It had expired.
    pub expired: u64,
    /// It was not looked at, since this node's keys were too old.
    pub stale: u64,
    /// It was good, and named other routes only.
    pub route: u64,
    /// It was good, and lacked the scope.
    pub scope: u64,
    /// Keys in force.
    pub keys: usize,
}

impl ApiKeys {
    /// No keys yet. Digests of keys are made under `secret`.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        let hasher = Hmac::new_from_slice(secret.as_bytes());
        // Invariant: HMAC takes a key of any length.
        let hasher = hasher.expect("a key of any length");
        Self {
            hasher,
            in_force: ArcSwap::default(),
            counts: Default::default(),
            are_stale: AtomicBool::new(false),
        }
    }

    /// The digest of a key's text, which is stored in its place.
    #[must_use]
    pub fn digest(&self, text: &[u8]) -> [u8; 32] {
        let mut hasher = self.hasher.clone();
        hasher.update(text);
        hasher.finalize().into_bytes().into()
    }

    /// The key of this text, if it is good at `now`. The comparison with a known key's digests takes the same time
    /// whatever differs.
    ///
    /// # Errors
    /// Why it is not.
    pub fn look(&self, text: Option<&[u8]>, now: Wall) -> Result<Arc<ApiKey>, KeyDenial> {
        let text = text.ok_or(KeyDenial::Missing)?;
        if self.are_stale.load(Relaxed) {
            return Err(KeyDenial::Stale);
        }
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

    /// As [`ApiKeys::look`], for a request with this key to the named route, which asks for this scope, if for any: counts it, and notes
    /// it as the key's last use, whether it opens the route or not.
    ///
    /// # Errors
    /// As [`ApiKeys::look`] and [`ApiKey::opens`].
    pub fn admit(
        &self,
        text: Option<&[u8]>,
        route: &str,
        scope: Option<&str>,
        now: Wall,
    ) -> Result<Arc<ApiKey>, KeyDenial> {
        let found = self.look(text, now);
        if let Ok(key) = &found {
            // Written once a second, since all cores share it.
            let (second, here) = (now.0 / SECOND, &key.last_used.here);
            if here.load(Relaxed) != second {
                here.store(second, Relaxed);
            }
        }
        let found = found.and_then(|key| key.opens(route, scope).map(|()| key));
        let outcome = match &found {
            Ok(_) => 0,
            Err(KeyDenial::Missing) => 1,
            Err(KeyDenial::Unknown) => 2,
            Err(KeyDenial::Expired) => 3,
            Err(KeyDenial::Stale) => 4,
            Err(KeyDenial::Route) => 5,
            Err(KeyDenial::Scope) => 6,
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
        let [accepted, missing, unknown, expired, stale, route, scope] =
            self.counts.each_ref().map(|count| count.load(Relaxed));
        let keys = self.in_force.load().len();
        KeyStats { accepted, missing, unknown, expired, stale, route, scope, keys }
    }

    /// Refuses every key from now on, or ends that: this node may not hear of keys that others revoke.
    pub fn refuse_all(&self, are_stale: bool) {
        self.are_stale.store(are_stale, Relaxed);
    }

    /// The keys whose last use at this node is at least `least` seconds later than the last use that is stored, with the
    /// time.
    #[must_use]
    pub fn unkept_uses(&self, least: u64) -> Vec<Use> {
        let set = self.in_force.load();
        let used = set.after("").map(|key| {
            let LastUsed { here, known } = &*key.last_used;
            (key, here.load(Relaxed), known.load(Relaxed))
        });
        used.filter(|(_, here, known)| here > known && *here >= known.saturating_add(least))
            .map(|(key, here, _)| (key.id.to_string(), here))
            .collect()
    }

    /// Takes note of when keys were used at any node, as it is kept.
    pub fn learn(&self, uses: &[Use]) {
        let set = self.in_force.load();
        for (id, at) in uses {
            if let Some(key) = set.get(id) {
                key.last_used.known.fetch_max(*at, Relaxed);
            }
        }
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
    /// Its id: not secret, and the same under every secret that it has had.
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

    /// Whether it opens this route, which asks for this scope, if for any: it names the route, or none.
    ///
    /// # Errors
    /// [`KeyDenial::Route`] or [`KeyDenial::Scope`].
    pub fn opens(&self, route: &str, scope: Option<&str>) -> Result<(), KeyDenial> {
        let KeyDocument { routes, scopes, .. } = &self.document;
        if routes.as_ref().is_some_and(|routes| routes.iter().all(|name| **name != *route)) {
            return Err(KeyDenial::Route);
        }
        if scope.is_some_and(|scope| scopes.iter().all(|name| **name != *scope)) {
            return Err(KeyDenial::Scope);
        }
        Ok(())
    }

    /// Its stored document.
    #[must_use]
    pub fn document(&self) -> &KeyDocument {
        &self.document
    }

    /// The revision that wrote the document.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// When a node was last asked with it: this one, or another, as far as that is known here.
    #[must_use]
    pub fn last_used(&self) -> Option<Wall> {
        let second = self.last_used.here.load(Relaxed).max(self.last_used.known.load(Relaxed));
        (second != NEVER).then(|| Wall(second * SECOND))
    }
}

#[cfg(test)]
mod tests;
