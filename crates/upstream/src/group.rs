//! Backends that do the same work, and which of them is next.
//!
//! ```text
//!   pick: usable backends, or else those that are up, or else all ──> not tried yet ──> by the policy ──> a place there
//!                                                                                                        full: the next best
//! ```
//!
//! The first backends are up until a check says otherwise, so a process serves from its first second. One that comes while others
//! serve, and is checked, is down until its first check has passed.
//!
//! As long as one backend is usable, none that is down or ejected gets anything. If none is usable, there is a panic: the
//! verdicts may be wrong, and asking costs no more than refusing. Then checks count for more than requests, whose failures may
//! be their own: all backends that are up are asked, and if none is up, all backends. Any number may be ejected, except an
//! only backend, which would be asked all the same. So in an outage of all backends requests go to all in turn, and not to the
//! last one alone.
//!
//! A backend of weight 0 gets nothing, so it does not count as usable: a backend that was taken out by hand must not stand for
//! the one that still works.

mod explain;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use thiserror::Error;
use tidegate_algorithms::balance::eligibility::EjectionSettings;
use tidegate_algorithms::balance::ring::{self, Ring};
use tidegate_algorithms::balance::{RoundRobin, least, two_choices};
use tidegate_algorithms::random::Random;
use tidegate_algorithms::time::Tick;

use crate::backend::{Backend, Place};
pub use explain::{Candidate, Pick};

/// How the next backend is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each in turn, by weight.
    RoundRobin,
    /// The backend with the fewest requests for its weight; of equal ones, by weight.
    #[default]
    LeastRequests,
    /// A backend drawn by weight, unless a second one is clearly cheaper, by latency and requests for its weight.
    PeakEwma,
    /// The same backend for the same key, unless it is overloaded.
    RingHash,
}

/// How a group behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupSettings {
    /// How the next backend is chosen.
    pub balance: Balance,
    /// How long a backend that came up is given less than its share, in nanoseconds; 0: not at all.
    pub slow_start: u64,
    /// When failed requests take a backend out.
    pub ejection: EjectionSettings,
    /// By [`Balance::RingHash`], the load above its fair share at which a backend is passed over.
    pub ring_bound: f64,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            slow_start: 0,
            ejection: EjectionSettings::default(),
            ring_bound: ring::BOUND,
        }
    }
}

/// Why there is no backend for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoBackend {
    /// The group has no backend that gets requests, or all were tried.
    #[error("no backend is left to try")]
    None,
    /// Each one carries as much as it may.
    #[error("every backend is at its limit")]
    Full,
}

/// Backends that do the same work.
#[derive(Debug)]
pub struct Group {
    backends: Vec<Arc<Backend>>,
    settings: GroupSettings,
    turn: Mutex<RoundRobin>,
    random: Mutex<Random>,
    /// Counted up by each pick of [`Balance::LeastRequests`].
    picks: AtomicU64,
    ring: Ring,
    weights: f64,
    /// The backends that get requests: those of a weight above 0.
    weighted: usize,
}

/// Which backends count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Those that are usable.
    Usable,
    /// The backends that are up, ejected or not, since all the others are down.
    Up,
    /// All: no other one is up.
    Any,
}

impl Group {
    /// A group of `backends`; `seed` is for its random draws.
    #[must_use]
    pub fn new(backends: Vec<Arc<Backend>>, settings: GroupSettings, seed: u64) -> Self {
        let ring = if settings.balance == Balance::RingHash {
            let points: Vec<(u64, u32)> = backends.iter().map(|backend| point(backend)).collect();
            Ring::new(&points)
        } else {
            Ring::default()
        };
        let weights = backends.iter().map(|backend| f64::from(backend.settings().weight)).sum();
        let weighted = backends.iter().filter(|backend| backend.settings().weight > 0).count();
        Self {
            backends,
            settings,
            turn: Mutex::default(),
            random: Mutex::new(Random::seeded(seed)),
            picks: AtomicU64::new(0),
            ring,
            weights,
            weighted,
        }
    }

    /// The backends, in the order in which they were given.
    #[must_use]
    pub fn backends(&self) -> &[Arc<Backend>] {
        &self.backends
    }

