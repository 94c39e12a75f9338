//! Bodies on their way through: what a client sends, and what an upstream answers with.
//!
//! Neither is gathered: a frame is asked for when the other side has taken the last one, so that a large
//! body costs the memory of one frame (back-pressure). A request's body that came with its head is kept
//! whole, which is what lets an attempt be repeated.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tidegate_net::clock::monotonic;
use tidegate_net::http::{BodyError, BoxError, RequestBody};
use tidegate_upstream::backend::Place;
use tokio::time::{Sleep, sleep};

use crate::pool::{Pool, Sender};

/// Why a request's body cannot be sent on.
#[derive(Debug, Error)]
pub(crate) enum PayloadError {
    /// It could not be had from the client.
    #[error(transparent)]
    Client(#[from] BodyError),
    /// It is larger than its route takes.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The route's bound.
        limit: u64,
    },
}

/// A request's body as it is sent to an upstream.
#[derive(Debug)]
pub(crate) enum RequestPayload {
    /// It is at hand.
    Whole(Bytes),
    /// It is still coming.
    Streaming {
        /// Where from.
        body: RequestBody,
        /// Bytes that came so far.
        received: u64,
        /// The route's bound.
        limit: u64,
    },
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
            Self::Streaming { body, received, limit } => {
                let Some(frame) = std::task::ready!(Pin::new(body).poll_frame(cx)) else {
                    return Poll::Ready(None);
                };
                let frame = frame?;
                *received += frame.data_ref().map_or(0, Bytes::len) as u64;
                if received > limit {
                    return Poll::Ready(Some(Err(PayloadError::TooLarge { limit: *limit })));
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Streaming { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Streaming { body, .. } => body.size_hint(),
        }
    }
}

/// Where a connection goes back to when its reply has been read to the end.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) sender: Sender,
    pub(crate) pool: Arc<Pool>,
    pub(crate) core: usize,
}

impl Return {
    /// Keeps the connection for the next request.
    pub(crate) fn now(self) {
        self.pool.put(self.core, self.sender, monotonic());
    }
}

/// What asking a body for its next frame gives.
pub(crate) type NextFrame = Option<Result<Frame<Bytes>, hyper::Error>>;

/// A reply's body as it comes from an upstream. Dropped before its end, it closes the connection, which is
/// in the middle of a message.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    incoming: Incoming,
    /// What was asked for already and not passed on yet.
    first: Poll<NextFrame>,
    idle_timeout: Duration,
    idle: Option<Pin<Box<Sleep>>>,
    at_end: Option<Return>,
    _place: Place,
}

/// Why a reply ends early: the client sees it cut.
#[derive(Debug, Error)]
enum ReplyCut {
    #[error("the upstream broke its reply off: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the upstream sent nothing more in time")]
    TooSlow,
}

impl ReplyBody {
    /// A body of which `first` was asked for already.
    pub(crate) fn new(
        incoming: Incoming,
        first: Poll<NextFrame>,
        idle_timeout: Duration,
        at_end: Return,
        place: Place,
    ) -> Self {
        Self { incoming, first, idle_timeout, idle: None, at_end: Some(at_end), _place: place }
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let mut next = std::mem::replace(&mut this.first, Poll::Pending);
        if next.is_pending() {
            next = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        let Poll::Ready(frame) = next else {
            let idle = this.idle.get_or_insert_with(|| Box::pin(sleep(this.idle_timeout)));
            return idle.as_mut().poll(cx).map(|()| Some(Err(ReplyCut::TooSlow.into())));
        };
        this.idle = None;
        let is_whole = frame.is_none() || this.incoming.is_end_stream();
        if is_whole && let Some(back) = this.at_end.take() {
            back.now();
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| ReplyCut::Broken(error).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_pending() && self.incoming.is_end_stream()
    }

    /// Nothing: what is stated of the whole is in the reply's fields.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
