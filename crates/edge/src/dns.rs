//! Names for what the edge knows, by DNS: for machines that find backends without passing through it.
//!
//! | name | is |
//! |---|---|
//! | `APP.internal` | the app's backends: A, AAAA, SRV |
//! | `REGION.backends.internal` | the backends in a region |
//! | `REGION.pops.internal` | the addresses of the listeners of the nodes in the region |
//! | `BACKEND.nodes.internal` | one backend: what SRV records point at |
//!
//! Answers have the backends that connections would go to, the nearest to the asker first, at most [`MAX_RECORDS`], and
//! may be kept for [`TTL`] seconds. An app without a usable backend is a name without records, and so is one that only has
//! others below it; one that nothing is configured for is no name at all. Upper and lower case are the same.
//!
//! Only loopback and listed networks are answered. Others get nothing, so that nobody is sent replies to questions that
//! somebody else asked in its name.
//!
//! A process that drains stops answering when its listeners close: by UDP it still answers what has arrived, and a connection
//! is closed once its last question is answered. On shared ports all further questions are the next process's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_algorithms::balance::region::{Spill, Tier};
use tidegate_net::accept::{Gate, accept};
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::listen::Listeners;
use tidegate_net::proxied::Network;
use tidegate_net::runtime::Cores;
use tidegate_upstream::backend::Host;
use tidegate_wire::dns::{
    A, AAAA, ANY, Answer, MAX_MESSAGE, NotAQuestion, Outcome, Record, SRV, is_name, read, refusal, reply,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::backend::EdgeBackend;
use crate::pool::Pool;
use crate::pops::Pops;
use crate::service::Edge;

/// Most records of an answer.
pub const MAX_RECORDS: usize = 20;

/// How many seconds an answer may be kept.
pub const TTL: u32 = 30;

/// The zone.
const ZONE: &str = "internal";

/// How long a connection by TCP may be silent, and a message may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most questions on one connection, and of those that have come by UDP when a drain closes the socket.
const MAX_QUESTIONS: usize = 1_000;

/// Largest question; of a longer one by UDP the rest is lost, and a connection with one is closed.
const MAX_QUESTION: usize = 1_500;

/// A server of names.
#[derive(Debug)]
pub struct NameServer {
    edge: Arc<Edge>,
    /// Where clients reach the listeners of this node, if these do not say it themselves.
    advertised: Vec<IpAddr>,
    pops: Pops,
    allowed: Vec<Network>,
    stats: NameStats,
}

/// What a server of names counts.
#[derive(Debug, Default)]
pub struct NameStats {
    /// Questions that were answered.
    pub answered: AtomicU64,
    /// Messages of askers that are not listed.
    pub unlisted: AtomicU64,
    /// Messages that are no questions.
    pub malformed: AtomicU64,
}

impl NameServer {
    /// A server of the names of `edge`, for loopback and `allowed`. Clients reach the listeners of this node at the addresses
    /// `advertised`, or else at the listeners' own; those of other nodes are in `pops`.
    #[must_use]
    pub fn new(edge: Arc<Edge>, advertised: Vec<IpAddr>, pops: Pops, allowed: Vec<Network>) -> Arc<Self> {
        Arc::new(Self { edge, advertised, pops, allowed, stats: NameStats::default() })
    }

    /// What it has counted.
    #[must_use]
    pub fn stats(&self) -> &NameStats {
        &self.stats
    }

    /// Serves both sockets, which have the same address; that for UDP does not block.
    pub fn start(self: &Arc<Self>, cores: &Cores, udp: std::net::UdpSocket, tcp: Listeners, gate: Gate) {
        let (server, drain) = (Arc::clone(self), gate.drain.clone());
        cores.spawn_on(0, async move {
            if let Err(error) = server.serve_udp(udp, &drain).await {
                tracing::error!(%error, "names are not served by UDP any more");
            }
        });
        for socket in tcp.into_sockets() {
            let (server, gate) = (Arc::clone(self), gate.clone());
            cores.spawn_on(0, async move {
                let serve = |stream, peer: SocketAddr, held| {
                    if !server.hears(peer.ip()) {
                        return;
                    }
                    let (server, drain) = (Arc::clone(&server), gate.drain.clone());
                    drop(tokio::spawn(async move {
                        // A connection that breaks off has had its answers.
                        drop(server.serve_tcp(stream, peer.ip(), &drain).await);
                        drop(held);
                    }));
                };
                if let Err(error) = accept(socket, &gate, 0, serve).await {
                    tracing::error!(%error, "names are not served by TCP");
                }
            });
        }
    }

    async fn serve_udp(&self, socket: std::net::UdpSocket, drain: &Drain) -> io::Result<()> {
        let socket = UdpSocket::from_std(socket)?;
        let mut buffer = [0; MAX_QUESTION];
        let mut closed = pin!(drain.reached(Stage::Closed));
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut buffer) => received,
                () = &mut closed => break,
            };
            // An error is about a reply that did not arrive, and says nothing of the next question.
            let Ok((length, peer)) = received else { continue };
            self.answer_datagram(&socket, &buffer[..length], peer).await;
        }
        // What has arrived would be lost with the socket.
        for _ in 0..MAX_QUESTIONS {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, peer)) => self.answer_datagram(&socket, &buffer[..length], peer).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        Ok(())
    }

    async fn answer_datagram(&self, socket: &UdpSocket, message: &[u8], peer: SocketAddr) {
        if self.hears(peer.ip())
            && let Some(reply) = self.answer(message, peer.ip(), true)
        {
            // A resolver that does not get the reply asks again.
            drop(socket.send_to(&reply, peer).await);
        }
    }

    async fn serve_tcp(&self, mut stream: TcpStream, peer: IpAddr, drain: &Drain) -> io::Result<()> {
        for _ in 0..MAX_QUESTIONS {
            let mut length = [0; 2];
            tokio::select! {
                biased;
                read = timeout(PATIENCE, stream.read_exact(&mut length)) => read??,
                () = drain.reached(Stage::Closed) => return Ok(()),
            };
            let length = usize::from(u16::from_be_bytes(length));
            if length > MAX_QUESTION {
                self.stats.malformed.fetch_add(1, Relaxed);
                return Ok(());
            }
            let mut message = vec![0; length];
            timeout(PATIENCE, stream.read_exact(&mut message)).await??;
            let Some(reply) = self.answer(&message, peer, false) else { return Ok(()) };
            debug_assert!(reply.len() <= MAX_MESSAGE, "records are bounded");
            let length = u16::try_from(reply.len()).unwrap_or(u16::MAX).to_be_bytes();
            timeout(PATIENCE, stream.write_all(&[&length[..], &reply].concat())).await??;
        }
        // What is closed with bytes unread is reset, and the last answers are lost with it.
        stream.shutdown().await?;
        timeout(PATIENCE, tokio::io::copy(&mut stream, &mut tokio::io::sink())).await??;
        Ok(())
    }

    /// Whether questions of `asker` are answered; that they are not is counted.
    fn hears(&self, asker: IpAddr) -> bool {
        let asker = asker.to_canonical();
        let is_heard = asker.is_loopback() || self.allowed.iter().any(|network| network.contains(asker));
        self.stats.unlisted.fetch_add(u64::from(!is_heard), Relaxed);
        is_heard
    }

    /// The reply to a message, if it gets one.
    fn answer(&self, message: &[u8], asker: IpAddr, is_udp: bool) -> Option<Vec<u8>> {
        let asker = asker.to_canonical();
        match read(message) {
            Ok(question) => {
                self.stats.answered.fetch_add(1, Relaxed);
                let (outcome, records) = self.records(&question.name, question.kind, asker);
                Some(reply(&question, &Answer { outcome, records, zone: ZONE, ttl: TTL }, is_udp))
            }
            Err(wrong) => {
                self.stats.malformed.fetch_add(1, Relaxed);
                match wrong {
                    NotAQuestion::Silence => None,
                    NotAQuestion::Answer(head, outcome) => Some(refusal(head, outcome)),
                }
            }
        }
    }

    /// What a name has.
    fn records(&self, name: &str, kind: u16, asker: IpAddr) -> (Outcome, Vec<Record>) {
        // Names of the zone that only have others below them.
        if [ZONE, "backends.internal", "pops.internal", "nodes.internal"].contains(&name) {
            return (Outcome::Found, Vec::new());
        }
        let Some(rest) = name.strip_suffix(ZONE).and_then(|rest| rest.strip_suffix('.')) else {
            return (Outcome::Refused, Vec::new());
        };
        let below = |suffix| rest.strip_suffix(suffix);
        let found = if let Some(region) = below(".pops") {
            self.listeners_in(region)
        } else if let Some(region) = below(".backends") {
            self.backends(asker, |backend| backend.config.region.as_deref() == Some(region), |_| true)
        } else if let Some(node) = below(".nodes") {
            self.backends(asker, |backend| *backend.config.name == *node, |_| true)
        } else {
            self.backends(asker, |_| true, |pool| *pool.app == *rest)
        };
        let Some(mut records) = found else {
            let outcome = if self.is_above_another(rest) { Outcome::Found } else { Outcome::NoName };
            return (outcome, Vec::new());
        };
        records.retain(|record| match record {
            Record::Address(IpAddr::V4(_)) => kind == A || kind == ANY,
            Record::Address(IpAddr::V6(_)) => kind == AAAA || kind == ANY,
            Record::Service { .. } => kind == SRV,
        });
        let mut unique: Vec<Record> = Vec::new();
        for record in records {
            if unique.len() < MAX_RECORDS && !unique.contains(&record) {
                unique.push(record);
            }
        }
        (Outcome::Found, unique)
    }

    /// Records of the backends of a name, the nearest first; `None`: the name has none, usable or not.
    fn backends(
        &self,
        asker: IpAddr,
        is_named: impl Fn(&EdgeBackend) -> bool,
        is_pool: impl Fn(&Pool) -> bool,
    ) -> Option<Vec<Record>> {
        let (site, now) = (self.edge.site(), self.edge.tick());
        let (from, _) = site.locate(asker, self.edge.database().as_deref());
        let mut is_known = false;
        let mut ranked: Vec<(u16, f64, Record)> = Vec::new();
        for pool in site.pools().into_iter().filter(|pool| is_pool(pool)) {
            let (is_panic, layout) = (pool.is_panic(now), pool.layout(now));
            let backends = pool.backends().iter().zip(layout.members()).enumerate();
            for (index, (backend, member)) in backends.filter(|(_, (backend, _))| is_named(backend)) {
                is_known = true;
                let Some(load) = pool.load(index, is_panic, now) else { continue };
                let Host::Address(address) = backend.config.target.host else { continue };
                // The client connects to the backend itself, so the round trip from this node does not count.
                let tier = Tier::of(from, member.location, site.node);
                let Some(score) = member.score(tier, load, Spill::AtHard) else { continue };
                let address = address.to_canonical();
                ranked.push((member.priority, score, Record::Address(address)));
                let target = format!("{}.nodes.{ZONE}", backend.config.name);
                if !is_name(&target) {
                    continue;
                }
                let service = Record::Service {
                    priority: member.priority.saturating_mul(10).saturating_add(tier as u16),
                    weight: u16::try_from(member.weight).unwrap_or(u16::MAX),
                    port: backend.config.target.port,
                    target,
                    address,
                };
                ranked.push((member.priority, score, service));
            }
        }
        ranked.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        is_known.then(|| ranked.into_iter().map(|(.., record)| record).collect())
    }

    /// Whether there are names below this one of the zone, as `shop.eu` is below `eu`. Such a name is there, without records: a
    /// resolver asks for nothing below one that is not (RFC 8020).
    fn is_above_another(&self, rest: &str) -> bool {
        let below = |suffix| rest.strip_suffix(suffix);
        let is_above =
            |name: &str, top: &str| name.strip_suffix(top).is_some_and(|front| front.ends_with('.'));
        if let Some(top) = below(".pops") {
            return self.edge.region().is_some_and(|own| is_above(&own, top)) || self.pops.has_below(top);
        }
        let site = self.edge.site();
        let mut pools = site.pools().into_iter();
        if let Some(top) = below(".backends") {
            let in_region = |backend: &Arc<EdgeBackend>| {
                backend.config.region.as_deref().is_some_and(|region| is_above(region, top))
            };
            pools.any(|pool| pool.backends().iter().any(in_region))
        } else if let Some(top) = below(".nodes") {
            pools.any(|pool| pool.backends().iter().any(|backend| is_above(&backend.config.name, top)))
        } else {
            pools.any(|pool| is_above(&pool.app, rest))
        }
    }

    /// Where the nodes in `region` listen, this one first; `None`: none is there.
    fn listeners_in(&self, region: &str) -> Option<Vec<Record>> {
        let own = self.edge.region().filter(|own| **own == *region);
        let own = own.map(|_| self.edge.addresses(&self.advertised));
        let others = self.pops.in_region(region);
        if own.is_none() && others.is_none() {
            return None;
        }
        let all = own.into_iter().chain(others).flatten();
        Some(all.map(|address| Record::Address(address.to_canonical())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use tidegate_net::clock::Clock;

    use super::*;

    #[test]
    fn only_this_machine_and_listed_networks_are_heard() {
        let cores = Cores::start(NonZeroUsize::MIN).expect("threads");
        let edge = Arc::new(Edge::new(Clock::start(), &cores));
        let listed = vec!["10.0.0.0/8".parse().expect("a network")];
        let server = NameServer::new(edge, Vec::new(), Pops::default(), listed);
        let hears = |asker: &str| server.hears(asker.parse().expect("an address"));
        for asker in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3"] {
            assert!(hears(asker), "{asker}");
        }
        for asker in ["192.0.2.1", "11.0.0.1", "2001:db8::1", "::ffff:192.0.2.1", "0.0.0.0"] {
            assert!(!hears(asker), "{asker}");
        }
        assert_eq!(server.stats().unlisted.load(Relaxed), 5);
        cores.stop();
    }
}
