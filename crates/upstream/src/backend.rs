//! One backend: its address, its bounds, and its record.
//!
//! A request holds a [`Place`] from before it connects until its reply has ended. The hard limit is
//! kept by compare-and-swap when the place is taken, so it is never passed, however many requests
//! come at once. Dropping a place gives it back, whatever became of the request.
//!
//! Over 400 lines because the tests stand beside the state that they look into.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::balance::eligibility::{Ejection, EjectionSettings, Health, Thresholds};
use tidegate_algorithms::balance::ewma::{DECAY, PeakEwma};
use tidegate_algorithms::balance::slow_start;
use tidegate_algorithms::time::Tick;

/// The assumed latency of a backend that has not answered yet, in nanoseconds: 1 ms.
const FIRST_LATENCY: u64 = 1_000_000;

/// Of a backend that does not start slowly.
const ALWAYS: u64 = u64::MAX;

/// Where a backend is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// An address or a name.
    pub host: Host,
    /// Its TCP port.
    pub port: u16,
}

/// An address, or a name that has some.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name that the system's resolver knows.
    Name(Box<str>),
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(ip) => SocketAddr::new(*ip, self.port).fmt(out),
            Host::Name(name) => write!(out, "{name}:{}", self.port),
        }
    }
}

/// A backend as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendSettings {
    /// Where it is.
    pub target: Target,
    /// Its share among its like; 0: it gets nothing.
    pub weight: u32,
    /// Most requests or connections that it may carry at once.
    pub hard_limit: u32,
}

/// A backend and what is known of it.
#[derive(Debug)]
pub struct Backend {
    settings: BackendSettings,
    known: Arc<BackendState>,
}

/// What is known of a backend, however its settings change.
#[derive(Debug)]
struct BackendState {
    in_flight: AtomicU32,
    is_up: AtomicBool,
    /// When it last came up, or will be back from an ejection: slow start counts from here. [`ALWAYS`]: it was there when the process began.
    up_since: AtomicU64,
    ejected_until: AtomicU64,
    counts: BackendCounts,
    seen: Mutex<BackendSeen>,
}

#[derive(Debug, Default)]
struct BackendCounts {
    successes: AtomicU64,
    failures: AtomicU64,
    repeats: AtomicU64,
    ejections: AtomicU64,
}

#[derive(Debug)]
struct BackendSeen {
    health: Health,
    /// Whether it is checked. If not, the result of a check that was under way says nothing.
    is_checked: bool,
    /// Why the last check failed; none if it passed.
    check_failure: Option<Box<str>>,
    ejection: Ejection,
    latency: PeakEwma,
}

/// What has been counted of a backend, and its state now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BackendStatus {
    /// Requests or connections that it carries.
    pub in_flight: u32,
    /// Whether its checks let it be used.
    pub is_up: bool,
    /// Whether failed requests have taken it out for now.
    pub is_ejected: bool,
    /// Latency to expect, in nanoseconds.
    pub latency: f64,
    /// Requests that succeeded.
    pub successes: u64,
    /// Requests that failed for its sake.
    pub failures: u64,
    /// Requests that it was sent once more, since it had closed the connection of the first time.
    pub repeats: u64,
    /// Times that it was ejected.
    pub ejections: u64,
}

impl Backend {
    /// A backend that is up until a check says otherwise, and warm.
    #[must_use]
    pub fn new(settings: BackendSettings, now: Tick) -> Self {
        let seen = BackendSeen {
            health: Health::new(true),
            is_checked: true,
            check_failure: None,
            ejection: Ejection::default(),
            latency: PeakEwma::new(FIRST_LATENCY, now),
        };
        let known = BackendState {
            in_flight: AtomicU32::new(0),
            is_up: AtomicBool::new(true),
            up_since: AtomicU64::new(ALWAYS),
            ejected_until: AtomicU64::new(0),
            counts: BackendCounts::default(),
            seen: Mutex::new(seen),
        };
        Self { settings, known: Arc::new(known) }
    }

    /// The same one with other settings: what is known of it, and what it carries, is known of both.
    #[must_use]
    pub fn with(&self, settings: BackendSettings) -> Self {
        Self { settings, known: Arc::clone(&self.known) }
    }

    /// The same, of which slow start counts from `now`: for one that comes when others serve already.
    #[must_use]
    pub fn coming_up(self, now: Tick) -> Self {
        self.known.up_since.store(now.0, Relaxed);
        self
    }

    /// As it was configured.
    #[must_use]
    pub fn settings(&self) -> &BackendSettings {
        &self.settings
    }

