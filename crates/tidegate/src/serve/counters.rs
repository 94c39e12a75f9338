//! The counters of a process: found again at start, saved on a timer and at the end, so that a
//! deploy does not hand everyone a fresh window.
//!
//! A snapshot that cannot be read is set aside, never deleted, and the process starts with empty counters: a limiter
//! that does not start protects nothing. What a kill -9 loses is at most what was spent since the last save, one
//! `memory.snapshot_interval`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tidegate_limiter::engine::Engine;
use tidegate_net::clock::Clock;
use tidegate_net::runtime::Cores;
use tidegate_store::Counters;
use tidegate_store::guard::{Guard, GuardConfig};
use tidegate_store::lease::{LeaseConfig, Leases};
use tidegate_store::memory::Memory;
use tidegate_store::memory::snapshot::{Restored, load, save};
use tidegate_store::postgres::{self, Postgres, PostgresConfig};
use tidegate_store::redis::{Redis, RedisConfig};
use tidegate_store::shared::Shared;

use super::StartError;
use crate::config::{Durability, Settings, Store};

/// Longest that a start waits for its store.
const REACHING: Duration = Duration::from_secs(3);
/// Pause before a store that could not be reached at the start is tried again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// Name of the snapshot in the data directory.
const SNAPSHOT_FILE: &str = "counters.snapshot";

/// Where and how often the counters of a memory store are saved.
#[derive(Clone, Debug)]
pub struct Snapshots {
    path: PathBuf,
    interval: Duration,
}

impl Snapshots {
    /// As the settings have it; `None` if counters are not saved or not kept in this process.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        (settings.memory.snapshot && settings.store == Store::Memory).then(|| Self {
            path: settings.data_dir.join(SNAPSHOT_FILE),
            interval: settings.memory.snapshot_interval,
        })
    }

    /// Time between two saves.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Saves the counters of `engine`. Blocks on the disk; a failure is logged and tried again at the
    /// next save.
    pub fn save(&self, engine: &Arc<Engine>) {
        // Only a memory store has snapshots at all, see `Snapshots::of`.
        let Some(memory) = engine.counters().memory() else { return };
        match save(memory, &self.path, engine.clock().now()) {
            Ok(written) => tracing::debug!(?written, "counters saved"),
            Err(error) => tracing::error!(path = %self.path.display(), %error, "counters not saved"),
        }
    }
}

/// The store that the settings ask for, with what was saved of it, and open if it is shared and can be
/// reached. Its tasks run on the first of `cores`. The clock is moved ahead if what was saved is of a later
/// time.
pub(super) fn open(
    settings: &Settings,
    snapshots: Option<&Snapshots>,
    clock: &mut Clock,
    cores: &Cores,
) -> Result<Counters, StartError> {
    let counters = {
        let _inside = cores.handle(0).enter();
        make(settings, snapshots, clock)?
    };
    reach(&counters, cores);
    Ok(counters)
}

/// The store. Call it inside a runtime: a shared store talks from tasks of its own, and never gives up before
/// its callers do.
fn make(
    settings: &Settings,
    snapshots: Option<&Snapshots>,
    clock: &mut Clock,
) -> Result<Counters, StartError> {
    match &settings.store {
        Store::Memory => {
            let max_bytes = usize::try_from(settings.memory.max_bytes.0).unwrap_or(usize::MAX);
            let saved = snapshots.and_then(|snapshots| found_again(max_bytes, &snapshots.path, clock));
            Ok(Counters::Memory(saved.unwrap_or_else(|| Memory::new(max_bytes))))
        }
        Store::Redis(url) => {
            let mut config = RedisConfig::from_url(url.expose())?;
            config.connect_timeout = config.connect_timeout.max(settings.shared.deadline);
            config.response_timeout = config.response_timeout.max(settings.shared.deadline);
            Ok(guarded(Shared::Redis(Redis::start(config)), settings))
        }
        Store::Postgres(url) => {
            let durability = match settings.shared.durability {
                Durability::Unlogged => postgres::Durability::Unlogged,
                Durability::Asynchronous => postgres::Durability::Asynchronous,
                Durability::Synchronous => postgres::Durability::Synchronous,
            };
            let mut config = PostgresConfig { durability, ..PostgresConfig::parse(url.expose())? };
            config.connect_timeout = config.connect_timeout.max(settings.shared.deadline);
            config.response_timeout = config.response_timeout.max(settings.shared.deadline);
            Ok(guarded(Shared::Postgres(Postgres::start(config)), settings))
        }
    }
}

/// Opens the connections to a shared store before requests come, which would otherwise wait for them
/// longer than for an answer. A store that cannot be reached does not keep the process from starting:
/// it is said, and tried again until it can.
fn reach(counters: &Counters, cores: &Cores) {
    let Some(guard) = counters.guard().cloned() else { return };
    let (tell, told) = mpsc::sync_channel(1);
    cores.spawn_on(0, async move {
        let first = guard.open(REACHING).await;
        let failed = first.is_err();
        // The receiver may be gone.
        tell.send(first).unwrap_or_default();
        if failed {
            while guard.open(REACHING).await.is_err() {
                tokio::time::sleep(BETWEEN_ATTEMPTS).await;
            }
            tracing::info!("the counters' store can be reached now");
        }
    });
    // A core that has ended tells nothing, and everybody notices.
    if let Ok(Err(error)) = told.recv() {
        tracing::warn!(
            %error,
            "the counters' store cannot be reached: each policy's `on_store_failure` decides until it can"
        );
    }
}

/// A shared store behind its guard (deadline, breaker, and what each policy answers without it),
/// and behind leases if the settings ask for them.
fn guarded(store: Shared, settings: &Settings) -> Counters {
    let shared = &settings.shared;
    let instances = u64::from(shared.instances);
    let config = GuardConfig { deadline: shared.deadline, instances, ..GuardConfig::default() };
    let guard = Guard::new(store, config);
    match lease_config(settings) {
        Some(config) => Counters::Leased(Leases::new(guard, config)),
        None => Counters::Guarded(guard),
    }
}

/// How units are taken ahead; `None` if they are not.
#[must_use]
pub fn lease_config(settings: &Settings) -> Option<LeaseConfig> {
    let shared = &settings.shared;
    (shared.leases && settings.store != Store::Memory).then(|| LeaseConfig {
        lifetime: u64::try_from(shared.lease_lifetime.as_nanos()).unwrap_or(u64::MAX),
        instances: u64::from(shared.instances),
        ..LeaseConfig::default()
    })
}

fn found_again(max_bytes: usize, path: &Path, clock: &mut Clock) -> Option<Memory> {
    match load(max_bytes, path, clock.now()) {
        Ok(Some(Restored { memory, written })) => {
            *clock = clock.not_before(written);
            tracing::info!(keys = memory.stats().entries, "counters restored");
            Some(memory)
        }
        Ok(None) => None,
        Err(error) => {
            let aside = path.with_extension("unreadable");
            let kept = fs::rename(path, &aside).is_ok();
            tracing::error!(
                path = %path.display(), %error, kept_as = %aside.display(), kept,
                "the saved counters cannot be read; starting with empty ones"
            );
            None
        }
    }
}
