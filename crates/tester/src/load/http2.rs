//! HTTP/2 and unary gRPC as a [`Protocol`], by the h2 library.
//!
//! h2 wants an asynchronous socket. It gets a pair of buffers that never wait for anything, and its
//! futures are polled by hand whenever bytes came or a request goes out: no runtime, no wake-ups, no
//! thread but the event loop's own, so latencies are those of this engine's clock readings.
//!
//! ```text
//!   socket -> receive -> Wire.input  -> h2 -> response, body, trailers -> verdict
//!   socket <- request,
//!             answer  <- Wire.output <- h2 <- request, settings, window updates
//! ```
//!
//! A connection carries one stream at a time, as in every engine here: load is connections. For gRPC
//! the body is framed as one message, and the verdict is that of `grpc-status`, which is kept as the
//! reply's status when it is not 0 (OK). RESOURCE_EXHAUSTED is a denial.
//!
//! Reference: RFC 9113; "gRPC over HTTP2" (grpc/grpc, doc/PROTOCOL-HTTP2.md).

use std::{
    future::Future as _,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    client::{Builder, Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, header::LOCATION, uri::PathAndQuery};
use tidegate_wire::http1::headers;

use super::{
    judge::Judge,
    protocol::{Protocol, Reply, Verdict},
    requests::Requests,
    wire::Wire,
    workload::Workload,
};

/// Bytes that a server may send ahead, per stream; a connection has 16 times that.
const WINDOW: u32 = 1 << 20;
/// Times that the library is polled over one read: it may yield, and says so by leaving input behind.
const MAX_POLLS: u32 = 64;
/// gRPC's code of a request that a limit turned away.
const RESOURCE_EXHAUSTED: u16 = 8;
/// gRPC's code of a reply that has none.
const UNKNOWN: u16 = 2;

/// One thread's HTTP/2.
pub(crate) struct Http2 {
    requests: Requests,
    judges: Vec<Judge>,
    /// Requests without variables, read back once.
    fixed: Vec<Option<(Request<()>, Bytes)>>,
    scheme: &'static str,
    grpc: bool,
    sealed: Vec<u8>,
}

/// One connection's HTTP/2.
pub(crate) struct State {
    wire: Wire,
    link: Option<(SendRequest<Bytes>, Connection<Wire, Bytes>)>,
    stage: ReplyStage,
    request: u32,
    status: u16,
    headers_good: bool,
    body: Vec<u8>,
    grpc_status: Option<u16>,
    /// Where the reply redirects to.
    location: Option<HeaderValue>,
}

/// How far the present reply has come.
enum ReplyStage {
    Idle,
    Head(ResponseFuture),
    Body(RecvStream),
}

impl Http2 {
    /// Thread `index` of `threads` of a run; `tls` decides the scheme that requests state.
    pub(crate) fn new(
        workload: Arc<Workload>,
        grpc: bool,
        tls: bool,
        seed: u64,
        index: u32,
        threads: u32,
    ) -> Self {
        let scheme = if tls { "https" } else { "http" };
        let fixed = workload.requests.iter().map(|request| {
            let text = request.template.fixed()?;
            read_back(text, scheme, grpc)
        });
        Self {
            fixed: fixed.collect(),
            judges: workload.requests.iter().map(|request| Judge::new(&request.checks)).collect(),
            requests: Requests::new(workload, seed, index, threads),
            scheme,
            grpc,
            sealed: Vec::new(),
        }
    }

    fn next(&mut self, state: &mut State) -> Option<(Request<()>, Bytes)> {
        let picked = self.requests.pick();
        state.request = picked as u32;
        match &self.fixed[picked] {
            Some(known) => Some(known.clone()),
            None => read_back(self.requests.http1(picked), self.scheme, self.grpc),
        }
    }

    /// Reads of the present reply what the library has of it.
    fn advance(&self, state: &mut State, context: &mut Context<'_>) -> Result<Option<Reply>, h2::Error> {
        let judge = &self.judges[state.request as usize];
        if let ReplyStage::Head(future) = &mut state.stage {
            let Poll::Ready(response) = Pin::new(future).poll(context) else { return Ok(None) };
            let (head, body) = response?.into_parts();
            state.status = head.status.as_u16();
            state.headers_good = judge.headers_good(|| {
                head.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            });
            state.grpc_status = grpc_status(&head.headers);
            if head.status.is_redirection() {
                state.location = head.headers.get(LOCATION).cloned();
            }
            state.stage = ReplyStage::Body(body);
        }
        let ReplyStage::Body(body) = &mut state.stage else { return Ok(None) };
        loop {
            match body.poll_data(context) {
                Poll::Pending => return Ok(Some(Reply::More)),
                Poll::Ready(Some(part)) => {
                    let part = part?;
                    judge.keep(&mut state.body, &part);
                    body.flow_control().release_capacity(part.len())?;
                }
                Poll::Ready(None) => break,
            }
        }
        let Poll::Ready(trailers) = body.poll_trailers(context) else { return Ok(Some(Reply::More)) };
        if let Some(trailers) = trailers? {
            state.grpc_status = grpc_status(&trailers).or(state.grpc_status);
        }
        state.stage = ReplyStage::Idle;
        Ok(Some(self.done(state)))
    }

    fn done(&self, state: &State) -> Reply {
        let judge = &self.judges[state.request as usize];
        let by_status = judge.verdict(state.status, state.headers_good, &state.body);
        let (verdict, status) = match (self.grpc && state.status == 200, state.grpc_status) {
            (true, Some(0)) => (by_status, 200),
            (true, Some(RESOURCE_EXHAUSTED)) => (Verdict::Denied, RESOURCE_EXHAUSTED),
            (true, code) => (Verdict::BadStatus, code.unwrap_or(UNKNOWN)),
            (false, _) => (by_status, state.status),
        };
        Reply::Done { verdict, status, reusable: true }
    }

    /// Lets the library work on what came; what became of the present reply.
    fn drive(&self, state: &mut State) -> Reply {
        let mut context = Context::from_waker(Waker::noop());
        let mut outcome = Reply::Aside;
        for _ in 0..MAX_POLLS {
            let ended = match &mut state.link {
                Some((_, connection)) => Pin::new(connection).poll(&mut context),
                None => return Reply::Broken,
            };
            match self.advance(state, &mut context) {
                Ok(None) => {}
                Ok(Some(reply)) => outcome = reply,
                Err(error) => return lost(&error),
            }
            match (ended, &mut outcome) {
                // The peer said goodbye after a whole reply: it counts, the connection does not.
                (Poll::Ready(_), Reply::Done { reusable, .. }) => {
                    *reusable = false;
                    return outcome;
                }
                (Poll::Ready(Err(error)), _) => return lost(&error),
                (Poll::Ready(Ok(())), _) => return Reply::Goaway,
                (Poll::Pending, _) => {}
            }
            if state.wire.lock().input.is_empty() {
                break;
            }
        }
        if let (Reply::Done { reusable, .. }, Some((sender, _))) = (&mut outcome, &mut state.link) {
            *reusable = !matches!(sender.poll_ready(&mut context), Poll::Ready(Err(_)));
        }
        outcome
    }
}

impl Protocol for Http2 {
    type State = State;
    const CONVERSES: bool = true;
    const SAYS_GOAWAY: bool = true;

    fn fresh(&self) -> State {
        State {
            wire: Wire::default(),
            link: None,
            stage: ReplyStage::Idle,
            request: 0,
            status: 0,
            headers_good: true,
            body: Vec::new(),
            grpc_status: None,
            location: None,
        }
    }

    fn open(&mut self, state: &mut State) -> bool {
        *state = self.fresh();
        let mut builder = Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(16 * WINDOW).enable_push(false);
        let handshake = pin!(builder.handshake::<_, Bytes>(state.wire.clone()));
        // Buffers take everything at once, so the preface is written by the first poll.
        if let Poll::Ready(Ok(link)) = handshake.poll(&mut Context::from_waker(Waker::noop())) {
            state.link = Some(link);
            let _said_later = self.drive(state);
        }
        true
    }

    fn request<'a>(&'a mut self, state: &mut State) -> &'a [u8] {
        state.status = 0;
        state.headers_good = true;
        state.body.clear();
        state.grpc_status = None;
        self.sealed.clear();
        let next = self.next(state);
        if let (Some((sender, connection)), Some((head, body))) = (&mut state.link, next)
            && let Ok((response, mut stream)) = sender.send_request(head, body.is_empty())
        {
            // A body that cannot be sent shows as a reset of the stream.
            let _refused = !body.is_empty() && stream.send_data(body, true).is_err();
            state.stage = ReplyStage::Head(response);
            let polled = Pin::new(connection).poll(&mut Context::from_waker(Waker::noop()));
            if polled.is_pending() {
                self.sealed.append(&mut state.wire.lock().output);
            }
        }
        &self.sealed
    }

    fn receive(&mut self, state: &mut State, bytes: &[u8]) -> Reply {
        state.wire.lock().input.extend_from_slice(bytes);
        self.drive(state)
    }

    fn answer(&mut self, state: &mut State, out: &mut Vec<u8>) {
        if let Some((_, connection)) = &mut state.link {
            // Window updates are written by the next poll; an end is seen when it is read.
            let _ended = Pin::new(connection).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        }
        out.append(&mut state.wire.lock().output);
    }

    fn location<'s>(&self, state: &'s State) -> Option<&'s [u8]> {
        state.location.as_ref().map(HeaderValue::as_bytes)
    }

    fn closed(&mut self, state: &mut State) -> Reply {
        state.wire.lock().ended = true;
        match self.drive(state) {
            done @ Reply::Done { .. } => done,
            _ => Reply::More,
        }
    }
}

