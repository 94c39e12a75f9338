//! The body of a request on its way through.
//!
//! The gateway does not gather it: it asks for a frame when the upstream has taken the last one, so that a large
//! body costs the memory of one frame (back-pressure). A body that came with its head is kept whole, which
//! is what lets an attempt be repeated. A reply's body is in `body.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tidegate_net::http::{BodyPace, MinimumRate, RequestBody};
use tokio::time::{Sleep, sleep};

use crate::config::RouteConfig;
use crate::forwarding::expectation::{BodyWait, Expectation};
use crate::forwarding::fields::strip_trailers;
use crate::forwarding::progress::{BodyProgress, PayloadError};
use crate::observed::flow::Passing;
use crate::response::refusal::Refusal;

/// The slowest client that is waited for while its body is passed on.
const BODY_RATE: MinimumRate = MinimumRate { grace: Duration::from_secs(5), bytes_per_second: 1_024 };

/// No bound of its own: another one holds.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// A request's body as it is sent to an upstream.
#[derive(Debug)]
pub(crate) enum RequestPayload {
    /// It is at hand.
    Whole(Bytes),
    /// It is still coming.
    Streaming(Box<Streaming>),
}

/// A request's body that is still coming.
#[derive(Debug)]
pub(crate) struct Streaming {
    body: RequestBody,
    /// Bytes that came so far.
    received: u64,
    route: Arc<RouteConfig>,
    /// Longest silence of the client.
    silence: Duration,
    silent: Option<Pin<Box<Sleep>>>,
    asking: Option<BodyWait>,
    progress: Arc<BodyProgress>,
    /// Where its bytes are counted.
    pub(crate) passing: Passing,
}

impl Streaming {
    /// A body within the bounds of `route`. A body that `is_dialogue` has no least rate, and its client may be silent
    /// between messages.
    pub(crate) fn new(
        body: RequestBody,
        route: Arc<RouteConfig>,
        is_dialogue: bool,
        passing: Passing,
    ) -> Self {
        let rate = if is_dialogue { MinimumRate { grace: FOREVER, ..BODY_RATE } } else { BODY_RATE };
        Self {
            body: body.at_pace(BodyPace { deadline: FOREVER, rate }),
            received: 0,
            silence: if is_dialogue { FOREVER } else { route.idle_timeout },
            route,
            silent: None,
            asking: None,
            progress: Arc::new(BodyProgress::new()),
            passing,
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, PayloadError>>> {
        if let Some(asking) = &mut self.asking {
            ready!(asking.poll(&self.progress, cx));
        }
        let next = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                self.progress.awaits_more();
                let silence = self.silence;
                let silent = self.silent.get_or_insert_with(|| Box::pin(sleep(silence)));
                return match silent.as_mut().poll(cx) {
                    Poll::Ready(()) => self.progress.failed(Refusal::TooSlow),
                    Poll::Pending => Poll::Pending,
                };
            }
        };
        self.silent = None;
        self.progress.took_some();
        let mut frame = match next {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return self.progress.failed(error.into()),
        };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.passing.request_bytes(bytes);
        self.received += bytes as u64;
        let limit = self.route.max_body_bytes;
        if self.received > limit {
            return self.progress.failed(Refusal::TooLarge { limit });
        }
        if let Some(trailers) = frame.trailers_mut() {
            strip_trailers(trailers, &self.route.request_fields);
        }
        Poll::Ready(Some(Ok(frame)))
    }
}

impl RequestPayload {
    /// How far it has come, if it is not at hand.
    pub(crate) fn progress(&self) -> Option<Arc<BodyProgress>> {
        match self {
            Self::Whole(_) => None,
            Self::Streaming(streaming) => Some(Arc::clone(&streaming.progress)),
        }
    }
}

impl HttpBody for RequestPayload {
    type Data = Bytes;
    type Error = PayloadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PayloadError>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Streaming(streaming) => streaming.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Streaming(streaming) => streaming.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Streaming(streaming) => streaming.body.size_hint(),
        }
    }
}

impl Expectation {
    /// Takes the expectation off a request, and has its body wait, if the client does.
    pub(crate) fn take(parts: &mut Parts, payload: &mut RequestPayload) -> Option<Arc<Self>> {
        let stated = parts.headers.remove(EXPECT)?;
        let RequestPayload::Streaming(streaming) = payload else { return None };
        if !stated.as_bytes().eq_ignore_ascii_case(b"100-continue") {
            return None;
        }
        let expectation = Arc::<Self>::default();
        streaming.asking = Some(BodyWait::new(Arc::clone(&expectation)));
        Some(expectation)
    }
}
