//! One connection, from being accepted to its line in the log.
//!
//! ```text
//!   establish (boxed, gone when it is over)                 run (small: it is what idle connections cost)
//!     whose is it? ─ which app? ─ where from? ─ place,        relay, counters now and then,
//!       3 s            3 s                      connect       the backend going down
//!     refused: closed at once and counted
//! ```
//!
//! At most [`MAX_ATTEMPTS`] backends are tried, each for `connect_seconds`, and all together for twice that.
//! Nothing was sent to a backend that could not be reached, so trying another one is always safe.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tidegate_algorithms::balance::region::{Tier, Unplaced};
use tidegate_net::accept::Held;
use tidegate_net::clock::{monotonic, wall};
use tidegate_net::tls::TlsStream;
use tidegate_upstream::backend::Place;
use tidegate_wire::client_hello::{self, Hello, MAX_HELLO};
use tidegate_wire::proxy_protocol;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::Known;
use crate::config::{Affinity, OnUnhealthy};
use crate::decisions::{PlacementDecision, Went, named, rounded};
use crate::pool::{Origin, Placed, Pool};
use crate::relay::{End, Patience, Relay, Side};
use crate::service::{Client, EdgeListener};
use crate::stats::Refusal;

/// Most backends that are tried for a connection.
pub(crate) const MAX_ATTEMPTS: usize = 3;

/// How long a client may take to say which server it wants.
const HELLO_PATIENCE: Duration = Duration::from_secs(3);

/// Bytes after which the counters are told, for connections that live long.
const REPORT_BYTES: u64 = 1 << 20;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    listener: Arc<EdgeListener>,
    stream: TcpStream,
    peer: SocketAddr,
    core: usize,
    held: Held,
) {
    match Box::pin(establish(&listener, stream, peer, core)).await {
        Some(Established::Plain(session)) => session.run().await,
        Some(Established::Tls(session)) => Box::pin(session.run()).await,
        None => {}
    }
    drop(held);
}

#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and is moved once")]
enum Established {
    Plain(Session<TcpStream>),
    Tls(Box<Session<TlsStream>>),
}

async fn establish(
    listener: &Arc<EdgeListener>,
    mut stream: TcpStream,
    peer: SocketAddr,
    core: usize,
) -> Option<Established> {
    let stats = listener.stats();
    let mut client = peer;
    if let Some(proxied) = &listener.proxied {
        match proxied.read(&mut stream, peer).await {
            Ok(address) => client = address,
            Err(reason) => {
                tracing::debug!(%peer, %reason, "a connection without its proxy's header is closed");
                listener.gate.stats.core(core).connections.unproxied.fetch_add(1, Relaxed);
                stats.refuse(Refusal::Unproxied);
                return None;
            }
        }
    }
    if let Some(tls) = &listener.tls {
        let Some(stream) = tls.handshake(stream, peer, &listener.gate, core).await else {
            stats.refuse(Refusal::Handshake);
            return None;
        };
        let name = stream.get_ref().1.server_name().map(str::to_ascii_lowercase);
        let arrived = Arrived { listener, client, server_name: name.as_deref(), first: Vec::new() };
        return arrived.session(stream).await.map(|session| Established::Tls(Box::new(session)));
    }
    let (mut first, mut name) = (Vec::new(), None);
    if listener.config.reads_server_name() {
        match timeout(HELLO_PATIENCE, hello(&mut stream, &mut first)).await {
            Ok(Ok(found)) => name = found,
            Ok(Err(_)) | Err(_) => {
                stats.refuse(Refusal::NoServerName);
                return None;
            }
        }
    }
    let arrived = Arrived { listener, client, server_name: name.as_deref(), first };
    arrived.session(stream).await.map(Established::Plain)
}

/// Reads the ClientHello into `first`, and the name in it.
async fn hello<S: AsyncRead + Unpin>(stream: &mut S, first: &mut Vec<u8>) -> io::Result<Option<Box<str>>> {
    loop {
        let mut more = (&mut *stream).take((MAX_HELLO - first.len()) as u64);
        if more.read_buf(first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match client_hello::read(first).map_err(io::Error::other)? {
            Hello::Whole(name) => return Ok(name),
            Hello::Partial => {}
        }
    }
}

/// A connection of which is known whose it is and what it is for.
struct Arrived<'a> {
    listener: &'a Arc<EdgeListener>,
    client: SocketAddr,
    server_name: Option<&'a str>,
    /// What was read from it already.
    first: Vec<u8>,
}

/// A backend that was reached.
struct Reached {
    placed: Placed,
    stream: TcpStream,
}

