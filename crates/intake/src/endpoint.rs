//! Where the intake sends what it has: a URL of HTTP or HTTPS, asked by POST.
//!
//! One connection is kept and used again; what fails on it is the caller's to try again. Names are looked up and
//! addresses tried as for the gateway's servers, and HTTPS proves the server by the system's authorities.
//!
//! | bound | value |
//! |---|---|
//! | a try, from connecting to the reply's end | the deadline that the caller gives |
//! | bytes of a reply | 64 KiB |
//! | bytes of a reply that an error shows | 200 |
//!
//! Redirects are not followed: what answers one is configured wrongly.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tidegate_upstream::backend::{Host, Target};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::tls::{TlsClient, TlsError, TlsSettings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// How long the addresses of a name are used.
const REFRESH: Duration = Duration::from_secs(30);
/// Most bytes of a reply.
const MAX_REPLY: usize = 64 << 10;
/// Most bytes of a reply that are shown.
const MAX_SHOWN: usize = 200;

/// Who asks, for the other side's log.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("tidegate/", env!("CARGO_PKG_VERSION")));

/// The URL of an endpoint: `http://` or `https://`, a host, and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointUrl {
    target: Target,
    is_tls: bool,
    authority: Authority,
    path: Uri,
}

impl EndpointUrl {
    /// What is accepted, in words.
    pub const ACCEPTED: &str =
        "a URL without a user and password: http://host:port/path or https://host/path";

    /// Reads a URL; `None` if it is none, or carries a password.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?.clone();
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return None,
        };
        let port = match authority.port_u16() {
            Some(port) => port,
            // What stands beside the host is no port then.
            None if authority.as_str() != authority.host() => return None,
            None if is_tls => 443,
            None => 80,
        };
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() || port == 0 || authority.as_str().contains('@') {
            return None;
        }
        let host = match bare.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) => Host::Name(bare.to_ascii_lowercase().into()),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse().ok()?;
        Some(Self { target: Target { host, port }, is_tls, authority, path })
    }
}

impl std::fmt::Display for EndpointUrl {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(out, "{scheme}://{}{}", self.authority, self.path)
    }
}

/// Why there is no reply.
#[derive(Debug, Error)]
pub(crate) enum PostError {
    /// No connection, or it broke.
    #[error("it cannot be reached: {0}")]
    Connection(#[from] io::Error),
    /// What came is no HTTP, or the connection broke meanwhile.
    #[error("the connection to it failed: {0}")]
    Http(#[from] hyper::Error),
    /// The reply's body broke off, or is too long.
    #[error("its reply cannot be read: {0}")]
    Reply(Box<dyn std::error::Error + Send + Sync>),
    /// It took too long.
    #[error("it did not answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// What an endpoint answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// What it wants to be waited for.
    pub(crate) retry_after: Option<Duration>,
    /// Its body.
    pub(crate) body: Bytes,
}

impl Answer {
    /// The beginning of its body, for messages.
    pub(crate) fn said(&self) -> String {
        let said = String::from_utf8_lossy(&self.body[..self.body.len().min(MAX_SHOWN)]);
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// An endpoint, and the connection to it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    url: EndpointUrl,
    resolver: Resolver,
    tls: Option<TlsClient>,
    connection: Option<Connection>,
}

impl Endpoint {
    /// An endpoint that nobody has connected to.
    pub(crate) fn new(url: EndpointUrl) -> Result<Self, TlsError> {
        let settings = TlsSettings { protocols: vec!["http/1.1"], ..TlsSettings::default() };
        let tls = url.is_tls.then(|| TlsClient::new(settings)).transpose()?;
        Ok(Self { url, resolver: Resolver::new(REFRESH), tls, connection: None })
    }

    pub(crate) fn url(&self) -> &EndpointUrl {
        &self.url
    }

    /// Sends a request and reads its reply, within `deadline`.
    pub(crate) async fn post(
        &mut self,
        fields: &[(HeaderName, HeaderValue)],
        body: Bytes,
        deadline: Duration,
    ) -> Result<Answer, PostError> {
        // A connection on which a request did not end is dropped with this future.
        let connection = self.connection.take();
        let (connection, answer) = timeout(deadline, self.exchange(connection, fields, body))
            .await
            .map_err(|_| PostError::Late(deadline))??;
        self.connection = connection;
        Ok(answer)
    }

    async fn exchange(
        &self,
        connection: Option<Connection>,
        fields: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(Option<Connection>, Answer), PostError> {
        let mut kept = None;
        if let Some(mut connection) = connection
            && connection.ready().await.is_ok()
        {
            kept = Some(connection);
        }
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.path.clone();
        let own = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(self.url.authority.as_str()) {
            own.insert(header::HOST, host);
        }
        own.insert(header::USER_AGENT, AGENT);
        own.extend(fields.iter().cloned());
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body = Limited::new(body, MAX_REPLY).collect().await.map_err(PostError::Reply)?.to_bytes();
        let retry_after =
            head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let answer = Answer { status: head.status, retry_after: retry_after.map(Duration::from_secs), body };
        Ok((Some(connection), answer))
    }

    async fn connect(&self) -> Result<Connection, PostError> {
        // The deadline of the whole is around this one.
        let stream = self.resolver.connect(&self.url.target, Duration::MAX).await?;
        match &self.tls {
            None => http1(stream).await,
            Some(tls) => http1(tls.handshake(&self.url.target, stream).await?).await,
        }
    }
}

async fn http1<S>(stream: S) -> Result<Connection, PostError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends when the sender is dropped, or the other side closes.
    drop(tokio::spawn(connection));
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_what_and_carries_no_password() {
        for (text, shown) in [
            ("http://127.0.0.1:9093/api/v2/alerts", "http://127.0.0.1:9093/api/v2/alerts"),
            ("https://Metrics.example/write?tenant=a", "https://Metrics.example/write?tenant=a"),
            ("http://[::1]:80", "http://[::1]:80/"),
        ] {
            assert_eq!(EndpointUrl::parse(text).unwrap().to_string(), shown);
        }
        let https = EndpointUrl::parse("https://Metrics.example/").unwrap();
        assert_eq!(https.target, Target { host: Host::Name("metrics.example".into()), port: 443 });
        for wrong in [
            "",
            "a",
            "/path",
            "ftp://a/",
            "http://",
            "http://u:p@a/",
            "http://a:/",
            "http://a:0/",
            "http://a:99999/",
        ] {
            assert_eq!(EndpointUrl::parse(wrong), None, "{wrong}");
        }
    }
}
