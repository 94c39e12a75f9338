//! The peer of a TLS session, by the certificate that it showed.

use std::sync::Arc;

use rustls::ServerConnection;
use webpki::EndEntityCert;

/// The first URI of the certificate that a client showed (a SPIFFE ID is one), or its first DNS name. `None`
/// without a certificate, or if it has neither. The handshake has verified the certificate.
#[must_use]
pub fn peer_name(session: &ServerConnection) -> Option<Arc<str>> {
    let certificate = EndEntityCert::try_from(session.peer_certificates()?.first()?).ok()?;
    let name = certificate.valid_uri_names().next().or_else(|| certificate.valid_dns_names().next());
    name.map(Into::into)
}
