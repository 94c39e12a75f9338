//! What a service answers with.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::activity::Activity;
use crate::clock::monotonic;
use crate::stats::Route;

/// Any error of a streamed body: it ends the connection, so that the client sees a reply cut
/// short rather than one that looks complete.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A reply's body. Those that are not streamed allocate nothing.
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
    Streamed(Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>),
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
    /// Whether a connection of HTTP/1.1 ends with it.
    pub(super) last: bool,
}

impl Reply {
    /// A reply that counts under `route`.
    #[must_use]
    pub fn new(route: Route, response: Response<Body>) -> Self {
        Self { response, route, counted_as: None, last: false }
    }

    /// Counts under `status`: for protocols whose failures are a 200 on the wire.
    #[must_use]
    pub fn counted_as(mut self, status: u16) -> Self {
        self.counted_as = Some(status);
        self
    }

    /// Ends a connection of HTTP/1.1 and says so: for requests whose body was not read to its end, after
    /// which there is nowhere to go on.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }

    /// A short plain-text reply under [`Route::OTHER`], for requests refused before routing.
    #[must_use]
    pub fn refusal(status: StatusCode, reason: &'static str) -> Self {
        let mut response = Response::new(Body::from(reason));
        *response.status_mut() = status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        Self { response, route: Route::OTHER, counted_as: None, last: false }
    }

    /// Ends the connection after this reply.
    pub(super) fn close(&mut self) {
        self.response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Self {
        Self { response, route: Route::OTHER, counted_as: None, last: false }
    }
}

/// A body on its way out. The end of a streamed one is when the connection becomes idle; the
/// other kinds have ended before hyper sees them.
pub(super) struct Outgoing {
    body: Body,
    _streaming: Option<Streaming>,
}

impl Outgoing {
    pub(super) fn new(body: Body, activity: &Arc<Activity>) -> Self {
        let streaming = matches!(body, Body::Streamed(_)).then(|| Streaming(Arc::clone(activity)));
        Self { body, _streaming: streaming }
    }
}

struct Streaming(Arc<Activity>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.idle_from(monotonic());
    }
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.body {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.body = Body::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Body::Trailed(bytes, _) if !bytes.is_empty() => {
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            Body::Trailed(_, trailers) => {
                let trailers = trailers();
                self.body = Body::Empty;
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Body::Streamed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Body::Empty => true,
            Body::Full(bytes) => bytes.is_empty(),
            Body::Trailed(..) => false,
            Body::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Body::Empty => SizeHint::with_exact(0),
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            // An exact length would be announced in the head, which nobody needs before the trailers.
            Body::Trailed(..) => SizeHint::default(),
            Body::Streamed(body) => body.size_hint(),
        }
    }
}
