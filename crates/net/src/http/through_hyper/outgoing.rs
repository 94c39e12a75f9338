//! A reply's body on its way out through hyper: in pieces, charged to its connection, and watched.
//!
//! hyper takes whatever it is given, however little of it the client reads; so a large body is given in
//! pieces of [`PIECE_BYTES`]. Bytes that are this reply's own are charged to the connection until the last
//! of them was sent; those that others hold too, such as a document that never changes, cost nothing more.
//!
//! A reply that breaks off is reset, and what the protocol has queued of it would be lost with that: its head, and what came before
//! the end. So the connection's task has some milliseconds to write what there is, as far as its client takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::outbox::{Delivery, Outbox, PIECE_BYTES};
use crate::buffers::Charge;
use crate::clock::monotonic;
use crate::connection::LazyTimer;
use crate::http::activity::Activity;
use crate::http::{Body, BoxError};

/// A body on its way out. The end of a streamed one is when the connection becomes idle; the
/// other kinds have ended before hyper sees them.
pub(in crate::http) struct Outgoing {
    body: Body,
    watch: Option<ReplyWatch>,
    _streaming: Option<StreamingReply>,
}

/// How long a reply that breaks off waits for the connection's task. A timer ends behind all that is to be done on its core by then,
/// however long that takes.
const LAST_PAUSE: Duration = Duration::from_millis(5);

/// What HTTP/2 keeps of a reply.
struct ReplyWatch {
    outbox: Arc<Outbox>,
    delivery: Arc<Delivery>,
    /// The next piece is marked already.
    is_marked: bool,
    cut: Option<Break>,
    _charge: Option<Charge>,
}

/// Why a reply breaks off, and when.
struct Break {
    error: BoxError,
    at: Instant,
    timer: LazyTimer,
}

impl Outgoing {
    pub(in crate::http) fn new(body: Body, activity: &Arc<Activity>) -> Self {
        let streaming = matches!(body, Body::Streamed(_)).then(|| StreamingReply(Arc::clone(activity)));
        Self { body, watch: None, _streaming: streaming }
    }

    /// The same for a request of HTTP/2, and what it was charged.
    pub(in crate::http) fn watched(body: Body, mut charge: Option<Charge>, outbox: &Arc<Outbox>) -> Self {
        let is_marked = body.bytes().is_some_and(|bytes| (1..=PIECE_BYTES).contains(&bytes.len()));
        let body = body.map_bytes(|bytes| match charge.take() {
            charge if is_marked => outbox.piece(bytes, charge),
            Some(charge) if !bytes.is_empty() => charged(bytes, charge),
            _ => bytes,
        });
        let watch = (!matches!(body, Body::Empty)).then(|| ReplyWatch {
            outbox: Arc::clone(outbox),
            delivery: outbox.begin(),
            is_marked,
            cut: None,
            _charge: charge,
        });
        Self { body, watch, _streaming: None }
    }

    /// Breaks off with `error`: on HTTP/2 when what came before it had time to leave.
    fn cut(&mut self, error: BoxError, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.watch {
            Some(watch) => {
                watch.cut = Some(Break { error, at: monotonic() + LAST_PAUSE, timer: LazyTimer::default() });
                watch.poll_cut(cx)
            }
            None => Poll::Ready(Some(Err(error))),
        }
    }

    /// Offers the next piece.
    fn offer(&mut self, bytes: Bytes) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let bytes = match &mut self.watch {
            None => bytes,
            Some(watch) => {
                watch.delivery.offered(bytes.len());
                if std::mem::take(&mut watch.is_marked) { bytes } else { watch.outbox.piece(bytes, ()) }
            }
        };
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl ReplyWatch {
    /// The end of a reply that breaks off.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(Break { at, timer, .. }) = &mut self.cut {
            ready!(timer.poll(cx, *at));
        }
        Poll::Ready(self.cut.take().map(|cut| Err(cut.error)))
    }
}

/// The same bytes, on a charge for as long as anyone has some of them.
pub(in crate::http) fn charged(bytes: Bytes, charge: Charge) -> Bytes {
    struct Charged(Bytes, #[expect(dead_code, reason = "held")] Charge);
    impl AsRef<[u8]> for Charged {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Charged(bytes, charge))
}

struct StreamingReply(Arc<Activity>);

impl Drop for StreamingReply {
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
        if let Some(watch) = &mut self.watch {
            watch.delivery.taken();
            if watch.cut.is_some() {
                return watch.poll_cut(cx);
            }
        }
        match &mut self.body {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) | Body::Trailed(bytes, _) if !bytes.is_empty() => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                self.offer(piece)
            }
            Body::Full(_) => Poll::Ready(None),
            Body::Trailed(_, trailers) => {
                let trailers = trailers();
                self.body = Body::Empty;
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
            Body::Streamed(body) => match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => self.offer(bytes),
                    Err(other) => Poll::Ready(Some(Ok(other))),
                },
                Poll::Pending => {
                    if let Some(watch) = &self.watch {
                        watch.delivery.is_being_made();
                    }
                    Poll::Pending
                }
                Poll::Ready(Some(Err(error))) => self.cut(error, cx),
                Poll::Ready(None) => Poll::Ready(None),
            },
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
