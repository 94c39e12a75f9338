//! API keys beside their documents: when each was last used, and whether this node's copy of all of them is too old.
//!
//! A request waits for neither. Uses are written every [`KEPT_EVERY`], and those of other nodes read; a process that is killed
//! loses what it has not written. The age of the keys is looked at every [`LOOKED_AT_EVERY`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_access::keys::{ApiKeys, KEY};
use tidegate_algorithms::time::SECOND;
use tidegate_control::{Control, Error};
use tidegate_net::clock::wall;
use tidegate_net::runtime::Cores;
use tokio::time::sleep;

use crate::config::{OnStaleKeys, Settings};

/// How often uses are written and read.
const KEPT_EVERY: Duration = Duration::from_secs(5);
/// How much later a use is than what is kept of its key before it is written, in seconds: a key in use costs one row a minute.
const KEPT_TO: u64 = 60;
/// How often the age of the keys is looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);
/// How far clocks of nodes may be apart, in seconds: uses so much older than the last look are read again.
const APART: u64 = 120;

/// The keys of a process, and where their uses are kept.
#[derive(Debug)]
pub(super) struct KeyUses {
    keys: Arc<ApiKeys>,
    control: Control,
    /// The civil second of the last look at what is kept.
    read: AtomicU64,
    max_age: Duration,
    /// Whether keys that are older are refused.
    refuses: bool,
}

impl KeyUses {
    pub(super) fn new(settings: &Settings, keys: &Arc<ApiKeys>, control: &Control) -> Arc<Self> {
        let gateway = &settings.gateway;
        Arc::new(Self {
            keys: Arc::clone(keys),
            control: control.clone(),
            read: AtomicU64::new(0),
            max_age: gateway.keys_max_age,
            refuses: gateway.on_stale_keys == OnStaleKeys::Refuse,
        })
    }

    /// Begins both.
    pub(super) fn start(self: &Arc<Self>, cores: &Cores) {
        // Before the listeners: a node that starts from its copy may have keys that are too old from the first request on.
        let is_too_old = self.control.age().is_some_and(|age| age >= self.max_age);
        self.keys.refuse_all(is_too_old && self.refuses);
        cores.spawn_on(0, Arc::clone(self).watch_age());
        cores.spawn_on(0, Arc::clone(self).keep());
    }

    /// Writes what was not written yet: all requests have ended.
    pub(super) async fn finish(self: &Arc<Self>) {
        if let Err(error) = self.store(0).await {
            tracing::warn!(%error, "the last uses of API keys are not kept");
        }
    }

    /// Keeps uses until it is aborted.
    async fn keep(self: Arc<Self>) {
        let mut is_away = false;
        loop {
            match self.store(KEPT_TO).await {
                Ok(()) => is_away = false,
                Err(error) if !is_away => {
                    is_away = true;
                    tracing::warn!(%error, "when API keys were last used cannot be kept, and is tried again");
                }
                Err(_) => {}
            }
            sleep(KEPT_EVERY).await;
        }
    }

    /// Writes uses that are at least `least` seconds later than what is kept of their keys, and reads those of other nodes and of earlier processes.
    ///
    /// # Errors
    /// Those of the store: then all of it is tried again.
    async fn store(self: &Arc<Self>, least: u64) -> Result<(), Error> {
        if self.keys.stats().keys == 0 {
            return Ok(());
        }
        let (this, now) = (Arc::clone(self), wall().0 / SECOND);
        self.control
            .run(move |control| {
                let uses = this.keys.unkept_uses(least);
                if !uses.is_empty() {
                    control.keep_uses(KEY, &uses)?;
                    this.keys.learn(&uses);
                }
                // A clock that has gone back since would leave out what others wrote in between.
                let since = this.read.load(Relaxed).min(now).saturating_sub(APART);
                this.keys.learn(&control.uses(KEY, since)?);
                this.read.store(now, Relaxed);
                Ok(())
            })
            .await
    }

    /// Has the keys refused once they are older than the settings say, if they say so, until it is aborted.
    async fn watch_age(self: Arc<Self>) {
        let mut are_stale = false;
        while let Some(age) = self.control.age() {
            if (age >= self.max_age) != are_stale {
                are_stale = !are_stale;
                self.keys.refuse_all(are_stale && self.refuses);
                match (are_stale, self.refuses) {
                    (true, true) => tracing::error!(
                        "API keys are answered 503: the configuration's database has not answered for gateway.keys_max_age, so a key may \
                         have been revoked; it ends when the database answers"
                    ),
                    (true, false) => tracing::warn!(
                        "API keys may have been revoked: changes to them have not been heard of for gateway.keys_max_age"
                    ),
                    (false, _) => tracing::info!("changes to API keys are heard of again"),
                }
            }
            sleep(LOOKED_AT_EVERY).await;
        }
    }
}
