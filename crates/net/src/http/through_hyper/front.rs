//! The front of hyper: it lets only whole heads pass that are beyond doubt, and their bodies.
//!
//! ```text
//!   DeadlineIo ─> input ─ head whole? ─ framing::judge ─> hyper: the head, then its body, no byte more
//!                                            └─ refused: hyper reads the end, the reply follows its last
//! ```
//!
//! hyper is given the bytes of one request at a time, and those of the next one when it has answered. So
//! each head is read here first, by [`crate::http::framing`], and what is refused there is answered here, as a
//! problem document; hyper's own judgement is never asked for.
//!
//! While a request is answered, what the client sends is kept, up to one read, and a client that has sent
//! its last byte gets its reply if it is there in time ([`crate::http::HttpConfig::half_closed`]). Behind a request
//! that asks for an upgrade, what is kept is refused after a reply that grants none, and is the beginning of the
//! other protocol after one that does; where the service grants none at all, it is refused before.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::activity::{Activity, Phase};
use crate::http::body_end::Framing;
use crate::http::deadline::DeadlineIo;
use crate::http::encode::{end_head, put_head};
use crate::http::framing::{MAX_FIELDS, head_end, judge};
use crate::http::refused::Refused;
use crate::http::{Body, HttpConfig, Reply};
use crate::stats::Route;

/// Bytes of one read.
const READ_BYTES: usize = 8 << 10;

/// A stream whose reader gets requests that are beyond doubt.
pub(in crate::http) struct Front<S> {
    io: DeadlineIo<S>,
    activity: Arc<Activity>,
    config: Arc<HttpConfig>,
    /// Received, and not passed on.
    input: BytesMut,
    /// Bytes of the input that are a head to be passed on.
    passing: usize,
    /// The body behind it.
    body: Framing,
    /// Bytes of the input in which no end of a head was found.
    scanned: usize,
    /// The last request asked for an upgrade: nothing may follow before its reply.
    upgrade: bool,
    /// The service may accept the offer: what follows is not refused before its reply.
    may_upgrade: bool,
    /// Everything that hyper wrote has left.
    flushed: bool,
    /// hyper was told to wait for more input while it answered.
    asked: bool,
    /// The client has sent its last byte.
    over: bool,
    /// A request was refused: nothing is read after it.
    refused: bool,
    /// The reply to it, until it was written.
    refusal: Option<Bytes>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Front<S> {
    pub(in crate::http) fn new(
        io: DeadlineIo<S>,
        activity: Arc<Activity>,
        config: Arc<HttpConfig>,
        may_upgrade: bool,
    ) -> Self {
        Self {
            io,
            activity,
            config,
            input: BytesMut::new(),
            passing: 0,
            body: Framing::Length(0),
            scanned: 0,
            upgrade: false,
            may_upgrade,
            flushed: true,
            asked: false,
            over: false,
            refused: false,
            refusal: None,
        }
    }

    /// Reads into the input. Ready when there is more of it, or there will be none.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.over {
            return Poll::Ready(Ok(()));
        }
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
        self.over = buffer.filled().is_empty();
        self.input.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(()))
    }

    /// Waits for the next head. Ready when it may pass, or when nothing will: it was refused, or the client
    /// has left.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.refused {
                return Poll::Ready(Ok(()));
            }
            if self.activity.phase() == Phase::Busy {
                ready!(self.poll_while_answered(cx))?;
                return Poll::Ready(Ok(()));
            }
            if self.input.is_empty() {
                // Nothing came before the reply: the protocol is the same still.
                self.upgrade = false;
            } else {
                self.io.head_begins();
                match self.next_head() {
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) => {}
                    Err(refused) => {
                        self.refuse(refused);
                        continue;
                    }
                }
            }
            if self.over {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_fill(cx))?;
        }
    }

    /// Ready when the client has left and its reply was long in coming.
    fn poll_while_answered(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.asked = true;
        while !self.over {
            if self.input.len() >= READ_BYTES {
                return Poll::Pending;
            }
            ready!(self.poll_fill(cx))?;
        }
        self.io.poll_half_closed(cx).map(Ok)
    }

    /// Whether the input begins with a whole head, which may pass then.
    fn next_head(&mut self) -> Result<bool, Refused> {
        if self.upgrade {
            return Err(Refused::BEHIND_UPGRADE);
        }
        let is_first_look = self.scanned == 0;
        let Some(end) = head_end(&self.input, &mut self.scanned) else {
            if self.input.len() > self.config.max_head_bytes {
                return Err(self.too_large());
            }
            // Once, so that what is no HTTP at all need not end like a head to be refused.
            if is_first_look {
                let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
                let mut head = httparse::Request::new(&mut []);
                let parsed = head.parse_with_uninit_headers(&self.input, &mut fields);
                parsed.map_err(Refused::unparsed)?;
            }
            return Ok(false);
        };
        if end > self.config.max_head_bytes {
            return Err(self.too_large());
        }
        let raw = &self.input[..end];
        let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut head = httparse::Request::new(&mut []);
        match head.parse_with_uninit_headers(raw, &mut fields).map_err(Refused::unparsed)? {
            httparse::Status::Complete(bytes) if bytes == end => {}
            _ => return Err(Refused::MALFORMED),
        }
        let judged = judge(&head, raw, self.config.max_target_bytes)?;
        // hyper reads it so, and would refuse it otherwise.
        if head.path.is_none_or(|target| target.parse::<Uri>().is_err()) {
            return Err(Refused::MALFORMED);
        }
        let is_followed = judged.body.is_over() && self.input.len() > end;
        if judged.upgrade && is_followed && !self.may_upgrade {
            return Err(Refused::BEHIND_UPGRADE);
        }
        self.passing = end;
        self.body = judged.body;
        self.upgrade = judged.upgrade;
        self.scanned = 0;
        self.activity.enter(Phase::Busy);
        Ok(true)
    }

    /// What is too large about a head: its target, if that alone would be.
    fn too_large(&self) -> Refused {
        let line = self.input.iter().take_while(|byte| **byte != b'\n').count();
        if line > self.config.max_target_bytes { Refused::TARGET_TOO_LONG } else { Refused::TOO_LARGE }
    }

    /// The stream for another protocol, which begins with what is not HTTP any more: `ahead` and then the input.
    /// `None` if the request is not over, or if the client has not taken the reply and those before it.
    pub(in crate::http) fn into_upgraded(mut self, ahead: &[u8]) -> Option<DeadlineIo<S>> {
        if self.passing > 0 || !self.body.is_over() || !self.flushed {
            return None;
        }
        self.io.unread([ahead, &self.input].concat().into());
        Some(self.io)
    }

    /// Whether a refusal is yet to be written.
    pub(in crate::http) fn is_refusing(&self) -> bool {
        self.refusal.is_some()
    }

    /// Ends the input, and has the reply written when everything before it was.
    fn refuse(&mut self, refused: Refused) {
        let stats = self.activity.stats();
        stats.requests.started.fetch_add(1, Relaxed);
        stats.requests.answered(Route::OTHER, refused.status.as_u16(), Duration::ZERO);
        self.activity.enter(Phase::Busy);
        self.input = BytesMut::new();
        self.refused = true;
        self.refusal = Some(refusal(refused));
    }

    /// Passes on what of the head and the body is in the input.
    fn pass(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let part = &self.input[..self.input.len().min(buffer.remaining())];
        let used = match self.passing {
            0 => self.body.advance(part).map_err(broken)?,
            head => head.min(part.len()),
        };
        buffer.put_slice(&part[..used]);
        self.input.advance(used);
        self.passing = self.passing.saturating_sub(used);
        if self.input.is_empty() {
            // Gives the memory back.
            self.input = BytesMut::new();
        }
        Ok(())
    }
}

