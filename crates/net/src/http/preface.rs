//! HTTP/2 by prior knowledge on a connection that may also speak HTTP/1.1 (RFC 9113, 3.3).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client that speaks HTTP/2 says first.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether these first bytes of a connection may still become a preface. No request of HTTP/1.1 is held
/// up by that: they all differ from it in the first four bytes.
pub(super) fn may_become_preface(first: &[u8]) -> bool {
    PREFACE.starts_with(first)
}

/// A stream to which bytes that were read can be given back.
#[derive(Debug)]
pub(super) struct Prefixed<S> {
    first: Bytes,
    stream: S,
}

impl<S> Prefixed<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { first: Bytes::new(), stream }
    }

    /// Gives bytes back: the next reads find them first.
    pub(super) fn put_back(&mut self, bytes: Bytes) {
        self.first = match self.first.is_empty() {
            true => bytes,
            false => [bytes, std::mem::take(&mut self.first)].concat().into(),
        };
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.first.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let length = this.first.len().min(buffer.remaining());
        buffer.put_slice(&this.first[..length]);
        this.first.advance(length);
        if this.first.is_empty() {
            // Gives the memory back.
            this.first = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
