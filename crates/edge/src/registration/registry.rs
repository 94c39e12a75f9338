//! The registry: backends that have registered, and the time of each one's last heartbeat.
//!
//! A node counts for the backends that registered with it. Of a node that is gone, each other one counts for its
//! backends, from the moment when it notices; the first to have waited long enough removes them, unless they have
//! registered elsewhere meanwhile.
//!
//! Registrations run side by side; a removal runs alone. A backend whose removal is under way is not known any more: its heartbeat says
//! so, and when it registers it waits for the removal and is registered afterwards.
//!
//! While the process stands still it hears no heartbeats, so that time does not count against backends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tidegate_algorithms::document::Mistake;
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_net::clock::Clock;
use tokio::sync::RwLock;
use tokio::time::sleep;

use super::{By, RegistrationStore, StoreError, Stored};
use crate::config::{BackendConfig, EdgeConfig, MAX_BACKENDS};
use crate::service::{Edge, RegisteredBackend};

/// What the audit log calls who removes backends that were not heard of.
const EXPIRY: &str = "heartbeat";

/// How much longer a backend may be silent whose node is gone, in nanoseconds: nodes seem to be gone for a moment when
/// they connect to the database again.
const ABSENCE: u64 = 15 * SECOND;

/// The number of a node that shares nothing.
const ALONE: u32 = 0;

/// Who was heard of when. It lives as long as the process.
#[derive(Debug)]
pub struct Registry {
    edge: Arc<Edge>,
    store: Arc<dyn RegistrationStore>,
    clock: Clock,
    /// Nanoseconds after which a backend that was not heard of is removed.
    ttl: u64,
    heard: Mutex<HashMap<Box<str>, HeardServer>>,
    /// Read while something registers, written while something is removed.
    changing: RwLock<()>,
}

#[derive(Clone, Copy, Debug)]
struct HeardServer {
    first: Tick,
    last: Tick,
    /// Where it registered: here, unless that node is gone.
    registrar: u32,
}

impl Registry {
    /// A registry of the backends of `edge` that removes what was not heard of for `ttl`. Backends that registered
    /// before this process started get the same time for their first heartbeat.
    #[must_use]
    pub fn new(edge: Arc<Edge>, store: Arc<dyn RegistrationStore>, clock: Clock, ttl: Duration) -> Self {
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        let (heard, changing) = Default::default();
        let registry = Self { edge, store, clock, ttl, heard, changing };
        registry.take_stock();
        registry
    }

    /// Has those that are this node's to watch counted from now on: those that registered here, and those whose node
    /// is gone. Others are not counted any more.
    fn take_stock(&self) {
        let (own, Some(present)) = (self.own(), self.store.nodes()) else { return };
        // A registration is in force before it is counted, so none is missed under this lock.
        let mut heard = self.heard();
        let registered = self.edge.registered();
        let registrar = |backend: &RegisteredBackend| backend.config.registrar.unwrap_or(own);
        let is_ours = |node: u32| node == own || !present.contains(&node);
        let ours: HashMap<&str, u32> = registered
            .iter()
            .map(|backend| (&*backend.config.name, registrar(backend)))
            .filter(|(_, node)| is_ours(*node))
            .collect();
        let now = self.clock.tick();
        heard.retain(|name, heard| ours.get(&**name) == Some(&heard.registrar));
        for (name, registrar) in ours {
            heard.entry(name.into()).or_insert(HeardServer { first: now, last: now, registrar });
        }
    }

    pub(super) async fn register(&self, name: &str, document: Value, by: &By) -> Result<(), StoreError> {
        let is_known = self.heard().contains_key(name);
        if !is_known && self.heard().len() >= MAX_BACKENDS {
            return Err(StoreError::Unavailable(format!("{MAX_BACKENDS} backends are registered already")));
        }
        let _no_removal = self.changing.read().await;
        self.store.put(name, document, by).await?;
        let now = self.clock.tick();
        let mut heard = self.heard();
        let registrar = self.own();
        let entry = heard.entry(name.into()).or_insert(HeardServer { first: now, last: now, registrar });
        (entry.last, entry.registrar) = (now, registrar);
        Ok(())
    }

    /// Takes note that a backend is there. False: it is not registered here.
    pub(super) fn heartbeat(&self, name: &str) -> bool {
        let (now, own) = (self.clock.tick(), self.own());
        let mut heard = self.heard();
        let Some(known) = heard.get_mut(name).filter(|known| known.registrar == own) else { return false };
        known.last = now;
        true
    }

    pub(super) async fn remove(&self, name: &str, by: &By) -> Result<(), StoreError> {
        let _alone = self.changing.write().await;
        self.store.remove(name, None, by).await?;
        self.heard().remove(name);
        Ok(())
    }

    /// The number of this node.
    fn own(&self) -> u32 {
        self.store.own()
    }

