//! TLS around any other [`Protocol`], by rustls.
//!
//! rustls is driven by bytes and owns no socket, so a TLS connection runs in the same event loop as a
//! plain one, with the same clock readings around the same system calls. What TLS costs is in the
//! figures of a step: the handshake apart, encryption within the service time, as a client sees it.
//!
//! The protocol inside is offered by ALPN as the only one, so that what was measured is what was
//! asked for; a server that chooses another breaks the connection. Sessions are not resumed: every
//! handshake is a full one, or a load of connections would measure a cache.

use std::{
    io::{self, Read as _, Write as _},
    path::PathBuf,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::protocol::{Protocol, Reply};

/// Plain text taken from the library at a time.
const PIECE: usize = 16 << 10;

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// A PEM file of authorities to trust beside the system's.
    pub authorities: Option<PathBuf>,
    /// The same as the text of such a file, which can be handed to another machine; it stands in for the file.
    #[serde(default)]
    pub pem: Option<String>,
    /// Any certificate is taken.
    pub anyone: bool,
}

/// Why TLS cannot be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The authorities' file cannot be read or holds no certificate.
    #[error("{path}: no certificates could be read: {reason}")]
    Authorities {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The host is no name that a certificate could have.
    #[error("{0:?} is no name that a certificate could be for")]
    Name(String),
    /// The library refused.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// What all TLS connections to one target share.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// TLS to the host `name`, offering `alpn` (empty: no offer).
    ///
    /// # Errors
    /// When the name or the authorities are invalid.
    pub fn new(name: &str, alpn: &[u8], trust: &Trust) -> Result<Self, TlsError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = if trust.anyone {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        } else {
            builder.with_root_certificates(roots(trust)?)
        };
        let mut config = builder.with_no_client_auth();
        config.resumption = Resumption::disabled();
        if !alpn.is_empty() {
            config.alpn_protocols = vec![alpn.to_vec()];
        }
        Ok(Self { config: Arc::new(config), name })
    }

    fn connection(&self) -> Option<ClientConnection> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone()).ok()
    }

    /// Does one handshake on a connected socket that blocks, for an explanation in words.
    ///
    /// # Errors
    /// What the library or the socket said.
    pub fn try_handshake(&self, socket: &mut std::net::TcpStream) -> io::Result<()> {
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(io::Error::other)?;
        connection.complete_io(socket)?;
        self.agreed(&connection)
            .then_some(())
            .ok_or_else(|| io::Error::other("the server did not choose the protocol that was offered (ALPN)"))
    }

    /// Whether the server chose what was offered. A server without ALPN is taken to speak the protocol.
    fn agreed(&self, connection: &ClientConnection) -> bool {
        let h2 = self.config.alpn_protocols.iter().any(|offered| offered == b"h2");
        connection
            .alpn_protocol()
            .map_or(!h2, |chosen| self.config.alpn_protocols.iter().any(|o| o == chosen))
    }
}

/// The system's authorities, and those that are named beside them.
fn roots(trust: &Trust) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // What the system lacks shows as a certificate that is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let stated: Option<Result<Vec<CertificateDer<'static>>, _>> = match (&trust.pem, &trust.authorities) {
        (Some(text), _) => Some(CertificateDer::pem_slice_iter(text.as_bytes()).collect()),
        (None, Some(path)) => Some(CertificateDer::pem_file_iter(path).and_then(Iterator::collect)),
        (None, None) => None,
    };
    if let Some(stated) = stated {
        let path = trust
            .authorities
            .as_ref()
            .map_or("the authorities".to_owned(), |path| path.display().to_string());
        let failed = |reason: String| TlsError::Authorities { path: path.clone(), reason };
        let all = stated.map_err(|error| failed(error.to_string()))?;
        if roots.add_parsable_certificates(all).0 == 0 {
            return Err(failed("there is none".to_owned()));
        }
    }
    Ok(roots)
}

/// Takes any certificate, and still checks that the peer holds its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A protocol inside TLS.
pub(crate) struct Within<P> {
    tls: Tls,
    inner: P,
    /// Bytes for the wire of the present request.
    sealed: Vec<u8>,
    plain: Box<[u8]>,
    scratch: Vec<u8>,
}

/// A connection inside TLS.
pub(crate) struct TlsSession<S> {
    connection: Option<ClientConnection>,
    /// The handshake is over and the protocol inside has begun.
    begun: bool,
    inner: S,
}

impl<P: Protocol> Within<P> {
    pub(crate) fn new(tls: Tls, inner: P) -> Self {
        Self { tls, inner, sealed: Vec::new(), plain: vec![0; PIECE].into_boxed_slice(), scratch: Vec::new() }
    }