impl Arrived<'_> {
    /// Its session with a backend; `None`: there is none, which is counted.
    async fn session<C: Side>(self, stream: C) -> Option<Session<C>> {
        let (listener, edge) = (self.listener, &self.listener.edge);
        let app = Arc::clone(listener.config.app_for(self.server_name));
        let affine = match listener.config.affinity {
            Affinity::Off => None,
            Affinity::Address => Some(listener.affinity.client(self.client.ip(), None)),
            Affinity::ServerName => Some(listener.affinity.client(self.client.ip(), self.server_name)),
        };
        let mut attempts = 0;
        let reached = self.reach(&app, affine, &mut attempts).await;
        let stats = listener.stats();
        let (country, region, known_by) = {
            let site = edge.site();
            let (location, known_by) = site.locate(self.client.ip(), edge.database().as_deref());
            let (country, region) = named(location, &site.regions);
            (country, region, known_by)
        };
        let outcome = reached.as_ref().map_err(|refusal| *refusal).map(|Reached { placed, .. }| Went {
            backend: Arc::clone(&placed.backend.config.name),
            tier: placed.tier,
            score: placed.score,
            is_affine: placed.is_affine,
        });
        edge.decisions().push(PlacementDecision {
            at: wall(),
            listener: Arc::clone(&listener.label),
            app: Arc::clone(&app),
            client: self.client.ip(),
            country,
            region,
            known_by,
            attempts,
            outcome,
        });
        let Reached { placed, stream: backend } = match reached {
            Ok(reached) => reached,
            Err(refusal) => {
                stats.refuse(refusal);
                let (client, reason) = (self.client, refusal.word());
                tracing::debug!(listener = %listener.label, %app, %client, reason, attempts, "connection refused");
                return None;
            }
        };
        let mut first = self.first;
        let from_client = first.len();
        if let Some(version) = listener.config.proxy_protocol_to {
            let server = stream.socket().local_addr().unwrap_or(listener.address);
            first.splice(..0, proxy_protocol::header(version, self.client, server));
        }
        let patience = Patience { idle: listener.config.idle_timeout, longest: listener.config.longest };
        let relay = Relay::new(stream, backend, first, from_client, patience);
        let about = About {
            listener: Arc::clone(listener),
            client: self.client,
            affine,
            app,
            backend: Arc::clone(&placed.backend.config.name),
            tier: placed.tier,
            score: placed.score,
            attempts,
            arrived: relay.started(),
            end: "stopped",
        };
        Some(Session::new(relay, placed, about))
    }

    /// Places the connection and connects to the backend.
    async fn reach(&self, app: &str, affine: Option<Client>, attempts: &mut u32) -> Result<Reached, Refusal> {
        let (listener, edge) = (self.listener, &self.listener.edge);
        let (pool, location, node) = {
            let site = edge.site();
            let pool = site.pool(app).cloned().ok_or(Refusal::NoBackend)?;
            (pool, site.locate(self.client.ip(), edge.database().as_deref()).0, site.node)
        };
        let before = affine.and_then(|client| listener.affinity.find(&client, edge.tick()));
        let origin = Origin { location, node, before: before.as_deref(), spill: listener.config.spill };
        let each = listener.config.connect_timeout;
        let deadline = monotonic() + 2 * each;
        let mut tried: Vec<usize> = Vec::new();
        while tried.len() < MAX_ATTEMPTS {
            let began = monotonic();
            let left = deadline.saturating_duration_since(began).min(each);
            if left.is_zero() {
                break;
            }
            let placed = match pool.place(origin, &tried, edge.tick()) {
                Ok(placed) => placed,
                Err(_) if !tried.is_empty() => break,
                Err(Unplaced::Full) => return Err(Refusal::Full),
                Err(Unplaced::None) => return Err(Refusal::NoBackend),
            };
            *attempts += 1;
            match edge.resolver().connect(placed.place.backend().target(), left).await {
                Ok(stream) => {
                    let took = monotonic() - began;
                    let known = &placed.backend.known;
                    known.reached(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), edge.tick());
                    known.stats.connected(took);
                    if let Some(client) = affine {
                        listener.affinity.bind(client, &placed.backend.config.name, edge.tick());
                    }
                    return Ok(Reached { placed, stream });
                }
                Err(error) => {
                    listener.stats().retries.fetch_add(1, Relaxed);
                    tried.push(placed.index);
                    self.unreached(&pool, &placed, &error);
                }
            }
        }
        Err(Refusal::Unreachable)
    }

    /// Takes note that a backend could not be reached, unless that was for want of something here.
    fn unreached(&self, pool: &Pool, placed: &Placed, error: &io::Error) {
        let (backend, edge) = (&placed.backend, &self.listener.edge);
        let name = &backend.config.name;
        let own = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
        if Errno::from_io_error(error).is_some_and(|errno| own.contains(&errno)) {
            tracing::warn!(backend = %name, %error, "a backend cannot be connected to for want of resources here");
            return;
        }
        tracing::debug!(backend = %name, %error, "a backend could not be reached");
        let now = edge.tick();
        let (ejected, count) = pool.ejected(now);
        if backend.known.failed(now, ejected, count) {
            edge.has_trouble();
            tracing::warn!(backend = %name, %error, "a backend is out for now: connections to it fail");
        }
    }
}

