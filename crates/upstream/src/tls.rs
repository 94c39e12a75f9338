//! TLS towards backends (rustls): the authorities that are trusted, and the name that a backend must prove.
//!
//! A backend proves the name that its URL has, or the one that is configured in its place; that name is asked
//! for by SNI too. Trusted are the system's authorities, or, where a file is given, those in it and no others: a
//! private authority is no reason to trust all public ones.
//!
//! A certificate that is itself in the file is trusted as the backend's own, whoever signed it, while it is valid and for its
//! names. `openssl req -x509` makes one that says it is an authority's (CA:TRUE), which path validation (RFC 5280, webpki) takes
//! for none of a server; the operator named it, and the handshake proves that the backend has its key.
//!
//! A client may have a certificate of its own ([`crate::client_pair`]), which it shows to backends that demand one. It is replaced when
//! its files change: connections from now on show the new one, and resume no session of the old one.
//!
//! Deliberately absent: a way to trust any certificate, since that would protect nothing.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DEFAULT_VERSIONS, DigitallySignedStruct, RootCertStore,
    SignatureScheme, StreamOwned, SupportedProtocolVersion,
};
use thiserror::Error;
use tidegate_wire::tls_version::TlsVersion;
use tidegate_wire::x509::Validity;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::backend::{Host, Target};
use crate::client_pair::{ClientCertificate, ClientPair, ClientPairError, ClientPairFiles, PairVersions};

/// What TLS is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificates of the authorities to trust, in PEM; `None`: the system's.
    pub authorities: Option<Box<[u8]>>,
    /// The name that every backend must prove; `None`: the one in its URL.
    pub server_name: Option<Box<str>>,
    /// What is offered by ALPN, the preferred one first.
    pub protocols: Vec<&'static str>,
    /// The certificate that is shown to backends which demand one; `None`: none is.
    pub client: Option<ClientPairFiles>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
}

