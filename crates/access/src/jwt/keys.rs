//! A set of keys (RFC 7517), each with the one algorithm that it is for.
//!
//! | kty, crv | algorithm |
//! |---|---|
//! | RSA, of 2,048 bits or more | RS256 |
//! | EC, P-256 | ES256 |
//! | OKP, Ed25519 | EdDSA |
//! | oct, of 32 bytes or more, from a file of the operator's | HS256 |
//!
//! A key that is for something else is passed over, as a set may have keys for others. A published secret is not secret, so
//! secrets are read from files only.

use std::collections::HashMap;
use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::JwtDenial;

/// Most keys of a set. Issuers with many tenants publish some hundreds.
pub const MAX_KEYS: usize = 1_000;

/// Most keys that a token is tried with.
const MAX_TRIED: usize = 4;

/// A shorter secret can be guessed (RFC 7518, 3.2).
const MIN_SECRET_BYTES: usize = 32;

/// A shorter modulus can be factored.
const MIN_MODULUS_BYTES: usize = 256;

/// Keys that sign tokens.
#[derive(Clone)]
pub struct JwtKeys {
    digest: [u8; 32],
    /// By their kid, which several may have.
    named: HashMap<Box<str>, Vec<JwtKey>>,
    unnamed: Vec<JwtKey>,
}

#[derive(Clone)]
pub(super) struct JwtKey {
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Sets are the same if they are of the same text.
impl PartialEq for JwtKeys {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for JwtKeys {}

/// Why a text is no set of keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JwtKeysError {
    /// It is no JWKS.
    #[error("it is no JSON object with a list of keys")]
    NoSet,
    /// It has too many keys.
    #[error("it has {0} keys")]
    TooMany(usize),
    /// It has no key that can be used.
    #[error("it has no key for RS256 (2,048 bits), ES256, EdDSA or, in a file, HS256 (32 bytes)")]
    NoKey,
}

impl JwtKeys {
    /// The keys of a JWKS. `is_private`: the set comes from a file that others cannot read, so it may have secrets.
    ///
    /// # Errors
    /// If the set has no key that can be used.
    pub fn read(text: &[u8], is_private: bool) -> Result<Self, JwtKeysError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(text).map_err(|_| JwtKeysError::NoSet)?;
        if set.keys.len() > MAX_KEYS {
            return Err(JwtKeysError::TooMany(set.keys.len()));
        }
        let mut keys =
            Self { digest: Sha256::digest(text).into(), named: HashMap::new(), unnamed: Vec::new() };
        for value in set.keys {
            let Ok(jwk) = Jwk::deserialize(value) else { continue };
            let Some(key) = usable(&jwk, is_private) else { continue };
            match jwk.common.key_id {
                None => keys.unnamed.push(key),
                Some(id) => keys.named.entry(id.into()).or_default().push(key),
            }
        }
        if keys.is_empty() { Err(JwtKeysError::NoKey) } else { Ok(keys) }
    }

    /// What tells these keys from others.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.named.values().map(Vec::len).sum::<usize>() + self.unnamed.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys that may have signed a token, at least one: the first four keys of its name and algorithm or, if the token
    /// names no key, the only key of its algorithm.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Vec<&JwtKey>, JwtDenial> {
        let is_for = |key: &&JwtKey| key.algorithm == algorithm;
        let Some(id) = id else {
            let mut all = self.named.values().flatten().chain(&self.unnamed).filter(is_for);
            let only = all.next().filter(|_| all.next().is_none());
            return only.map(|only| vec![only]).ok_or(JwtDenial::UnknownKey);
        };
        let of_this_name = self.named.get(id).ok_or(JwtDenial::UnknownKey)?;
        let found: Vec<&JwtKey> = of_this_name.iter().filter(is_for).take(MAX_TRIED).collect();
        if found.is_empty() { Err(JwtDenial::Malformed) } else { Ok(found) }
    }
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("JwtKeys").field("count", &self.len()).finish_non_exhaustive()
    }
}

fn usable(jwk: &Jwk, is_private: bool) -> Option<JwtKey> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Algorithm::EdDSA,
        AlgorithmParameters::OctetKey(_) if is_private => Algorithm::HS256,
        _ => return None,
    };
    let is_for_signatures =
        jwk.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    let is_of_it = jwk.common.key_algorithm.is_none_or(|stated| stated == KeyAlgorithm::from(algorithm));
    let key = DecodingKey::from_jwk(jwk).ok().filter(|_| is_for_signatures && is_of_it)?;
    let is_long = match (algorithm, key.kind()) {
        (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) => secret.len() >= MIN_SECRET_BYTES,
        (_, DecodingKeyKind::RsaModulusExponent { n, .. }) => n.len() >= MIN_MODULUS_BYTES,
        _ => true,
    };
    is_long.then_some(JwtKey { algorithm, key })
}
