//! Encoders for bodies that are complete, and for bodies that are still coming.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use brotli::CompressorWriter as BrotliEncoder;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body as HttpBody, Frame};
use tidegate_net::http::BoxError;
use zstd::stream::write::Encoder as ZstdEncoder;

use super::{Coding, CompressionPlace};

/// So much is sent at once, if it is there.
const CHUNK: usize = 16 << 10;

/// So much is taken in before something is sent.
const TURN: usize = 256 << 10;

const GZIP_LEVEL: Compression = Compression::new(5);
const ZSTD_LEVEL: i32 = 3;
/// 128 KiB back, which bounds an encoder's memory; clients must take 8 MiB (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 17;
/// As much work as the others, and as far back.
const BROTLI_QUALITY: u32 = 4;
const BROTLI_WINDOW_LOG: u32 = 17;

/// A body that is there, encoded, if that is less.
pub(super) fn whole(coding: Coding, plain: &[u8]) -> Option<Bytes> {
    let mut encoder = BodyEncoder::new(coding, Some(plain.len() as u64)).ok()?;
    encoder.write(plain).ok()?;
    let encoded = encoder.finish().ok()?;
    (encoded.len() < plain.len()).then_some(encoded)
}

pub(super) enum BodyEncoder {
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl BodyEncoder {
    /// One for so many bytes, if that is known: for few of them its tables are smaller.
    pub(super) fn new(coding: Coding, length: Option<u64>) -> io::Result<Self> {
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), ZSTD_LEVEL)?;
                encoder.window_log(ZSTD_WINDOW_LOG)?;
                encoder.set_pledged_src_size(length)?;
                Self::Zstd(encoder)
            }
            Coding::Brotli => {
                let encoder = BrotliEncoder::new(Vec::new(), CHUNK, BROTLI_QUALITY, BROTLI_WINDOW_LOG);
                Self::Brotli(Box::new(encoder))
            }
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), GZIP_LEVEL)),
        })
    }

    fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.write_all(plain),
            Self::Brotli(encoder) => encoder.write_all(plain),
            Self::Gzip(encoder) => encoder.write_all(plain),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Zstd(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// What is encoded so far and not taken yet.
    fn encoded(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
        }
    }

    fn take(&mut self) -> Bytes {
        std::mem::take(self.encoded()).into()
    }

    fn finish(self) -> io::Result<Bytes> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Gzip(encoder) => encoder.finish(),
        }
        .map(Bytes::from)
    }
}

/// A streamed body, encoded as it comes.
pub(super) struct CompressedBody<B> {
    inner: B,
    /// `None` when all is encoded.
    encoder: Option<BodyEncoder>,
    /// Something was taken in that nothing was sent for.
    is_behind: bool,
    trailers: Option<Frame<Bytes>>,
    _place: CompressionPlace,
}

impl<B> CompressedBody<B> {
    pub(super) fn new(inner: B, encoder: BodyEncoder, place: CompressionPlace) -> Self {
        Self { inner, encoder: Some(encoder), is_behind: false, trailers: None, _place: place }
    }

    /// The rest, and after it the trailers if there are some.
    fn end(&mut self) -> io::Result<Option<Frame<Bytes>>> {
        let rest = self.encoder.take().map(BodyEncoder::finish).transpose()?.filter(|rest| !rest.is_empty());
        Ok(rest.map(Frame::data).or_else(|| self.trailers.take()))
    }
}

impl<B> HttpBody for CompressedBody<B>
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
        let mut taken = 0;
        loop {
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(this.trailers.take().map(Ok)) };
            let next = match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Pending if this.is_behind => {
                    encoder.flush()?;
                    this.is_behind = false;
                    return Poll::Ready(Some(Ok(Frame::data(encoder.take()))));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => next.transpose()?,
            };
            match next.map(Frame::into_data) {
                Some(Ok(plain)) => {
                    encoder.write(&plain)?;
                    taken += plain.len();
                    this.is_behind |= !plain.is_empty();
                    if taken >= TURN {
                        encoder.flush()?;
                        this.is_behind = false;
                    }
                    if encoder.encoded().len() >= CHUNK || (taken >= TURN && !encoder.encoded().is_empty()) {
                        return Poll::Ready(Some(Ok(Frame::data(encoder.take()))));
                    }
                }
                other => {
                    this.trailers = other.and_then(Result::err);
                    return Poll::Ready(this.end()?.map(Ok));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }
}
