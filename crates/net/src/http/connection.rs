//! The life of a connection: what its requests share, and how each is answered and counted.
//!
//! Per connection there is one task. A request reaches the service through its connection's own reference count: counting
//! on the server's would make every request of every core write the same cache line.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Context;

use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::{Activity, Phase};
use super::deadline::DeadlineIo;
use super::encode::Unwritten;
use super::plain::Plain;
use super::reply::Outgoing;
use super::{Body, Handle, HttpConfig, Peer, Reply, RequestBody};
use crate::accept::Gate;
use crate::clock::monotonic;
use crate::drain::{Drain, Stage};
use crate::stats::CoreStats;

/// What all connections of a server share.
#[derive(Debug)]
pub(super) struct Shared<H> {
    pub(super) handler: H,
    pub(super) config: Arc<HttpConfig>,
    pub(super) protocol: http1::Builder,
    pub(super) gate: Gate,
}

/// Tells a connection when the drain closes idle ones.
pub(super) struct Sweep {
    drain: Drain,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    swept: bool,
}

impl Sweep {
    pub(super) fn new(drain: Drain) -> Self {
        Self { drain, waiting: None, swept: false }
    }

    /// Whether that time has come. The drain's future is polled once, which leaves the task's waker
    /// there, and again when it has.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let watching = self.waiting.is_some();
        if !self.swept && (!watching || self.drain.stage() >= Stage::Sweeping) {
            let drain = &self.drain;
            let waiting = self.waiting.get_or_insert_with(|| {
                let drain = drain.clone();
                Box::pin(async move { drain.sweeping().await })
            });
            self.swept = waiting.as_mut().poll(cx).is_ready();
        }
        self.swept
    }
}

/// What the requests of one connection share.
pub(super) struct Connection<H> {
    server: Arc<Shared<H>>,
    activity: Arc<Activity>,
    peer: Peer,
}

impl<H: Handle> Connection<H> {
    pub(super) fn new(server: Arc<Shared<H>>, activity: Arc<Activity>, peer: Peer) -> Self {
        Self { server, activity, peer }
    }

    /// What it shared with the others.
    pub(super) fn into_shared(self) -> Arc<Shared<H>> {
        self.server
    }

    /// Serves what the short way leaves: HTTP/1.1 in all its forms, until the connection ends.
    pub(super) async fn serve_with_hyper<S>(self, io: DeadlineIo<S>, mut sweep: Sweep)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = Arc::new(self);
        let (activity, peer) = (Arc::clone(&connection.activity), connection.peer);
        let protocol = connection.server.protocol.clone();
        let service = service_fn(move |request| {
            connection.activity.enter(Phase::Busy);
            Arc::clone(&connection).answer_incoming(request)
        });
        let mut protocol = pin!(protocol.serve_connection(TokioIo::new(io), service));
        let mut told = false;
        let end = poll_fn(|cx| {
            // First, so that what had come before the drain looked is answered.
            let polled = protocol.as_mut().poll(cx);
            if polled.is_ready() || told || !sweep.poll(cx) {
                return polled;
            }
            told = true;
            // A request whose head is on its way is still served; its reply says close.
            if activity.phase() == Phase::Head {
                return polled;
            }
            activity.leave_if_idle();
            protocol.as_mut().graceful_shutdown();
            protocol.as_mut().poll(cx)
        });
        if let Err(error) = end.await {
            tracing::debug!(%error, peer = %peer.address, "connection ended early");
        }
    }

    /// [`Connection::answer`] in hyper's types.
    pub(super) async fn answer_incoming(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Outgoing>, Infallible> {
        let pace = self.server.config.body;
        let reply = self.answer(request.map(|incoming| RequestBody::new(incoming, pace))).await;
        Ok(reply.map(|body| Outgoing::new(body, &self.activity)))
    }

    /// Has the service answer, and counts. The connection is idle when this is over, or at the end of
    /// a streamed body.
    pub(super) async fn answer(&self, request: Request<RequestBody>) -> Response<Body> {
        let started = monotonic();
        let in_flight = InFlight::begin(self.activity.stats());
        let Shared { handler, config, gate, .. } = &*self.server;
        let is_http1 = request.version() < Version::HTTP_2;
        let mut reply = if target_bytes(request.uri()) > config.max_target_bytes {
            let mut refusal = Reply::refusal(StatusCode::URI_TOO_LONG, "request target too long\n");
            if is_http1 {
                refusal.close();
            }
            refusal
        } else {
            handler.handle(request, &self.peer).await
        };
        if is_http1 && (reply.last || gate.drain.is_draining()) {
            reply.close();
        }
        let now = monotonic();
        in_flight.end();
        let status = reply.counted_as.unwrap_or(reply.response.status().as_u16());
        self.activity.stats().answered(reply.route, status, now.duration_since(started));
        if !matches!(reply.response.body(), Body::Streamed(_)) {
            self.activity.idle_from(now);
        }
        reply.response
    }

    /// Has the service answer at once, and counts; false if it does not. While draining it is not asked:
    /// those replies say close.
    pub(super) fn answer_at_once(&self, request: &Plain<'_>, reply: Unwritten<'_>) -> bool {
        let Shared { handler, gate, .. } = &*self.server;
        if gate.drain.is_draining() {
            return false;
        }
        let started = monotonic();
        let Some(answered) = handler.answer_at_once(request, &self.peer, reply) else { return false };
        let now = monotonic();
        let stats = self.activity.stats();
        stats.started.fetch_add(1, Relaxed);
        stats.answered(answered.route(), answered.status().as_u16(), now.duration_since(started));
        self.activity.idle_from(now);
        true
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn config(&self) -> &HttpConfig {
        &self.server.config
    }
}

/// Bytes of the request target, without the scheme of its absolute form.
fn target_bytes(uri: &Uri) -> usize {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    path + uri.authority().map_or(0, |authority| authority.as_str().len())
}

/// A request that a service is answering. Dropped without [`InFlight::end`], it was abandoned.
struct InFlight<'a> {
    stats: &'a CoreStats,
}

impl<'a> InFlight<'a> {
    fn begin(stats: &'a CoreStats) -> Self {
        stats.started.fetch_add(1, Relaxed);
        Self { stats }
    }

    fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.stats.abandoned.fetch_add(1, Relaxed);
    }
}
