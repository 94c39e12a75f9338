//! A backend in force: how it is configured now, and what is known of it however it is configured.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_algorithms::balance::eligibility::{EjectionSettings, may_eject};
use tidegate_algorithms::balance::region::Load;
use tidegate_algorithms::balance::round_trip::RoundTrip;
use tidegate_algorithms::balance::slow_start;
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::{Backend, BackendSettings, Target};
use tokio::sync::Notify;

use crate::config::BackendConfig;
use crate::stats::BackendStats;

/// A backend, for as long as it has this configuration.
#[derive(Debug)]
pub(crate) struct EdgeBackend {
    pub(crate) config: Arc<BackendConfig>,
    pub(crate) known: Arc<Known>,
}

/// What is known of a backend. It outlives changes of limits and weights, so that no connection is forgotten.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) backend: Arc<Backend>,
    pub(crate) stats: BackendStats,
    round_trip: Mutex<RoundTrip>,
    /// Told when checks find it down, to sessions that end then.
    pub(crate) down: Notify,
}

impl EdgeBackend {
    /// A backend; what `before` knew of the same address stays known.
    pub(crate) fn new(config: Arc<BackendConfig>, now: Tick, before: Option<&Self>) -> Self {
        let same = before.filter(|before| before.config.target == config.target);
        let known =
            same.map_or_else(|| Arc::new(Known::new(&config.target, now)), |it| Arc::clone(&it.known));
        Self { config, known }
    }

    /// Whether it may get new connections at all.
    pub(crate) fn is_open(&self) -> bool {
        !self.config.drain && self.config.weight > 0
    }

    /// What placing reads of it; `None`: it is not to be used.
    pub(crate) fn load(&self, is_panic: bool, now: Tick) -> Option<Load> {
        let backend = &self.known.backend;
        if !(is_panic || backend.is_usable(now)) {
            return None;
        }
        let factor = match self.config.slow_start {
            0 => 1.0,
            warm_up => 1.0 / slow_start::share(backend.up_since(), warm_up, now),
        };
        Some(Load { connections: backend.in_flight(), factor })
    }
}

impl Known {
    fn new(target: &Target, now: Tick) -> Self {
        // Weight and limit are the edge's configuration, which changes while this stays.
        let settings = BackendSettings { target: target.clone(), weight: 1, hard_limit: u32::MAX };
        let (stats, round_trip, down) = (BackendStats::default(), Mutex::default(), Notify::new());
        Self { backend: Arc::new(Backend::new(settings, now)), stats, round_trip, down }
    }

    /// Takes note of how long a connection to it took to be made.
    pub(crate) fn measured(&self, took: Duration, now: Tick) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        // Plain values: whatever a panicking holder left there is whole.
        self.round_trip.lock().unwrap_or_else(PoisonError::into_inner).observe(nanos, now);
    }

    /// The round trip to it in nanoseconds, if it is known.
    pub(crate) fn round_trip(&self, now: Tick) -> Option<f64> {
        self.round_trip.lock().unwrap_or_else(PoisonError::into_inner).nanos(now)
    }

    /// Takes note that it could not be reached; `ejected` of `count` like it are out already. True if that has
    /// just taken it out.
    pub(crate) fn failed(&self, now: Tick, ejected: usize, count: usize) -> bool {
        self.backend.failed(now, EjectionSettings::default(), may_eject(ejected, count))
    }

    /// Takes note that it was reached in `nanos`.
    pub(crate) fn reached(&self, nanos: u64, now: Tick) {
        self.backend.succeeded(nanos, now, EjectionSettings::default());
    }
}
