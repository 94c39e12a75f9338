//! A backend in force: how it is configured now, and what is known of it however it is configured.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::balance::eligibility::EjectionSettings;
use tidegate_algorithms::balance::round_trip::RoundTrip;
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::{Backend, BackendSettings, Target};
use tidegate_wire::proxy_protocol::ProxyVersion;
use tokio::sync::Notify;

use crate::config::{BackendConfig, Probe};
use crate::reach::Reachability;
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
    reach: Mutex<Reachability>,
    /// Whether it has not been reached since a connection to it failed: what `reach` says, to be read without its lock.
    is_in_doubt: AtomicBool,
    /// Whether connections to it come back to this edge: then it gets none.
    leads_back: AtomicBool,
    /// The version of the PROXY protocol that its app's listeners send; 0: none.
    header: AtomicU8,
    /// Told when checks find it down, to sessions that end then.
    pub(crate) down: Arc<Notify>,
}

/// What a backend is beside those that serve already.
#[derive(Clone, Debug)]
pub(crate) enum Beside {
    /// Its app has no backend yet: it is as warm as any.
    Nobody,
    /// Others, and it is new: it starts slowly, and after its first check if that asks more than a connection does.
    Others,
    /// Itself as it was, at the same address.
    Itself(Arc<Known>),
    /// Connections of a time when it was there before: they count on, and it starts as a new one does.
    Remains(Arc<Known>),
}

impl EdgeBackend {
    /// A backend; what is known of the same address stays known.
    pub(crate) fn new(config: Arc<BackendConfig>, now: Tick, beside: Beside) -> Self {
        let is_coming = matches!(beside, Beside::Others | Beside::Remains(_));
        let known = match beside {
            Beside::Itself(known) => known,
            Beside::Remains(known) => {
                known.comes_back(now);
                known
            }
            Beside::Nobody => Arc::new(Known::new(fresh(&config.target, now))),
            Beside::Others => Arc::new(Known::new(fresh(&config.target, now).coming_up(now))),
        };
        known.backend.set_checked(config.check.is_some(), now);
        // What a connection finds out costs nothing: the client goes on to the next backend. What only a request or a handshake
        // finds out would fail the client.
        if is_coming && config.check.as_ref().is_some_and(|check| check.probe != Probe::Tcp) {
            known.backend.awaits_its_first_check();
        }
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
        let (reach, is_in_doubt) = (Mutex::default(), AtomicBool::new(false));
        let (leads_back, header) = (AtomicBool::new(false), AtomicU8::new(0));
        Self { backend: Arc::new(backend), stats, round_trip, reach, is_in_doubt, leads_back, header, down }
    }

    /// Has checks begin as connections do.
    pub(crate) fn set_header(&self, header: Option<ProxyVersion>) {
        let number = match header {
            None => 0,
            Some(ProxyVersion::One) => 1,
            Some(ProxyVersion::Two) => 2,
        };
        self.header.store(number, Relaxed);
    }

    /// The version of the PROXY protocol that it is spoken to with.
    pub(crate) fn header(&self) -> Option<ProxyVersion> {
        match self.header.load(Relaxed) {
            0 => None,
            1 => Some(ProxyVersion::One),
            _ => Some(ProxyVersion::Two),
        }
    }

    /// Takes note that connections to it come back to this edge. True if that is news.
    pub(crate) fn leads_back(&self) -> bool {
        let is_news = !self.leads_back.swap(true, Relaxed);
        self.judge(|_| is_news)
    }

    /// Takes note that connections to it may not come back to this edge any more.
    pub(crate) fn leads_elsewhere(&self) {
        self.leads_back.store(false, Relaxed);
        self.judge(|_| ());
    }

    /// Whether connections to it come back to this edge.
    pub(crate) fn is_in_circle(&self) -> bool {
        self.leads_back.load(Relaxed)
    }

    /// See [`Backend::comes_back`].
    fn comes_back(&self, now: Tick) {
        let mut reach = self.reach.lock();
        *reach = Reachability::default();
        self.is_in_doubt.store(false, Relaxed);
        self.backend.comes_back(now);
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

    /// Whether it has not been reached since a connection to it failed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.load(Relaxed)
    }

    /// Takes note that it could not be reached. True if that has just taken it out.
    pub(crate) fn failed(&self, now: Tick) -> bool {
        self.backend.failed(now, NO_EJECTION, false);
        self.judge(|reach| reach.failed(now))
    }

    /// Takes note that it was reached in `nanos`. True if it is back by that.
    pub(crate) fn reached(&self, nanos: u64, now: Tick) -> bool {
        self.backend.succeeded(nanos, now, NO_EJECTION);
        self.check_passed(now)
    }

    /// Takes note that a check reached it. True if it is back by that; it starts slowly then.
    pub(crate) fn check_passed(&self, now: Tick) -> bool {
        let is_back = self.is_in_doubt() && self.judge(|reach| reach.succeeded(now));
        if is_back {
            self.backend.starts_slowly(now);
        }
        is_back
    }

    /// Takes note that a check failed; the next one is over in `next`.
    pub(crate) fn check_failed(&self, now: Tick, next: Duration) {
        if self.is_in_doubt() {
            self.judge(|reach| reach.check_failed(now, next));
        }
    }

    /// Whether a connection may go there, alone if it is in doubt.
    pub(crate) fn try_again(&self, now: Tick) -> bool {
        !self.is_in_doubt() || self.judge(|reach| reach.try_again(now))
    }

    /// Takes note of something, and has placing go by it.
    fn judge<T>(&self, note: impl FnOnce(&mut Reachability) -> T) -> T {
        let mut reach = self.reach.lock();
        let said = note(&mut reach);
        self.is_in_doubt.store(reach.is_in_doubt(), Relaxed);
        let until = if self.is_in_circle() { Tick(u64::MAX) } else { reach.until() };
        self.backend.set_out_until(until);
        said
    }
}

/// Connections have a rule of their own ([`crate::reach`]).
const NO_EJECTION: EjectionSettings = EjectionSettings { failures: 0, base: 0, longest: 0 };
