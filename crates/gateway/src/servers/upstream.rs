//! An upstream in force: its servers, their connections, and what its requests share.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use arc_swap::ArcSwap;
use http::HeaderMap;
use tidegate_algorithms::breaker::{Outcome, Phase};
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::{Backend, Place, Target};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::failure::refused_certificate;
use tidegate_upstream::group::{Balance, Group, hash};
use tidegate_upstream::seldom::SeldomLine;
use tidegate_upstream::tls::TlsClient;

use crate::config::{BalanceKey, ServerConfig, UpstreamConfig};
use crate::observed::flow::{Flow, FlowsToCome};
use crate::observed::number::next_number;
use crate::random::random;
use crate::response::refusal::Refusal;
use crate::routes::client_address::as_attribute;
use crate::servers::adaptive::{AdaptiveLimit, AttemptPermit};
use crate::servers::breaker::SharedBreaker;
use crate::servers::budget::SharedBudget;
use crate::servers::certificate::ServerCertificate;
use crate::servers::connection::{self, Sender};
use crate::servers::pool::ConnectionPool;

/// An upstream in force.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: Arc<UpstreamConfig>,
    pub(crate) group: Group,
    /// Connections of each backend of the group, by its position.
    pub(crate) pools: Vec<Arc<ConnectionPool>>,
    pub(crate) breaker: Option<Arc<SharedBreaker>>,
    /// The breakers of the routes that send requests here.
    route_breakers: ArcSwap<Vec<Arc<SharedBreaker>>>,
    /// How many attempts may wait for its servers.
    pub(crate) adaptive: Option<Arc<AdaptiveLimit>>,
    budget: Arc<SharedBudget>,
    /// How the last request at each server ended, by its position.
    lately: Vec<AtomicU8>,
    /// What is known of each server's certificate, by its position.
    certificates: Vec<ServerCertificate>,
    /// Lines of the log about replies that cannot be passed on.
    pub(crate) bad_replies: SeldomLine,
    /// Its number among all upstreams that this process has had in force. Servers stay where they are in the group under it.
    pub(crate) number: u64,
    /// The log has said already that one of its servers speaks HTTP/2 alone.
    is_http2_alone: AtomicBool,
}

/// How a server's last request ended: it did not fail; it failed; it failed while another server worked.
const WORKS: u8 = 0;
const FAILED: u8 = 1;
const FAILED_ALONE: u8 = 2;

/// Whether connections of both are made and kept in the same way.
fn are_connected_alike(one: &UpstreamConfig, other: &UpstreamConfig) -> bool {
    one.idle_connections == other.idle_connections
        && one.idle_timeout == other.idle_timeout
        && one.protocol == other.protocol
        && one.tls == other.tls
        && one.sources == other.sources
}

impl Upstream {
    /// The name of one of its servers in messages between nodes.
    pub(crate) fn subject(&self, server: usize) -> String {
        let target = self.group.backends().get(server).map(|backend| backend.target());
        format!("gateway {} {}", self.config.name, target.map(ToString::to_string).unwrap_or_default())
    }

