//! Sending replies on the short way, and watching the client meanwhile, which may send more
//! or leave.
//!
//! What is there of a reply is on its way before its rest is waited for, so that an event stream comes as it is
//! made. Pieces that are there at once leave together, up to [`WRITE_BYTES`].

use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::http::deadline::DeadlineIo;
use crate::http::encode::{end_head, keep, make_room, put_field, put_head, put_piece};
use crate::http::reply::StreamedBody;
use crate::http::{Body, BoxError};

/// Bytes of one read. A request that needs more than two of them is not small.
pub(super) const READ_BYTES: usize = 8 << 10;
/// Pipelined replies are collected up to this size before they are written.
pub(super) const WRITE_BYTES: usize = 16 << 10;

/// Puts a reply behind `output`; one that is still being made is written as it comes. False if the client left
/// meanwhile.
pub(super) async fn put<S>(
    io: &mut DeadlineIo<S>,
    input: &mut Bytes,
    output: &mut Vec<u8>,
    reply: Response<Body>,
) -> Result<bool, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (head, body) = reply.into_parts();
    make_room(output);
    let stated = put_head(output, head.status, &head.headers);
    let bodiless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    match body {
        _ if bodiless => end_head(output, None, stated),
        Body::Empty => end_head(output, Some(0), stated),
        Body::Full(bytes) | Body::Trailed(bytes, _) => {
            end_head(output, Some(bytes.len() as u64), stated);
            if bytes.len() <= WRITE_BYTES {
                output.extend_from_slice(&bytes);
            } else {
                // From where it lies: a copy would be as large again.
                write(io, output).await?;
                io.write_all(&bytes).await?;
                io.flush().await?;
            }
        }
        Body::Streamed(body) => {
            let length = stated_length(&head.headers).or_else(|| body.size_hint().exact());
            if length.is_none() {
                put_field(output, "transfer-encoding", b"chunked");
            }
            end_head(output, length, stated);
            return put_streamed(io, input, output, body, length).await;
        }
    }
    Ok(true)
}

/// Puts the body of a reply that is still being made. What is there is on its way while more is waited for.
async fn put_streamed<S>(
    io: &mut DeadlineIo<S>,
    input: &mut Bytes,
    output: &mut Vec<u8>,
    mut body: StreamedBody,
    length: Option<u64>,
) -> Result<bool, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut left = length;
    loop {
        let mut next = body.frame();
        let frame = match poll_once(Pin::new(&mut next)).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                write(io, output).await?;
                match while_connected(io, input, Pin::new(&mut next)).await? {
                    Some(frame) => frame,
                    None => return Ok(false),
                }
            }
        };
        let Some(frame) = frame else { break };
        let Ok(mut data) = frame?.into_data() else { continue };
        if let Some(left) = &mut left {
            // What is beyond the length would be taken for the next reply.
            data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= data.len() as u64;
        }
        put_piece(output, &data, left.is_none());
        if output.len() >= WRITE_BYTES {
            write(io, output).await?;
        }
    }
    match left {
        None => output.extend_from_slice(b"0\r\n\r\n"),
        Some(0) => {}
        Some(_) => return Err("the body of a reply is shorter than its content-length".into()),
    }
    Ok(true)
}

/// The length that a service stated of a body that is still being made.
fn stated_length(fields: &HeaderMap) -> Option<u64> {
    fields.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Writes everything; the buffer goes to the thread's next replies, for the connection may now be idle for long.
pub(super) async fn write<S>(io: &mut DeadlineIo<S>, output: &mut Vec<u8>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes = std::mem::take(output);
    io.write_all(&bytes).await?;
    io.flush().await?;
    keep(bytes);
    Ok(())
}

/// What `answer` gives, or `None` if the client went away and it was long in coming (fault 44). What the client
/// pipelines meanwhile is kept for later, up to one read.
pub(super) async fn while_connected<S, T>(
    io: &mut DeadlineIo<S>,
    input: &mut Bytes,
    mut answer: Pin<&mut impl Future<Output = T>>,
) -> io::Result<Option<T>>
where
    S: AsyncRead + Unpin,
{
    std::future::poll_fn(move |cx| {
        loop {
            if let Poll::Ready(reply) = answer.as_mut().poll(cx) {
                return Poll::Ready(Ok(Some(reply)));
            }
            if input.len() >= READ_BYTES {
                return Poll::Pending;
            }
            let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut *io).poll_read(cx, &mut buffer))?;
            match buffer.filled() {
                [] => {
                    ready!(io.poll_half_closed(cx));
                    return Poll::Ready(Ok(None));
                }
                read => append(input, read),
            }
        }
    })
    .await
}

/// Puts `more` behind what was received.
pub(super) fn append(input: &mut Bytes, more: &[u8]) {
    if input.is_empty() {
        *input = Bytes::copy_from_slice(more);
    } else {
        let mut joined = BytesMut::with_capacity(input.len() + more.len());
        joined.extend_from_slice(input);
        joined.extend_from_slice(more);
        *input = joined.freeze();
    }
}

/// Polls once, so that what is ready need not be waited for.
pub(super) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(move |cx| Poll::Ready(future.as_mut().poll(cx))).await
}
