//! The short way: requests that arrive whole are answered without hyper.
//!
//! Nearly every request to a decision service is one small segment. Such a request is read into a
//! buffer on the stack, parsed once (httparse, the parser below hyper too), answered by the same
//! [`Handle`](super::Handle) and written in one piece: from the stack if the service can do that at once
//! ([`answer_at_once`](super::Handle::answer_at_once)), else in hyper's types. An idle connection on this path owns no buffer
//! at all.
//!
//! Only what is beyond doubt stays here (see [`plain`]). Anything else - a head in two segments, a chunked
//! body, a mistake - goes to [`crate::http::through_hyper`], bytes and connection, for good; so there is one
//! place that answers malformed requests. A connection that begins with HTTP/2's preface goes to HTTP/2 in
//! the same way.
//!
//! Invariants: nothing is handed over once its request was given to the service; replies leave in the order
//! of their requests; what is there of a reply leaves before its rest is waited for; what is buffered for a
//! connection never exceeds [`READ_BYTES`] twice in and [`WRITE_BYTES`] and one reply out; while it is idle,
//! its task has no room for a request (decision 0099).

mod plain;
mod send;

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{Request, Response, header};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

pub use self::plain::Plain;
use self::plain::PlainRead;
use self::send::{READ_BYTES, WRITE_BYTES, append, poll_once, put, while_connected, write};
use crate::clock::monotonic;
use crate::connection::Sweep;
use crate::http::activity::Phase;
use crate::http::connection::Connection;
use crate::http::deadline::DeadlineIo;
use crate::http::encode::Unwritten;
use crate::http::preface::{PREFACE, may_become_preface};
use crate::http::{Body, BoxError, RequestBody};

/// How the short way ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShortWayEnd {
    /// The connection is over.
    Close,
    /// The bytes that were not served are back in the stream: hyper goes on.
    Hyper,
    /// The client speaks HTTP/2; what it began with is back in the stream.
    Http2,
}

/// Serves requests that arrive whole until the connection ends or one does not.
pub(super) async fn serve<S>(
    io: &mut DeadlineIo<S>,
    connection: &Connection,
    sweep: &mut Sweep,
) -> ShortWayEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match exchange(io, connection, sweep).await {
        Ok(end) => end,
        Err(error) => {
            tracing::debug!(%error, peer = %connection.peer().address, "connection ended early");
            ShortWayEnd::Close
        }
    }
}

async fn exchange<S>(
    io: &mut DeadlineIo<S>,
    connection: &Connection,
    sweep: &mut Sweep,
) -> Result<ShortWayEnd, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut input, mut output) = (Input { bytes: Bytes::new(), opening: true }, Vec::new());
    loop {
        if input.opening && input.bytes.starts_with(PREFACE) {
            io.unread(input.bytes);
            return Ok(ShortWayEnd::Http2);
        }
        let next = std::future::poll_fn(|cx| match input.parse(connection.config().max_target_bytes) {
            ParsedInput::Request(request) => Poll::Ready(Ok(Next::Request(request))),
            ParsedInput::Doubtful => Poll::Ready(Ok(Next::HandOver)),
            ParsedInput::Incomplete => poll_more(io, &mut input, &mut output, connection, sweep, cx),
        });
        let request = match next.await? {
            Next::Request(request) => request,
            Next::Retry => {
                if !output.is_empty() {
                    input.opening = false;
                    write(io, &mut output).await?;
                }
                continue;
            }
            Next::HandOver => {
                write(io, &mut output).await?;
                io.unread(input.bytes);
                return Ok(ShortWayEnd::Hyper);
            }
            Next::Gone => return Ok(ShortWayEnd::Close),
            Next::Swept => {
                io.shutdown().await?;
                return Ok(ShortWayEnd::Close);
            }
        };
        input.opening = false;
        connection.activity().enter(Phase::Busy);
        // In a box, so that a connection has room for it only while there is a request that must wait.
        let responding = Box::pin(respond(io, &mut input.bytes, &mut output, connection, request));
        if !responding.await? {
            return Ok(ShortWayEnd::Close);
        }
    }
}

/// Has the service answer, and puts its reply behind `output`; false if that was the last one.
async fn respond<S>(
    io: &mut DeadlineIo<S>,
    input: &mut Bytes,
    output: &mut Vec<u8>,
    connection: &Connection,
    request: Request<RequestBody>,
) -> Result<bool, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Some(reply) = answer(io, input, output, connection, request).await? else { return Ok(false) };
    let closes = reply.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
    match put(io, input, output, reply).await {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(error) => {
            // The replies before it are whole; this one ends in the middle, for all to see.
            write(io, output).await?;
            return Err(error);
        }
    }
    if connection.activity().phase() == Phase::Busy {
        // Its body was streamed, and has ended.
        connection.activity().idle_from(monotonic());
    }
    if input.is_empty() || closes || output.len() >= WRITE_BYTES {
        write(io, output).await?;
    }
    if closes {
        io.shutdown().await?;
    }
    Ok(!closes)
}

