//! Authentication by JWT: a token is verified once a minute, with keys that are there already.
//!
//! ```text
//!   digest of token, keys and rules ── known ── whose it is
//!                                  `── not known ── verified (tidegate_access::jwt) ── known for a minute at most
//!                                                   `── an unknown kid: once more when the keys were fetched (keys.rs)
//! ```
//!
//! A token's own end, and other keys or another route, end what is known of it at once. A key that its issuer withdraws is
//! good until the keys are fetched again.

mod keys;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderValue;
use sha2::{Digest, Sha256};
use tidegate_access::jwt::{Claims, JwtDenial, JwtKeys};
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_net::clock::wall;

use crate::authentication::identity::{Attested, Identity};
use crate::authentication::known::KnownIdentities;
use crate::authentication::places::StatedText;
use crate::config::{JwtAuth, JwtKeysFrom};
use crate::random::random;
use crate::response::refusal::Refusal;

pub use keys::JwtKeysStatus;
pub(crate) use keys::{IssuerKeys, follow};

/// How long a token that was verified is not verified again.
const KNOWN_FOR: u64 = 60 * SECOND;

/// Verifies the tokens of a route.
#[derive(Debug)]
pub(crate) struct JwtVerifier {
    /// Tells what it has found out from what others have.
    id: u64,
    /// Keys that are fetched; those of a file stand in the configuration.
    pub(crate) issuer: Option<Arc<IssuerKeys>>,
}

/// What became of requests that needed a JWT.
#[derive(Debug, Default)]
pub(crate) struct JwtCounts {
    accepted: AtomicU64,
    missing: AtomicU64,
    refused: AtomicU64,
    no_keys: AtomicU64,
    verified: AtomicU64,
}

/// What became of requests that needed a JWT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JwtStats {
    /// Their token was good.
    pub accepted: u64,
    /// They had none.
    pub missing: u64,
    /// It was not good.
    pub refused: u64,
    /// The issuer's keys were not there yet.
    pub no_keys: u64,
    /// Tokens that were verified: the others were known, or missing.
    pub verified: u64,
}

impl JwtCounts {
    pub(crate) fn read(&self) -> JwtStats {
        JwtStats {
            accepted: self.accepted.load(Relaxed),
            missing: self.missing.load(Relaxed),
            refused: self.refused.load(Relaxed),
            no_keys: self.no_keys.load(Relaxed),
            verified: self.verified.load(Relaxed),
        }
    }

    fn count(&self, found: &Result<Identity, Refusal>) {
        let count = match found {
            Ok(_) => &self.accepted,
            Err(Refusal::Jwt(JwtDenial::Missing)) => &self.missing,
            Err(Refusal::NoJwtKeys) => &self.no_keys,
            Err(_) => &self.refused,
        };
        count.fetch_add(1, Relaxed);
    }
}

impl JwtVerifier {
    /// One that knows what `before` has found out, if there was one by the same rules.
    pub(crate) fn new(issuer: Option<Arc<IssuerKeys>>, before: Option<&Self>) -> Self {
        let [fresh, ..] = random();
        Self { id: before.map_or(fresh, |before| before.id), issuer }
    }

    /// The identity in the request's token. The token is verified with the keys in force or, if it names another key,
    /// with the keys that its issuer has now.
    pub(crate) async fn verify(
        &self,
        auth: &JwtAuth,
        stated: StatedText,
        known: &KnownIdentities,
        counts: &JwtCounts,
        now: Tick,
    ) -> Result<Identity, Refusal> {
        let found = match token(stated) {
            Ok(token) => match (self.find(auth, &token, known, counts, now), &self.issuer) {
                // In a box, since it is rare.
                (Err(Refusal::Jwt(JwtDenial::UnknownKey)), Some(issuer))
                    if Box::pin(issuer.refreshed()).await =>
                {
                    self.find(auth, &token, known, counts, now)
                }
                (found, _) => found,
            },
            Err(refusal) => Err(refusal),
        };
        counts.count(&found);
        found
    }

    /// The same for a question about a request: by the keys that are in force, and counted nowhere.
    pub(crate) fn look(
        &self,
        auth: &JwtAuth,
        stated: StatedText,
        known: &KnownIdentities,
        now: Tick,
    ) -> Result<Identity, Refusal> {
        self.find(auth, &token(stated)?, known, &JwtCounts::default(), now)
    }

    fn find(
        &self,
        auth: &JwtAuth,
        token: &[u8],
        known: &KnownIdentities,
        counts: &JwtCounts,
        now: Tick,
    ) -> Result<Identity, Refusal> {
        let keys = match &auth.keys {
            JwtKeysFrom::File(keys) => Some(Arc::clone(keys)),
            JwtKeysFrom::Url(_) => self.issuer.as_ref().and_then(|issuer| issuer.in_force()),
        };
        let keys = keys.ok_or(Refusal::NoJwtKeys)?;
        let digest = self.digest(&keys, token);
        if let Some(identity) = known.get(&digest, now) {
            return Ok(identity);
        }
        counts.verified.fetch_add(1, Relaxed);
        let civil = wall();
        let claims = auth.rules.verify(token, &keys, civil).map_err(Refusal::Jwt)?;
        let identity = Identity::Attested(Arc::new(attested(auth, &claims).map_err(Refusal::Jwt)?));
        // What is left of the token's own time, the leeway included.
        let ends = claims.expires() + auth.rules.leeway_seconds as f64 - (civil.0 / SECOND) as f64;
        let lasts = ((ends.max(0.0) * SECOND as f64) as u64).min(KNOWN_FOR);
        known.put(digest, identity.clone(), now.plus(lasts), now);
        Ok(identity)
    }

    /// What a token is known by: under other keys or rules it is another one.
    fn digest(&self, keys: &JwtKeys, token: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.id.to_le_bytes());
        digest.update(keys.digest());
        digest.update(token);
        digest.finalize().into()
    }
}

fn token(stated: StatedText) -> Result<Vec<u8>, Refusal> {
    stated?.ok_or(Refusal::Jwt(JwtDenial::Missing))
}

/// What a token says, in the words of its route.
fn attested(auth: &JwtAuth, claims: &Claims) -> Result<Attested, JwtDenial> {
    let mut said = Attested { subject: claims.text("sub")?, ..Attested::default() };
    for (name, claim) in &auth.attributes {
        said.attributes.push((Arc::clone(name), claims.text(claim)?));
    }
    for (name, claim) in &auth.fields {
        if let Some(text) = claims.text(claim)? {
            let value = HeaderValue::from_bytes(text.as_bytes());
            let value = value.map_err(|_| JwtDenial::Claim(claim.clone()))?;
            said.fields.push((name.clone(), value));
        }
    }
    Ok(said)
}