    /// An upstream whose servers that come are counted in `flows`. What `before` knew of servers at the same addresses is kept, whatever
    /// their weights and bounds; so are its breaker and its budget, if they have the same rules, and connections that would be made in
    /// the same way.
    pub(crate) fn new(
        config: Arc<UpstreamConfig>,
        flows: &mut FlowsToCome<'_>,
        seed: u64,
        now: Tick,
        before: Option<&Self>,
    ) -> Self {
        let mut backends = Vec::new();
        let (mut pools, mut lately) = (Vec::new(), Vec::new());
        let others = before.map(|before| before.group.backends()).unwrap_or_default();
        let same_connections = before.filter(|before| are_connected_alike(&before.config, &config));
        for server in &config.servers {
            let position = others.iter().position(|known| *known.target() == server.backend.target);
            let backend = match position.map(|position| &others[position]) {
                Some(same) if *same.settings() == server.backend => Arc::clone(same),
                Some(known) => Arc::new(known.with(server.backend.clone())),
                // At a process's start none is warmer than others, nor better known.
                None if others.is_empty() => Arc::new(Backend::new(server.backend.clone(), now)),
                None => Arc::new(coming(server, config.check.is_some(), now)),
            };
            let pool = position.zip(same_connections).and_then(|(position, before)| {
                let is_same = before.config.servers[position].is_tls == server.is_tls;
                is_same.then(|| Arc::clone(&before.pools[position]))
            });
            let flow = position.zip(before).map(|(position, before)| before.pools[position].flow());
            let pool = pool.unwrap_or_else(|| {
                let flow = flows.counters(flow);
                Arc::new(ConnectionPool::new(
                    flows.cores(),
                    config.idle_connections,
                    config.idle_timeout,
                    flow,
                ))
            });
            backend.set_checked(config.check.is_some(), now);
            backends.push(backend);
            pools.push(pool);
            let ended = position.zip(before).map(|(position, before)| before.lately[position].load(Relaxed));
            lately.push(AtomicU8::new(ended.unwrap_or(WORKS)));
        }
        let group = Group::new(backends, config.group, seed);
        let breaker = config.breaker.map(|settings| {
            let known = before.filter(|before| before.config.breaker == config.breaker);
            let known = known.and_then(|before| before.breaker.clone());
            known.unwrap_or_else(|| Arc::new(SharedBreaker::new(settings, "upstream", &config.name)))
        });
        let rule = config.retries.budget;
        let budget = before.filter(|before| before.config.retries.budget == rule);
        let budget = budget.map(|before| Arc::clone(&before.budget));
        let known = before.and_then(|before| before.adaptive.as_ref());
        let adaptive = config.adaptive.map(|adaptive| AdaptiveLimit::of(adaptive, known));
        Self {
            group,
            breaker,
            route_breakers: ArcSwap::default(),
            adaptive,
            budget: budget.unwrap_or_else(|| Arc::new(SharedBudget::new(rule, flows.cores()))),
            lately,
            certificates: pools.iter().map(|_| ServerCertificate::default()).collect(),
            bad_replies: SeldomLine::default(),
            number: next_number(),
            is_http2_alone: AtomicBool::new(false),
            config,
            pools,
        }
    }

    /// Where a server at this address is counted, if there is one.
    pub(crate) fn flow_at(&self, target: &Target) -> Option<&Arc<Flow>> {
        let mut servers = self.group.backends().iter().zip(&self.pools);
        servers.find(|(backend, _)| backend.target() == target).map(|(_, pool)| pool.flow())
    }

    /// A new connection to a server, of HTTP/1.1 for a request that `offers` to go on in another protocol. A refused
    /// certificate gets a line in the log, and [`Self::refused_certificate`] says why.
    pub(crate) async fn connect(
        &self,
        server: usize,
        resolver: &Resolver,
        offers: bool,
    ) -> io::Result<Sender> {
        let config = &self.config.servers[server];
        let connected = connection::connect(resolver, &self.config, config, offers).await;
        if let Err(error) = &connected
            && connection::is_http2_alone(error)
            && !self.is_http2_alone.swap(true, Relaxed)
        {
            let server = &config.backend.target;
            tracing::warn!(upstream = %self.config.name, %server, "a server speaks HTTP/2 alone: a request for WebSocket or another upgrade gets 502");
        }
        if config.is_tls {
            let certificate = &self.certificates[server];
            match &connected {
                Ok(_) => certificate.accepted(),
                Err(error) => {
                    if let Some(reason) = refused_certificate(error)
                        && certificate.refused(&reason, monotonic())
                    {
                        let server = &config.backend.target;
                        tracing::warn!(upstream = %self.config.name, %server, %reason, "a server's certificate is refused: no request is sent there");
                    }
                }
            }
        }
        connected
    }

