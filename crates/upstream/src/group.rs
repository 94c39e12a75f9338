//! Backends that do the same work, and which of them is next.
//!
//! ```text
//!   pick: usable backends, or else those that are up, or else all ──> not tried yet ──> by the policy ──> a place there
//!                                                                                                        full: the next best
//! ```
//!
//! The first backends are up until a check says otherwise, so a process serves from its first second.
//!
//! As long as one backend is usable, none that is down or ejected gets anything. When none is, there is a panic: the verdicts
//! may be wrong, and asking costs no more than refusing. Then checks count for more than requests, whose failures may be their
//! own: all that are up are asked, and only where none is, all. Any number may be ejected, but for one that is alone: it would
//! be asked all the same. So an outage of all is met as before it, all in turn, and nothing is left to the last one.
//!
//! A backend of weight 0 gets nothing, so it does not count among those that are left: one that was taken out by hand must not
//! stand for the one that still works.

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
    /// The one with the fewest requests for its weight, of several by weight.
    #[default]
    LeastRequests,
    /// One drawn by weight, unless a second one is clearly cheaper, by latency and requests for its weight.
    PeakEwma,
    /// The same one for the same key, unless it is overloaded.
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
    /// It has none that gets anything, or all were tried.
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
    /// Those that get anything: of a weight above 0.
    weighted: usize,
}

/// Which backends count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Those that are usable.
    Usable,
    /// Those that are up, ejected or not: no other one is.
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
            Balance::LeastRequests => least(count, self.picks.fetch_add(1, Relaxed), weight, in_flight),
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

    /// Takes note that a request failed for the sake of `backend`. True if that has just taken it out.
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

