//! Explanations: the backend that would be next, and why it is not another. Explaining takes no place.

use std::sync::atomic::Ordering::Relaxed;

use tidegate_algorithms::balance::{least, two_choices};
use tidegate_algorithms::time::Tick;

use super::{Balance, Group, Standing, average};
use crate::backend::BackendStatus;

/// What a pick would look at of one backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// What is known of it.
    pub status: BackendStatus,
    /// Whether health and ejection let it be used.
    pub is_usable: bool,
    /// Whether it carries as much as it may.
    pub is_full: bool,
    /// Its weight, less while it starts slowly; 0: it is not picked. A full backend is passed over.
    pub share: f64,
    /// What is compared. By turns it is the credit: the highest is next. Otherwise it is the load: the lowest is
    /// next.
    pub score: f64,
}

/// What a pick would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// Every backend, in the group's order.
    pub candidates: Vec<Candidate>,
    /// Whether none is usable, so that others count, too.
    pub is_panic: bool,
    /// The position of the one that would be next.
    pub next: Option<usize>,
}

impl Group {
    /// What [`Group::pick`] would do now for `key`, as if nothing was tried before. Nothing changes by it.
    #[must_use]
    pub fn explain(&self, key: u64, now: Tick) -> Pick {
        let count = self.backends.len();
        let standing = self.standing(now);
        // Copies of what a pick moves on, so that the answer is the one that it would give.
        let mut turn = self.turn.lock().clone();
        let mut random = self.random.lock().clone();
        let mut picks = self.picks.load(Relaxed);
        let full_share = |index: usize| {
            let backend = &self.backends[index];
            f64::from(backend.settings().weight) * backend.share(self.settings.slow_start, now)
        };
        let share = |index: usize| {
            if standing.counts(&self.backends[index], now) { full_share(index) } else { 0.0 }
        };
        let average = average(count, share);
        let candidate = |index: usize| {
            let backend = &self.backends[index];
            let (status, is_usable) = (backend.status(now), backend.is_usable(now));
            let is_full = status.in_flight >= backend.settings().hard_limit;
            let requests = f64::from(status.in_flight);
            // Backends of weight 0 have a score, too, which is not compared.
            let weight = full_share(index).max(f64::EPSILON);
            let score = match self.settings.balance {
                Balance::RoundRobin => turn.credit(index) + share(index),
                Balance::LeastRequests => requests / weight,
                Balance::PeakEwma => backend.cost(weight / average, now),
                Balance::RingHash => requests / f64::from(backend.settings().weight).max(f64::EPSILON),
            };
            Candidate { status, is_usable, is_full, share: share(index), score }
        };
        let candidates: Vec<Candidate> = (0..count).map(candidate).collect();
        // As a pick does it: one that is full is found out when it is chosen, and then another one is.
        let mut passed = Vec::new();
        let next = loop {
            let weight = |index: usize| if passed.contains(&index) { 0.0 } else { candidates[index].share };
            let chosen = match self.settings.balance {
                Balance::RoundRobin => turn.pick(count, weight),
                Balance::LeastRequests => {
                    least(count, picks, weight, |index| candidates[index].status.in_flight)
                }
                Balance::PeakEwma => two_choices(count, &mut random, weight, |index| candidates[index].score),
                Balance::RingHash => self.pick_on_ring(key, weight),
            };
            match chosen {
                Some(index) if candidates[index].is_full => passed.push(index),
                chosen => break chosen,
            }
            picks += 1;
        };
        Pick { candidates, is_panic: standing != Standing::Usable, next }
    }
}
