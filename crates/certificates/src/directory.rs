//! How an ACME directory is spoken to: HTTP/1.1 over TLS, a connection for each request.
//!
//! An order is a dozen requests every few weeks, so nothing is kept. Trusted are the system's authorities, or those of
//! `acme.ca_file` and no others. What an authority says of when to come back (`Retry-After`) is remembered.
//!
//! Bounds: [`REQUEST`] for a request, [`MAX_REPLY_BYTES`] of a reply.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderValue, RETRY_AFTER};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tidegate_upstream::backend::{Host, Target};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::tls::{TlsClient, TlsError, TlsSettings};
use tokio::time::timeout;

/// Longest that one request may take, connecting included.
const REQUEST: Duration = Duration::from_secs(20);

/// Longest that connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Longest reply.
const MAX_REPLY_BYTES: usize = 256 << 10;

/// The most that an authority may say of when to come back: a week.
const MAX_RETRY_AFTER: u64 = 7 * 86_400;

/// A way to a directory; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    shared: Arc<DirectoryState>,
}

#[derive(Debug)]
struct DirectoryState {
    resolver: Resolver,
    tls: TlsClient,
    /// Seconds that the authority asked to be left alone for, in the last reply that said so.
    retry_after: AtomicU64,
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
enum DirectoryRequestError {
    #[error("{0} is no URL of https://")]
    Url(Uri),
    #[error("{target} cannot be reached: {error}")]
    Connect { target: Target, error: std::io::Error },
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("there is no answer within {REQUEST:?}")]
    Late,
}

impl Directory {
    /// Trusts these authorities, in PEM, or the system's.
    ///
    /// # Errors
    /// When there is no certificate in them.
    pub(crate) fn new(authorities: Option<Box<[u8]>>) -> Result<Self, TlsError> {
        let tls = TlsClient::new(TlsSettings { authorities, ..TlsSettings::default() })?;
        let resolver = Resolver::new(Duration::ZERO);
        Ok(Self { shared: Arc::new(DirectoryState { resolver, tls, retry_after: AtomicU64::new(0) }) })
    }

    /// How long the authority has asked to be left alone since this was asked last.
    pub(crate) fn take_retry_after(&self) -> Duration {
        Duration::from_secs(self.shared.retry_after.swap(0, Relaxed))
    }

    async fn send(
        &self,
        mut request: Request<BodyWrapper<Bytes>>,
    ) -> Result<BytesResponse, DirectoryRequestError> {
        let uri = std::mem::take(request.uri_mut());
        let target = target(&uri).ok_or_else(|| DirectoryRequestError::Url(uri.clone()))?;
        // Invariant: a URI with a host has an authority, and that is a header's value.
        let host = uri.authority().and_then(|host| HeaderValue::try_from(host.as_str()).ok());
        let host = host.ok_or_else(|| DirectoryRequestError::Url(uri.clone()))?;
        *request.uri_mut() =
            Uri::from(uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")));
        request.headers_mut().insert(HOST, host);
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let connecting = async {
            let stream = self.shared.resolver.connect(&target, CONNECT).await?;
            self.shared.tls.handshake(&target, stream).await
        };
        let stream = connecting.await.map_err(|error| DirectoryRequestError::Connect { target, error })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends when the sender is gone; what it ends with, the request says too.
        let driving = tokio::spawn(connection);
        let reply = sender.send_request(request).await?;
        let (parts, body) = reply.into_parts();
        let body = Limited::new(body, MAX_REPLY_BYTES)
            .collect()
            .await
            .map_err(DirectoryRequestError::Body)?
            .to_bytes();
        driving.abort();
        if matches!(parts.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            let seconds = parts.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            self.shared.retry_after.store(seconds.unwrap_or(0).min(MAX_RETRY_AFTER), Relaxed);
        }
        Ok(BytesResponse { parts, body: Box::new(body) })
    }
}

/// Where a URL of `https://` leads.
fn target(uri: &Uri) -> Option<Target> {
    if uri.scheme() != Some(&Scheme::HTTPS) {
        return None;
    }
    let host = uri.host()?;
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    let host = address.map_or_else(|_| Host::Name(host.into()), Host::Address);
    Some(Target { host, port: uri.port_u16().unwrap_or(443) })
}

impl HttpClient for Directory {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let sent = timeout(REQUEST, this.send(request)).await.unwrap_or(Err(DirectoryRequestError::Late));
            sent.map_err(|error| Error::Other(Box::new(error)))
        })
    }
}