/// What a ring knows a backend by: the same address has the same points in every process.
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
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::backend::{BackendSettings, Host, Target};
    use tidegate_algorithms::balance::eligibility::Thresholds;
    use tidegate_algorithms::time::SECOND;

    #[test]
    fn weights_hold_while_requests_come_one_after_another() {
        for balance in [Balance::RoundRobin, Balance::LeastRequests, Balance::PeakEwma] {
            let group = weighted(balance, &[(5, 100), (1, 100), (0, 100)]);
            let mut picks = [0; 3];
            for number in 0..600 {
                let (index, place) = group.pick(0, &[], Tick(number)).unwrap();
                picks[index] += 1;
                group.succeeded(&group.backends()[index], 1_000_000, Tick(number));
                drop(place);
            }
            assert!(picks[0].abs_diff(500) < 40 && picks[2] == 0, "{balance:?}: {picks:?}");
        }
    }

    fn group(balance: Balance, hard_limits: &[u32]) -> Group {
        let all: Vec<(u32, u32)> = hard_limits.iter().map(|limit| (1, *limit)).collect();
        weighted(balance, &all)
    }

    /// A group of backends, each of a weight and a hard limit.
    fn weighted(balance: Balance, backends: &[(u32, u32)]) -> Group {
        let backend = |(port, (weight, hard_limit)): (u16, &(u32, u32))| {
            let target = Target { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port };
            let settings = BackendSettings { target, weight: *weight, hard_limit: *hard_limit };
            Arc::new(Backend::new(settings, Tick(0)))
        };
        let backends = (1u16..).zip(backends).map(backend).collect();
        Group::new(backends, GroupSettings { balance, ..GroupSettings::default() }, 1)
    }

    fn port((_, place): &(usize, Place)) -> u16 {
        place.backend().target().port
    }

    const ALL: [Balance; 4] =
        [Balance::RoundRobin, Balance::LeastRequests, Balance::PeakEwma, Balance::RingHash];

    #[test]
    fn every_policy_fills_all_backends_and_then_says_that_they_are_full() {
        for balance in ALL {
            let group = group(balance, &[2, 3, 1]);
            let mut held = Vec::new();
            for key in 0..6 {
                held.push(group.pick(key, &[], Tick(0)).expect("there is room"));
            }
            assert_eq!(group.pick(7, &[], Tick(0)).unwrap_err(), NoBackend::Full, "{balance:?}");
            held.remove(0);
            assert!(group.pick(7, &[], Tick(0)).is_ok(), "{balance:?}");
        }
    }

    #[test]
    fn an_explained_pick_is_the_one_that_comes_next_and_changes_nothing() {
        for balance in ALL {
            let group = group(balance, &[2, 3, 1, 9]);
            let mut held = Vec::new();
            for key in 0..15 {
                let explained = group.explain(key, Tick(0));
                assert_eq!(explained, group.explain(key, Tick(0)), "{balance:?}");
                let (index, place) = group.pick(key, &[], Tick(0)).expect("there is room");
                assert_eq!(explained.next, Some(index), "{balance:?} {key}: {explained:?}");
                held.push(place);
            }
            let full = group.explain(0, Tick(0));
            assert!(full.next.is_none() && full.candidates.iter().all(|it| it.is_full), "{balance:?}");
        }
    }

    #[test]
    fn what_was_tried_is_not_tried_again() {
        for balance in ALL {
            let group = group(balance, &[9, 9, 9]);
            let mut tried = Vec::new();
            for _ in 0..3 {
                let (index, _place) = group.pick(5, &tried, Tick(0)).expect("one is left");
                assert!(!tried.contains(&index));
                tried.push(index);
            }
            assert_eq!(group.pick(5, &tried, Tick(0)).unwrap_err(), NoBackend::None);
        }
    }

    #[test]
    fn fault_40_a_backend_that_is_out_gets_nothing_while_another_one_is_left() {
        let down = |group: &Group, index: usize| {
            let thresholds = Thresholds { rise: 1, fall: 1 };
            assert!(group.backends()[index].checked(false, thresholds, Tick(0)));
        };
        let eject = |group: &Group, index: usize| {
            assert!((0..5).any(|_| group.failed(&group.backends()[index], Tick(0))));
        };
        for balance in ALL {
            let group = group(balance, &[1_000; 4]);
            down(&group, 0);
            eject(&group, 1);
            let picked = |group: &Group| -> Vec<u16> {
                let mut ports: Vec<u16> = (0..400)
                    .filter_map(|key| group.pick(hash(&[key as u8]), &[], Tick(0)).ok())
                    .map(|place| port(&place))
                    .collect();
                ports.sort_unstable();
                ports.dedup();
                ports
            };
            assert_eq!(picked(&group), [3, 4], "{balance:?}");
            down(&group, 2);
            assert_eq!(picked(&group), [4], "{balance:?}: one is left");
            eject(&group, 3);
            assert_eq!(picked(&group), [2, 4], "{balance:?}: none is left, so those count that are up");
            assert!(group.explain(0, Tick(0)).is_panic);
            down(&group, 1);
            down(&group, 3);
            assert_eq!(picked(&group), [1, 2, 3, 4], "{balance:?}: none is up, so all count");
        }
    }

    #[test]
    fn fault_40_failed_requests_eject_any_number_and_where_all_are_out_all_are_asked() {
        let group = group(Balance::RoundRobin, &[9; 5]);
        for (out, backend) in group.backends().iter().enumerate() {
            assert!(!group.explain(0, Tick(0)).is_panic, "{out} are out");
            assert!((0..5).any(|_| group.failed(backend, Tick(0))));
        }
        let places: Vec<(usize, Place)> = (0..5).filter_map(|_| group.pick(0, &[], Tick(0)).ok()).collect();
        let mut asked: Vec<u16> = places.iter().map(port).collect();
        asked.sort_unstable();
        assert_eq!(asked, [1, 2, 3, 4, 5]);
        assert!(group.backends().iter().all(|backend| backend.is_usable(Tick(10 * SECOND))));
    }

    #[test]
    fn fault_40_a_backend_of_weight_0_stands_for_no_other_one() {
        let thresholds = Thresholds { rise: 1, fall: 1 };
        for balance in ALL {
            // Two were taken out by hand: one is all that is left, so nothing may take that out.
            let group = weighted(balance, &[(1, 1_000), (0, 1_000), (0, 1_000)]);
            let last = Arc::clone(&group.backends()[0]);
            for _ in 0..20 {
                assert!(!group.failed(&last, Tick(0)), "{balance:?}");
            }
            assert_eq!(port(&group.pick(7, &[], Tick(0)).expect("it is asked")), 1, "{balance:?}");
            // Nor may its checks, as they may of any other that is alone.
            assert!(last.checked(false, thresholds, Tick(0)));
            let explained = group.explain(7, Tick(0));
            assert!(explained.is_panic && explained.next == Some(0), "{balance:?}: {explained:?}");
            assert_eq!(port(&group.pick(7, &[], Tick(0)).expect("it is asked")), 1, "{balance:?}");
        }
    }

    #[test]
    fn a_slow_backend_gets_less_by_latency() {
        let group = group(Balance::PeakEwma, &[1_000; 3]);
        group.succeeded(&group.backends()[1], 500 * 1_000_000, Tick(0));
        let picked =
            (0..300).filter(|key| port(&group.pick(*key, &[], Tick(1)).expect("there is room")) == 2);
        assert_eq!(picked.count(), 0, "of two choices the slow one is never the cheaper");
    }
}
