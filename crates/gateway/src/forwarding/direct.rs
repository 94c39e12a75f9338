//! HTTP/1.1 towards a server, for requests that are at hand: written in one piece, and the reply read where it arrives.
//!
//! hyper gives each connection a task, a channel and two buffers. Here the task that serves the client writes the
//! request and reads the reply itself, and an idle connection is a socket and nothing else. What goes both ways at
//! once, a body that is still coming or an upgrade, is hyper's: it takes the connection over, for good.
//!
//! Where a reply ends is said by the reader that the tester uses too ([`tidegate_wire::http1`]); one whose end is in
//! doubt is refused by [`crate::forwarding::doubt::Doubt`].
//!
//! Invariants: one request at a time; a connection is kept only if its last reply has ended, nothing came behind it
//! and both sides would go on; at most one read of a body is held that no client has taken.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, HOST, TE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use http_body::Frame;
use thiserror::Error;
use tidegate_wire::http1::{Limits, Read, ResponseError, ResponseReader, Visit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::forwarding::fields::{MAX_FIELDS, MAX_HEAD_BYTES};
use crate::forwarding::patience::PatienceTimer;

/// Bytes of one read, from a buffer on the stack.
const READ_BYTES: usize = 16 << 10;
/// Bytes of one read where the one before was full: they are passed on from where they were read to.
const BULK_BYTES: usize = 64 << 10;
/// The length of the line that ends the trailers: a block of this length has no trailers.
const EMPTY_LINE_BYTES: usize = 2;
/// As much of the name of a malformed field is said.
const MOST_OF_A_NAME: usize = 64;
/// Most trailer fields.
const MAX_TRAILERS: usize = 64;

/// Why a reply did not come, or not to its end.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    /// Nothing of the request was written.
    #[error("the request could not be written: {0}")]
    Unwritten(#[source] io::Error),
    /// The server closed the connection before a byte of its reply.
    #[error("the server closed the connection and gave no reply")]
    Closed,
    #[error(transparent)]
    Connection(#[from] io::Error),
    #[error(transparent)]
    Reply(#[from] ResponseError),
    #[error("the head has more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// The reader took it for a reply, but this field is malformed: its name, as far as it can be read.
    #[error("{0} is malformed")]
    Malformed(Box<str>),
}

impl Broken {
    /// What is wrong with a head that the reader took for one.
    fn of_head(head: &[u8]) -> Self {
        let lines = head.split(|byte| *byte == b'\n').skip(1);
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let lines: Vec<&[u8]> = lines.take_while(|line| !line.is_empty()).collect();
        if lines.len() > MAX_FIELDS {
            return Self::TooManyFields;
        }
        let malformed = lines.iter().find_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
            let (name, value) = (&line[..colon], line[colon..].strip_prefix(b":").unwrap_or_default());
            let is_good =
                HeaderName::from_bytes(name).is_ok() && HeaderValue::from_bytes(value.trim_ascii()).is_ok();
            (!is_good).then(|| name[..name.len().min(MOST_OF_A_NAME)].escape_ascii().to_string())
        });
        let malformed = malformed.map(|name| format!("the field {name:?}"));
        Self::Malformed(malformed.unwrap_or_else(|| "the status line".to_owned()).into())
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Direct {
    stream: TcpStream,
    pub(crate) peer: IpAddr,
    reader: ResponseReader,
    /// Another request may follow: no reply is under way.
    is_free: bool,
    /// A reply came to half of a request: the other half will not follow, and nothing else may in its place.
    is_half_sent: bool,
    /// The last read was full.
    is_bulk: bool,
    /// What came of the reply under way and was not passed on.
    arrived: ArrivedReply,
    /// All of it came.
    is_whole: bool,
    timer: PatienceTimer,
}

/// What came of a reply and was not passed on.
#[derive(Debug, Default)]
struct ArrivedReply {
    head: Option<Bytes>,
    first: Bytes,
    /// Further pieces that came in the same read: a chunked body is passed on in the sizes in which it is read.
    more: BytesMut,
    trailers: Vec<u8>,
}

impl Direct {
    pub(crate) fn new(stream: TcpStream, peer: IpAddr) -> Self {
        let limits = Limits { max_head: MAX_HEAD_BYTES, max_body: u64::MAX };
        let (reader, arrived, timer) =
            (ResponseReader::new(limits), ArrivedReply::default(), PatienceTimer::default());
        let (is_free, is_half_sent, is_bulk, is_whole) = (true, false, false, false);
        Self { stream, peer, reader, is_free, is_half_sent, is_bulk, arrived, is_whole, timer }
    }

    /// The connection, for hyper.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Whether another request may be sent: no reply is under way, and the server has neither said anything since nor
    /// closed the connection.
    pub(crate) fn is_free(&self) -> bool {
        let is_silent = || match self.stream.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => true,
            Poll::Ready(_) => {
                let read = self.stream.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
        };
        self.is_free && !self.is_half_sent && is_silent()
    }

    /// Sends the bytes of a request and waits for the head of its reply, `until` then; `to_head` if it is one to HEAD.
    pub(crate) async fn send(
        &mut self,
        mut request: Vec<u8>,
        to_head: bool,
        until: Instant,
    ) -> Option<Result<Response<()>, Broken>> {
        self.reader.begin(to_head);
        self.arrived = ArrivedReply::default();
        (self.is_free, self.is_whole) = (false, false);
        let mut written = 0;
        let heard = poll_fn(|cx| match self.poll_head(cx, &mut request, &mut written) {
            Poll::Ready(heard) => Poll::Ready(Some(heard)),
            Poll::Pending => self.timer.poll(cx, until).map(|()| None),
        });
        if let Err(error) = heard.await? {
            return Some(Err(error));
        }
        self.is_half_sent = !request.is_empty();
        let head = self.arrived.head.take().unwrap_or_default();
        Some(read_head(&head).ok_or_else(|| Broken::of_head(&head)))
    }

    /// Writes what is left of a request, and reads until the head of its reply is there.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        request: &mut Vec<u8>,
        written: &mut usize,
    ) -> Poll<Result<(), Broken>> {
        while *written < request.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &request[*written..]) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => *written += bytes,
                Poll::Ready(Ok(_)) => {
                    return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
                }
                Poll::Ready(Err(error)) if *written == 0 => {
                    return Poll::Ready(Err(Broken::Unwritten(error)));
                }
                // The server takes no more: perhaps it has said why.
                Poll::Ready(Err(_)) => break,
                Poll::Pending => break,
            }
        }
        if *written == request.len() {
            *request = Vec::new();
            *written = 0;
        }
        while self.arrived.head.is_none() {
            ready!(self.poll_some(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// The next part of the reply's body.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if let Some(data) = self.arrived.take_body() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if self.is_whole {
                let trailers = self.arrived.take_trailers();
                return Poll::Ready(trailers.map(|trailers| trailers.map(Frame::trailers)));
            }
            ready!(self.poll_some(cx))?;
        }
    }

    /// Whether nothing of the reply follows.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_whole && self.arrived.is_empty()
    }

    /// Reads what is there.
    fn poll_some(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let read = match ready!(self.poll_bytes(cx)) {
            Ok(read) => read,
            // A server that closes without reading what comes resets the connection.
            Err(_) if self.reader.close() == Ok(false) => return Poll::Ready(Err(Broken::Closed)),
            Err(error) => return Poll::Ready(Err(error.into())),
        };
        if read.is_empty() {
            self.is_whole = self.reader.close()?;
            return Poll::Ready(if self.is_whole { Ok(()) } else { Err(Broken::Closed) });
        }
        let mut look = ReplyVisitor { read: &read, arrived: &mut self.arrived };
        if let Read::Done(used) = self.reader.read(&read, &mut look)? {
            self.is_whole = true;
            self.is_free = used == read.len() && self.reader.reusable();
        }
        Poll::Ready(Ok(()))
    }

    /// What the server has sent; nothing at the end.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while self.is_bulk {
            ready!(self.stream.poll_read_ready(cx))?;
            let mut buffer = BytesMut::with_capacity(BULK_BYTES);
            match self.stream.try_read_buf(&mut buffer) {
                Ok(bytes) => {
                    self.is_bulk = bytes >= READ_BYTES;
                    return Poll::Ready(Ok(buffer.freeze()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        self.is_bulk = buffer.remaining() == 0;
        Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
    }
}

impl ArrivedReply {
    fn take_body(&mut self) -> Option<Bytes> {
        let first = std::mem::take(&mut self.first);
        let body = if self.more.is_empty() { first } else { std::mem::take(&mut self.more).freeze() };
        (!body.is_empty()).then_some(body)
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.more.is_empty() && self.trailers.len() <= EMPTY_LINE_BYTES
    }

    fn take_trailers(&mut self) -> Option<Result<HeaderMap, Broken>> {
        let trailers = std::mem::take(&mut self.trailers);
        (trailers.len() > EMPTY_LINE_BYTES)
            .then(|| read_trailers(&trailers).ok_or_else(|| Broken::Malformed("a trailer".into())))
    }
}

/// Takes up what the reader finds in one read.
struct ReplyVisitor<'a> {
    read: &'a Bytes,
    arrived: &'a mut ArrivedReply,
}

impl Visit for ReplyVisitor<'_> {
    fn head(&mut self, head: &[u8]) {
        // A head that came in several reads lies elsewhere.
        let is_here = self.read.as_ptr_range().contains(&head.as_ptr());
        self.arrived.head =
            Some(if is_here { self.read.slice_ref(head) } else { Bytes::copy_from_slice(head) });
    }

    fn body(&mut self, part: &[u8]) {
        let ArrivedReply { first, more, .. } = &mut *self.arrived;
        if part.is_empty() {
        } else if first.is_empty() && more.is_empty() {
            *first = self.read.slice_ref(part);
        } else {
            if more.is_empty() {
                more.reserve(first.len() + self.read.len());
                more.extend_from_slice(&std::mem::take(first));
            }
            more.extend_from_slice(part);
        }
    }

    fn trailer(&mut self, part: &[u8]) {
        self.arrived.trailers.extend_from_slice(part);
    }
}

