//! Who may read and change the configuration: whoever has the admin token, if there is one.
//!
//! Tokens are compared by their SHA-256 digests in constant time, so neither the length
//! nor a matching prefix shows in the time it takes. The token itself is not kept.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Shared;
use super::reply::Refusal;

/// The admin token, as its digest.
#[derive(Clone)]
pub struct AdminToken {
    digest: [u8; 32],
}

impl AdminToken {
    /// Keeps the digest of `token`.
    #[must_use]
    pub fn new(token: &str) -> Self {
        Self { digest: Sha256::digest(token).into() }
    }

    fn admits(&self, token: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.digest.ct_eq(&digest).into()
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AdminToken(redacted)")
    }
}

impl Shared {
    /// Lets an administrator through; the name for the audit log.
    pub(super) fn admin(&self, headers: &HeaderMap) -> Result<&'static str, Refusal> {
        let Some(token) = &self.settings.admin_token else { return Ok("local") };
        let given = headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
        match given.split_at_checked(b"Bearer ".len()) {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"bearer ") && token.admits(given) => {
                Ok("admin")
            }
            _ => Err(Refusal::NotAdmin),
        }
    }
}
