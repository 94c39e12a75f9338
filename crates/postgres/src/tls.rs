//! TLS to PostgreSQL, by rustls.

use std::fs;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::url::{TlsOptions, UrlError};

/// Whom to believe, and who we are.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

/// One handshake to come.
pub(crate) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// What a handshake makes.
pub(crate) struct Secured<S>(tokio_rustls::client::TlsStream<S>);

/// The options' files, read.
///
/// # Errors
/// A file that cannot be read or used.
pub(crate) fn configured(options: &TlsOptions) -> Result<Tls, UrlError> {
    let unusable =
        |option| move |problem: rustls::Error| UrlError::Certificate { option, problem: problem.to_string() };
    let mut roots = RootCertStore::empty();
    match &options.root {
        Some(path) => {
            for certificate in certificates("sslrootcert", path)? {
                roots.add(certificate).map_err(unusable("sslrootcert"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable("sslmode"))?
        .with_root_certificates(roots);
    let config = match (&options.certificate, &options.key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates("sslcert", certificate)?;
            let pem = read("sslkey", key)?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|problem| UrlError::Certificate {
                option: "sslkey",
                problem: problem.to_string(),
            })?;
            builder.with_client_auth_cert(chain, key).map_err(unusable("sslcert"))?
        }
        _ => return Err(UrlError::Half),
    };
    Ok(Tls(TlsConnector::from(Arc::new(config))))
}

fn certificates(option: &'static str, path: &str) -> Result<Vec<CertificateDer<'static>>, UrlError> {
    let pem = read(option, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let problem = match found {
        Ok(certificates) if !certificates.is_empty() => return Ok(certificates),
        Ok(_) => "has no certificate".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(UrlError::Certificate { option, problem })
}

fn read(option: &'static str, path: &str) -> Result<Vec<u8>, UrlError> {
    fs::read(path).map_err(|error| UrlError::File { option, problem: error.kind() })
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Secured<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, InvalidDnsNameError> {
        let name = ServerName::try_from(domain)?.to_owned();
        Ok(Handshake { connector: self.0.clone(), name })
    }
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Secured<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secured<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { Ok(Secured(self.connector.connect(self.name, stream).await?)) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Secured<S> {
    /// None: it would protect against a proxy that has a certificate for the name.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