fn broken(refused: Refused) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, refused.reason)
}

/// The bytes of the reply to a request that is refused.
fn refusal(refused: Refused) -> Bytes {
    let mut reply = Reply::refusal(refused.status, refused.reason);
    reply.close();
    let (head, body) = reply.response.into_parts();
    let body = if let Body::Full(bytes) = body { bytes } else { Bytes::new() };
    let mut output = Vec::with_capacity(512);
    let stated = put_head(&mut output, head.status, &head.headers);
    end_head(&mut output, Some(body.len() as u64), stated);
    output.extend_from_slice(&body);
    output.into()
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Front<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.passing == 0 && this.body.is_over() {
            ready!(this.poll_head(cx))?;
            if this.passing == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        if !this.input.is_empty() {
            return Poll::Ready(this.pass(buffer));
        }
        if this.over {
            return Poll::Ready(Ok(()));
        }
        // Straight to where it is wanted; what is not the body's comes back.
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buffer))?;
        let arrived = &buffer.filled()[before..];
        this.over = arrived.is_empty();
        let used = this.body.advance(arrived).map_err(broken)?;
        this.input.extend_from_slice(&arrived[used..]);
        buffer.set_filled(before + used);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Front<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.flushed = false;
        Pin::new(&mut this.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.flushed = false;
        Pin::new(&mut this.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// When a reply has left, hyper waits for what it asked for before. Of what is here already nobody else
    /// would tell it.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        this.flushed = true;
        let is_here = !this.input.is_empty() || this.over;
        if this.asked && is_here && this.activity.phase() != Phase::Busy {
            this.asked = false;
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// hyper has written everything else by now.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while let Some(rest) = this.refusal.as_mut().filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut this.io).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => rest.advance(written),
            }
        }
        if this.refusal.is_some() {
            ready!(Pin::new(&mut this.io).poll_flush(cx))?;
            this.refusal = None;
        }
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}
