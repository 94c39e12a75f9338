//! Which backend a request or a connection goes to, as functions of what is known of the backends.
//!
//! ```text
//!   backends --> may be used at all: health, ejection, drain     (eligibility)
//!            --> how much of its weight counts: slow start       (slow_start)
//!            --> one of them: round_robin, least, p2c, ring,     (the policy)
//!                             region, by place or by round_trip
//!   after a failure: may it be tried again?                      (budget)
//! ```
//!
//! The functions take the backends as an index range and closures, so that the caller can keep
//! loads in atomics and hand out no copies: a pick allocates nothing. Whoever calls them owns the
//! state; the same state, random numbers and time give the same pick.
//!
//! Deliberately absent: addresses, connections, and counting what is in flight.

pub mod affinity;
pub mod budget;
pub mod eligibility;
pub mod ewma;
pub mod region;
pub mod ring;
pub mod round_trip;
pub mod slow_start;

use crate::random::Random;

/// Smooth weighted round robin: each backend is picked in proportion to its weight, and its picks
/// are spread out (weights 5, 1, 1 give a a b a c a a). This is the method of nginx.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    credit: Vec<f64>,
}

impl RoundRobin {
    /// What the backend at `index` has saved up: the one with the most, after all got their shares, is next.
    #[must_use]
    pub fn credit(&self, index: usize) -> f64 {
        self.credit.get(index).copied().unwrap_or_default()
    }

    /// The next of `count` backends; `weight` is 0 for those that are not to be picked. `None`: all are
    /// 0. Takes a step per backend.
    pub fn pick(&mut self, count: usize, weight: impl Fn(usize) -> f64) -> Option<usize> {
        self.credit.resize(count, 0.0);
        let (mut total, mut best): (f64, Option<usize>) = (0.0, None);
        for index in 0..count {
            let share = weight(index);
            if share <= 0.0 {
                continue;
            }
            total += share;
            self.credit[index] += share;
            if best.is_none_or(|best| self.credit[index] > self.credit[best]) {
                best = Some(index);
            }
        }
        self.credit[best?] -= total;
        best
    }
}

/// The backend with the least load for its weight, `(in flight + 1) / weight`; of several, the first
/// from `start` on, so that a caller who counts `start` up spreads ties. `None`: all weights are 0.
pub fn least(
    count: usize,
    start: usize,
    weight: impl Fn(usize) -> f64,
    in_flight: impl Fn(usize) -> u32,
) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for step in 0..count {
        let index = (start % count + step) % count;
        let share = weight(index);
        if share <= 0.0 {
            continue;
        }
        let load = (f64::from(in_flight(index)) + 1.0) / share;
        if best.is_none_or(|(_, least)| load < least) {
            best = Some((index, load));
        }
    }
    best.map(|(index, _)| index)
}

/// Power of two choices: the cheaper of two backends drawn by weight. With random draws no herd forms on
/// the backend that looked best a moment ago (M. Mitzenmacher, "The power of two choices in randomized
/// load balancing", 2001). `cost` is smaller for better. `None`: all weights are 0.
pub fn two_choices(
    count: usize,
    random: &mut Random,
    weight: impl Fn(usize) -> f64,
    cost: impl Fn(usize) -> f64,
) -> Option<usize> {
    let first = draw(count, random, &weight, None)?;
    let Some(second) = draw(count, random, &weight, Some(first)) else { return Some(first) };
    Some(if cost(second) < cost(first) { second } else { first })
}

/// A backend drawn in proportion to its weight, `except` one.
fn draw(
    count: usize,
    random: &mut Random,
    weight: &impl Fn(usize) -> f64,
    except: Option<usize>,
) -> Option<usize> {
    let share = |index: usize| if Some(index) == except { 0.0 } else { weight(index).max(0.0) };
    let total: f64 = (0..count).map(share).sum();
    if total <= 0.0 {
        return None;
    }
    let mut left = random.unit() * total;
    let mut last = None;
    for index in 0..count {
        let share = share(index);
        if share <= 0.0 {
            continue;
        }
        last = Some(index);
        left -= share;
        if left < 0.0 {
            break;
        }
    }
    // Rounding may leave a rest: then it is the last one.
    last
}

#[cfg(test)]
mod tests;
