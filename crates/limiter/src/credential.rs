//! A secret that callers must know, kept as its digest.
//!
//! Secrets are compared by their SHA-256 digests in constant time, so neither the length
//! nor a matching prefix shows in the time it takes. The secret itself is not kept.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A secret, as its digest.
#[derive(Clone)]
pub struct Credential {
    digest: [u8; 32],
}

impl Credential {
    /// Keeps the digest of `secret`.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self { digest: Sha256::digest(secret).into() }
    }

    pub(crate) fn admits(&self, secret: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        self.digest.ct_eq(&digest).into()
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Credential(redacted)")
    }
}
