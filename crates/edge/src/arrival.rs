//! One connection, from being accepted until a backend has it or it is refused.
//!
//! ```text
//!   establish (boxed, gone when it is over)
//!     the client ─ the app ─ country, ─ policies ─ place,   ─> session
//!       3 s          3 s       region               connect
//!     refused: closed at once and counted
//! ```
//!
//! At most [`MAX_ATTEMPTS`] backends are tried, all together for twice `connect_seconds`: the first for the half of that, and each
//! further one for half of what is left, so that several silent ones do not take the time of one that would answer.
//! Nothing was sent to a backend that could not be reached, so trying another one is always safe.

use std::fmt::{self, Display};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::io::Errno;
use tidegate_algorithms::balance::region::{Location, Unplaced};
use tidegate_net::accept::Held;
use tidegate_net::clock::{monotonic, wall};
use tidegate_net::tls::{TlsStream, looked_up};
use tidegate_wire::client_hello::{self, Hello, MAX_HELLO};
use tidegate_wire::proxy_protocol;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::affinity::Affine;
use crate::config::{ListenerConfig, OnUnhealthy};
use crate::decisions::{PlacementDecision, Went, named};
use crate::limits::{Denial, LimitPermit, denied, refused_for};
use crate::pacing::{ConnectionFacts, Pacer};
use crate::pool::{Origin, Placed};
use crate::relay::{Patience, Relay};
use crate::service::EdgeListener;
use crate::session::{About, EdgeSession, GoesDown, goes_down};
use crate::side::Side;
use crate::site::Site;
use crate::stats::Refusal;

/// Most backends that are tried for a connection.
pub(crate) const MAX_ATTEMPTS: usize = 8;

/// How long a client may take to say which server it wants.
const HELLO_PATIENCE: Duration = Duration::from_secs(3);

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
    Plain(EdgeSession<TcpStream>),
    Tls(Box<EdgeSession<TlsStream>>),
}

async fn establish(
    listener: &Arc<EdgeListener>,
    mut stream: TcpStream,
    peer: SocketAddr,
    core: usize,
) -> Option<Established> {
    let mut client = peer;
    if let Some(proxied) = &listener.proxied {
        match proxied.read(&mut stream, peer).await {
            Ok(address) => client = address,
            Err(reason) => {
                listener.gate.stats.core(core).connections.unproxied.fetch_add(1, Relaxed);
                listener.refuse(Refusal::Unproxied, peer, None, &reason);
                return None;
            }
        }
    }
    if let Some(tls) = &listener.tls {
        let Some(stream) = tls.handshake(stream, peer, &listener.gate, core).await else {
            listener.refuse(Refusal::Handshake, client, None, &Refusal::Handshake.why());
            return None;
        };
        let name = stream.get_ref().1.server_name().map(looked_up);
        let in_force = SiteInForce::now(listener);
        let arrived =
            ArrivedConnection { listener, in_force, client, server_name: name.as_deref(), first: Vec::new() };
        return arrived.session(stream).await.map(|session| Established::Tls(Box::new(session)));
    }
    let (mut first, mut name, in_force) = (Vec::new(), None, SiteInForce::now(listener));
    if in_force.config.reads_server_name() {
        match timeout(HELLO_PATIENCE, hello(&mut stream, &mut first)).await {
            Ok(Ok(found)) => name = found,
            Ok(Err(error)) => {
                listener.refuse(Refusal::NoServerName, client, None, &NoHello { first: &first, error });
                return None;
            }
            Err(_) => {
                let why = if first.is_empty() { SAID_NOTHING } else { "its TLS hello is not there in time" };
                listener.refuse(Refusal::NoServerName, client, None, &why);
                return None;
            }
        }
    }
    let arrived = ArrivedConnection { listener, in_force, client, server_name: name.as_deref(), first };
    arrived.session(stream).await.map(Established::Plain)
}

/// Why a client that waits is closed: it may wait for its server's first word.
const SAID_NOTHING: &str = "it has said nothing for 3 s, and server names are read on this listener, from a TLS hello: where servers speak \
    first (MySQL, SMTP, IMAP, POP3, FTP), a listener without server_names is needed";

/// Why a connection that does not begin with a hello is closed.
struct NoHello<'a> {
    /// How it begins.
    first: &'a [u8],
    error: io::Error,
}