/// A connection and its backend.
struct Session<C: Side> {
    relay: Relay<C>,
    known: Arc<Known>,
    _place: Place,
    /// Over when the backend is found to be down, if that ends the session.
    down: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Bytes that the counters were told of.
    reported: (u64, u64),
    about: Box<About>,
}

/// What the last line says of a connection.
struct About {
    listener: Arc<EdgeListener>,
    client: SocketAddr,
    affine: Option<Client>,
    app: Arc<str>,
    backend: Arc<str>,
    tier: Tier,
    score: f64,
    attempts: u32,
    arrived: Instant,
    end: &'static str,
}

impl<C: Side> Session<C> {
    fn new(relay: Relay<C>, placed: Placed, about: About) -> Self {
        let stats = about.listener.stats();
        stats.placed.fetch_add(1, Relaxed);
        stats.open.fetch_add(1, Relaxed);
        stats.affine.fetch_add(u64::from(placed.is_affine), Relaxed);
        let known = Arc::clone(&placed.backend.known);
        let closes = about.listener.config.on_unhealthy == OnUnhealthy::Close;
        let down = closes.then(|| Box::pin(went_down(Arc::clone(&known))) as Pin<Box<_>>);
        Self { relay, known, _place: placed.place, down, reported: (0, 0), about: Box::new(about) }
    }

    /// Passes bytes until the end.
    async fn run(mut self) {
        let this = &mut self;
        poll_fn(|cx| {
            if let Poll::Ready(end) = this.relay.poll(cx) {
                this.ended(&end);
                return Poll::Ready(());
            }
            let (up, down) = (this.relay.bytes(), this.reported);
            if (up.0 - down.0) + (up.1 - down.1) >= REPORT_BYTES {
                this.report();
            }
            if let Some(went_down) = &mut this.down
                && went_down.as_mut().poll(cx).is_ready()
            {
                this.known.stats.closed_unhealthy.fetch_add(1, Relaxed);
                this.relay.break_off();
                this.about.end = "backend_down";
                return Poll::Ready(());
            }
            Poll::Pending
        })
        .await;
    }

    fn ended(&mut self, end: &End) {
        self.about.end = end.word();
        match end {
            End::BackendBroke(error) => {
                self.known.stats.broken.fetch_add(1, Relaxed);
                tracing::debug!(backend = %self.about.backend, %error, "a backend broke a connection off");
            }
            // What is still under way is not whole.
            End::Longest => self.relay.break_off(),
            End::ClientBroke(error) => {
                tracing::debug!(client = %self.about.client, %error, "a client broke a connection off");
            }
            End::Closed | End::Idle => {}
        }
    }

    /// Tells the counters what they do not know yet.
    fn report(&mut self) {
        let (bytes, reported) = (self.relay.bytes(), self.reported);
        let more = (bytes.0 - reported.0, bytes.1 - reported.1);
        self.about.listener.stats().traffic.add(more);
        self.known.stats.traffic.add(more);
        self.reported = bytes;
    }
}

/// However a session ends, also when a drain cuts it, it is counted and has its line.
impl<C: Side> Drop for Session<C> {
    fn drop(&mut self) {
        self.report();
        let About { listener, client, affine, app, backend, tier, score, attempts, arrived, end } =
            &*self.about;
        listener.stats().open.fetch_sub(1, Relaxed);
        if let Some(affine) = affine
            && listener.affinity.find(affine, listener.edge.tick()).is_none()
        {
            // It was here for longer than clients are remembered: it was idle from now on.
            listener.affinity.bind(*affine, backend, listener.edge.tick());
        }
        let (to_backend, to_client) = self.relay.bytes();
        tracing::debug!(
            listener = %listener.label, %app, %client, %backend, tier = tier.word(), score = rounded(*score),
            attempts, to_backend, to_client, seconds = (monotonic() - *arrived).as_secs_f64(), end, "connection"
        );
    }
}

/// Over when checks find the backend to be down.
async fn went_down(known: Arc<Known>) {
    known.down.notified().await;
}
