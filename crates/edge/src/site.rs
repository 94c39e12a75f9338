//! What is in force: the pools of all apps, and where clients are. It never changes after it was made.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_algorithms::balance::region::{Location, Region};
use tidegate_algorithms::time::Tick;

use crate::backend::EdgeBackend;
use crate::config::EdgeConfig;
use crate::geo::{Database, Geography, KnownBy, RegionNames};
use crate::pool::Pool;

/// What is in force.
#[derive(Debug, Default)]
pub(crate) struct Site {
    pub(crate) regions: RegionNames,
    pub(crate) node: Option<Region>,
    geography: Geography,
    pools: HashMap<Arc<str>, Arc<Pool>>,
}

impl Site {
    /// What `config` says; backends that stay keep what is known of them. Those that are new here, or are checked in
    /// another way, are the second value.
    pub(crate) fn new(
        config: &EdgeConfig,
        before: &Self,
        troubles: &Arc<AtomicU64>,
        now: Tick,
    ) -> (Self, Vec<Arc<EdgeBackend>>) {
        let mut regions = RegionNames::default();
        let node = config.region.as_ref().map(|name| regions.number(name));
        let geography = Geography::new(&config.places, &mut regions);
        let mut apps: HashMap<Arc<str>, Vec<Arc<EdgeBackend>>> = HashMap::new();
        let mut fresh = Vec::new();
        let known: HashMap<(&str, &str), &Arc<EdgeBackend>> =
            before.backends().map(|it| ((&*it.config.app, &*it.config.name), it)).collect();
        for backend in &config.backends {
            let known = known.get(&(&*backend.app, &*backend.name)).copied();
            let made = match known.filter(|known| known.config == *backend) {
                Some(same) => Arc::clone(same),
                None => {
                    let made =
                        Arc::new(EdgeBackend::new(Arc::clone(backend), now, known.map(|known| &**known)));
                    fresh.push(Arc::clone(&made));
                    made
                }
            };
            apps.entry(Arc::clone(&backend.app)).or_default().push(made);
        }
        let mut pools = HashMap::new();
        for (app, backends) in apps {
            let location = |backend: &EdgeBackend| {
                let region = backend.config.region.as_ref().map(|name| regions.number(name));
                Location { country: backend.config.country, region }
            };
            let (app_name, troubles) = (Arc::clone(&app), Arc::clone(troubles));
            let pool = Pool::new(app_name, backends, troubles, location, config.round_trip_tiers);
            pools.insert(app, Arc::new(pool));
        }
        (Self { regions, node, geography, pools }, fresh)
    }

    /// The backends of an app.
    pub(crate) fn pool(&self, app: &str) -> Option<&Arc<Pool>> {
        self.pools.get(app)
    }

    /// Where a client is, and how that is known.
    pub(crate) fn locate(&self, client: IpAddr, database: Option<&Database>) -> (Location, KnownBy) {
        self.geography.locate(client, database)
    }

    /// All backends, in no order.
    pub(crate) fn backends(&self) -> impl Iterator<Item = &Arc<EdgeBackend>> {
        self.pools.values().flat_map(|pool| pool.backends())
    }

    /// All pools, by the names of their apps.
    pub(crate) fn pools(&self) -> Vec<&Arc<Pool>> {
        let mut pools: Vec<&Arc<Pool>> = self.pools.values().collect();
        pools.sort_by(|one, other| one.app.cmp(&other.app));
        pools
    }
}
