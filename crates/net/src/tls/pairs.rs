//! The choice of a certificate by the name that a client asks for (RFC 6066, 3).
//!
//! Files name themselves: each certificate says its names (RFC 6125: `*.` at the beginning stands for one label). An exact
//! name goes before a wildcard, files before what was ordered. A client that asks for no name, or for a name without a
//! pair of its own, is shown the default pair; without a default, the handshake fails.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::{NamedCertificates, looked_up};

/// What a listener has to show.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    /// By name in lower case; a wildcard with its `*`.
    by_name: HashMap<Box<str>, Arc<CertifiedKey>>,
    ordered: NamedCertificates,
    otherwise: Option<Arc<CertifiedKey>>,
}

impl Pairs {
    pub(super) fn new(ordered: NamedCertificates, otherwise: Option<CertifiedKey>) -> Self {
        Self { by_name: HashMap::new(), ordered, otherwise: otherwise.map(Arc::new) }
    }

    /// Adds a pair for the names in its certificate.
    ///
    /// # Errors
    /// A name that another one has already, or `None` if the certificate has no name.
    pub(super) fn add(&mut self, pair: CertifiedKey) -> Result<(), Option<Box<str>>> {
        let pair = Arc::new(pair);
        let names = names(&pair);
        if names.is_empty() {
            return Err(None);
        }
        for name in names {
            let before = self.by_name.insert(name.clone(), Arc::clone(&pair));
            if before.is_some_and(|before| !Arc::ptr_eq(&before, &pair)) {
                return Err(Some(name));
            }
        }
        Ok(())
    }

    fn of(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let wildcard = || self.by_name.get(&*format!("*.{}", name.split_once('.')?.1));
        let of_files = self.by_name.get(name).or_else(wildcard).map(Arc::clone);
        of_files.or_else(|| self.ordered.of(name))
    }
}

/// The names in a certificate, in lower case.
pub(super) fn names(pair: &CertifiedKey) -> Vec<Box<str>> {
    let certificate = pair.cert.first().and_then(|first| webpki::EndEntityCert::try_from(first).ok());
    let names = certificate.iter().flat_map(|it| it.valid_dns_names());
    names.map(|name| name.to_ascii_lowercase().into()).collect()
}

impl ResolvesServerCert for Pairs {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named = hello.server_name().and_then(|name| self.of(&looked_up(name)));
        named.or_else(|| self.otherwise.clone())
    }
}
