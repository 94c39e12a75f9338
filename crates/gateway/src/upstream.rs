//! An upstream in force: its servers, their connections, and what its requests share.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};

use arc_swap::ArcSwap;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::balance::budget::Budget;
use tidegate_algorithms::breaker::{Outcome, Phase};
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::{Backend, Place};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::failure::refused_certificate;
use tidegate_upstream::group::{Balance, Group, hash};
use tidegate_upstream::seldom::SeldomLine;

use crate::adaptive::{AdaptiveLimit, Permit};
use crate::breaker::SharedBreaker;
use crate::certificate::ServerCertificate;
use crate::client_address::as_attribute;
use crate::config::{BalanceKey, UpstreamConfig};
use crate::connection::{self, Sender};
use crate::pool::Pool;
use crate::random::random;
use crate::refusal::Refusal;

/// An upstream in force.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: Arc<UpstreamConfig>,
    pub(crate) group: Group,
    /// Connections of each backend of the group, by its position.
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) breaker: Option<Arc<SharedBreaker>>,
    /// The breakers of the routes that send requests here.
    route_breakers: ArcSwap<Vec<Arc<SharedBreaker>>>,
    /// How many attempts may wait for its servers.
    pub(crate) adaptive: Option<Arc<AdaptiveLimit>>,
    budget: Mutex<Budget>,
    /// How the last request at each server ended, by its position.
    lately: Vec<AtomicU8>,
    /// What is known of each server's certificate, by its position.
    certificates: Vec<ServerCertificate>,
    /// Lines of the log about replies that cannot be passed on.
    pub(crate) bad_replies: SeldomLine,
    /// The log has said already that one of its servers speaks HTTP/2 alone.
    is_http2_alone: AtomicBool,
}

/// How a server's last request ended: it did not fail; it failed; it failed while another server worked.
const WORKS: u8 = 0;
const FAILED: u8 = 1;
const FAILED_ALONE: u8 = 2;

impl Upstream {
    /// The name of one of its servers in messages between nodes.
    pub(crate) fn subject(&self, server: usize) -> String {
        let target = self.group.backends().get(server).map(|backend| backend.target());
        format!("gateway {} {}", self.config.name, target.map(ToString::to_string).unwrap_or_default())
    }

    /// An upstream for `cores`. What `before` knew of servers at the same addresses is kept, whatever their weights and bounds; so are
    /// its breaker, if that has the same rule, and connections that would be made in the same way.
    pub(crate) fn new(
        config: Arc<UpstreamConfig>,
        cores: usize,
        seed: u64,
        now: Tick,
        before: Option<&Self>,
    ) -> Self {
        let mut backends = Vec::new();
        let mut pools = Vec::new();
        let others = before.map(|before| before.group.backends()).unwrap_or_default();
        let same_connections = before.filter(|before| {
            let Self { config: before, .. } = before;
            before.idle_connections == config.idle_connections
                && before.idle_timeout == config.idle_timeout
                && before.protocol == config.protocol
                && before.tls == config.tls
                && before.sources == config.sources
        });
        for server in &config.servers {
            let position = others.iter().position(|known| *known.target() == server.backend.target);
            let backend = match position.map(|position| &others[position]) {
                Some(same) if *same.settings() == server.backend => Arc::clone(same),
                Some(known) => Arc::new(known.with(server.backend.clone())),
                // Beside servers that serve, a new one starts slowly. At a process's start none is warmer than others.
                None if others.is_empty() => Arc::new(Backend::new(server.backend.clone(), now)),
                None => Arc::new(Backend::new(server.backend.clone(), now).coming_up(now)),
            };
            let pool = position.zip(same_connections).and_then(|(position, before)| {
                let is_same = before.config.servers[position].is_tls == server.is_tls;
                is_same.then(|| Arc::clone(&before.pools[position]))
            });
            let pool = pool
                .unwrap_or_else(|| Arc::new(Pool::new(cores, config.idle_connections, config.idle_timeout)));
            backend.set_checked(config.check.is_some(), now);
            backends.push(backend);
            pools.push(pool);
        }
        let group = Group::new(backends, config.group, seed);
        let breaker = config.breaker.map(|settings| {
            let known = before.filter(|before| before.config.breaker == config.breaker);
            let known = known.and_then(|before| before.breaker.clone());
            known.unwrap_or_else(|| Arc::new(SharedBreaker::new(settings, "upstream", &config.name)))
        });
        let budget = Mutex::new(Budget::new(config.retries.budget));
        let adaptive = config.adaptive.map(|settings| {
            let known = before.and_then(|before| before.adaptive.clone());
            known
                .filter(|known| known.settings() == settings)
                .unwrap_or_else(|| Arc::new(AdaptiveLimit::new(settings)))
        });
        let route_breakers = ArcSwap::default();
        let lately = pools.iter().map(|_| AtomicU8::new(WORKS)).collect();
        let certificates = pools.iter().map(|_| ServerCertificate::default()).collect();
        let bad_replies = SeldomLine::default();
        Self {
            config,
            group,
            pools,
            breaker,
            route_breakers,
            adaptive,
            budget,
            lately,
            certificates,
            bad_replies,
            is_http2_alone: AtomicBool::new(false),
        }
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
    pub(crate) fn enter(&self, now: Tick) -> Result<Option<Permit<'_>>, Refusal> {
        self.adaptive.as_ref().map(|limit| limit.enter(now).ok_or(Refusal::AtLimit)).transpose()
    }

