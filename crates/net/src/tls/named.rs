//! Certificates by server name, for listeners whose certificates are ordered and not read from files; and what an
//! authority is shown that asks whether this is the server of a name (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys, ServerConfig};
use tidegate_wire::x509::Validity;

use super::looked_up;

/// The application protocol by which an authority asks.
const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct NamedPair {
    key: Arc<CertifiedKey>,
    /// From when to when the certificate is good.
    pub validity: Validity,
}

/// Why a pair cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum NamedPairError {
    /// There is no certificate in the text.
    #[error("there is no certificate in PEM")]
    NoCertificate,
    /// There is no key in the text.
    #[error("there is no private key in PEM")]
    NoKey,
    /// They do not go together, or are of no kind that is supported.
    #[error("{0}")]
    Library(#[from] Error),
}

impl NamedPair {
    /// From the certificate and those up to its authority, and the key, in PEM.
    ///
    /// # Errors
    /// When it cannot be served. Whether the certificate is valid now is not asked.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, NamedPairError> {
        let pair = Self::made_from_pem(certificate, key)?;
        match pair.key.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
            Err(error) => Err(error.into()),
        }
    }

    /// From the same, where both were made together: the certificate may have extensions that only an authority
    /// understands, as that of a challenge has.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn made_from_pem(certificate: &str, key: &str) -> Result<Self, NamedPairError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let chain = chain.map_err(|_| NamedPairError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| NamedPairError::NoKey)?;
        let key = ring::default_provider().key_provider.load_private_key(key)?;
        let validity = chain.first().and_then(|first| Validity::of(first));
        let validity = validity.ok_or(NamedPairError::NoCertificate)?;
        Ok(Self { key: Arc::new(CertifiedKey::new(chain, key)), validity })
    }
}

/// Certificates by server name, in lower case.
pub type Named = HashMap<Box<str>, NamedPair>;

/// The certificates of names, as they are in force; clones share them.
#[derive(Clone, Debug, Default)]
pub struct NamedCertificates {
    shared: Arc<NamedInForce>,
}

#[derive(Debug, Default)]
struct NamedInForce {
    certificates: ArcSwap<Named>,
    challenges: ArcSwap<Named>,
}

impl NamedCertificates {
    /// Puts these in force, for connections from now on.
    pub fn replace(&self, certificates: Named) {
        self.shared.certificates.store(Arc::new(certificates));
    }

    /// Shows these to an authority that asks, from now on.
    pub fn replace_challenges(&self, challenges: Named) {
        self.shared.challenges.store(Arc::new(challenges));
    }

    /// The certificate of this name, in lower case.
    pub(super) fn of(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        self.shared.certificates.load().get(name).map(|pair| Arc::clone(&pair.key))
    }

    /// What an authority is spoken to with that asks by `hello` whether this is the server of a name; `None`: it is
    /// another client.
    pub(super) fn challenged(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut offered = hello.alpn()?;
        if offered.next() != Some(CHALLENGE_PROTOCOL) || offered.next().is_some() {
            return None;
        }
        let name = looked_up(hello.server_name()?);
        let pair = Arc::clone(&self.shared.challenges.load().get(&*name)?.key);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().ok()?.with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair)));
        config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        Some(Arc::new(config))
    }
}