    /// A backend as the API describes it. Of one that registered at another node the times are not known.
    pub(super) fn describe(&self, backend: &RegisteredBackend) -> Value {
        let config = &backend.config;
        let now = self.clock.tick();
        let heard = self.heard().get(&*config.name).copied();
        let seconds = |since: fn(HeardServer) -> Tick| heard.map(|heard| now.since(since(heard)) / SECOND);
        let ip = match &config.target.host {
            tidegate_upstream::backend::Host::Address(ip) => json!(ip),
            tidegate_upstream::backend::Host::Name(name) => json!(&**name),
        };
        json!({
            "id": &*config.name,
            "app": &*config.app,
            "region": config.region.as_deref(),
            "country": config.country.map(|country| country.to_string()),
            "ip": ip,
            "port": config.target.port,
            "weight": config.weight,
            "soft_limit": config.soft_limit,
            "hard_limit": config.hard_limit,
            "healthy": backend.is_healthy,
            "last_heartbeat_secs": seconds(|heard| heard.last),
            "registered_secs": seconds(|heard| heard.first),
        })
    }

    /// Removes backends that were not heard of, for as long as it is polled.
    pub async fn expire(&self) {
        let every =
            Duration::from_nanos(self.ttl / 10).clamp(Duration::from_millis(50), Duration::from_secs(5));
        let expiry = By { name: EXPIRY.into(), from: None };
        loop {
            let begun = self.clock.tick();
            sleep(every).await;
            self.forgive(self.clock.tick().since(begun), every);
            self.take_stock();
            let silent: Vec<Box<str>> = {
                let heard = self.heard();
                heard
                    .iter()
                    .filter(|(_, heard)| self.is_silent(heard))
                    .map(|(name, _)| name.clone())
                    .collect()
            };
            for name in silent {
                let _alone = self.changing.write().await;
                // It may have been heard of meanwhile. If not, it is not known from here on: a heartbeat that is answered well is
                // never that of a backend which is then removed.
                let Some(taken) = self.take_silent(&name) else { continue };
                match self.store.remove(&name, Some(taken.registrar), &expiry).await {
                    Ok(()) => tracing::warn!(backend = %name, "a backend is gone: it sent no heartbeat"),
                    Err(error) => {
                        self.heard().entry(name.clone()).or_insert(taken);
                        tracing::error!(backend = %name, %error, "a backend cannot be removed");
                    }
                }
            }
        }
    }

    /// Counts none of the time in which this process stood still: a sleep of `every` took `slept` nanoseconds. As much again as
    /// it asked for is what a busy machine takes.
    fn forgive(&self, slept: u64, every: Duration) {
        let expected = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).saturating_mul(2);
        let stood = slept.saturating_sub(expected);
        if stood > 0 {
            let now = self.clock.tick();
            for heard in self.heard().values_mut() {
                heard.last = heard.last.plus(stood).min(now);
            }
        }
    }

    /// Whether a backend has not been heard of for too long.
    fn is_silent(&self, heard: &HeardServer) -> bool {
        let more = if heard.registrar == self.own() { 0 } else { ABSENCE };
        self.clock.tick().since(heard.last) >= self.ttl.saturating_add(more)
    }

    /// Takes a backend out of those that are heard, if it is silent.
    fn take_silent(&self, name: &str) -> Option<HeardServer> {
        let mut heard = self.heard();
        if self.is_silent(heard.get(name)?) { heard.remove(name) } else { None }
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<Box<str>, HeardServer>> {
        self.heard.lock()
    }
}

/// Registrations in this process's memory, for an edge without a file: they end with it.
#[derive(Debug)]
pub struct MemoryStore {
    edge: Arc<Edge>,
    base: EdgeConfig,
    registered: Mutex<BTreeMap<String, Arc<BackendConfig>>>,
}

impl MemoryStore {
    /// Registrations beside what `base` has.
    #[must_use]
    pub fn new(edge: Arc<Edge>, base: EdgeConfig) -> Self {
        edge.apply(&base);
        Self { edge, base, registered: Mutex::default() }
    }

    /// Makes a change, and puts what it leaves in force.
    fn change(&self, by: &By, name: &str, change: impl FnOnce(&mut BTreeMap<String, Arc<BackendConfig>>)) {
        let mut registered = self.registered.lock();
        let before = registered.get(name).cloned();
        change(&mut registered);
        if registered.get(name) == before.as_ref() {
            return;
        }
        let action = if registered.contains_key(name) { "put" } else { "delete" };
        tracing::info!(actor = &*by.name, action, backend = name, "registration changed");
        let mut config = self.base.clone();
        config.backends.extend(registered.values().cloned());
        self.edge.apply(&config);
    }
}

