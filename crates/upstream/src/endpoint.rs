//! A place outside that is sent something: a URL of HTTP or HTTPS, asked by POST.
//!
//! One connection is kept and used again; what fails on it is the caller's to try again. Names are looked up and
//! addresses tried as for the gateway's servers, and HTTPS proves the server by the system's authorities.
//!
//! | bound | value |
//! |---|---|
//! | a try, from connecting to the reply's end | the deadline that the caller gives |
//! | bytes of a reply's body | 64 KiB: it is cut there, and the connection dropped, for the status says what became of it |
//! | bytes of a reply that an error shows | 200 |
//!
//! Redirects are not followed: what answers one is configured wrongly.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use crate::backend::{Host, Target};
use crate::connect::Resolver;
use crate::tls::{TlsClient, TlsError, TlsSettings};

/// How long the addresses of a name are used.
const REFRESH: Duration = Duration::from_secs(30);
/// Most bytes of a reply's body that are kept.
const MAX_REPLY: usize = 64 << 10;
/// Most bytes of a reply that are shown.
const MAX_SHOWN: usize = 200;

/// The name of this program, for the other side's log.
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

    /// Reads a URL; `None` if it is no URL, or carries a password.
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

    /// The host and port.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether it has a query, even an empty one.
    #[must_use]
    pub fn has_query(&self) -> bool {
        self.path.query().is_some()
    }

    /// The same host and `path`, which begins with `/`, beneath this one's path. A query is not kept.
    #[must_use]
    pub fn beneath(&self, path: &str) -> Self {
        let whole = format!("{}{path}", self.path.path().trim_end_matches('/'));
        // Invariant: what is added is a path.
        Self { path: whole.parse().unwrap_or_default(), ..self.clone() }
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
pub enum PostError {
    /// No connection, or it broke.
    #[error("it cannot be reached: {0}")]
    Connection(#[from] io::Error),
    /// What came is no HTTP, or the connection broke meanwhile.
    #[error("the connection to it failed: {0}")]
    Http(#[from] hyper::Error),
    /// The reply's body broke off.
    #[error("its reply cannot be read: {0}")]
    Reply(#[source] hyper::Error),
    /// It took too long.
    #[error("it did not answer within {} s", .0.as_secs())]
    Late(Duration),
}

/// What an endpoint answered.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// What it wants to be waited for.
    pub retry_after: Option<Duration>,
    /// The fields of its head.
    pub fields: HeaderMap,
    /// Its body, or the first 64 KiB of it.
    pub body: Bytes,
}

impl Answer {
    /// The beginning of its body, for messages.
    #[must_use]
    pub fn said(&self) -> String {
        let said = String::from_utf8_lossy(&self.body[..self.body.len().min(MAX_SHOWN)]);
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

type EndpointConnection = SendRequest<Full<Bytes>>;

/// An endpoint, and the connection to it.
#[derive(Debug)]
pub struct Endpoint {
    url: EndpointUrl,
    resolver: Resolver,
    tls: Option<TlsClient>,
    connection: Option<EndpointConnection>,
}

impl Endpoint {
    /// An endpoint without a connection.
    ///
    /// # Errors
    /// When there are no authorities to prove a server by.
    pub fn new(url: EndpointUrl) -> Result<Self, TlsError> {
        let settings = TlsSettings { protocols: vec!["http/1.1"], ..TlsSettings::default() };
        let tls = url.is_tls.then(|| TlsClient::new(settings)).transpose()?;
        Ok(Self { url, resolver: Resolver::new(REFRESH), tls, connection: None })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &EndpointUrl {
        &self.url
    }

    /// Sends a request and reads its reply, within `deadline`.
    ///
    /// # Errors
    /// When there is no whole reply in time.
    pub async fn post(
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
        connection: Option<EndpointConnection>,
        fields: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(Option<EndpointConnection>, Answer), PostError> {
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
        let (body, is_whole) = beginning(body).await.map_err(PostError::Reply)?;
        let retry_after =
            head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        let answer = Answer { status: head.status, retry_after, fields: head.headers, body };
        Ok((is_whole.then_some(connection), answer))
    }

    async fn connect(&self) -> Result<EndpointConnection, PostError> {
        // The deadline of the whole is around this one.
        let stream = self.resolver.connect(&self.url.target, Duration::MAX).await?;
        match &self.tls {
            None => http1(stream).await,
            Some(tls) => http1(tls.handshake(&self.url.target, stream).await?).await,
        }
    }
}

/// A reply's body as far as it is kept, and whether that is all of it.
async fn beginning(mut body: Incoming) -> Result<(Bytes, bool), hyper::Error> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // Trailers say nothing here.
        let Ok(data) = frame?.into_data() else { continue };
        let room = MAX_REPLY - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((read.freeze(), false));
        }
    }
    Ok((read.freeze(), true))
}

async fn http1<S>(stream: S) -> Result<EndpointConnection, PostError>
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
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    async fn endpoint() -> (TcpListener, Endpoint) {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        (listener, Endpoint::new(EndpointUrl::parse(&url).unwrap()).unwrap())
    }

    /// Reads a request without a body.
    async fn request(stream: &mut TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
    }

    #[tokio::test]
    async fn of_a_body_beyond_the_bound_the_status_counts_and_the_connection_is_not_used_again() {
        let (listener, mut endpoint) = endpoint().await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            let exactly =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {MAX_REPLY}\r\n\r\n{}", "x".repeat(MAX_REPLY));
            stream.write_all(exactly.as_bytes()).await.unwrap();
            request(&mut stream).await;
            let endless = b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(endless).await.unwrap();
            // Until the connection is dropped, however long that takes.
            let chunk = format!("1000\r\n{}\r\n", "y".repeat(0x1000));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
            let (mut stream, _) = listener.accept().await.unwrap();
            request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        });
        let mut answers = Vec::new();
        for _ in 0..3 {
            let answer = endpoint.post(&[], Bytes::new(), Duration::from_secs(60)).await.unwrap();
            answers.push((
                answer.status.as_u16(),
                answer.retry_after.map(|wait| wait.as_secs()),
                answer.body.len(),
            ));
        }
        assert_eq!(answers, [(200, None, MAX_REPLY), (429, Some(7), MAX_REPLY), (204, None, 0)]);
        server.await.unwrap();
    }

    #[test]
    fn a_url_says_where_and_what_and_carries_no_password() {
        for (text, shown) in [
            ("http://127.0.0.1:9093/api/v2/alerts", "http://127.0.0.1:9093/api/v2/alerts"),
            ("https://Metrics.example/write?tenant=a", "https://Metrics.example/write?tenant=a"),
            ("http://[::1]:80", "http://[::1]:80/"),
        ] {
            assert_eq!(EndpointUrl::parse(text).unwrap().to_string(), shown);
        }
        for (base, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://a.example/otlp/?tenant=b", "https://a.example/otlp/v1/traces"),
        ] {
            assert_eq!(EndpointUrl::parse(base).unwrap().beneath("/v1/traces").to_string(), shown);
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
