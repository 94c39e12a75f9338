//! A backend in force: how it is configured now, and what is known of it however it is configured.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::balance::eligibility::EjectionSettings;
use tidegate_algorithms::balance::round_trip::RoundTrip;
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

/// What is known of a backend. It outlives changes of limits and weights, and lives on while there are connections to one
/// that has gone: no connection is forgotten when it comes back.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) backend: Arc<Backend>,
    pub(crate) stats: BackendStats,
    round_trip: Mutex<RoundTrip>,
    /// Told when checks find it down, to sessions that end then.
    pub(crate) down: Arc<Notify>,
}

/// What a backend is beside those that serve already.
#[derive(Clone, Debug)]
pub(crate) enum Beside {
    /// Its app has none yet: it is as warm as any.
    Nobody,
    /// Others, and it is new: it starts slowly.
    Others,
    /// Itself as it was, at the same address.
    Itself(Arc<Known>),
    /// Connections of a time when it was there before: they count on, and it starts slowly.
    Remains(Arc<Known>),
}

impl EdgeBackend {
    /// A backend; what is known of the same address stays known.
    pub(crate) fn new(config: Arc<BackendConfig>, now: Tick, beside: Beside) -> Self {
        let known = match beside {
            Beside::Itself(known) => known,
            Beside::Remains(known) => {
                known.backend.comes_back(now);
                known
            }
            Beside::Nobody => Arc::new(Known::new(fresh(&config.target, now))),
            Beside::Others => Arc::new(Known::new(fresh(&config.target, now).coming_up(now))),
        };
        known.backend.set_checked(config.check.is_some(), now);
        Self { config, known }
    }

    /// What nodes call it among themselves.
    pub(crate) fn subject(&self) -> String {
        format!("edge {} {} {}", self.config.app, self.config.name, self.config.target)
    }

    /// Whether it may get new connections at all.
    pub(crate) fn is_open(&self) -> bool {
        !self.config.drain && self.config.weight > 0
    }
}

/// A backend of which nothing is known.
fn fresh(target: &Target, now: Tick) -> Backend {
    // Weight and limit are the edge's configuration, which changes while this stays.
    Backend::new(BackendSettings { target: target.clone(), weight: 1, hard_limit: u32::MAX }, now)
}

impl Known {
    fn new(backend: Backend) -> Self {
        let (stats, round_trip, down) = (BackendStats::default(), Mutex::default(), Arc::default());
        Self { backend: Arc::new(backend), stats, round_trip, down }
    }

    /// Takes note of how long a connection to it took to be made.
    pub(crate) fn measured(&self, took: Duration, now: Tick) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.round_trip.lock().observe(nanos, now);
    }

    /// The round trip to it in nanoseconds, if it is known.
    pub(crate) fn round_trip(&self, now: Tick) -> Option<f64> {
        self.round_trip.lock().nanos(now)
    }

    /// Takes note that it could not be reached. True if that has just taken it out, which `may_eject` can forbid.
    pub(crate) fn failed(&self, now: Tick, may_eject: bool) -> bool {
        self.backend.failed(now, EjectionSettings::default(), may_eject)
    }

    /// Takes note that it was reached in `nanos`.
    pub(crate) fn reached(&self, nanos: u64, now: Tick) {
        self.backend.succeeded(nanos, now, EjectionSettings::default());
    }
}
