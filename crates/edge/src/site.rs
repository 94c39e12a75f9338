//! The site: the pools of all apps, the configuration of listeners, and where clients are. A site never changes
//! after it was made.
//!
//! A backend that goes may have connections that live on, and come back while they do: its heartbeats stopped for a while, or
//! somebody deleted it by mistake. What is known of it is found again then, by its app, name and address, so that its
//! hard limit holds for the old and the new ones together. It is kept by those connections, and remembered here weakly.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use tidegate_algorithms::balance::region::{Location, Region};
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::Target;

use crate::backend::{Beside, EdgeBackend, Known};
use crate::config::{BackendConfig, EdgeConfig, ListenerConfig};
use crate::geo::{Database, Geography, KnownBy, RegionNames};
use crate::own::BoundListener;
use crate::pool::Pool;

/// What is in force.
#[derive(Debug, Default)]
pub(crate) struct Site {
    pub(crate) regions: RegionNames,
    pub(crate) node: Option<Region>,
    geography: Geography,
    pools: HashMap<Arc<str>, Arc<Pool>>,
    /// Those of the file, in its order, but for those on port 0: their addresses do not say which they are.
    listeners: Vec<Arc<ListenerConfig>>,
    /// Those that have connections and are not in the file any more, or with another TLS or other proxies in front: as they
    /// last were.
    earlier: Vec<Arc<ListenerConfig>>,
    /// Backends that were in force before this: those of the site before, and of earlier ones those that still have
    /// connections.
    gone: HashMap<BackendIdentity, Weak<Known>>,
}

/// What makes a backend the same one when it comes back: app, name and address.
type BackendIdentity = (Arc<str>, Arc<str>, Target);

fn identity(config: &BackendConfig) -> BackendIdentity {
    (Arc::clone(&config.app), Arc::clone(&config.name), config.target.clone())
}

impl Site {
    /// What `config` says; backends that stay keep what is known of them, and the listeners that are `bound` what was last
    /// said of them. The second value has the backends that are new here, or are checked in another way.
    pub(crate) fn new(
        config: &EdgeConfig,
        before: &Self,
        bound: &[BoundListener],
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
                    let beside = before.beside(known.map(|known| &**known), backend);
                    let made = Arc::new(EdgeBackend::new(Arc::clone(backend), now, beside));
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
        let listeners = config.listeners.iter().filter(|listener| listener.listen.port() != 0);
        let listeners: Vec<Arc<ListenerConfig>> = listeners.cloned().collect();
        // A listener whose TLS or trusted proxies change keeps its app, too, for the connections that it has: the new app may
        // rely on them.
        let earlier = before.listeners.iter().chain(&before.earlier).filter(|old| {
            !listeners.iter().any(|new| new.has_socket_of(old))
                && bound.iter().any(|bound| bound.config.has_socket_of(old))
        });
        let earlier = earlier.cloned().collect();
        let mut site = Self { regions, node, geography, pools, listeners, earlier, gone: HashMap::new() };
        site.gone = site.gone_since(before);
        (site, fresh)
    }

    /// What a backend that changes or is new comes beside, where this was in force.
    fn beside(&self, known: Option<&EdgeBackend>, config: &BackendConfig) -> Beside {
        if let Some(known) = known.filter(|known| known.config.target == config.target) {
            return Beside::Itself(Arc::clone(&known.known));
        }
        match self.gone.get(&identity(config)).and_then(Weak::upgrade) {
            Some(remains) => Beside::Remains(remains),
            None if known.is_some() || self.pools.contains_key(&config.app) => Beside::Others,
            None => Beside::Nobody,
        }
    }

    /// The backends that are in force no more. Of those of the site before, connections may still be on their way.
    fn gone_since(&self, before: &Self) -> HashMap<BackendIdentity, Weak<Known>> {
        let stays: HashSet<*const Known> = self.backends().map(|it| Arc::as_ptr(&it.known)).collect();
        let earlier = before.gone.iter().filter(|(_, known)| known.strong_count() > 0);
        let earlier = earlier.map(|(identity, known)| (identity.clone(), Weak::clone(known)));
        let last = before.backends().map(|it| (identity(&it.config), Arc::downgrade(&it.known)));
        earlier.chain(last).filter(|(_, known)| !stays.contains(&known.as_ptr())).collect()
    }

    /// What the listener that was bound by `bound` does with connections; `None`: nothing is said of it.
    pub(crate) fn listener(&self, bound: &ListenerConfig) -> Option<&Arc<ListenerConfig>> {
        self.listeners.iter().chain(&self.earlier).find(|it| it.has_socket_of(bound))
    }

    /// What those of the file do.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &Arc<ListenerConfig>> {
        self.listeners.iter()
    }

    /// Where in the file the listener stands that was bound by `bound`; those that are not there come last.
    pub(crate) fn listener_place(&self, bound: &ListenerConfig) -> usize {
        self.listeners.iter().position(|it| it.has_socket_of(bound)).unwrap_or(usize::MAX)
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