impl Display for NoHello<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(spoken) = client_hello::begins_in_clear(self.first) else { return self.error.fmt(out) };
        write!(
            out,
            "it speaks {spoken}, and server names are read on this listener, from a TLS hello: it needs a listener without \
             server_names"
        )?;
        if spoken.starts_with("PostgreSQL") {
            out.write_str(", or a client that begins with TLS (sslnegotiation=direct, of PostgreSQL 17)")?;
        }
        Ok(())
    }
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

/// What was in force when a connection could be looked at. All that is decided of it goes by this, however often the
/// configuration changes meanwhile.
struct SiteInForce {
    site: Arc<Site>,
    config: Arc<ListenerConfig>,
}

impl SiteInForce {
    fn now(listener: &EdgeListener) -> Self {
        let site = listener.edge.site_to_keep();
        let config = Arc::clone(listener.config(&site));
        Self { site, config }
    }
}

/// A connection whose client, server name and listener are known, before it has a backend.
struct ArrivedConnection<'a> {
    listener: &'a Arc<EdgeListener>,
    in_force: SiteInForce,
    client: SocketAddr,
    server_name: Option<&'a str>,
    /// What was read from it already.
    first: Vec<u8>,
}

/// A backend that was reached.
struct Reached {
    placed: Placed,
    stream: TcpStream,
    down: Option<GoesDown>,
}