/// Has the service answer; `None` if the client left and that took long. Replies to earlier requests do not wait
/// for one that takes its time.
async fn answer<S>(
    io: &mut DeadlineIo<S>,
    input: &mut Bytes,
    output: &mut Vec<u8>,
    connection: &Connection,
    request: Request<RequestBody>,
) -> io::Result<Option<Response<Body>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut answer = std::pin::pin!(connection.answer(request));
    if let Poll::Ready((reply, _)) = poll_once(answer.as_mut()).await {
        return Ok(Some(reply));
    }
    write(io, output).await?;
    Ok(while_connected(io, input, answer).await?.map(|(reply, _)| reply))
}

/// What a connection that waited for input does next.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack, on its way to the service")]
enum Next {
    Request(Request<RequestBody>),
    /// More has arrived; the replies to what of it was answered at once are in the output.
    Retry,
    HandOver,
    /// The peer sent its last byte, between requests.
    Gone,
    /// The drain closes idle connections.
    Swept,
}

/// Waits for input, and answers of it what can be answered at once. A request that began is not waited
/// for here: its rest is hyper's to time. Half of an HTTP/2 preface is, because hyper would take it for
/// a request.
fn poll_more<S>(
    io: &mut DeadlineIo<S>,
    input: &mut Input,
    output: &mut Vec<u8>,
    connection: &Connection,
    sweep: &mut Sweep,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Next>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if input.bytes.len() > READ_BYTES {
        return Poll::Ready(Ok(Next::HandOver));
    }
    let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut space);
    let arrived = Pin::new(io).poll_read(cx, &mut buffer)?;
    match (arrived, buffer.filled()) {
        (Poll::Ready(()), []) if input.bytes.is_empty() => Poll::Ready(Ok(Next::Gone)),
        (Poll::Ready(()), read @ [_, ..]) => {
            let answered = if input.bytes.is_empty() { answer_at_once(connection, read, output) } else { 0 };
            append(&mut input.bytes, &read[answered..]);
            Poll::Ready(Ok(Next::Retry))
        }
        (Poll::Pending, _) if input.bytes.is_empty() || input.may_become_preface() => {
            // Only now: what had come before the drain looked is answered.
            if sweep.poll(cx) && connection.activity().phase() != Phase::Head {
                connection.activity().leave_if_idle();
                return Poll::Ready(Ok(Next::Swept));
            }
            Poll::Pending
        }
        _ => Poll::Ready(Ok(Next::HandOver)),
    }
}

/// Answers the requests that `read` begins with, as far as the service does so at once; how many bytes
/// they take.
fn answer_at_once(connection: &Connection, read: &[u8], output: &mut Vec<u8>) -> usize {
    let mut answered = 0;
    while answered < read.len() && output.len() < WRITE_BYTES {
        let next =
            plain::read(&read[answered..], connection.config().max_target_bytes, |found| match found {
                PlainRead::Request(request, bytes) => {
                    connection.answer_at_once(&request, Unwritten::new(output)).then_some(bytes)
                }
                PlainRead::Incomplete | PlainRead::Doubtful => None,
            });
        let Some(bytes) = next else { break };
        answered += bytes;
    }
    answered
}

/// What the input begins with.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack, on its way to the service")]
enum ParsedInput {
    /// A request, taken off the input.
    Request(Request<RequestBody>),
    /// Nothing, or part of a request.
    Incomplete,
    /// Something that goes through hyper, if it goes at all.
    Doubtful,
}

/// What has arrived and was not answered yet.
struct Input {
    bytes: Bytes,
    /// Nothing was answered on this connection so far.
    opening: bool,
}

impl Input {
    fn may_become_preface(&self) -> bool {
        self.opening && may_become_preface(&self.bytes)
    }

    /// Takes a request off.
    fn parse(&mut self, max_target_bytes: usize) -> ParsedInput {
        if self.bytes.is_empty() || self.may_become_preface() {
            return ParsedInput::Incomplete;
        }
        let input = &mut self.bytes;
        let (parsed, bytes) = plain::read(input, max_target_bytes, |found| match found {
            PlainRead::Request(plain, bytes) => match plain.to_request(input) {
                Some(request) => (ParsedInput::Request(request), bytes),
                None => (ParsedInput::Doubtful, 0),
            },
            PlainRead::Incomplete => (ParsedInput::Incomplete, 0),
            PlainRead::Doubtful => (ParsedInput::Doubtful, 0),
        });
        input.advance(bytes);
        parsed
    }
}
