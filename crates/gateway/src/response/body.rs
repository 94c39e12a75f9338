//! The body of a reply on its way through, and the connection that it comes on.
//!
//! The gateway does not gather it: it asks for a frame when the client has taken the last one, so that a large
//! body costs the memory of one frame (back-pressure). A request's body is in `payload.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tidegate_net::clock::monotonic;
use tidegate_net::http::BoxError;
use tidegate_upstream::backend::Place;
use tokio::time::{Sleep, sleep};

use crate::config::RouteConfig;
use crate::forwarding::fields::strip_trailers;
use crate::observed::record::End;
use crate::servers::connection::Sender;
use crate::servers::pool::Return;

/// What asking a body for its next frame gives.
pub(crate) type NextFrame = Option<Result<Frame<Bytes>, BoxError>>;

/// Where the body of a reply comes from.
#[derive(Debug)]
pub(crate) enum ReplySource {
    Hyper(Incoming),
    /// From the connection that it came on.
    Direct,
}

impl ReplySource {
    /// The next frame, of a reply that came by `sender`.
    pub(crate) fn poll_frame(&mut self, sender: &mut Sender, cx: &mut Context<'_>) -> Poll<NextFrame> {
        match (self, sender) {
            (Self::Hyper(incoming), _) => {
                Pin::new(incoming).poll_frame(cx).map(|next| next.map(|frame| frame.map_err(Into::into)))
            }
            (Self::Direct, Sender::Direct(direct)) => {
                direct.poll_frame(cx).map(|next| next.map(|frame| frame.map_err(Into::into)))
            }
            // Invariant: a connection that hyper took over gives no such reply.
            (Self::Direct, Sender::Hyper(_)) => Poll::Ready(None),
        }
    }

    /// Whether nothing follows.
    pub(crate) fn is_at_end(&self, sender: &Sender) -> bool {
        match (self, sender) {
            (Self::Hyper(incoming), _) => incoming.is_end_stream(),
            (Self::Direct, Sender::Direct(direct)) => direct.is_at_end(),
            (Self::Direct, Sender::Hyper(_)) => true,
        }
    }
}

/// A reply's body as it comes from an upstream. Dropped before its end, it closes the connection, which is
/// in the middle of a message.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    source: ReplySource,
    /// What was asked for already and not passed on yet.
    first: Poll<NextFrame>,
    route: Arc<RouteConfig>,
    /// When all of it must be there, if it must.
    last: Option<Instant>,
    idle: Option<Pin<Box<Sleep>>>,
    at_end: Option<Return>,
    _place: Place,
}

/// Why a reply ends early: the client sees it cut.
#[derive(Debug, Error)]
pub(crate) enum ReplyCut {
    #[error("the upstream broke its reply off: {0}")]
    Broken(BoxError),
    #[error("the upstream sent nothing more in time")]
    TooSlow,
    #[error("the time for the whole reply is over")]
    TooLong,
}

impl ReplyCut {
    pub(crate) fn end(&self) -> End {
        match self {
            Self::Broken(_) => End::BrokenOff,
            Self::TooSlow => End::Silent,
            Self::TooLong => End::TooLong,
        }
    }
}

impl ReplyBody {
    /// A body of which `first` was asked for already, and which must be there by `last`.
    pub(crate) fn new(
        source: ReplySource,
        first: Poll<NextFrame>,
        route: Arc<RouteConfig>,
        last: Option<Instant>,
        at_end: Return,
        place: Place,
    ) -> Self {
        Self { source, first, route, last, idle: None, at_end: Some(at_end), _place: place }
    }

    /// Whether the source has nothing more.
    fn is_at_end(&self) -> bool {
        self.at_end.as_ref().is_none_or(|back| self.source.is_at_end(&back.sender))
    }

    /// Why nothing more is waited for, if that is so.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<ReplyCut> {
        let (idle, last) = (self.route.idle_timeout, self.last);
        let waiting = self.idle.get_or_insert_with(|| {
            let left = last.map(|last| last.saturating_duration_since(monotonic()));
            Box::pin(sleep(left.map_or(idle, |left| left.min(idle))))
        });
        let is_over = last.is_some_and(|last| monotonic() >= last);
        waiting.as_mut().poll(cx).map(|()| if is_over { ReplyCut::TooLong } else { ReplyCut::TooSlow })
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
            // Once the connection is gone the reply is whole.
            let Some(back) = &mut this.at_end else { return Poll::Ready(None) };
            next = this.source.poll_frame(&mut back.sender, cx);
        }
        let Poll::Ready(frame) = next else {
            return this.poll_patience(cx).map(|cut| Some(Err(cut.into())));
        };
        if this.last.is_some_and(|last| monotonic() >= last) {
            return Poll::Ready(Some(Err(ReplyCut::TooLong.into())));
        }
        this.idle = None;
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        this.at_end.iter().for_each(|back| back.reply_bytes(bytes));
        let is_whole = frame.is_none() || this.is_at_end();
        if is_whole && let Some(back) = this.at_end.take() {
            back.now();
        }
        let strip = |mut frame: Frame<Bytes>| {
            if let Some(trailers) = frame.trailers_mut() {
                strip_trailers(trailers, &this.route.response_fields);
            }
            frame
        };
        Poll::Ready(frame.map(|frame| frame.map(strip).map_err(|error| ReplyCut::Broken(error).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_pending() && self.is_at_end()
    }

    /// Nothing: what is stated of the whole is in the reply's fields.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
