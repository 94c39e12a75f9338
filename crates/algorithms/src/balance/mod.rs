//! Balancing: functions that choose a backend for a request or a connection from what is known of the backends.
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
//! loads in atomics and hand out no copies: a pick allocates nothing. The caller owns the state; the same state,
//! random numbers and time give the same pick.
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

/// The backend with the least load for its weight, `in flight / weight`. Backends tie while there are few requests: a caller
/// that counts `turn` up then picks them in proportion to their weights. `None`: all weights are 0.
///
/// A tie is decided by the fraction of `turn` times the golden ratio. Such fractions are spread as evenly over all backends as
/// over any of them (D. Knuth, "The Art of Computer Programming", 6.4), so that nothing is kept between picks.
pub fn least(
    count: usize,
    turn: u64,
    weight: impl Fn(usize) -> f64,
    in_flight: impl Fn(usize) -> u32,
) -> Option<usize> {
    // 2^64 divided by the golden ratio.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let load = |index: usize| f64::from(in_flight(index)) / weight(index);
    let has_weight = |index: &usize| weight(*index) > 0.0;
    let (first, lowest) = (0..count)
        .filter(has_weight)
        .map(|index| (index, load(index)))
        .reduce(|best, next| if next.1 < best.1 { next } else { best })?;
    let ties = || (0..count).filter(has_weight).filter(|index| load(*index) <= lowest);
    let total: f64 = ties().map(&weight).sum();
    #[expect(clippy::cast_precision_loss, reason = "a fraction of 53 bits")]
    let mut left = turn.wrapping_mul(GOLDEN) as f64 / 2_f64.powi(64) * total;
    // Loads may grow while they are read: the first is left then.
    let next = ties().find(|index| {
        left -= weight(*index);
        left < 0.0
    });
    Some(next.unwrap_or(first))
}

/// By how much the first of two choices may cost more than the second and is still taken: costs of equals differ by chance, and
/// who always takes the lower one takes no note of weights.
const ALIKE: f64 = 2.0;

/// Power of two choices: of two backends drawn by weight the first, unless the second is clearly cheaper. With random draws no herd
/// forms on the backend that looked best a moment ago (M. Mitzenmacher, "The power of two choices in randomized load
/// balancing", 2001). `cost` is smaller for better. `None`: all weights are 0.
pub fn two_choices(
    count: usize,
    random: &mut Random,
    weight: impl Fn(usize) -> f64,
    cost: impl Fn(usize) -> f64,
) -> Option<usize> {
    let first = draw(count, random, &weight, None)?;
    let Some(second) = draw(count, random, &weight, Some(first)) else { return Some(first) };
    Some(if cost(second) * ALIKE < cost(first) { second } else { first })
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