    /// Whether its servers are shown a certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.config.tls.as_ref().is_some_and(TlsClient::has_certificate)
    }

    /// Reads the certificate that its servers are shown again, if its files have changed. Blocks on the disk.
    pub(crate) fn look_at_certificate(&self) {
        let upstream = &self.config.name;
        match self.config.tls.as_ref().and_then(TlsClient::look_again) {
            None => {}
            Some(Ok(())) => tracing::info!(%upstream, "client certificate loaded again"),
            Some(Err(error)) => {
                tracing::error!(%upstream, %error, "client certificate refused, the old one stays");
            }
        }
    }

    /// What is wrong with the certificate that a server showed last; `None`: nothing, or it was not looked at.
    pub(crate) fn refused_certificate(&self, server: usize) -> Option<Arc<str>> {
        self.certificates.get(server)?.refusal()
    }

    /// Takes note of how an attempt at a server ended, which took it so many nanoseconds.
    pub(crate) fn ended(&self, server: usize, failed: bool, took: u64, now: Tick) {
        let backend = &self.group.backends()[server];
        if failed {
            self.lately[server].store(FAILED, Relaxed);
            if self.group.failed(backend, now) {
                tracing::warn!(upstream = %self.config.name, server = %backend.target(), "a server failed too often in a row: it gets nothing for a while");
            }
            return;
        }
        self.group.succeeded(backend, took, now);
        if self.lately[server].swap(WORKS, Relaxed) == FAILED_ALONE {
            self.count_after_all(now);
        }
    }

    /// Whether the outcome of a request at the last of its servers counts for the breaker. A failure while another server
    /// works is blamed on the server alone, so that one working server of many is enough. If the failed server works the
    /// next time, the failure was not its own, and counts then: so a breaker also opens where all servers fail now and
    /// then.
    pub(crate) fn counts(&self, server: usize, failed: bool, now: Tick) -> bool {
        let is_its_own = failed && self.has_one_that_works(now);
        if is_its_own {
            self.lately[server].store(FAILED_ALONE, Relaxed);
        }
        !is_its_own
    }

    /// A failure that did not count when it came.
    fn count_after_all(&self, now: Tick) {
        let closed = self.breaker.as_ref().filter(|breaker| breaker.phase() == Phase::Closed);
        if let Some(Ok(admission)) = closed.map(|breaker| breaker.admit(now)) {
            admission.ended(Outcome::failure(0), now);
        }
    }

    fn has_one_that_works(&self, now: Tick) -> bool {
        let mut servers = self.group.backends().iter().zip(&self.lately);
        servers.any(|(backend, lately)| {
            backend.settings().weight > 0 && lately.load(Relaxed) == WORKS && backend.is_usable(now)
        })
    }

    /// The hash that places a request on the ring: of the field or address that keeps requests together. Requests without the
    /// field are spread by chance. 0 where there is no ring.
    pub(crate) fn key(&self, fields: &HeaderMap, client: IpAddr) -> u64 {
        if self.group.settings().balance != Balance::RingHash {
            return 0;
        }
        match &self.config.key {
            BalanceKey::Field(name) => {
                fields.get(name).map_or_else(|| random()[0], |value| hash(value.as_bytes()))
            }
            BalanceKey::Address => hash(as_attribute(client).as_bytes()),
        }
    }

    /// Whether a server's own last request did not fail. A server without requests counts as not failed.
    pub(crate) fn worked_lately(&self, server: usize) -> bool {
        self.lately[server].load(Relaxed) == WORKS
    }

    /// Picks a server for a request that has failed at `tried`: a server whose own last request did not fail, if there is one.
    /// Where most servers are dead, a second attempt would otherwise meet the next dead one.
    pub(crate) fn pick_again(&self, key: u64, tried: &[usize], now: Tick) -> Option<(usize, Place)> {
        let failed = (0..self.lately.len()).filter(|server| !self.worked_lately(*server));
        let doubtful: Vec<usize> = tried.iter().copied().chain(failed).collect();
        let picked = self.group.pick(key, &doubtful, now).or_else(|_| self.group.pick(key, tried, now));
        picked.ok()
    }

    /// From now on a check that passes half-opens `breakers`, too, beside the upstream's own.
    pub(crate) fn is_used_by(&self, breakers: Vec<Arc<SharedBreaker>>) {
        self.route_breakers.store(Arc::new(breakers));
    }

    /// Lets trials through, since a server is well: its own breaker's, and those of its routes.
    pub(crate) fn end_pauses(&self, now: Tick) {
        let of_routes = self.route_breakers.load();
        for breaker in self.breaker.iter().chain(of_routes.iter()) {
            breaker.end_pause(now);
        }
    }

    /// Room for an attempt under the adaptive limit; `None`: there is no such limit.
    pub(crate) fn enter(&self, now: Tick) -> Result<Option<AttemptPermit<'_>>, Refusal> {
        self.adaptive.as_ref().map(|limit| limit.enter(now).ok_or(Refusal::AtLimit)).transpose()
    }

    /// The budget for further attempts of all requests.
    pub(crate) fn budget(&self) -> &SharedBudget {
        &self.budget
    }
}

/// A server that comes when others serve: it starts slowly, after its first check if it has any.
fn coming(server: &ServerConfig, is_checked: bool, now: Tick) -> Backend {
    let coming = Backend::new(server.backend.clone(), now).coming_up(now);
    if is_checked {
        coming.awaits_its_first_check();
    }
    coming
}

#[cfg(test)]
mod tests;