/// Why there can be no TLS of such settings.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The authorities are none.
    #[error("holds no certificate in PEM")]
    NoAuthority,
    /// A certificate cannot have this name.
    #[error("is no name that a certificate could be for")]
    Name,
    /// The client's own certificate.
    #[error(transparent)]
    Client(#[from] ClientPairError),
    /// The library refused.
    #[error("cannot be used for TLS: {0}")]
    Library(#[from] rustls::Error),
}

/// A connection over TLS, for a caller that blocks.
pub type BlockingTls<S> = StreamOwned<ClientConnection, S>;

/// The client's side of TLS, shared by all connections to an upstream.
#[derive(Clone, Debug)]
pub struct TlsClient {
    settings: TlsSettings,
    in_force: Arc<TlsClientInForce>,
    name: Option<ServerName<'static>>,
}

/// What is replaced when the files of the client's certificate change; clones of a client share it.
#[derive(Debug)]
struct TlsClientInForce {
    config: RwLock<Arc<ClientConfig>>,
    /// What backends are shown by it.
    certificate: RwLock<Option<ClientCertificate>>,
    /// Whether the files as they are now were refused.
    is_refused: AtomicBool,
    /// Of the client's files; `None`: there are none.
    versions: Option<Mutex<PairVersions>>,
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
    /// When the authorities or the name are invalid.
    pub fn new(settings: TlsSettings) -> Result<Self, TlsError> {
        let name = settings.server_name.as_deref().map(|name| ServerName::try_from(name.to_owned()));
        let name = name.transpose().map_err(|_| TlsError::Name)?;
        let versions = settings.client.as_ref().map(|files| Mutex::new(files.versions()));
        let (config, certificate) = client_config(&settings)?;
        let in_force = TlsClientInForce {
            config: RwLock::new(Arc::new(config)),
            certificate: RwLock::new(certificate),
            is_refused: AtomicBool::new(false),
            versions,
        };
        Ok(Self { settings, in_force: Arc::new(in_force), name })
    }

    /// Reads the client's certificate again, if its files have changed since they were read and not since the last look. `None`: there
    /// is nothing to read. A pair that cannot be used changes nothing. Blocks on the disk.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn look_again(&self) -> Option<Result<(), TlsError>> {
        let (files, versions) = self.settings.client.as_ref().zip(self.in_force.versions.as_ref())?;
        if !files.have_changed(&mut versions.lock()) {
            return None;
        }
        let read = client_config(&self.settings);
        self.in_force.is_refused.store(read.is_err(), Relaxed);
        Some(read.map(|(config, certificate)| {
            *self.in_force.config.write() = Arc::new(config);
            *self.in_force.certificate.write() = certificate;
        }))
    }

    /// Whether it has a certificate of its own, which [`TlsClient::look_again`] follows.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.settings.client.is_some()
    }

    /// The certificate that backends are shown, as it is in force; `None`: they are shown none.
    #[must_use]
    pub fn certificate(&self) -> Option<ClientCertificate> {
        self.in_force.certificate.read().clone()
    }

    /// Whether the client's files as they are now cannot be used, so that a pair from before is shown.
    #[must_use]
    pub fn is_certificate_refused(&self) -> bool {
        self.in_force.is_refused.load(Relaxed)
    }

    fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.in_force.config.read())
    }

    /// The first message of a handshake with `target`: for a check of whether TLS is spoken there.
    ///
    /// # Errors
    /// When the target has no name that could be asked for.
    pub fn hello(&self, target: &Target) -> io::Result<Vec<u8>> {
        let mut connection =
            ClientConnection::new(self.config(), self.name_of(target)?).map_err(io::Error::other)?;
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
        TlsConnector::from(self.config()).connect(name, stream).await
    }

    /// As [`TlsClient::handshake`], on a stream that blocks.
    ///
    /// # Errors
    /// As [`TlsClient::handshake`].
    pub fn handshake_blocking<S: Read + Write>(
        &self,
        target: &Target,
        mut stream: S,
    ) -> io::Result<BlockingTls<S>> {
        let mut connection =
            ClientConnection::new(self.config(), self.name_of(target)?).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(connection, stream))
    }

    /// As [`TlsClient::handshake`], with `protocol` as the only one that is offered by ALPN.
    ///
    /// # Errors
    /// As [`TlsClient::handshake`]; and when the target speaks only others ([`crate::failure::shares_no_protocol`]).
    pub async fn handshake_in(
        &self,
        protocol: &'static str,
        target: &Target,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = self.name_of(target)?;
        let mut config = ClientConfig::clone(&self.config());
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

/// What connections are made with, and the certificate that they show. Blocks on the disk where the client has one.
fn client_config(settings: &TlsSettings) -> Result<(ClientConfig, Option<ClientCertificate>), TlsError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions(settings.min_version))?;
    let config = match &settings.authorities {
        Some(pem) => config.dangerous().with_custom_certificate_verifier(Arc::new(StatedTrust::read(pem)?)),
        None => config.with_root_certificates(system_roots()),
    };
    let (mut config, certificate) = match &settings.client {
        Some(files) => {
            let ClientPair { certificate, chain, key } = files.read()?;
            let config = config.with_client_auth_cert(chain, key).map_err(|error| files.mismatch(error))?;
            (config, Some(certificate))
        }
        None => (config.with_no_client_auth(), None),
    };
    config.alpn_protocols = settings.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok((config, certificate))
}

/// The versions that are offered if none older than `least` is spoken.
fn versions(least: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static NEWEST: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    match least {
        TlsVersion::Tls12 => DEFAULT_VERSIONS,
        TlsVersion::Tls13 => &NEWEST,
    }
}

/// Trust in the certificates of a file: in those that they signed, and in themselves.
#[derive(Debug)]
struct StatedTrust {
    signed: Arc<WebPkiServerVerifier>,
    stated: Vec<CertificateDer<'static>>,
}

impl StatedTrust {
    fn read(pem: &[u8]) -> Result<Self, TlsError> {
        let stated: Vec<_> = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(stated.iter().cloned());
        let provider = Arc::new(ring::default_provider());
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        // Without revocation lists, the lack of an authority is the only thing that can be wrong.
        Ok(Self { signed: signed.map_err(|_| TlsError::NoAuthority)?, stated })
    }
}

impl ServerCertVerifier for StatedTrust {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if !self.stated.iter().any(|stated| stated == shown) {
            return self.signed.verify_server_cert(shown, intermediates, name, ocsp_response, now);
        }
        let validity = Validity::of(shown).ok_or(CertificateError::BadEncoding)?;
        if now.as_secs() < validity.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        if now.as_secs() > validity.not_after {
            return Err(CertificateError::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
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
