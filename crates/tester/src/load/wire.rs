//! A socket for asynchronous libraries, made of two buffers that never wait for anything.
//!
//! Reading gives what the event loop has put in, writing always succeeds; whoever owns the real socket
//! moves the bytes. Bounds: the input is one read of the event loop, the output what one request and
//! the answers to that read amount to.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the library takes for a socket.
#[derive(Clone, Default)]
pub(super) struct Wire(Arc<Mutex<WireBuffers>>);

#[derive(Default)]
pub(super) struct WireBuffers {
    /// From the socket, not yet read by the library.
    pub(super) input: Vec<u8>,
    /// From the library, not yet on the socket.
    pub(super) output: Vec<u8>,
    /// The peer closed.
    pub(super) ended: bool,
}

impl Wire {
    /// Only the event loop's thread ever asks, so it never waits.
    pub(super) fn lock(&self) -> MutexGuard<'_, WireBuffers> {
        self.0.lock()
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut buffers = self.lock();
        let length = buffers.input.len().min(into.remaining());
        if length == 0 && !buffers.ended {
            return Poll::Pending;
        }
        into.put_slice(&buffers.input[..length]);
        buffers.input.drain(..length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