    /// Where it is.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.settings.target
    }

    /// Requests or connections that it carries.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.known.in_flight.load(Relaxed)
    }

    /// Whether checks and requests let it be used.
    #[must_use]
    pub fn is_usable(&self, now: Tick) -> bool {
        self.known.is_up.load(Relaxed) && !self.is_ejected(now)
    }

    /// Whether failed requests have taken it out for now.
    #[must_use]
    pub fn is_ejected(&self, now: Tick) -> bool {
        now.0 < self.known.ejected_until.load(Relaxed)
    }

    /// When it last came up, or is back from an ejection; `None`: it was neither down nor out, and did not come while others served.
    #[must_use]
    pub fn up_since(&self) -> Option<Tick> {
        let since = self.known.up_since.load(Relaxed);
        (since != ALWAYS).then_some(Tick(since))
    }

    /// The share of its weight that counts at `now`, if it is warm `warm_up` nanoseconds after it came up.
    #[must_use]
    pub fn share(&self, warm_up: u64, now: Tick) -> f64 {
        self.up_since().map_or(1.0, |since| slow_start::share(since, warm_up, now))
    }

    /// What a request there is expected to cost, where it has `share` times an average weight.
    #[must_use]
    pub fn cost(&self, share: f64, now: Tick) -> f64 {
        self.seen().latency.cost(f64::from(self.in_flight()) / share, now, DECAY)
    }

    /// What is known of it.
    #[must_use]
    pub fn status(&self, now: Tick) -> BackendStatus {
        BackendStatus {
            in_flight: self.in_flight(),
            is_up: self.known.is_up.load(Relaxed),
            is_ejected: self.is_ejected(now),
            latency: self.seen().latency.nanos(now, DECAY),
            successes: self.known.counts.successes.load(Relaxed),
            failures: self.known.counts.failures.load(Relaxed),
            repeats: self.known.counts.repeats.load(Relaxed),
            ejections: self.known.counts.ejections.load(Relaxed),
        }
    }

    /// When it is back that failed requests have taken out; a time that has passed: it is not out.
    #[must_use]
    pub fn ejected_until(&self) -> Tick {
        Tick(self.known.ejected_until.load(Relaxed))
    }

    /// Takes it out until `until`, or in again if that has passed: for who has other rules than [`Backend::failed`] has.
    pub fn set_out_until(&self, until: Tick) {
        self.known.ejected_until.store(until.0, Relaxed);
    }

    /// Takes note that it is back, as [`Backend::failed`] does for those that it takes out: slow start counts from `now`.
    pub fn starts_slowly(&self, now: Tick) {
        self.known.up_since.store(now.0, Relaxed);
    }

    /// Takes note that it is there again after it was away: it is up until a check says otherwise, and slow start counts
    /// from `now`. What it still carries from before counts on.
    pub fn comes_back(&self, now: Tick) {
        let mut seen = self.seen();
        seen.health = Health::new(true);
        seen.check_failure = None;
        seen.ejection = Ejection::default();
        self.known.ejected_until.store(0, Relaxed);
        self.known.up_since.store(now.0, Relaxed);
        self.known.is_up.store(true, Relaxed);
    }

    /// Takes it down until its first check has passed: for one that comes when others serve.
    pub fn awaits_its_first_check(&self) {
        let mut seen = self.seen();
        seen.health = Health::before_its_first_check();
        self.known.is_up.store(false, Relaxed);
    }

    /// Takes note of whether it is checked from now on. One that is not is up, whatever its checks said last: nobody
    /// would find out that it is back.
    pub fn set_checked(&self, is_checked: bool, now: Tick) {
        let mut seen = self.seen();
        seen.is_checked = is_checked;
        if !is_checked && !seen.health.is_up() {
            self.known.up_since.store(now.max(seen.ejection.until()).0, Relaxed);
            self.known.is_up.store(true, Relaxed);
        }
        if !is_checked {
            seen.health = Health::new(true);
            seen.check_failure = None;
        }
    }

    /// Takes the result of a health check. True if it came up or went down by it.
    pub fn checked(&self, passed: bool, thresholds: Thresholds, now: Tick) -> bool {
        let mut seen = self.seen();
        if !seen.is_checked {
            return false;
        }
        let changed = seen.health.checked(passed, thresholds);
        if changed {
            if passed {
                // One that is still out begins when it is back.
                self.known.up_since.store(now.max(seen.ejection.until()).0, Relaxed);
            }
            self.known.is_up.store(passed, Relaxed);
        }
        changed
    }

    /// Whether its checks let it be used.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.known.is_up.load(Relaxed)
    }

    /// Why its last health check failed, in words; `None`: it passed, or there was none yet.
    #[must_use]
    pub fn check_failure(&self) -> Option<Box<str>> {
        self.seen().check_failure.clone()
    }

    /// Takes note of why its last health check failed, or that it passed.
    pub fn set_check_failure(&self, reason: Option<&str>) {
        let mut seen = self.seen();
        if seen.is_checked && seen.check_failure.as_deref() != reason {
            seen.check_failure = reason.map(Box::from);
        }
    }

    /// Takes a place, if it has one.
    #[must_use]
    pub fn take_place(self: &Arc<Self>) -> Option<Place> {
        self.take_place_of(self.settings.hard_limit)
    }

    /// Takes a place, if it has one of `limit`: for who changes limits while backends stay.
    #[must_use]
    pub fn take_place_of(self: &Arc<Self>, limit: u32) -> Option<Place> {
        let taken = self
            .known
            .in_flight
            .fetch_update(Relaxed, Relaxed, |held| (held < limit).then(|| held + 1))
            .is_ok();
        taken.then(|| Place { backend: Arc::clone(self) })
    }

    /// Takes note that it was reached, or answered, in `latency` nanoseconds.
    pub fn succeeded(&self, latency: u64, now: Tick, ejection: EjectionSettings) {
        self.known.counts.successes.fetch_add(1, Relaxed);
        let mut seen = self.seen();
        seen.latency.observe(latency, now, DECAY);
        seen.ejection.succeeded(now, ejection);
    }

    /// Takes note of a failure. True if the backend has just been ejected, which `may_eject` can forbid.
    pub fn failed(&self, now: Tick, ejection: EjectionSettings, may_eject: bool) -> bool {
        self.known.counts.failures.fetch_add(1, Relaxed);
        let mut seen = self.seen();
        let ejected = seen.ejection.failed(now, ejection, may_eject);
        if ejected {
            self.known.counts.ejections.fetch_add(1, Relaxed);
            let until = seen.ejection.until().0;
            self.known.ejected_until.store(until, Relaxed);
            // What could not keep up is not given its whole share at once.
            self.known.up_since.store(until, Relaxed);
        }
        ejected
    }

    /// Takes note that a request was sent there once more, since it had closed the connection of the first time.
    pub fn repeated(&self) {
        self.known.counts.repeats.fetch_add(1, Relaxed);
    }

    fn seen(&self) -> MutexGuard<'_, BackendSeen> {
        self.known.seen.lock()
    }
}

