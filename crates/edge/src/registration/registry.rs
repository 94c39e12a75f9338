//! Who has registered, and when it was last heard of.
//!
//! A node counts for the backends that registered with it. Of a node that is gone, each other one counts for its
//! backends, from the moment when it notices; the first to have waited long enough removes them, unless they have
//! registered elsewhere meanwhile.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_algorithms::document::Mistake;
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_net::clock::Clock;
use tokio::time::sleep;

use super::{RegistrationStore, StoreError, Stored};
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
    heard: Mutex<HashMap<Box<str>, Heard>>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    first: Tick,
    last: Tick,
    /// Where it registered: here, unless that node is gone.
    registrar: u32,
}

impl Registry {
    /// A registry of the backends of `edge` that removes what was not heard of for `ttl`. Those that registered before
    /// this process started have as long to be heard of.
    #[must_use]
    pub fn new(edge: Arc<Edge>, store: Arc<dyn RegistrationStore>, clock: Clock, ttl: Duration) -> Self {
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        let registry = Self { edge, store, clock, ttl, heard: Mutex::default() };
        registry.take_stock();
        registry
    }

    /// Has those that are this node's to watch counted from now on: those that registered here, and those whose node
    /// is gone. Others are not counted any more.
    fn take_stock(&self) {
        let (own, Some(present)) = (self.own(), self.store.nodes()) else { return };
        // Whoever registers is in force before it is counted, so nobody is missed under this lock.
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
            heard.entry(name.into()).or_insert(Heard { first: now, last: now, registrar });
        }
    }

    pub(super) async fn register(&self, name: &str, document: Value, actor: &str) -> Result<(), StoreError> {
        let is_known = self.heard().contains_key(name);
        if !is_known && self.heard().len() >= MAX_BACKENDS {
            return Err(StoreError::Unavailable(format!("{MAX_BACKENDS} backends are registered already")));
        }
        self.store.put(name, document, actor).await?;
        let now = self.clock.tick();
        let mut heard = self.heard();
        let registrar = self.own();
        let entry = heard.entry(name.into()).or_insert(Heard { first: now, last: now, registrar });
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

    pub(super) async fn remove(&self, name: &str, actor: &str) -> Result<(), StoreError> {
        self.store.remove(name, None, actor).await?;
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
        let seconds = |since: fn(Heard) -> Tick| heard.map(|heard| now.since(since(heard)) / SECOND);
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
        loop {
            sleep(every).await;
            self.take_stock();
            let (now, own) = (self.clock.tick(), self.own());
            let is_silent = |heard: &Heard| {
                let more = if heard.registrar == own { 0 } else { ABSENCE };
                now.since(heard.last) >= self.ttl.saturating_add(more)
            };
            let mut silent: Vec<(Box<str>, u32)> = Vec::new();
            let heard = self.heard().clone();
            silent.extend(
                heard
                    .into_iter()
                    .filter(|(_, heard)| is_silent(heard))
                    .map(|(name, it)| (name, it.registrar)),
            );
            for (name, registrar) in silent {
                // It may have been heard of while others were removed.
                if !self.heard().get(&name).is_some_and(is_silent) {
                    continue;
                }
                match self.store.remove(&name, Some(registrar), EXPIRY).await {
                    Ok(()) => {
                        self.heard().remove(&name);
                        tracing::warn!(backend = %name, "a backend is gone: it sent no heartbeat");
                    }
                    Err(error) => tracing::error!(backend = %name, %error, "a backend cannot be removed"),
                }
            }
        }
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<Box<str>, Heard>> {
        // Plain values: whatever a panicking holder left there is whole.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn change(
        &self,
        actor: &str,
        name: &str,
        change: impl FnOnce(&mut BTreeMap<String, Arc<BackendConfig>>),
    ) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let before = registered.get(name).cloned();
        change(&mut registered);
        if registered.get(name) == before.as_ref() {
            return;
        }
        let action = if registered.contains_key(name) { "put" } else { "delete" };
        tracing::info!(actor, action, backend = name, "registration changed");
        let mut config = self.base.clone();
        config.backends.extend(registered.values().cloned());
        self.edge.apply(&config);
    }
}

impl RegistrationStore for MemoryStore {
    fn put<'a>(&'a self, name: &'a str, document: Value, actor: &'a str) -> Stored<'a> {
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
            self.change(actor, name, |registered| drop(registered.insert(name.to_owned(), config)));
            Ok(())
        })
    }

    fn remove<'a>(&'a self, name: &'a str, _registrar: Option<u32>, actor: &'a str) -> Stored<'a> {
        Box::pin(async move {
            self.change(actor, name, |registered| drop(registered.remove(name)));
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