    /// Hands what was decrypted to the protocol inside. The last reply that says something counts.
    fn open_up(&mut self, state: &mut TlsSession<P::State>, mut outcome: Reply) -> Reply {
        let Some(connection) = &mut state.connection else { return Reply::Broken };
        loop {
            match connection.reader().read(&mut self.plain) {
                // A clean end: what follows is the socket's end, and that is judged there.
                Ok(0) | Err(_) => return outcome,
                Ok(length) if state.begun => {
                    match self.inner.receive(&mut state.inner, &self.plain[..length]) {
                        Reply::Aside => {}
                        Reply::Goaway => return Reply::Goaway,
                        said => outcome = said,
                    }
                }
                Ok(_) => return Reply::Broken,
            }
        }
    }
}

impl<P: Protocol> Protocol for Within<P> {
    type State = TlsSession<P::State>;
    const CONNECT_ONLY: bool = P::CONNECT_ONLY;
    const CONVERSES: bool = true;
    const SAYS_GOAWAY: bool = P::SAYS_GOAWAY;

    fn fresh(&self) -> Self::State {
        TlsSession { connection: None, begun: false, inner: self.inner.fresh() }
    }

    fn open(&mut self, state: &mut Self::State) -> bool {
        // Without a connection every byte that comes breaks it, and none is sent.
        state.connection = self.tls.connection();
        state.begun = false;
        false
    }

    fn request<'a>(&'a mut self, state: &mut Self::State) -> &'a [u8] {
        self.sealed.clear();
        if let Some(connection) = &mut state.connection {
            let plain = self.inner.request(&mut state.inner);
            seal(connection, plain, &mut self.sealed);
        }
        &self.sealed
    }

    fn receive(&mut self, state: &mut Self::State, mut bytes: &[u8]) -> Reply {
        let mut outcome = Reply::Aside;
        while !bytes.is_empty() {
            let Some(connection) = &mut state.connection else { return Reply::Broken };
            let taken = connection.read_tls(&mut bytes);
            if !taken.is_ok_and(|count| count > 0) || connection.process_new_packets().is_err() {
                return Reply::Broken;
            }
            if !state.begun && !connection.is_handshaking() {
                if !self.tls.agreed(connection) {
                    return Reply::Broken;
                }
                state.begun = true;
                if !P::CONVERSES || self.inner.open(&mut state.inner) {
                    outcome = Reply::Ready;
                }
            }
            outcome = self.open_up(state, outcome);
            if matches!(outcome, Reply::Broken | Reply::Reset | Reply::Goaway) {
                return outcome;
            }
        }
        outcome
    }

    fn answer(&mut self, state: &mut Self::State, out: &mut Vec<u8>) {
        let Some(connection) = &mut state.connection else { return };
        self.scratch.clear();
        if state.begun && P::CONVERSES {
            self.inner.answer(&mut state.inner, &mut self.scratch);
        }
        seal(connection, &self.scratch, out);
    }

    fn location<'s>(&self, state: &'s Self::State) -> Option<&'s [u8]> {
        self.inner.location(&state.inner)
    }

    fn closed(&mut self, state: &mut Self::State) -> Reply {
        if state.begun { self.inner.closed(&mut state.inner) } else { Reply::More }
    }
}

/// Encrypts `plain`, and appends it with all else that is due to be sent.
fn seal(connection: &mut ClientConnection, mut plain: &[u8], out: &mut Vec<u8>) {
    loop {
        // Taking less than all means that the library's buffer is full: empty it, and go on.
        let taken = connection.writer().write(plain).unwrap_or(0);
        plain = &plain[taken..];
        while connection.wants_write() {
            if connection.write_tls(out).is_err() {
                return;
            }
        }
        if plain.is_empty() || taken == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::raw::Echo;
    use proptest::prelude::*;

    fn within() -> Within<Echo> {
        let trust = Trust { anyone: true, ..Trust::default() };
        Within::new(Tls::new("localhost", b"", &trust).unwrap(), Echo::new(1))
    }

    #[test]
    fn a_handshake_begins_with_the_clients_word() {
        let mut tls = within();
        let mut state = tls.fresh();
        assert!(!tls.open(&mut state), "no request before the handshake");
        let mut sent = Vec::new();
        tls.answer(&mut state, &mut sent);
        // A handshake record (22) of version 3.x.
        assert_eq!(&sent[..2], &[22, 3]);
        assert_eq!(tls.receive(&mut state, b"HTTP/1.1 400 Bad Request\r\n\r\n"), Reply::Broken);
    }

    #[test]
    fn what_cannot_be_trusted_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let trust = Trust { authorities: Some(file.path().to_owned()), ..Trust::default() };
        assert!(matches!(Tls::new("localhost", b"", &trust), Err(TlsError::Authorities { .. })));
        let trust = Trust { pem: Some("no certificate".to_owned()), ..Trust::default() };
        assert!(matches!(Tls::new("localhost", b"", &trust), Err(TlsError::Authorities { .. })));
        assert!(matches!(Tls::new("a b", b"", &Trust::default()), Err(TlsError::Name(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
            let mut tls = within();
            let mut state = tls.fresh();
            tls.open(&mut state);
            prop_assert!(matches!(tls.receive(&mut state, &bytes), Reply::Aside | Reply::Broken));
        }
    }
}