/// Room for one request or connection at a backend, until it is dropped.
#[derive(Debug)]
pub struct Place {
    backend: Arc<Backend>,
}

impl Place {
    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.backend.known.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn backend(hard_limit: u32) -> Arc<Backend> {
        let target = Target { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port: 80 };
        Arc::new(Backend::new(BackendSettings { target, weight: 1, hard_limit }, Tick(0)))
    }

    #[test]
    fn a_hard_limit_is_never_passed_however_many_come_at_once() {
        let backend = backend(7);
        let most = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let place = backend.take_place();
                        most.fetch_max(backend.in_flight(), Relaxed);
                        drop(place);
                    }
                });
            }
        });
        assert!(most.load(Relaxed) <= 7, "{most:?}");
        assert_eq!(backend.in_flight(), 0);
        let held: Vec<Place> = std::iter::from_fn(|| backend.take_place()).collect();
        assert_eq!(held.len(), 7);
    }

    #[test]
    fn a_backend_that_comes_up_again_starts_slowly_from_then() {
        let backend = backend(1);
        let thresholds = Thresholds { rise: 1, fall: 1 };
        assert!(backend.checked(false, thresholds, Tick(5)) && !backend.is_usable(Tick(5)));
        assert!(backend.checked(true, thresholds, Tick(9)) && backend.is_usable(Tick(9)));
        assert_eq!(backend.up_since(), Some(Tick(9)));
    }

    #[test]
    fn a_backend_before_its_first_check_is_down_until_that_passes_or_none_is_asked_for() {
        let made = || {
            let new = backend(1);
            new.awaits_its_first_check();
            new
        };
        let thresholds = Thresholds { rise: 2, fall: 3 };
        let new = made();
        new.set_checked(true, Tick(2));
        assert!(!new.is_usable(Tick(2)) && new.check_failure().is_none());
        assert!(new.checked(true, thresholds, Tick(3)) && new.is_usable(Tick(3)), "one is enough");
        assert_eq!(new.up_since(), Some(Tick(3)));
        let failing = made();
        assert!(!failing.checked(false, thresholds, Tick(4)) && !failing.checked(true, thresholds, Tick(5)));
        assert!(failing.checked(true, thresholds, Tick(6)), "from then on as any other");
        let unchecked = made();
        unchecked.set_checked(false, Tick(7));
        assert!(unchecked.is_usable(Tick(7)));
    }

    #[test]
    fn a_backend_that_is_back_from_an_ejection_starts_slowly_from_then() {
        let backend = backend(1);
        let at_once = EjectionSettings { failures: 1, base: 10, longest: 100 };
        assert!(backend.failed(Tick(5), at_once, true) && !backend.is_usable(Tick(14)));
        assert!(backend.is_usable(Tick(15)));
        assert_eq!((backend.up_since(), backend.share(100, Tick(65))), (Some(Tick(15)), 0.5));
        assert_eq!(backend.share(0, Tick(15)), 1.0, "where nothing starts slowly, it has its share at once");
        assert!(backend.failed(Tick(20), at_once, true));
        let thresholds = Thresholds { rise: 1, fall: 1 };
        assert!(backend.checked(false, thresholds, Tick(21)) && backend.checked(true, thresholds, Tick(22)));
        assert_eq!(backend.up_since(), Some(Tick(40)), "a check that passes while it is out begins nothing");
        backend.set_out_until(Tick(90));
        backend.starts_slowly(Tick(80));
        assert_eq!(backend.up_since(), Some(Tick(80)));
    }

    #[test]
    fn a_backend_whose_checks_end_is_up_and_a_late_result_does_not_take_it_down() {
        let backend = backend(1);
        let thresholds = Thresholds { rise: 2, fall: 1 };
        assert!(backend.checked(false, thresholds, Tick(5)));
        backend.set_checked(false, Tick(7));
        assert!(backend.is_usable(Tick(7)));
        assert_eq!(backend.up_since(), Some(Tick(7)), "it starts slowly");
        assert!(!backend.checked(false, thresholds, Tick(8)) && backend.is_usable(Tick(8)));
        backend.set_checked(true, Tick(9));
        assert!(backend.checked(false, thresholds, Tick(9)) && !backend.is_usable(Tick(9)));
    }

    #[test]
    fn a_backend_is_out_for_as_long_as_is_said_and_back_when_that_is_over() {
        let backend = backend(1);
        backend.set_out_until(Tick(5));
        assert!(!backend.is_usable(Tick(4)) && backend.is_usable(Tick(5)));
        backend.set_out_until(Tick(0));
        assert!(backend.is_usable(Tick(1)));
    }

    #[test]
    fn a_backend_with_another_weight_and_limit_is_known_as_it_was() {
        let before = backend(2);
        let held = before.take_place().expect("it has room");
        let thresholds = Thresholds { rise: 2, fall: 1 };
        assert!(before.checked(false, thresholds, Tick(5)));
        let settings = BackendSettings { weight: 3, hard_limit: 1, ..before.settings().clone() };
        let after = Arc::new(before.with(settings));
        assert!(!after.is_usable(Tick(5)) && after.take_place().is_none());
        drop(held);
        assert!(after.take_place().is_some() && before.in_flight() == 0);
    }

    #[test]
    fn a_backend_that_comes_back_is_as_new_but_for_what_it_carries() {
        let backend = backend(1);
        let _held = backend.take_place().expect("it has room");
        let thresholds = Thresholds { rise: 2, fall: 1 };
        assert!(backend.checked(false, thresholds, Tick(5)));
        let at_once = EjectionSettings { failures: 1, ..EjectionSettings::default() };
        assert!(backend.failed(Tick(6), at_once, true));
        backend.comes_back(Tick(7));
        assert!(backend.is_usable(Tick(7)));
        assert_eq!((backend.up_since(), backend.in_flight()), (Some(Tick(7)), 1));
        assert!(backend.take_place().is_none(), "its limit holds over its absence");
    }

    #[test]
    fn a_backend_is_warm_unless_it_comes_when_others_serve() {
        let warm = backend(1);
        assert_eq!((warm.up_since(), warm.share(100, Tick(1))), (None, 1.0));
        let coming = Arc::into_inner(warm).expect("nobody else has it").coming_up(Tick(10));
        assert_eq!((coming.up_since(), coming.share(100, Tick(60))), (Some(Tick(10)), 0.5));
    }

    #[test]
    fn addresses_of_version_six_are_written_in_brackets() {
        let target = Target { host: Host::Address("::1".parse().expect("an address")), port: 80 };
        assert_eq!(target.to_string(), "[::1]:80");
        let target = Target { host: Host::Name("a.example".into()), port: 80 };
        assert_eq!(target.to_string(), "a.example:80");
    }
}