    /// The budget for further attempts of all requests.
    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_algorithms::balance::eligibility::Thresholds;

    use super::*;
    use crate::config::{Source, read_upstream};

    fn upstream(document: &Value, now: Tick, before: Option<&Upstream>) -> Upstream {
        let config = read_upstream(document, "", Source::File).expect("an upstream");
        Upstream::new(Arc::new(config), 1, 1, now, before)
    }

    fn up_since(upstream: &Upstream) -> Vec<Option<Tick>> {
        upstream.group.backends().iter().map(|backend| backend.up_since()).collect()
    }

    #[test]
    fn a_server_that_comes_when_others_serve_starts_slowly_and_no_other_does() {
        let one = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
        let two = json!({"name": "a", "servers": ["http://127.0.0.1:1", "http://127.0.0.1:2"]});
        let heavy = json!({"name": "a", "servers": ["http://127.0.0.1:1", {"url": "http://127.0.0.1:2", "weight": 3}]});
        let first = upstream(&two, Tick(5), None);
        assert_eq!(up_since(&first), [None, None], "at the start");
        let alone = upstream(&one, Tick(6), Some(&first));
        let beside = upstream(&two, Tick(7), Some(&alone));
        assert_eq!(up_since(&beside), [None, Some(Tick(7))]);
        let changed = upstream(&heavy, Tick(8), Some(&first));
        assert_eq!(up_since(&changed), [None, None], "it was there, at another weight");
    }

    #[test]
    fn what_is_known_of_a_server_and_its_upstream_outlives_a_change_of_anything_else() {
        let server = |weight: u32| json!([{"url": "http://127.0.0.1:1", "weight": weight}]);
        let check = json!({"path": "/healthz"});
        let first = upstream(&json!({"name": "a", "servers": server(1), "check": check}), Tick(0), None);
        assert!(first.group.backends()[0].checked(false, Thresholds { rise: 1, fall: 1 }, Tick(1)));
        let open = |upstream: &Upstream| upstream.breaker.as_ref().map(|breaker| breaker.phase());
        for _ in 0..100 {
            let admitted = first.breaker.as_ref().expect("it has one").admit(Tick(1));
            if let Ok(admitted) = admitted {
                admitted.ended(Outcome::failure(0), Tick(1));
            }
        }
        assert_eq!(open(&first), Some(Phase::Open));
        let heavy = json!({"name": "a", "servers": server(9), "check": check, "idle_timeout_seconds": 3});
        let next = upstream(&heavy, Tick(2), Some(&first));
        assert!(!next.group.backends()[0].is_usable(Tick(2)), "it is down");
        assert_eq!((next.group.backends()[0].settings().weight, open(&next)), (9, Some(Phase::Open)));
        let rule = json!({"name": "a", "servers": server(9), "check": check, "breaker": {"open_seconds": 1}});
        assert_eq!(
            open(&upstream(&rule, Tick(3), Some(&next))),
            Some(Phase::Closed),
            "another rule begins anew"
        );
    }

