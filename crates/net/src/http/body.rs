//! A request's body, bounded in bytes, time and rate.
//!
//! The bounds live in the body itself rather than in a helper around it, so that they also hold
//! for code that reads it through a framework (axum's extractors). A body that is put together from
//! several pieces is charged to its connection, by what it takes and not by what it announces. The timer exists only for
//! bodies that have to be waited for: most arrive in the same read as their head.
//!
//! On HTTP/2 a body that nobody wants is still read for a while, and dropped: a stream that is reset right behind its reply looks to
//! some clients as if there was none (curl 7.88). On HTTP/1.1 the whole connection lingers ([`crate::connection`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep_until, timeout};

use super::config::BodyPace;
use crate::buffers::{Account, Charge};
use crate::clock::monotonic;

/// Why a request body could not be had.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// More bytes than allowed: answer 413.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The most that is accepted, in bytes.
        limit: usize,
    },
    /// It came too slowly: answer 408.
    #[error("the request body did not arrive in time")]
    TooSlow,
    /// The connection, or the process, holds as many bytes as it may: answer 503.
    #[error("too many bytes are held for requests at once; try again")]
    NoRoom,
    /// The client left, or its framing is broken: answer 400, if anybody is there.
    #[error("the request body broke off: {0}")]
    Broken(#[from] hyper::Error),
}

impl BodyError {
    /// The status that tells the client.
    #[must_use]
    pub fn status(&self) -> http::StatusCode {
        match self {
            Self::TooLarge { .. } => http::StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => http::StatusCode::REQUEST_TIMEOUT,
            Self::NoRoom => http::StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => http::StatusCode::BAD_REQUEST,
        }
    }
}

/// The body of a request, as it comes in.
#[derive(Debug)]
pub struct RequestBody(BodySource);

#[derive(Debug)]
enum BodySource {
    Arriving(Arriving),
    /// It came with its head.
    Whole(Option<Bytes>),
}

/// A body that hyper reads, and how long it may take.
#[derive(Debug)]
struct Arriving {
    incoming: Lingering,
    pace: BodyPace,
    account: Arc<Account>,
    received: u64,
    wait: Option<Box<ClientWait>>,
    /// Where it is noted that somebody asks for it, until somebody does.
    asked: Option<Arc<AtomicBool>>,
}

/// A body that is read on after the service has stopped reading it.
#[derive(Debug)]
struct Lingering {
    /// There until this is dropped.
    incoming: Option<Incoming>,
    /// For how long; zero: it is not.
    linger: Duration,
}