impl ArrivedConnection<'_> {
    /// Its session with a backend; `None` if it is refused, which is counted.
    async fn session<C: Side>(self, stream: C) -> Option<EdgeSession<C>> {
        let (listener, edge) = (self.listener, &self.listener.edge);
        let SiteInForce { site, config } = &self.in_force;
        let app = Arc::clone(config.app_for(self.server_name));
        let affine = listener.affinity.affine(config, self.client.ip(), &app, self.server_name);
        let (location, known_by) = site.locate(self.client.ip(), edge.database().as_deref());
        let (country, region) = named(location, &site.regions);
        let facts = ConnectionFacts {
            listener: Arc::clone(listener),
            config: Arc::clone(config),
            app: Arc::clone(&app),
            client: self.client.ip(),
            server_name: self.server_name.map(Box::from),
            country: country.clone(),
            region: region.clone(),
        };
        let mut attempts = 0;
        let mut denial = None;
        let reached = match permitted(&facts).await {
            Ok(permit) => {
                let reached = self.reach(&app, location, affine, &mut attempts).await;
                reached.map(|reached| (reached, permit))
            }
            Err(why) => Err(refused_for(denial.insert(why))),
        };
        let went = |(Reached { placed, .. }, _): &(Reached, _)| Went {
            backend: Arc::clone(&placed.backend.config.name),
            tier: placed.tier,
            is_measured: placed.is_measured,
            score: placed.score,
            is_affine: placed.is_affine,
        };
        edge.decisions().push(PlacementDecision {
            at: wall(),
            listener: Arc::clone(&listener.label),
            app: Arc::clone(&app),
            client: self.client.ip(),
            country,
            region,
            known_by,
            attempts,
            outcome: reached.as_ref().map(went).map_err(|refusal| *refusal),
        });
        match reached {
            Ok((reached, permit)) => Some(self.begin(stream, reached, permit, (affine, attempts), facts)),
            Err(refusal) => {
                let why = denial.as_ref().map_or_else(|| refusal.why().to_owned(), denied);
                listener.refuse(refusal, self.client, Some((&app, attempts)), &why);
                None
            }
        }
    }

    /// The session of a connection that has a backend.
    fn begin<C: Side>(
        self,
        stream: C,
        Reached { placed, stream: backend, down }: Reached,
        permit: Option<LimitPermit>,
        (affine, attempts): (Option<Affine>, u32),
        facts: ConnectionFacts,
    ) -> EdgeSession<C> {
        let (listener, config) = (self.listener, &self.in_force.config);
        let mut first = self.first;
        let from_client = first.len();
        if let Some(version) = config.proxy_protocol_to {
            let server = stream.socket().local_addr().unwrap_or(listener.address);
            first.splice(..0, proxy_protocol::header(version, self.client, server));
        }
        let patience = Patience { idle: config.idle_timeout, longest: config.longest };
        let relay = Relay::new(stream, backend, first, from_client, patience);
        let about = About {
            listener: Arc::clone(listener),
            client: self.client,
            affine,
            app: Arc::clone(&facts.app),
            backend: Arc::clone(&placed.backend.config.name),
            tier: placed.tier,
            score: placed.score,
            attempts,
            arrived: relay.started(),
            end: "stopped",
            _permit: permit,
        };
        let is_paced = !config.byte_policies.is_empty();
        let pacer = is_paced.then(|| Box::new(Pacer::new(Arc::new(facts))));
        EdgeSession::new(relay, placed, down, about, pacer)
    }

    /// Places the connection and connects to the backend.
    async fn reach(
        &self,
        app: &str,
        location: Location,
        affine: Option<Affine>,
        attempts: &mut u32,
    ) -> Result<Reached, Refusal> {
        let (listener, edge) = (self.listener, &self.listener.edge);
        let SiteInForce { site, config } = &self.in_force;
        let pool = site.pool(app).ok_or(Refusal::NoBackend)?;
        let before = affine.and_then(|affine| listener.affinity.find(&affine, edge.tick()));
        let origin = Origin { location, node: site.node, before: before.as_deref(), spill: config.spill };
        let each = config.connect_timeout;
        let deadline = monotonic() + 2 * each;
        let mut tried: Vec<usize> = Vec::new();
        while tried.len() < MAX_ATTEMPTS {
            let began = monotonic();
            let left = deadline.saturating_duration_since(began);
            if left.is_zero() {
                break;
            }
            let placed = match pool.place(origin, &tried, edge.tick()) {
                Ok(placed) => placed,
                Err(_) if !tried.is_empty() => break,
                Err(Unplaced::Full) => return Err(Refusal::Full),
                Err(Unplaced::None) => return Err(Refusal::NoBackend),
            };
            // From here on, so that it is not missed if that happens while it is being connected to.
            let down = (config.on_unhealthy == OnUnhealthy::Close).then(|| goes_down(&placed));
            *attempts += 1;
            tried.push(placed.index);
            // The first one has all of its time, and what is left is shared with those that may have to follow.
            let may_follow = tried.len() > 1 && pool.preview(origin, &tried, edge.tick()).is_ok();
            let time = if may_follow { left / 2 } else { left.min(each) };
            match edge.resolver().connect_timed(placed.place.backend().target(), time).await {
                Ok((stream, _)) if edge.is_at_other_end(&stream) => {
                    edge.leads_back(&placed.backend);
                }
                Ok((stream, round_trip)) => {
                    let took = monotonic() - began;
                    let known = &placed.backend.known;
                    known.measured(round_trip, edge.tick());
                    if known.reached(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), edge.tick()) {
                        edge.has_trouble();
                        tracing::info!(backend = %placed.backend.config.name, "a backend is reached again");
                    }
                    known.stats.connected(took);
                    if let Some(affine) = &affine {
                        listener.affinity.enter(affine, &placed.backend.config.name, edge.tick());
                    }
                    return Ok(Reached { placed, stream, down });
                }
                Err(error) => {
                    listener.stats().retries.fetch_add(1, Relaxed);
                    // A backend that had less than its time is not blamed.
                    if time >= each || error.kind() != io::ErrorKind::TimedOut {
                        self.unreached(&placed, &error);
                    }
                }
            }
        }
        Err(Refusal::Unreachable)
    }

    /// Takes note that a backend could not be reached, unless that was for want of something here.
    fn unreached(&self, placed: &Placed, error: &io::Error) {
        let (backend, edge) = (&placed.backend, &self.listener.edge);
        let name = &backend.config.name;
        let own = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
        if Errno::from_io_error(error).is_some_and(|errno| own.contains(&errno)) {
            tracing::warn!(backend = %name, %error, "a backend cannot be connected to for want of resources here");
            return;
        }
        tracing::debug!(backend = %name, %error, "a backend could not be reached");
        let is_news = backend.known.failed(edge.tick());
        edge.has_trouble();
        if is_news {
            tracing::warn!(backend = %name, %error, "a backend gets no connections for now: a connection to it failed");
        }
    }
}

/// Charges a connection under its listener's policies.
async fn permitted(facts: &ConnectionFacts) -> Result<Option<LimitPermit>, Denial> {
    if facts.config.policies.is_empty() {
        facts.listener.limits.pass(&facts.limited());
        return Ok(None);
    }
    let ruling = facts.listener.limits.charge(&facts.config.policies, &facts.limited()).await;
    match ruling.denial {
        Some(denial) => Err(denial),
        None => Ok(ruling.held),
    }
}
