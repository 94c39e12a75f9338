//! A client that speaks TLS, with or without a certificate.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidegate_net::stats::{HandshakeFailure, Totals};
use tidegate_net::tls::{self, PairFiles, TlsConfig, TlsFiles};
use tidegate_testkit::certificates::{Certificates, Pair};
use tidegate_wire::tls_version::TlsVersion;

/// A connection to the server.
pub type Client = StreamOwned<ClientConnection, TcpStream>;

/// A listener's TLS with this pair, bounded as in production.
pub fn server(pair: &Pair, client_ca: Option<&Path>) -> TlsConfig {
    TlsConfig {
        files: TlsFiles {
            pair: Some(PairFiles { certificate: pair.certificate.clone(), key: pair.key.clone() }),
            named: Vec::new(),
            client_ca: client_ca.map(Path::to_owned),
            is_client_auth_optional: false,
        },
        named: None,
        protocols: tls::HTTP,
        passed: Vec::new(),
        min_version: TlsVersion::Tls12,
        handshake_timeout: Duration::from_secs(10),
        max_handshakes: tls::MAX_HANDSHAKES,
    }
}

/// A client that trusts the authority of `certificates`, and shows `identity` if it is asked to.
pub fn client(
    certificates: &Certificates,
    identity: Option<&Pair>,
    protocols: &[&[u8]],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(first(&certificates.authority())).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
            builder.with_client_auth_cert(vec![first(&pair.certificate)], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

/// The first certificate of a file.
pub fn first(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

/// Connects; the handshake happens with the first request.
pub fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Client {
    let session = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(session, super::connect(address).unwrap())
}

/// The certificate that the server showed on a connection that was used.
pub fn shown(client: &Client) -> CertificateDer<'static> {
    client.conn.peer_certificates().unwrap()[0].clone()
}

/// How many handshakes failed for `reason`.
pub fn failed(totals: &Totals, reason: HandshakeFailure) -> u64 {
    let at = HandshakeFailure::ALL.iter().position(|other| *other == reason).unwrap();
    totals.handshakes_failed[at]
}