/// Time that was spent on waiting for the client. Time in which the service did not ask for the body does not count.
#[derive(Debug)]
struct ClientWait {
    /// Before the present wait.
    past: Duration,
    /// Since when the present one lasts, if there is one.
    since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl RequestBody {
    /// A body whose unread rest is read for `linger`.
    pub(super) fn new(incoming: Incoming, pace: BodyPace, account: Arc<Account>, linger: Duration) -> Self {
        let incoming = Lingering { incoming: Some(incoming), linger };
        Self(BodySource::Arriving(Arriving { incoming, pace, account, received: 0, wait: None, asked: None }))
    }

    /// The same, and it is noted when the service first asks for it.
    pub(super) fn noting(mut self, asked: Option<Arc<AtomicBool>>) -> Self {
        if let BodySource::Arriving(body) = &mut self.0 {
            body.asked = asked;
        }
        self
    }

    /// No body, for a request that this process makes of a service of its own.
    #[must_use]
    pub fn none() -> Self {
        Self(BodySource::Whole(None))
    }

    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(BodySource::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// The same at another pace, for a service that passes it on as it comes.
    #[must_use]
    pub fn at_pace(mut self, pace: BodyPace) -> Self {
        if let BodySource::Arriving(body) = &mut self.0 {
            body.pace = pace;
        }
        self
    }

    /// The whole body, if it came with its head or there is none; itself otherwise.
    ///
    /// # Errors
    /// When it is still coming.
    #[expect(clippy::result_large_err, reason = "it is given back as it came")]
    pub fn into_whole(self) -> Result<Bytes, Self> {
        match self.0 {
            BodySource::Whole(bytes) => Ok(bytes.unwrap_or_default()),
            BodySource::Arriving(body) if body.incoming.is_end_stream() => Ok(Bytes::new()),
            arriving @ BodySource::Arriving(_) => Err(Self(arriving)),
        }
    }

    /// The whole body, at most `limit` bytes. A body that arrived in one piece is not copied, and
    /// an announced length that is too large is refused before a byte of it is read.
    ///
    /// # Errors
    /// When it is too large or too slow, or breaks off.
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, BodyError> {
        let too_large = BodyError::TooLarge { limit };
        if self.size_hint().lower() > limit as u64 {
            return Err(too_large);
        }
        let mut first = Bytes::new();
        while first.is_empty() {
            let Some(frame) = self.frame().await else { return Ok(first) };
            first = frame?.into_data().unwrap_or_default();
        }
        if first.len() > limit {
            return Err(too_large);
        }
        if self.is_end_stream() {
            return Ok(first);
        }
        let BodySource::Arriving(Arriving { account, .. }) = &self.0 else { return Ok(first) };
        let mut whole = Gathered::new(account, limit)?;
        whole.append(&first)?;
        drop(first);
        while let Some(frame) = self.frame().await {
            whole.append(&frame?.into_data().unwrap_or_default())?;
        }
        Ok(Bytes::from_owner(whole))
    }
}

/// A body that comes in pieces, as far as it has come. It takes no more memory than it is charged for.
struct Gathered {
    bytes: Vec<u8>,
    limit: usize,
    charge: Charge,
}

impl Gathered {
    fn new(account: &Arc<Account>, limit: usize) -> Result<Self, BodyError> {
        let charge = account.charge(0).ok_or(BodyError::NoRoom)?;
        Ok(Self { bytes: Vec::new(), limit, charge })
    }

    fn append(&mut self, more: &[u8]) -> Result<(), BodyError> {
        let (length, capacity) = (self.bytes.len() + more.len(), self.bytes.capacity());
        if length > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        if length > capacity {
            let wanted = length.max((2 * capacity).min(self.limit));
            if !self.charge.grow(wanted - capacity) {
                return Err(BodyError::NoRoom);
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
}

impl AsRef<[u8]> for Gathered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let linger = self.linger;
        let unread = self.incoming.take().filter(|incoming| !linger.is_zero() && !incoming.is_end_stream());
        // Outside of a runtime the connection is gone as well.
        if let (Some(mut unread), Ok(runtime)) = (unread, Handle::try_current()) {
            let rest = async move { while unread.frame().await.is_some_and(|frame| frame.is_ok()) {} };
            drop(runtime.spawn(async move { drop(timeout(linger, rest).await) }));
        }
    }
}

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.get_mut().incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Arriving {
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<BodyError> {
        let Self { pace, received, wait, .. } = self;
        let allowance = pace.rate.allowance(*received).min(pace.deadline);
        let wait = wait.get_or_insert_with(|| {
            let now = monotonic();
            let timer = Box::pin(sleep_until((now + allowance).into()));
            Box::new(ClientWait { past: Duration::ZERO, since: Some(now), timer })
        });
        let since = *wait.since.get_or_insert_with(monotonic);
        let deadline = (since + allowance.saturating_sub(wait.past)).into();
        if wait.timer.deadline() != deadline {
            wait.timer.as_mut().reset(deadline);
        }
        wait.timer.as_mut().poll(cx).map(|()| BodyError::TooSlow)
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let body = match &mut self.get_mut().0 {
            BodySource::Arriving(body) => body,
            BodySource::Whole(bytes) => return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        };
        if let Some(asked) = body.asked.take() {
            asked.store(true, Relaxed);
        }
        match Pin::new(&mut body.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(wait) = &mut body.wait
                    && let Some(since) = wait.since.take()
                {
                    wait.past += monotonic().duration_since(since);
                }
                body.received += frame.data_ref().map_or(0, Bytes::len) as u64;
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => Poll::Ready(end.map(|frame| frame.map_err(BodyError::Broken))),
            Poll::Pending => body.poll_too_slow(cx).map(|error| Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Arriving(body) => body.incoming.is_end_stream(),
            BodySource::Whole(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Arriving(body) => body.incoming.size_hint(),
            BodySource::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}
