//! A reply's body that is followed to its end: for the access log, and for what a request holds until then.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tidegate_net::http::BoxError;

use super::{End, Recorder};
use crate::limits::LimitPermit;
use crate::response::body::ReplyCut;

/// A body, with the record that is written and the permit that is given back when it has ended or its client has left.
pub(crate) struct RecordedBody<B> {
    inner: B,
    record: Recorder,
    _held: Option<LimitPermit>,
    bytes: u64,
}

impl<B> RecordedBody<B> {
    pub(super) fn new(inner: B, record: Recorder, held: Option<LimitPermit>) -> Self {
        Self { inner, record, _held: held, bytes: 0 }
    }
}

impl<B> HttpBody for RecordedBody<B>
where
    B: HttpBody<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(cx);
        match &polled {
            Poll::Pending => {}
            Poll::Ready(Some(Err(error))) => {
                let cut = error.downcast_ref::<ReplyCut>();
                this.record.ended(this.bytes, cut.map_or(End::BrokenOff, ReplyCut::end));
            }
            Poll::Ready(next) => {
                let data = next.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                this.bytes += data.map_or(0, Bytes::len) as u64;
                let is_whole = next.is_none() || this.inner.is_end_stream();
                let end = if is_whole { End::Complete } else { End::ClientLeft };
                this.record.ended(this.bytes, end);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