impl RegistrationStore for MemoryStore {
    fn put<'a>(&'a self, name: &'a str, document: Value, by: &'a By) -> Stored<'a> {
        Box::pin(async move {
            let config = BackendConfig::read(&document, "").map_err(StoreError::Refused)?;
            if self.base.backends.iter().any(|backend| &*backend.name == name) {
                return Err(StoreError::Refused(vec![Mistake {
                    pointer: "/id".to_owned(),
                    problem: "is the name of another backend".to_owned(),
                    accepted: "a name of its own".to_owned(),
                }]));
            }
            let config = Arc::new(BackendConfig { registrar: Some(ALONE), ..config });
            self.change(by, name, |registered| drop(registered.insert(name.to_owned(), config)));
            Ok(())
        })
    }

    fn remove<'a>(&'a self, name: &'a str, _registrar: Option<u32>, by: &'a By) -> Stored<'a> {
        Box::pin(async move {
            self.change(by, name, |registered| drop(registered.remove(name)));
            Ok(())
        })
    }

    fn own(&self) -> u32 {
        ALONE
    }

    fn nodes(&self) -> Option<Arc<HashSet<u32>>> {
        Some(Arc::new([ALONE].into()))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::pin::pin;

    use tidegate_net::runtime::Cores;
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;

    /// A store that removes when it is let.
    #[derive(Debug)]
    struct SlowStore {
        inner: MemoryStore,
        removing: Semaphore,
        may_remove: Semaphore,
        removed: Semaphore,
    }

    impl RegistrationStore for SlowStore {
        fn put<'a>(&'a self, name: &'a str, document: Value, by: &'a By) -> Stored<'a> {
            self.inner.put(name, document, by)
        }

        fn remove<'a>(&'a self, name: &'a str, registrar: Option<u32>, by: &'a By) -> Stored<'a> {
            Box::pin(async move {
                self.removing.add_permits(1);
                self.may_remove.acquire().await.expect("it stays open").forget();
                let removed = self.inner.remove(name, registrar, by).await;
                self.removed.add_permits(1);
                removed
            })
        }

        fn own(&self) -> u32 {
            ALONE
        }

        fn nodes(&self) -> Option<Arc<HashSet<u32>>> {
            self.inner.nodes()
        }
    }

    #[tokio::test]
    async fn what_registers_while_it_is_removed_for_its_silence_is_registered() {
        let cores = Cores::start(NonZeroUsize::MIN).expect("threads");
        let edge = Arc::new(Edge::new(Clock::start(), &cores));
        let store = Arc::new(SlowStore {
            inner: MemoryStore::new(Arc::clone(&edge), EdgeConfig::default()),
            removing: Semaphore::new(0),
            may_remove: Semaphore::new(0),
            removed: Semaphore::new(0),
        });
        let kept: Arc<dyn RegistrationStore> = Arc::clone(&store) as _;
        let registry = Registry::new(Arc::clone(&edge), kept, edge.clock(), Duration::from_millis(500));
        let it = By { name: "it".into(), from: None };
        let document =
            || json!({"name": "rio", "app": "web", "address": "127.0.0.1:9", "check": {"kind": "off"}});
        registry.register("rio", document(), &it).await.expect("it registers");
        let mut expiring = pin!(registry.expire());
        tokio::select! {
            () = &mut expiring => unreachable!("it goes on for ever"),
            removing = store.removing.acquire() => removing.expect("it stays open").forget(),
        }
        // The removal is decided, and under way: a heartbeat is told so.
        assert!(!registry.heartbeat("rio"));
        let mut registering = pin!(registry.register("rio", document(), &it));
        let at_once = timeout(Duration::ZERO, &mut registering).await.ok();
        store.may_remove.add_permits(1);
        let removed = async {
            tokio::select! {
                biased;
                () = &mut expiring => unreachable!("it goes on for ever"),
                removed = store.removed.acquire() => removed.expect("it stays open").forget(),
            }
        };
        let registered = async {
            match at_once {
                Some(registered) => registered,
                None => registering.await,
            }
        };
        let both = async { tokio::join!(removed, registered) };
        timeout(Duration::from_secs(60), both).await.expect("in time").1.expect("it registers");
        assert_eq!(edge.registered().len(), 1, "who was told that it is registered is");
        assert!(registry.heartbeat("rio"));
        cores.stop();
    }

    #[tokio::test]
    async fn the_time_in_which_the_process_stood_still_counts_against_no_backend() {
        let cores = Cores::start(NonZeroUsize::MIN).expect("threads");
        let edge = Arc::new(Edge::new(Clock::start(), &cores));
        let store: Arc<dyn RegistrationStore> =
            Arc::new(MemoryStore::new(Arc::clone(&edge), EdgeConfig::default()));
        let registry = Registry::new(Arc::clone(&edge), store, edge.clock(), Duration::from_secs(60));
        let every = Duration::from_secs(5);
        let since = Tick(edge.clock().tick().0 - 100 * SECOND);
        registry.heard().insert("rio".into(), HeardServer { first: since, last: since, registrar: ALONE });
        registry.forgive(10 * SECOND, every);
        assert_eq!(registry.heard()["rio"].last, since, "a busy machine");
        registry.forgive(70 * SECOND, every);
        assert_eq!(registry.heard()["rio"].last, since.plus(60 * SECOND));
        registry.forgive(700 * SECOND, every);
        assert!(registry.heard()["rio"].last <= edge.clock().tick(), "nothing was heard in the time to come");
        cores.stop();
    }
}
