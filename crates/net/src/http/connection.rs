//! The life of a connection: what its requests share, and how each is answered and counted.
//!
//! Per connection there is one task. A request reaches the service through its connection's own reference count: counting
//! on the server's would make every request of every core write the same cache line.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::activity::{Activity, Phase};
use super::deadline::DeadlineIo;
use super::encode::Unwritten;
use super::framing::judge_http2;
use super::grpc::GrpcCall;
use super::in_one_piece::Plain;
use super::through_hyper::{Front, Outbox, Outgoing, PIECE_BYTES, TunnelIo, charged};
use super::upgrade::{Continuation, UpgradeOffer};
use super::{Body, Handle, HttpConfig, Reply, RequestBody};
use crate::accept::Gate;
use crate::buffers::{Account, Charge};
use crate::clock::monotonic;
use crate::connection::{Peer, Sweep};
use crate::drain::Drain;
use crate::stats::{CoreStats, Route};

/// What a request of HTTP/2 is charged beside its fields and its bodies: its state here, in hyper and in
/// the protocol below, and a short reply.
const REQUEST_BYTES: usize = 4 << 10;
const SHORT_REPLY_BYTES: usize = 1 << 10;

/// What all connections of a server share.
pub(super) struct HttpServerParts {
    pub(super) handler: Box<dyn Handle>,
    pub(super) config: Arc<HttpConfig>,
    pub(super) protocol: http1::Builder,
    pub(super) gate: Gate,
}

/// What the requests of one connection share.
pub(super) struct Connection {
    server: Arc<HttpServerParts>,
    activity: Arc<Activity>,
    peer: Peer,
    /// What is held for it, from when something is.
    account: OnceLock<Arc<Account>>,
    /// What it has to send, on HTTP/2.
    outbox: OnceLock<Arc<Outbox>>,
    /// What follows the reply that is being sent, if that ends HTTP.
    continuation: Mutex<Option<Continuation>>,
}

impl Connection {
    pub(super) fn new(server: Arc<HttpServerParts>, activity: Arc<Activity>, peer: Peer) -> Self {
        let (account, outbox) = (OnceLock::new(), OnceLock::new());
        Self { server, activity, peer, account, outbox, continuation: Mutex::new(None) }
    }

