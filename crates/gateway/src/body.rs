//! Bodies on their way through: what a client sends, and what an upstream answers with.
//!
//! The gateway gathers neither body: it asks for a frame when the other side has taken the last one, so that a large
//! body costs the memory of one frame (back-pressure). A request's body that came with its head is kept whole, which
//! is what lets an attempt be repeated.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use thiserror::Error;
use tidegate_net::clock::monotonic;
use tidegate_net::http::{BodyPace, BoxError, MinimumRate, RequestBody};
use tidegate_upstream::backend::Place;
use tokio::time::{Sleep, sleep};

use crate::config::RouteConfig;
use crate::connection::Sender;
use crate::expectation::Asking;
use crate::fields::strip_trailers;
use crate::pool::Pool;
use crate::record::End;
use crate::refusal::Refusal;

/// The slowest client that is waited for while its body is passed on.
const BODY_RATE: MinimumRate = MinimumRate { grace: Duration::from_secs(5), bytes_per_second: 1_024 };

/// No client is waited for.
const NOT_AWAITED: u64 = u64::MAX;

/// No bound of its own: another one holds.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// A request's body cannot be sent on, by the client's fault; its [`Progress`] says why.
#[derive(Debug, Error)]
#[error("the request body ended early")]
pub(crate) struct PayloadError;

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
    pub(crate) asking: Option<Asking>,
    progress: Arc<Progress>,
}

/// How far a request's body has come, for who waits for the reply to it.
#[derive(Debug)]
pub(crate) struct Progress {
    opened: Instant,
    /// When some of it was last taken, in nanoseconds.
    last: AtomicU64,
    /// Since when more of it is waited for, from the client, in nanoseconds; [`NOT_AWAITED`] if it is not.
    awaited_since: AtomicU64,
    /// How long it was waited for before that, in nanoseconds.
    awaited: AtomicU64,
    /// Why it cannot be had.
    fault: Mutex<Option<Refusal>>,
}

impl Progress {
    /// When the server last took some of it.
    pub(crate) fn last(&self) -> Instant {
        self.opened + Duration::from_nanos(self.last.load(Relaxed))
    }

    /// Whether it is the client who is waited for.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited_since.load(Relaxed) != NOT_AWAITED
    }

    /// Nanoseconds in which the client was waited for.
    pub(crate) fn awaited(&self) -> u64 {
        let since = self.awaited_since.load(Relaxed);
        let now = if since == NOT_AWAITED { 0 } else { self.nanoseconds().saturating_sub(since) };
        self.awaited.load(Relaxed) + now
    }

    /// What the client did wrong, if that is why sending failed.
    pub(crate) fn fault(&self) -> Option<Refusal> {
        self.fault.lock().take()
    }

    fn took_some(&self) {
        let now = self.nanoseconds();
        self.last.store(now, Relaxed);
        let since = self.awaited_since.swap(NOT_AWAITED, Relaxed);
        if since != NOT_AWAITED {
            self.awaited.fetch_add(now.saturating_sub(since), Relaxed);
        }
    }

    pub(crate) fn awaits_more(&self) {
        if !self.is_awaited() {
            self.awaited_since.store(self.nanoseconds(), Relaxed);
        }
    }

    /// Nanoseconds since it was opened.
    fn nanoseconds(&self) -> u64 {
        u64::try_from(monotonic().duration_since(self.opened).as_nanos()).unwrap_or(NOT_AWAITED - 1)
    }

    fn failed(&self, refusal: Refusal) -> Poll<Option<Result<Frame<Bytes>, PayloadError>>> {
        *self.fault.lock() = Some(refusal);
        Poll::Ready(Some(Err(PayloadError)))
    }
}

impl Streaming {
    /// A body within the bounds of `route`. A body that `is_dialogue` has no least rate, and its client may be silent
    /// between messages.
    pub(crate) fn new(body: RequestBody, route: Arc<RouteConfig>, is_dialogue: bool) -> Self {
        let rate = if is_dialogue { MinimumRate { grace: FOREVER, ..BODY_RATE } } else { BODY_RATE };
        let progress = Progress {
            opened: monotonic(),
            last: AtomicU64::new(0),
            awaited_since: AtomicU64::new(NOT_AWAITED),
            awaited: AtomicU64::new(0),
            fault: Mutex::default(),
        };
        Self {
            body: body.at_pace(BodyPace { deadline: FOREVER, rate }),
            received: 0,
            silence: if is_dialogue { FOREVER } else { route.idle_timeout },
            route,
            silent: None,
            asking: None,
            progress: Arc::new(progress),
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
        self.received += frame.data_ref().map_or(0, Bytes::len) as u64;
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
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
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

/// Where a connection goes back to when its reply has been read to the end.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) sender: Sender,
    pool: Arc<Pool>,
    core: usize,
    /// How long it may be kept, if that is known.
    promised: Option<Duration>,
}

impl Return {
    /// Where a connection goes that may be kept for so long, if that is known.
    pub(crate) fn new(sender: Sender, promised: Option<Duration>, pool: Arc<Pool>, core: usize) -> Self {
        Self { sender, pool, core, promised }
    }

    /// Keeps the connection for the next request.
    pub(crate) fn now(self) {
        self.pool.put(self.core, self.sender, self.promised, monotonic());
    }
}

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
