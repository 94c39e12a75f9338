//! An upstream in force: its servers, their connections, and what its requests share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_algorithms::balance::budget::Budget;
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::Backend;
use tidegate_upstream::group::Group;

use crate::breaker::SharedBreaker;
use crate::config::UpstreamConfig;
use crate::pool::Pool;

/// An upstream in force.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) config: Arc<UpstreamConfig>,
    pub(crate) group: Group,
    /// Connections of each backend of the group, by its position.
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) breaker: Option<SharedBreaker>,
    budget: Mutex<Budget>,
}

impl Upstream {
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
                (Arc::new(Backend::new(server.backend.clone(), now)), Arc::new(pool))
            });
            backends.push(backend);
            pools.push(pool);
        }
        let group = Group::new(backends, config.group, seed);
        let breaker = config.breaker.map(SharedBreaker::new);
        let budget = Mutex::new(Budget::new(config.retries.budget));
        Self { config, group, pools, breaker, budget }
    }

    /// What further attempts of all requests come out of.
    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
