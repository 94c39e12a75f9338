//! TLS towards backends (rustls): whom it trusts, and which name a backend must prove.
//!
//! A backend proves the name that its URL has, or the one that is configured in its place; that name is asked
//! for by SNI too. Trusted are the system's authorities, or, where a file is given, those in it and no others: a
//! private authority is no reason to trust all public ones.
//!
//! Deliberately absent: a way to trust anyone, for that would protect nobody.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::backend::{Host, Target};

/// What TLS is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificates of the authorities to trust, in PEM; `None`: the system's.
    pub authorities: Option<Box<[u8]>>,
    /// The name that every backend must prove; `None`: the one in its URL.
    pub server_name: Option<Box<str>>,
    /// What is offered by ALPN, the preferred one first.
    pub protocols: Vec<&'static str>,
}

/// Why there can be no TLS of such settings.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The authorities are none.
    #[error("holds no certificate in PEM")]
    NoAuthority,
    /// The name is none that a certificate could have.
    #[error("is no name that a certificate could be for")]
    Name,
    /// The library refused.
    #[error("cannot be used for TLS: {0}")]
    Library(#[from] rustls::Error),
}

/// The client's side of TLS, shared by all connections to an upstream.
#[derive(Clone, Debug)]
pub struct TlsClient {
    settings: TlsSettings,
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl TlsClient {
    /// TLS as it is configured.
    ///
    /// # Errors
    /// When the authorities or the name are none.
    pub fn new(settings: TlsSettings) -> Result<Self, TlsError> {
        let name = settings.server_name.as_deref().map(|name| ServerName::try_from(name.to_owned()));
        let name = name.transpose().map_err(|_| TlsError::Name)?;
        let roots = match &settings.authorities {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
                if roots.add_parsable_certificates(certificates).0 == 0 {
                    return Err(TlsError::NoAuthority);
                }
                Arc::new(roots)
            }
            None => system_roots(),
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = settings.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(Self { settings, config: Arc::new(config), name })
    }

    /// The first message of a handshake with `target`: for a check of whether TLS is spoken there.
    ///
    /// # Errors
    /// When the target has no name that could be asked for.
    pub fn hello(&self, target: &Target) -> io::Result<Vec<u8>> {
        let config = Arc::clone(&self.config);
        let mut connection =
            ClientConnection::new(config, self.name_of(target)?).map_err(io::Error::other)?;
        let mut hello = Vec::new();
        connection.write_tls(&mut hello)?;
        Ok(hello)
    }

    /// The name that `target` must prove.
    fn name_of(&self, target: &Target) -> io::Result<ServerName<'static>> {
        match (&self.name, &target.host) {
            (Some(name), _) => Ok(name.clone()),
            (None, Host::Address(address)) => Ok(ServerName::from(*address)),
            (None, Host::Name(name)) => ServerName::try_from(name.to_string()).map_err(io::Error::other),
        }
    }

    /// Makes the handshake with `target` on a connection to it.
    ///
    /// # Errors
    /// When the target does not prove its name, or the connection breaks.
    pub async fn handshake(&self, target: &Target, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = self.name_of(target)?;
        TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await
    }
}

/// The system's authorities, read once. What the system lacks shows as a certificate that is not trusted.
fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    Arc::clone(ROOTS.get_or_init(read))
}