/// Whether the peer said goodbye before it took the request, gave up, or did not speak the protocol. A GOAWAY without an error
/// ends those streams alone that its sender did not take (RFC 9113, 6.8).
fn lost(error: &h2::Error) -> Reply {
    if error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR) {
        Reply::Goaway
    } else if error.is_remote() || error.is_io() {
        Reply::Reset
    } else {
        Reply::Broken
    }
}

fn grpc_status(fields: &HeaderMap) -> Option<u16> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// HTTP/1.1 text as a request of HTTP/2; none when the text does not make one.
fn read_back(text: &[u8], scheme: &str, grpc: bool) -> Option<(Request<()>, Bytes)> {
    let end = memchr::memmem::find(text, b"\r\n\r\n")?;
    let (head, body) = (&text[..end + 4], &text[end + 4..]);
    let mut line = head.split(|&byte| byte == b' ');
    let (method, path) = (line.next()?, line.next()?);
    let mut fields = HeaderMap::new();
    let mut authority = None;
    for (name, value) in headers(head) {
        let name = HeaderName::from_bytes(name).ok()?;
        match name.as_str() {
            "host" => authority = Some(value),
            // RFC 9113, 8.2.2: fields about a connection do not exist here.
            "connection" | "keep-alive" | "upgrade" | "proxy-connection" => {}
            "content-length" if grpc => {}
            _ => {
                fields.append(name, HeaderValue::from_bytes(value).ok()?);
            }
        }
    }
    let path = PathAndQuery::try_from(path).ok()?;
    let uri = Uri::builder().scheme(scheme).authority(authority?).path_and_query(path).build().ok()?;
    // gRPC knows no other method.
    let method = if grpc { b"POST" } else { method };
    let mut request = Request::builder().method(method).uri(uri).body(()).ok()?;
    let body = if grpc {
        fields.insert("content-type", HeaderValue::from_static("application/grpc"));
        fields.insert("te", HeaderValue::from_static("trailers"));
        message(body)?
    } else {
        Bytes::copy_from_slice(body)
    };
    *request.headers_mut() = fields;
    Some((request, body))
}