    #[test]
    fn connections_are_kept_where_they_would_be_made_in_the_same_way() {
        let first = upstream(&json!({"name": "a", "servers": ["http://127.0.0.1:1"]}), Tick(0), None);
        for (changed, is_kept) in [
            (json!({"name": "a", "servers": [{"url": "http://127.0.0.1:1", "weight": 2}]}), true),
            (json!({"name": "a", "servers": ["https://127.0.0.1:1"]}), false),
            (json!({"name": "a", "servers": ["http://127.0.0.1:1"], "protocol": "http2"}), false),
            (json!({"name": "a", "servers": ["http://127.0.0.1:1"], "sources": ["127.0.0.2"]}), false),
            (json!({"name": "a", "servers": ["http://127.0.0.1:1"], "idle_timeout_seconds": 3}), false),
        ] {
            let next = upstream(&changed, Tick(1), Some(&first));
            assert_eq!(Arc::ptr_eq(&first.pools[0], &next.pools[0]), is_kept, "{changed}");
        }
    }

    #[test]
    fn a_further_attempt_goes_to_a_server_that_works_though_most_are_dead() {
        for balance in ["round_robin", "least_requests", "peak_ewma", "ring_hash"] {
            let servers: Vec<String> = (1..6).map(|port| format!("http://127.0.0.1:{port}")).collect();
            let document = json!({"name": "a", "servers": servers, "balance": balance});
            let five = upstream(&document, Tick(0), None);
            for dead in 0..4 {
                five.ended(dead, true, 0, Tick(1));
            }
            for tried in 0..4 {
                let picked = five.pick_again(7, &[tried], Tick(1)).map(|(server, _)| server);
                assert_eq!(picked, Some(4), "{balance}");
            }
            let (other, _) = five.pick_again(7, &[4], Tick(1)).expect("those that failed are left");
            assert!(other < 4 && five.pick_again(7, &[0, 1, 2, 3, 4], Tick(1)).is_none());
        }
    }

    #[test]
    fn fault_40_what_a_failing_server_does_is_its_own_while_another_one_works() {
        let three = upstream(
            &json!({"name": "a", "servers": ["http://a:1", {"url": "http://b:1", "weight": 0}, "http://c:1"]}),
            Tick(0),
            None,
        );
        let counts = |server: usize, failed: bool| {
            three.ended(server, failed, 7, Tick(0));
            three.counts(server, failed, Tick(0))
        };
        let after_all = || three.breaker.as_ref().expect("it has one").seen(Tick(0)).failed;
        assert!(!counts(2, true), "nobody knows of the others yet");
        assert!(counts(0, true), "one that gets nothing stands for no other one");
        assert!(counts(2, false));
        assert_eq!(after_all(), 1, "it was not this server alone: it works now");
        assert_eq!(
            (counts(0, true), counts(0, true), after_all()),
            (false, false, 1),
            "it is this one alone"
        );
        assert_eq!((counts(0, false), counts(0, false), after_all()), (true, true, 2), "it was not, once");
        assert_eq!((counts(0, true), counts(2, true)), (false, true), "all fail");
        assert_eq!((counts(0, true), counts(2, true), counts(2, false)), (true, true, true));
        // Another server made this attempt good.
        three.ended(0, true, 7, Tick(0));
        three.ended(0, false, 7, Tick(0));
        assert_eq!(after_all(), 2);
    }

    #[test]
    fn a_server_that_is_down_is_up_when_its_checks_are_turned_off() {
        let checked = json!({"name": "a", "servers": ["http://127.0.0.1:1"], "check": {"path": "/healthz"}});
        let unchecked = json!({"name": "a", "servers": ["http://127.0.0.1:1"]});
        let first = upstream(&checked, Tick(0), None);
        let backend = Arc::clone(&first.group.backends()[0]);
        assert!(backend.checked(false, Thresholds { rise: 1, fall: 1 }, Tick(1)));
        let next = upstream(&unchecked, Tick(2), Some(&first));
        assert!(Arc::ptr_eq(&backend, &next.group.backends()[0]), "it is the same");
        assert!(backend.is_usable(Tick(2)));
    }
}
