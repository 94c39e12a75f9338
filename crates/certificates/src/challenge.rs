//! The answers to an authority's challenges, which prove that this server has a name.
//!
//! | challenge | asked on | shown |
//! |---|---|---|
//! | `http-01` (RFC 8555, 8.3) | port 80: `GET /.well-known/acme-challenge/TOKEN` | the key authorization |
//! | `tls-alpn-01` (RFC 8737) | port 443: TLS with the application protocol `acme-tls/1` | a certificate with its digest |

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use instant_acme::ChallengeType;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidegate_net::tls::NamedPair;

use crate::error::OrderError;

/// Where an authority asks by HTTP.
const PATH: &str = "/.well-known/acme-challenge/";

/// How an authority is shown that a name is this server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChallengeKind {
    /// By a plain HTTP listener.
    #[serde(rename = "http-01")]
    Http01,
    /// By a TLS listener.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

impl ChallengeKind {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl From<ChallengeKind> for ChallengeType {
    fn from(kind: ChallengeKind) -> Self {
        match kind {
            ChallengeKind::Http01 => Self::Http01,
            ChallengeKind::TlsAlpn01 => Self::TlsAlpn01,
        }
    }
}

/// A challenge of an order that is under way. It is no secret: an authority gets it in the clear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Challenge {
    pub(crate) kind: ChallengeKind,
    pub(crate) token: String,
    pub(crate) key_authorization: String,
}

impl Challenge {
    /// The certificate that is shown for it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn certificate(&self, name: &str) -> Result<NamedPair, OrderError> {
        let digest = Sha256::digest(self.key_authorization.as_bytes());
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(&digest)];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(NamedPair::made_from_pem(&certificate.pem(), &key.serialize_pem())?)
    }
}

/// Answers by HTTP, by token; clones share them.
#[derive(Clone, Debug, Default)]
pub struct HttpChallenges {
    by_token: Arc<ArcSwap<HashMap<String, Arc<str>>>>,
}

impl HttpChallenges {
    /// What a request for this path is answered, if an order of this or another node waits for it.
    #[must_use]
    pub fn answer(&self, path: &str) -> Option<Arc<str>> {
        let token = path.strip_prefix(PATH)?;
        self.by_token.load().get(token).cloned()
    }

    pub(crate) fn replace(&self, by_token: HashMap<String, Arc<str>>) {
        self.by_token.store(Arc::new(by_token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_answered_while_an_order_waits_for_it() {
        let challenges = HttpChallenges::default();
        assert_eq!(challenges.answer("/.well-known/acme-challenge/abc"), None);
        challenges.replace([("abc".to_owned(), Arc::from("abc.thumb"))].into());
        assert_eq!(challenges.answer("/.well-known/acme-challenge/abc").as_deref(), Some("abc.thumb"));
        for other in ["/.well-known/acme-challenge/", "/.well-known/acme-challenge/abcd", "/abc", "abc"] {
            assert_eq!(challenges.answer(other), None, "{other}");
        }
    }
}
