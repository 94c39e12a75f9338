//! One server: its sockets, its bounds, and the life of each connection.
//!
//! Per connection there is one task; per request nothing is allocated that hyper does not
//! allocate. A request reaches the service through its connection's own reference count: counting
//! on the server's would make every request of every core write the same cache line.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http::{Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::{Activity, Phase};
use super::deadline::DeadlineIo;
use super::reply::Outgoing;
use super::{Handle, HttpConfig, Peer, Reply, RequestBody};
use crate::accept::{Gate, Held, accept};
use crate::clock::monotonic;
use crate::drain::Stage;
use crate::listen::Listeners;
use crate::runtime::Cores;
use crate::stats::CoreStats;

/// The smallest buffer that hyper accepts.
const SMALLEST_BUFFER: usize = 8192;

/// An HTTP/1.1 server for one service; clones share it.
#[derive(Debug)]
pub struct Server<H> {
    shared: Arc<Shared<H>>,
}

#[derive(Debug)]
struct Shared<H> {
    handler: H,
    config: Arc<HttpConfig>,
    protocol: http1::Builder,
    gate: Gate,
}

impl<H> Clone for Server<H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<H: Handle> Server<H> {
    /// A server for `handler`, bounded by `config` and `gate`.
    #[must_use]
    pub fn new(handler: H, config: HttpConfig, gate: Gate) -> Self {
        let mut protocol = http1::Builder::new();
        protocol
            // `DeadlineIo` times the head; the header of `http.rs` says why.
            .header_read_timeout(None)
            .max_header_size(config.max_head_bytes)
            .max_buf_size(config.max_head_bytes.max(SMALLEST_BUFFER))
            // One buffer per reply: for short bodies a copy is cheaper than a second slice.
            .writev(false);
        Self { shared: Arc::new(Shared { handler, config: Arc::new(config), protocol, gate }) }
    }

    /// Serves `listeners` until the drain ends: socket `i` on core `i`.
    pub fn start(&self, cores: &Cores, listeners: Listeners) {
        let address = listeners.address();
        for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
            let server = self.clone();
            cores.spawn_on(core, async move {
                if let Err(error) = server.accept(socket, core).await {
                    tracing::error!(%address, %error, "cannot watch a listening socket");
                }
            });
        }
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    pub(super) fn config(&self) -> &HttpConfig {
        &self.shared.config
    }

    async fn accept(&self, socket: std::net::TcpListener, core: usize) -> io::Result<()> {
        accept(socket, &self.shared.gate, core, |stream, address, held| {
            drop(tokio::spawn(self.serve_stream(stream, Peer { address, core }, held)));
        })
        .await
    }

    /// Serves one connection over any byte stream, such as one that TLS was taken off. The future
    /// ends with the connection.
    pub fn serve_stream<S>(
        &self,
        stream: S,
        peer: Peer,
        held: Held,
    ) -> impl Future<Output = ()> + Send + 'static + use<S, H>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Shared { config, protocol, gate, .. } = &*self.shared;
        let activity = Arc::new(Activity::new(monotonic(), Arc::clone(&gate.stats), peer.core));
        let io = DeadlineIo::new(stream, Arc::clone(&activity), Arc::clone(config));
        let drain = gate.drain.clone();
        let mut sweep = Box::pin({
            let drain = drain.clone();
            async move { drain.sweeping().await }
        });
        let connection = Arc::new(Connection::new(self, Arc::clone(&activity), peer));
        let service = service_fn(move |request| {
            connection.activity.enter(Phase::Busy);
            Arc::clone(&connection).answer(request)
        });
        let mut protocol = protocol.serve_connection(TokioIo::new(io), service);

        // A future written by hand, because an async block would hold a second copy of the
        // protocol's state. The drain's future is polled once, which leaves the task's waker
        // there, and again when its time has come.
        let mut watching = false;
        let mut swept = false;
        poll_fn(move |cx| {
            if !swept && (!watching || drain.stage() >= Stage::Sweeping) {
                watching = true;
                swept = sweep.as_mut().poll(cx).is_ready();
                // A request whose head is on its way is still served; its reply says close.
                if swept && activity.phase() != Phase::Head {
                    activity.leave_if_idle();
                    Pin::new(&mut protocol).graceful_shutdown();
                }
            }
            Pin::new(&mut protocol).poll(cx).map(|end| {
                if let Err(error) = end {
                    tracing::debug!(%error, peer = %peer.address, "connection ended early");
                }
                // Named here so that the closure owns it until the connection ends.
                let _: &Held = &held;
            })
        })
    }
}

/// What the requests of one connection share.
pub(super) struct Connection<H> {
    server: Arc<Shared<H>>,
    activity: Arc<Activity>,
    peer: Peer,
}

impl<H: Handle> Connection<H> {
    pub(super) fn new(server: &Server<H>, activity: Arc<Activity>, peer: Peer) -> Self {
        Self { server: Arc::clone(&server.shared), activity, peer }
    }

    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Outgoing>, Infallible> {
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
            let request = request.map(|incoming| RequestBody::new(incoming, config.body));
            handler.handle(request, &self.peer).await
        };
        if is_http1 && gate.drain.is_draining() {
            reply.close();
        }
        let now = monotonic();
        in_flight.end();
        let status = reply.response.status().as_u16();
        self.activity.stats().answered(reply.route, status, now.duration_since(started));
        let response = reply.response.map(|body| Outgoing::new(body, &self.activity));
        if !response.body().is_streaming() {
            self.activity.idle_from(now);
        }
        Ok(response)
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
