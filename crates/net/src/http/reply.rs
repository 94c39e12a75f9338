//! The reply of a service.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body as HttpBody, Frame};

use tidegate_wire::problem::{self, Problem};

use super::upgrade::{Continuation, UpgradeOffer, Upgraded};
use crate::drain::{Drain, Stage};
use crate::stats::Route;

/// Any error of a streamed body: it ends the connection, so that the client sees a reply cut
/// short rather than one that looks complete.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is still being made.
pub(super) type StreamedBody = Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>;

/// Among the extensions of a response whose streamed body never ends by itself, such as events: it ends when its listener
/// drains, and the client asks another one. Other bodies are sent to their end.
#[derive(Clone, Copy, Debug)]
pub struct EndsWithListener;

/// A streamed body until something happens.
struct EndingBody {
    body: Option<StreamedBody>,
    end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl HttpBody for EndingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.body.is_some() && this.end.as_mut().poll(cx).is_ready() {
            this.body = None;
        }
        this.body.as_mut().map_or(Poll::Ready(None), |body| body.as_mut().poll_frame(cx))
    }
}

/// A reply's body. A body that is not streamed allocates nothing.
#[derive(Default)]
pub enum Body {
    /// No bytes.
    #[default]
    Empty,
    /// All bytes at once.
    Full(Bytes),
    /// All bytes at once, then trailers, which are made when they are sent; HTTP/1.1 leaves them out.
    Trailed(Bytes, fn() -> HeaderMap),
    /// Bytes as they come.
    Streamed(StreamedBody),
}

impl Body {
    /// Any other body, such as an axum one.
    pub fn streamed<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::Streamed(Box::pin(http_body_util::BodyExt::map_err(body, Into::into)))
    }
}

impl Body {
    /// Its bytes, if they are at hand.
    pub(super) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Full(bytes) | Self::Trailed(bytes, _) => Some(bytes),
            Self::Empty | Self::Streamed(_) => None,
        }
    }

    /// The same, which is over when `drain` begins if it is streamed.
    fn ending_with(self, drain: &Drain) -> Self {
        let Self::Streamed(body) = self else { return self };
        let drain = drain.clone();
        let end = Box::pin(async move { drain.reached(Stage::Draining).await });
        Self::Streamed(Box::pin(EndingBody { body: Some(body), end }))
    }

    /// The same with other bytes, if they are at hand.
    pub(super) fn map_bytes(self, map: impl FnOnce(Bytes) -> Bytes) -> Self {
        match self {
            Self::Full(bytes) => Self::Full(map(bytes)),
            Self::Trailed(bytes, trailers) => Self::Trailed(map(bytes), trailers),
            Self::Empty | Self::Streamed(_) => self,
        }
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => formatter.write_str("Empty"),
            Self::Full(bytes) => write!(formatter, "Full({} bytes)", bytes.len()),
            Self::Trailed(bytes, _) => write!(formatter, "Trailed({} bytes)", bytes.len()),
            Self::Streamed(_) => formatter.write_str("Streamed"),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(bytes)
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self::Full(Bytes::from_static(text.as_bytes()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::Full(text.into())
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Full(bytes.into())
    }
}

/// A response and the route that it counts under.
#[derive(Debug)]
pub struct Reply {
    /// What the client gets.
    pub response: Response<Body>,
    /// The route template for the metrics.
    pub route: Route,
    /// The status for the metrics, where it is not the response's.
    pub(super) counted_as: Option<u16>,
    /// When it was ready, if its service knows.
    pub(super) ready_at: Option<Instant>,
    /// Whether a connection of HTTP/1.1 ends with it.
    pub(super) last: bool,
    /// What the service does with the connection when it was sent.
    pub(super) continuation: Option<Continuation>,
}

impl Reply {
    /// A reply that counts under `route`.
    #[must_use]
    pub fn new(route: Route, response: Response<Body>) -> Self {
        Self { response, route, counted_as: None, ready_at: None, last: false, continuation: None }
    }

    /// Accepts `offer`: the client is sent 101 with the fields of `response`, among which is `Upgrade`, and then
    /// the connection is `run`'s for as long as its future lives. If the client leaves before, `run` is dropped.
    /// Of a stream of HTTP/2 the client is sent 200 without what only HTTP/1.1 says (RFC 8441, 5), which counts as 101.
    #[must_use]
    pub fn upgrade<R, F>(route: Route, offer: UpgradeOffer, response: Response<()>, run: R) -> Self
    where
        R: FnOnce(Upgraded) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let mut reply = Self::new(route, response.map(|()| Body::Empty));
        let fields = reply.response.headers_mut();
        if offer.is_stream() {
            // What follows is no body, and its protocol is known.
            for name in [header::UPGRADE, header::CONTENT_LENGTH] {
                fields.remove(name);
            }
            *reply.response.status_mut() = StatusCode::OK;
            reply.counted_as = Some(StatusCode::SWITCHING_PROTOCOLS.as_u16());
        } else {
            fields.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            *reply.response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        }
        reply.continuation = Some(Continuation::new(run));
        reply
    }

    /// Counts under `status`: for protocols whose failures are a 200 on the wire.
    #[must_use]
    pub fn counted_as(mut self, status: u16) -> Self {
        self.counted_as = Some(status);
        self
    }

    /// It was ready then, if its service has read the clock, which is not read again.
    #[must_use]
    pub fn ready_at(mut self, instant: Option<Instant>) -> Self {
        self.ready_at = instant;
        self
    }

    /// Ends a connection of HTTP/1.1 and says so: for requests whose body was not read to its end, after
    /// which there is nowhere to go on.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }

    /// A problem document under [`Route::OTHER`], for requests refused before routing.
    #[must_use]
    pub fn refusal(status: StatusCode, reason: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        let problem = Problem::new(status.as_u16(), title, reason);
        let mut response = Response::new(Body::from(problem.to_json()));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::MEDIA_TYPE));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            fields.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Self::new(Route::OTHER, response)
    }

    /// Instead of a reply, or of answering at all, where there is no room for it. Without a body, which
    /// would have to wait like the others.
    pub(super) fn no_room(route: Route) -> Self {
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        Self::new(route, response)
    }

    /// Has its body end with the listener, if its service says so by [`EndsWithListener`].
    pub(super) fn end_with(&mut self, drain: &Drain) {
        if self.response.extensions_mut().remove::<EndsWithListener>().is_some() {
            let body = std::mem::take(self.response.body_mut());
            *self.response.body_mut() = body.ending_with(drain);
        }
    }

    /// Ends the connection after this reply.
    pub(super) fn close(&mut self) {
        self.response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Self {
        Self::new(Route::OTHER, response)
    }
}
