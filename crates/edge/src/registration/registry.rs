//! Who has registered, and when it was last heard of.

use std::collections::{BTreeMap, HashMap};
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

/// Who was heard of when. It lives as long as the process.
#[derive(Debug)]
pub struct Registry {
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
}

impl Registry {
    /// A registry that removes what was not heard of for `ttl`. `known` are the backends that registered here before
    /// this process started: they have as long to be heard of.
    #[must_use]
    pub fn new(
        store: Arc<dyn RegistrationStore>,
        clock: Clock,
        ttl: Duration,
        known: impl IntoIterator<Item = Arc<str>>,
    ) -> Self {
        let now = clock.tick();
        let heard = known.into_iter().map(|name| (Box::from(&*name), Heard { first: now, last: now }));
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        Self { store, clock, ttl, heard: Mutex::new(heard.collect()) }
    }

    pub(super) async fn register(&self, name: &str, document: Value, actor: &str) -> Result<(), StoreError> {
        let is_known = self.heard().contains_key(name);
        if !is_known && self.heard().len() >= MAX_BACKENDS {
            return Err(StoreError::Unavailable(format!("{MAX_BACKENDS} backends are registered already")));
        }
        self.store.put(name, document, actor).await?;
        let now = self.clock.tick();
        let mut heard = self.heard();
        heard.entry(name.into()).or_insert(Heard { first: now, last: now }).last = now;
        Ok(())
    }

    /// Takes note that a backend is there. False: it is not registered here.
    pub(super) fn heartbeat(&self, name: &str) -> bool {
        let now = self.clock.tick();
        let mut heard = self.heard();
        let Some(known) = heard.get_mut(name) else { return false };
        known.last = now;
        true
    }

    pub(super) async fn remove(&self, name: &str, actor: &str) -> Result<(), StoreError> {
        self.store.remove(name, actor).await?;
        self.heard().remove(name);
        Ok(())
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
            let now = self.clock.tick();
            let is_silent = |heard: &Heard| now.since(heard.last) >= self.ttl;
            let mut silent: Vec<Box<str>> = Vec::new();
            silent.extend(
                self.heard().iter().filter(|(_, heard)| is_silent(heard)).map(|(name, _)| name.clone()),
            );
            for name in silent {
                // It may have been heard of while others were removed.
                if !self.heard().get(&name).is_some_and(is_silent) {
                    continue;
                }
                match self.remove(&name, EXPIRY).await {
                    Ok(()) => tracing::warn!(backend = %name, "a backend is gone: it sent no heartbeat"),
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
            let config = Arc::new(BackendConfig { is_registered: true, ..config });
            self.change(actor, name, |registered| drop(registered.insert(name.to_owned(), config)));
            Ok(())
        })
    }

    fn remove<'a>(&'a self, name: &'a str, actor: &'a str) -> Stored<'a> {
        Box::pin(async move {
            self.change(actor, name, |registered| drop(registered.remove(name)));
            Ok(())
        })
    }
}
