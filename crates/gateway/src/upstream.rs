//! An upstream in force: its servers, their connections, and what its requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::balance::budget::Budget;
use tidegate_algorithms::breaker::{Outcome, Phase};
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::Backend;
use tidegate_upstream::group::Group;

use crate::adaptive::{AdaptiveLimit, Permit};
use crate::breaker::SharedBreaker;
use crate::config::UpstreamConfig;
use crate::pool::Pool;
use crate::refusal::Refusal;

/// An upstream in force.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: Arc<UpstreamConfig>,
    pub(crate) group: Group,
    /// Connections of each backend of the group, by its position.
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) breaker: Option<SharedBreaker>,
    /// Those of the routes that send requests here.
    route_breakers: ArcSwap<Vec<Arc<SharedBreaker>>>,
    /// How many attempts may wait for its servers.
    pub(crate) adaptive: Option<Arc<AdaptiveLimit>>,
    budget: Mutex<Budget>,
    /// How the last request at each server ended, by its position.
    lately: Vec<AtomicU8>,
}

/// Of a server that did not fail the last time; that did; that did while another one worked.
const WORKS: u8 = 0;
const FAILED: u8 = 1;
const FAILED_ALONE: u8 = 2;

impl Upstream {
    /// What nodes call one of its servers among themselves.
    pub(crate) fn subject(&self, server: usize) -> String {
        let target = self.group.backends().get(server).map(|backend| backend.target());
        format!("gateway {} {}", self.config.name, target.map(ToString::to_string).unwrap_or_default())
    }

    /// An upstream for `cores`. What `before` knew of the same servers is kept, their connections too.
    pub(crate) fn new(
        config: Arc<UpstreamConfig>,
        cores: usize,
        seed: u64,
        now: Tick,
        before: Option<&Self>,
    ) -> Self {
        let mut backends = Vec::new();
        let mut pools = Vec::new();
        for server in &config.servers {
            let known = before.and_then(|before| {
                let same = |backend: &Arc<Backend>| *backend.settings() == server.backend;
                let position = before.group.backends().iter().position(same)?;
                let same_bounds = before.config.idle_connections == config.idle_connections
                    && before.config.idle_timeout == config.idle_timeout;
                same_bounds.then(|| {
                    (Arc::clone(&before.group.backends()[position]), Arc::clone(&before.pools[position]))
                })
            });
            let (backend, pool) = known.unwrap_or_else(|| {
                let pool = Pool::new(cores, config.idle_connections, config.idle_timeout);
                let backend = Backend::new(server.backend.clone(), now);
                let others = before.map(|before| before.group.backends()).unwrap_or_default();
                // Beside servers that serve, a new one starts slowly. At a process's start none is warmer than others.
                let is_known = others.is_empty() || others.iter().any(|it| it.target() == backend.target());
                (Arc::new(if is_known { backend } else { backend.coming_up(now) }), Arc::new(pool))
            });
            backend.set_checked(config.check.is_some(), now);
            backends.push(backend);
            pools.push(pool);
        }
        let group = Group::new(backends, config.group, seed);
        let breaker = config.breaker.map(SharedBreaker::new);
        let budget = Mutex::new(Budget::new(config.retries.budget));
        let adaptive = config.adaptive.map(|settings| {
            let known = before.and_then(|before| before.adaptive.clone());
            known
                .filter(|known| known.settings() == settings)
                .unwrap_or_else(|| Arc::new(AdaptiveLimit::new(settings)))
        });
        let route_breakers = ArcSwap::default();
        let lately = pools.iter().map(|_| AtomicU8::new(WORKS)).collect();
        Self { config, group, pools, breaker, route_breakers, adaptive, budget, lately }
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

    /// Whether what became of a request at the last of its servers counts for the breaker. A failure while another server
    /// works is that server's own, so that one of many is enough. If the same server works the next time, the failure was
    /// not its own, and counts then: so a breaker opens where all fail now and then, too.
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

    /// Whose breakers a check that passes half-opens beside its own, from now on.
    pub(crate) fn is_used_by(&self, breakers: Vec<Arc<SharedBreaker>>) {
        self.route_breakers.store(Arc::new(breakers));
    }

    /// Lets trials through, since a server is well: its own breaker's, and those of its routes.
    pub(crate) fn end_pauses(&self, now: Tick) {
        let of_routes = self.route_breakers.load();
        for breaker in self.breaker.iter().chain(of_routes.iter().map(|breaker| &**breaker)) {
            breaker.end_pause(now);
        }
    }

    /// Room for an attempt under the adaptive limit; `None`: there is no such limit.
    pub(crate) fn enter(&self, now: Tick) -> Result<Option<Permit<'_>>, Refusal> {
        self.adaptive.as_ref().map(|limit| limit.enter(now).ok_or(Refusal::AtLimit)).transpose()
    }

    /// What further attempts of all requests come out of.
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