/// The bytes of a request (RFC 9112) with this body, for a server that is called `host` where the client named none.
pub(crate) fn request_bytes(parts: &Parts, body: &[u8], host: impl FnOnce() -> String) -> Vec<u8> {
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let fields = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let mut bytes = Vec::with_capacity(64 + target.len() + fields.sum::<usize>() + body.len());
    bytes.extend_from_slice(parts.method.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(target.as_bytes());
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    if !parts.headers.contains_key(HOST) {
        put_field(&mut bytes, "host", host().as_bytes());
    }
    for (name, value) in parts.headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH) {
        put_field(&mut bytes, name.as_str(), value.as_bytes());
        // It speaks of this connection (RFC 9110, 10.1.4).
        if *name == TE {
            put_field(&mut bytes, "connection", b"te");
        }
    }
    // Methods that have a body say so when theirs is empty (RFC 9110, 8.6).
    if !body.is_empty() || matches!(parts.method, Method::POST | Method::PUT | Method::PATCH) {
        put_field(&mut bytes, "content-length", body.len().to_string().as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

fn put_field(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}

fn read_head(bytes: &Bytes) -> Option<Response<()>> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut head = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut head, bytes, &mut fields);
    parsed.ok().filter(httparse::Status::is_complete)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.code?).ok()?;
    *response.version_mut() = if head.version? == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    response.headers_mut().reserve(head.headers.len());
    for field in &*head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        response.headers_mut().append(name, value);
    }
    Some(response)
}

fn read_trailers(bytes: &[u8]) -> Option<HeaderMap> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let httparse::Status::Complete((_, fields)) = httparse::parse_headers(bytes, &mut fields).ok()? else {
        return None;
    };
    let pair = |field: &httparse::Header<'_>| {
        Some((
            HeaderName::from_bytes(field.name.as_bytes()).ok()?,
            HeaderValue::from_bytes(field.value).ok()?,
        ))
    };
    fields.iter().map(pair).collect()
}

#[cfg(test)]
mod tests;