/// A gRPC message, not compressed, with its prefix.
fn message(body: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(body.len()).ok()?;
    let mut framed = Vec::with_capacity(5 + body.len());
    framed.push(0);
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(body);
    Some(framed.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_read_back_from_its_text() {
        let text =
            b"PUT /a?b=c HTTP/1.1\r\nHost: h:1\r\nX-A: b\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi";
        let (request, body) = read_back(text, "http", false).unwrap();
        assert_eq!(
            (request.method().as_str(), request.uri().to_string().as_str()),
            ("PUT", "http://h:1/a?b=c")
        );
        let names: Vec<&str> = request.headers().keys().map(HeaderName::as_str).collect();
        assert_eq!((names.as_slice(), &body[..]), (&["x-a", "content-length"][..], &b"hi"[..]));
        let (request, body) = read_back(text, "https", true).unwrap();
        assert_eq!((request.method().as_str(), &body[..]), ("POST", &b"\0\0\0\0\x02hi"[..]));
        assert_eq!(request.headers()["content-type"], "application/grpc");
        assert!(read_back(b"GET / HTTP/1.1\r\n\r\n", "http", false).is_none(), "no authority");
    }

    #[test]
    fn the_preface_comes_first_and_a_request_after_it() {
        let workload = Arc::new(Workload::get("h", "/").unwrap());
        let mut http2 = Http2::new(workload, false, false, 1, 0, 1);
        let mut state = http2.fresh();
        assert!(http2.request(&mut state).is_empty(), "nothing was opened");
        assert!(http2.open(&mut state));
        let mut sent = Vec::new();
        http2.answer(&mut state, &mut sent);
        assert!(sent.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        assert!(!http2.request(&mut state).is_empty());
        assert_eq!(http2.receive(&mut state, b"HTTP/1.1 400 Bad Request\r\n\r\n"), Reply::Broken);
    }

    proptest! {
        #[test]
        fn any_bytes_end_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), asked: bool) {
            let workload = Arc::new(Workload::get("h", "/").unwrap());
            let mut http2 = Http2::new(workload, true, false, 1, 0, 1);
            let mut state = http2.fresh();
            http2.open(&mut state);
            if asked {
                prop_assert!(!http2.request(&mut state).is_empty());
            }
            let said = http2.receive(&mut state, &bytes);
            let whole = matches!(said, Reply::Done { .. });
            prop_assert!(!whole, "no settings, no reply");
        }
    }
}