    /// How it behaves.
    #[must_use]
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// The next backend that is not among `tried`, by its position, and a place there. `key` is what [`Balance::RingHash`] goes by.
    ///
    /// # Errors
    /// When none is left, or all are full.
    pub fn pick(&self, key: u64, tried: &[usize], now: Tick) -> Result<(usize, Place), NoBackend> {
        let standing = self.standing(now);
        let mut full: Vec<usize> = Vec::new();
        loop {
            let weight = |index: usize| {
                let backend = &self.backends[index];
                if full.contains(&index) || tried.contains(&index) || !standing.counts(backend, now) {
                    return 0.0;
                }
                let share = backend.share(self.settings.slow_start, now);
                f64::from(backend.settings().weight) * share
            };
            let Some(index) = self.choose(key, weight, now) else {
                return Err(if full.is_empty() { NoBackend::None } else { NoBackend::Full });
            };
            match self.backends[index].take_place() {
                Some(place) => return Ok((index, place)),
                None => full.push(index),
            }
        }
    }

    /// Those that get anything.
    fn weighted(&self) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.iter().filter(|backend| backend.settings().weight > 0)
    }

    /// Which of them count.
    fn standing(&self, now: Tick) -> Standing {
        let is_there = |standing: &Standing| self.weighted().any(|backend| standing.counts(backend, now));
        [Standing::Usable, Standing::Up].into_iter().find(is_there).unwrap_or(Standing::Any)
    }

    fn choose(&self, key: u64, weight: impl Fn(usize) -> f64, now: Tick) -> Option<usize> {
        let count = self.backends.len();
        let in_flight = |index: usize| self.backends[index].in_flight();
        match self.settings.balance {
            Balance::RoundRobin => self.turn.lock().pick(count, weight),
            Balance::LeastRequests => {
                // One backend has no ties, so that no core writes what others read.
                let turn = if count > 1 { self.picks.fetch_add(1, Relaxed) } else { 0 };
                least(count, turn, weight, in_flight)
            }
            Balance::PeakEwma => {
                let average = average(count, &weight);
                let cost = |index: usize| self.backends[index].cost(weight(index) / average, now);
                two_choices(count, &mut self.random.lock(), &weight, cost)
            }
            Balance::RingHash => self.pick_on_ring(key, weight),
        }
    }

    fn pick_on_ring(&self, key: u64, weight: impl Fn(usize) -> f64) -> Option<usize> {
        let total = self.backends.iter().map(|backend| u64::from(backend.in_flight())).sum();
        let has_room = |index: usize| {
            let backend = &self.backends[index];
            let share = f64::from(backend.settings().weight);
            ring::is_within_bound(backend.in_flight(), total, share, self.weights, self.settings.ring_bound)
        };
        self.ring.pick(key, |index| weight(index) > 0.0, has_room)
    }

    /// Takes note that a request at `backend` was answered in `latency` nanoseconds.
    pub fn succeeded(&self, backend: &Backend, latency: u64, now: Tick) {
        backend.succeeded(latency, now, self.settings.ejection);
    }

    /// Takes note that a request failed because of `backend`. True if that has just taken it out.
    pub fn failed(&self, backend: &Backend, now: Tick) -> bool {
        backend.failed(now, self.settings.ejection, self.weighted > 1)
    }
}

impl Standing {
    fn counts(self, backend: &Backend, now: Tick) -> bool {
        match self {
            Self::Usable => backend.is_usable(now),
            Self::Up => backend.status(now).is_up,
            Self::Any => true,
        }
    }
}

/// The average of the weights above 0.
fn average(count: usize, weight: impl Fn(usize) -> f64) -> f64 {
    let weights = || (0..count).map(&weight).filter(|weight| *weight > 0.0);
    weights().sum::<f64>() / weights().map(|_| 1.0).sum::<f64>()
}

/// The identity of a backend on a ring: the same address has the same points in every process.
fn point(backend: &Backend) -> (u64, u32) {
    (hash(backend.target().to_string().as_bytes()), backend.settings().weight)
}

/// The hash of a key for [`Group::pick`]. It is no secret: all processes must agree on it.
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests;
