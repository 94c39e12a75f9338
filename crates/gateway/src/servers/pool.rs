//! Connections to one server that wait for their next request.
//!
//! Each core has its own, so that a request stays on the core of its client and no lock is fought over. Of those of
//! HTTP/1.1, which have one request at a time, the newest is taken first: the others age, and go when they have been
//! idle for too long. Connections of HTTP/2 stay in the pool while they are used. Number and time are bounded, and a server
//! that says in `Keep-Alive` how long it waits is not made to wait so long.
//!
//! Where the server has a name, a connection to an address that the name has no longer gets no further request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tidegate_net::clock::monotonic;

use crate::observed::flow::Flow;
use crate::servers::connection::{HyperSender, Sender, SharedSender};

/// How long before the end of the time that a server has told a connection gets no request any more: one that is on its way then
/// may meet the close.
const MARGIN: Duration = Duration::from_secs(1);

/// Connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    cores: Box<[Mutex<KeptConnections>]>,
    most: usize,
    longest: Duration,
    /// The addresses of the server's name; `None`: it has none, or they are not known yet.
    addresses: ArcSwapOption<Arc<[IpAddr]>>,
    /// What the server is sent and answers.
    flow: Arc<Flow>,
}

#[derive(Debug, Default)]
struct KeptConnections {
    idle: Vec<Idle>,
    shared: Vec<SharedConnection>,
}

/// A connection that waits, and until when.
#[derive(Debug)]
struct Idle {
    sender: Sender,
    until: Instant,
}

/// Where a connection goes back to when its reply has been read to the end.
#[derive(Debug)]
pub(crate) struct Return {
    pub(crate) sender: Sender,
    pool: Arc<ConnectionPool>,
    /// The core that serves the client.
    pub(crate) core: usize,
    /// How long it may be kept, if that is known.
    promised: Option<Duration>,
    /// When the head of its reply was there.
    heard: Instant,
    /// The route whose reply it carries, if that is counted there.
    route: Option<Arc<Flow>>,
}

impl Return {
    /// Where a connection goes that may be kept for so long, if that is known. The head of its reply was there at `heard`.
    pub(crate) fn new(
        sender: Sender,
        promised: Option<Duration>,
        pool: Arc<ConnectionPool>,
        core: usize,
        heard: Instant,
    ) -> Self {
        Self { sender, pool, core, promised, heard, route: None }
    }

    /// The same, whose reply is one of this route.
    pub(crate) fn of_route(self, route: &Arc<Flow>) -> Self {
        Self { route: Some(Arc::clone(route)), ..self }
    }

    /// Counts so many bytes of the reply.
    pub(crate) fn reply_bytes(&self, bytes: usize) {
        self.pool.flow.reply_bytes(self.core, bytes);
        if let Some(route) = &self.route {
            route.reply_bytes(self.core, bytes);
        }
    }

    /// Keeps the connection for the next request.
    pub(crate) fn now(self) {
        self.pool.put(self.core, self.sender, self.promised, monotonic());
    }

    /// The same, where the reply ended as soon as its head was there.
    pub(crate) fn at_once(self) {
        self.pool.put(self.core, self.sender, self.promised, self.heard);
    }
}

/// A connection for several at once, and when it was last taken.
#[derive(Debug)]
struct SharedConnection {
    sender: SharedSender,
    since: Instant,
}

impl ConnectionPool {
    /// An empty pool for each of `cores`, with at most `most` connections that are idle for `longest`. What its server is sent
    /// and answers is counted in `flow`.
    pub(crate) fn new(cores: usize, most: usize, longest: Duration, flow: Arc<Flow>) -> Self {
        let cores = (0..cores.max(1)).map(|_| Mutex::default()).collect();
        Self { cores, most, longest, addresses: ArcSwapOption::empty(), flow }
    }

    /// What the server is sent and answers.
    pub(crate) fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// A connection that was open a moment ago, if there is one; of HTTP/1.1, if the request `offers` to go on in another
    /// protocol.
    pub(crate) fn take(&self, core: usize, offers: bool, now: Instant) -> Option<Sender> {
        let mut kept = self.core(core);
        let shared = kept.shared.iter_mut().find(|kept| !offers && kept.sender.has_room());
        if let Some(shared) = shared {
            shared.since = now;
            return Some(Sender::Hyper(HyperSender::Http2(shared.sender.clone())));
        }
        while let Some(Idle { sender, until }) = kept.idle.pop() {
            if now < until && sender.is_free() {
                return Some(sender);
            }
        }
        None
    }

    /// Lets others use a new connection, if its protocol allows that.
    pub(crate) fn share(&self, core: usize, sender: &HyperSender, now: Instant) {
        if let HyperSender::Http2(shared) = sender {
            let mut kept = self.core(core);
            kept.shared.retain(|kept| !kept.sender.is_closed());
            if kept.shared.len() < self.most {
                kept.shared.push(SharedConnection { sender: shared.clone(), since: now });
            }
        }
    }

    /// Keeps a connection for the next request, if there is room. If the reply has ended and the request's body is still being
    /// sent, the connection is closed: the client could otherwise hold it for as long as it likes, beyond the server's bound.
    /// So is one of HTTP/1.1 to a server to which others speak HTTP/2. `promised` is how long the server keeps it, if it has
    /// said so.
    pub(crate) fn put(&self, core: usize, sender: Sender, promised: Option<Duration>, now: Instant) {
        if matches!(sender, Sender::Hyper(HyperSender::Http2(_))) {
            return;
        }
        if !sender.is_free() || sender.is_single() {
            return sender.close();
        }
        let idle =
            promised.map_or(self.longest, |promised| promised.saturating_sub(MARGIN).min(self.longest));
        if idle.is_zero() || !self.leads_there(sender.peer()) {
            return;
        }
        let mut kept = self.core(core);
        if kept.idle.len() < self.most {
            kept.idle.push(Idle { sender, until: now + idle });
        }
    }

    /// Takes no connection to another address for further requests.
    pub(crate) fn keep_to(&self, addresses: &Arc<[IpAddr]>) {
        if self.addresses.load().as_ref().is_some_and(|known| ***known == **addresses) {
            return;
        }
        self.addresses.store(Some(Arc::new(Arc::clone(addresses))));
        for core in 0..self.cores.len() {
            let mut kept = self.core(core);
            kept.idle.retain(|kept| addresses.contains(&kept.sender.peer()));
            kept.shared.retain(|kept| addresses.contains(&kept.sender.peer));
        }
    }

    fn leads_there(&self, peer: IpAddr) -> bool {
        self.addresses.load().as_ref().is_none_or(|addresses| addresses.contains(&peer))
    }

    /// Closes what has been idle for too long, on every core.
    pub(crate) fn sweep(&self, now: Instant) {
        let is_fresh = |since: Instant| now.duration_since(since) < self.longest;
        for core in 0..self.cores.len() {
            let mut kept = self.core(core);
            kept.idle.retain(|kept| now < kept.until && kept.sender.is_free());
            kept.shared
                .retain(|kept| !kept.sender.is_closed() && (kept.sender.users() > 1 || is_fresh(kept.since)));
        }
    }

    fn core(&self, core: usize) -> MutexGuard<'_, KeptConnections> {
        self.cores[core % self.cores.len()].lock()
    }
}