    /// What it has to send, from its beginning on.
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        let stats = &self.server.gate.stats;
        let new = || Outbox::new(self.server.config.write, Arc::clone(stats), self.peer.core);
        self.outbox.get_or_init(|| Arc::new(new()))
    }

    fn account(&self) -> &Arc<Account> {
        let HttpServerParts { gate, config, .. } = &*self.server;
        self.account.get_or_init(|| gate.buffers.account(config.connection_bytes))
    }

    fn continuation(&self) -> MutexGuard<'_, Option<Continuation>> {
        // Nothing panics while it is held.
        self.continuation.lock()
    }

    /// Serves what the short way leaves: HTTP/1.1 in all its forms, and what a client and the service agree to
    /// go on with, until the connection ends.
    pub(super) async fn serve_with_hyper<S>(self, io: DeadlineIo<S>, mut sweep: Sweep)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = Arc::new(self);
        let (activity, peer) = (Arc::clone(&connection.activity), connection.peer.clone());
        let protocol = connection.server.protocol.clone();
        let HttpServerParts { handler, config, .. } = &*connection.server;
        let front = Front::new(io, Arc::clone(&activity), Arc::clone(config), handler.may_upgrade());
        // In a box, so that hyper has no room for it while the connection is idle.
        let service = service_fn(|request| Box::pin(Arc::clone(&connection).answer_incoming(request)));
        let mut protocol = protocol.serve_connection(TokioIo::new(front), service);
        let mut told = false;
        let end = poll_fn(|cx| {
            // First, so that what had come before the drain looked is answered.
            let polled = Pin::new(&mut protocol).poll(cx);
            if polled.is_ready() || told || !sweep.poll(cx) {
                return polled;
            }
            told = true;
            // A request whose head is on its way is still served; its reply says close.
            if activity.phase() == Phase::Head {
                return polled;
            }
            activity.leave_if_idle();
            Pin::new(&mut protocol).graceful_shutdown();
            Pin::new(&mut protocol).poll(cx)
        });
        if let Err(error) = end.await {
            tracing::debug!(%error, peer = %peer.address, "connection ended early");
            connection.continuation().take();
        }
        let http1::Parts { io, read_buf, .. } = protocol.into_parts();
        let mut front = io.into_inner();
        let continuation = connection.continuation().take();
        if let Some(continuation) = continuation {
            // It is not idle from here on, however silent.
            drop(sweep);
            match front.into_upgraded(&read_buf) {
                Some(io) => continuation.run(io, Sweep::of_stream(connection.drain().clone())).await,
                None => tracing::debug!(peer = %peer.address, "the reply to an upgrade was not taken"),
            }
            return;
        }
        // hyper shuts no connection down on which an upgrade was asked for.
        if front.is_refusing()
            && let Err(error) = front.shutdown().await
        {
            tracing::debug!(%error, peer = %peer.address, "connection ended before a refusal was written");
        }
    }

    /// [`Connection::answer`] in hyper's types.
    pub(super) async fn answer_incoming(
        self: Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response<Outgoing>, Infallible> {
        let stream = UpgradeOffer::note(&mut request, self.may_upgrade());
        let HttpConfig { body: pace, linger, .. } = *self.server.config;
        let is_to_head = request.method() == Method::HEAD;
        let linger = if request.version() == Version::HTTP_2 { linger } else { Duration::ZERO };
        let asked = waits_to_be_asked(&request).then(Arc::<AtomicBool>::default);
        let body = |incoming| {
            RequestBody::new(incoming, pace, Arc::clone(self.account()), linger).noting(asked.clone())
        };
        let (mut reply, mut charge) = self.answer(request.map(body)).await;
        // hyper ends the connection of a client that still waits, and does not say so (RFC 9110, 10.1.1).
        if asked.is_some_and(|asked| !asked.load(Relaxed)) {
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(stream) = stream {
            // Nothing was awaited since it was put there: it is this request's.
            let continuation = self.continuation().take();
            if let Some(continuation) = continuation {
                self.go_on(stream, continuation, charge.take());
            }
        }
        Ok(match self.outbox.get() {
            None => reply.map(|body| Outgoing::new(body, &self.activity)),
            Some(outbox) => {
                without_content(reply, is_to_head).map(|body| Outgoing::watched(body, charge, outbox))
            }
        })
    }

    /// Has the service go on with a stream of HTTP/2, once the reply that is made now has left. That has a task of its
    /// own, which ends with the stream, and so with the connection at the latest; until then the connection is not idle.
    fn go_on(&self, stream: OnUpgrade, continuation: Continuation, charge: Option<Charge>) {
        let outbox = Arc::clone(self.outbox());
        let lives = outbox.begin_tunnel();
        let (activity, rate) = (self.shared_activity(), self.config().write);
        let sweep = Sweep::of_stream(self.drain().clone());
        drop(tokio::spawn(async move {
            // There is none if the reply could not be sent.
            if let Ok(stream) = stream.await {
                let stream = TunnelIo::new(stream, lives, sweep, activity, rate);
                continuation.run_on(Box::new(stream)).await;
            }
            drop((charge, outbox));
        }));
    }

    /// Has the service answer, and counts; with the reply comes what a request of HTTP/2 is charged. The
    /// connection is idle when this is over, or at the end of a streamed body, or never again.
    pub(super) async fn answer(&self, request: Request<RequestBody>) -> (Response<Body>, Option<Charge>) {
        let started = monotonic();
        let in_flight = InFlight::begin(self.activity.stats());
        let HttpServerParts { handler, gate, .. } = &*self.server;
        let is_http1 = request.version() < Version::HTTP_2;
        let must_go_on = UpgradeOffer::is_of_stream(&request);
        // A call is told how it ended by a success, which would open the stream.
        let call = GrpcCall::of(request.headers()).filter(|_| !must_go_on);
        let (mut reply, mut charge) = match self.admit(&request, is_http1) {
            Err(refusal) => (refusal.told_in(call.as_ref()), None),
            Ok(charge) => (handler.handle(request, &self.peer).await, charge),
        };
        if must_go_on && reply.continuation.is_none() && reply.response.status().is_success() {
            let reason = "nothing here goes on in the protocol that is asked for";
            reply = Reply::refusal(StatusCode::NOT_IMPLEMENTED, reason);
        }
        if !self.hold(&mut reply, &mut charge, is_http1) {
            charge = None;
            reply = Reply::no_room(reply.route).told_in(call.as_ref());
        }
        reply.end_with(&gate.drain);
        let continuation = reply.continuation.take();
        let goes_on = continuation.is_some();
        if is_http1 && !goes_on && (reply.last || self.peer.is_for_operation || gate.drain.is_draining()) {
            reply.close();
        }
        let now = reply.ready_at.unwrap_or_else(monotonic);
        in_flight.end();
        let status = reply.counted_as.unwrap_or(reply.response.status().as_u16());
        self.activity.stats().requests.answered(reply.route, status, now.duration_since(started));
        if goes_on {
            *self.continuation() = continuation;
        } else if !matches!(reply.response.body(), Body::Streamed(_)) {
            self.activity.idle_from(now);
        }
        (reply.response, charge)
    }

    /// Whether the service is asked at all, and what the request is charged until then.
    fn admit(&self, request: &Request<RequestBody>, is_http1: bool) -> Result<Option<Charge>, Box<Reply>> {
        let HttpServerParts { handler, config, .. } = &*self.server;
        if self.peer.is_for_operation && !handler.is_operational(request.uri().path()) {
            let reason = "the connection limit is reached";
            return Err(Box::new(Reply::refusal(StatusCode::SERVICE_UNAVAILABLE, reason)));
        }
        if is_http1 {
            return Ok(None);
        }
        judge_http2(request, config.max_target_bytes, config.max_head_bytes)
            .map_err(|refused| Box::new(Reply::refusal(refused.status, refused.reason)))?;
        let fields: usize =
            request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let charge = self.account().charge(REQUEST_BYTES + fields);
        charge.map(Some).ok_or_else(|| Box::new(Reply::no_room(Route::OTHER)))
    }

    /// Charges the bytes of a reply, unless others hold them too. False if there is no room for it. What is short is
    /// not charged on HTTP/1.1, where there is one at a time; on HTTP/2 it is part of what the request was charged.
    fn hold(&self, reply: &mut Reply, charge: &mut Option<Charge>, is_http1: bool) -> bool {
        let Some(bytes) = reply.response.body().bytes() else { return true };
        let own = if bytes.is_unique() { bytes.len() } else { 0 };
        if own <= if is_http1 { PIECE_BYTES } else { SHORT_REPLY_BYTES } {
            return true;
        }
        let held = match charge {
            Some(charge) => charge.grow(own),
            None => {
                *charge = self.account().charge(own);
                charge.is_some()
            }
        };
        if held
            && is_http1
            && let Some(charge) = charge.take()
        {
            let body = std::mem::take(reply.response.body_mut());
            *reply.response.body_mut() = body.map_bytes(|bytes| charged(bytes, charge));
        }
        held
    }

    /// Has the service answer at once, and counts; false if it does not. While draining, and on
    /// connections over the limit, it is not asked: those replies say close.
    pub(super) fn answer_at_once(&self, request: &Plain<'_>, reply: Unwritten<'_>) -> bool {
        let HttpServerParts { handler, gate, .. } = &*self.server;
        if gate.drain.is_draining() || self.peer.is_for_operation {
            return false;
        }
        let started = monotonic();
        let Some(answered) = handler.answer_at_once(request, &self.peer, reply) else { return false };
        let now = monotonic();
        let stats = self.activity.stats();
        stats.requests.started.fetch_add(1, Relaxed);
        stats.requests.answered(answered.route(), answered.status().as_u16(), now.duration_since(started));
        self.activity.idle_from(now);
        true
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn shared_activity(&self) -> Arc<Activity> {
        Arc::clone(&self.activity)
    }

    pub(super) fn drain(&self) -> &Drain {
        &self.server.gate.drain
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Whether offers to go on in another protocol may be accepted.
    pub(super) fn may_upgrade(&self) -> bool {
        self.server.handler.may_upgrade()
    }

    pub(super) fn config(&self) -> &HttpConfig {
        &self.server.config
    }
}

/// Whether a request's client sends the body when it is asked for it (RFC 9110, 10.1.1).
fn waits_to_be_asked(request: &Request<Incoming>) -> bool {
    let states = |expected: &HeaderValue| expected.as_bytes().eq_ignore_ascii_case(b"100-continue");
    request.version() == Version::HTTP_11
        && request.headers().get(EXPECT).is_some_and(states)
        && !hyper::body::Body::is_end_stream(request.body())
}

/// A reply of HTTP/2 without the bytes that it must not have: to HEAD, and with 204 or 304 (RFC 9110, 6.4.1). hyper leaves them
/// out over HTTP/1.1 alone, and clients take them for a mistake of the protocol.
fn without_content(mut reply: Response<Body>, is_to_head: bool) -> Response<Body> {
    let has_none = matches!(reply.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !is_to_head && !has_none {
        return reply;
    }
    if let Body::Full(bytes) = reply.body()
        && !has_none
    {
        // What GET would be answered with.
        let length = HeaderValue::from(bytes.len());
        reply.headers_mut().entry(CONTENT_LENGTH).or_insert(length);
    }
    reply.map(|_| Body::Empty)
}

/// A request that a service is answering. Dropped without [`InFlight::end`], it was abandoned.
struct InFlight<'a> {
    stats: &'a CoreStats,
}

impl<'a> InFlight<'a> {
    fn begin(stats: &'a CoreStats) -> Self {
        stats.requests.started.fetch_add(1, Relaxed);
        Self { stats }
    }

    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.stats.requests.abandoned.fetch_add(1, Relaxed);
    }
}
