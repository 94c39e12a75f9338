//! Deltas on their way to a system that knows sums only, as Prometheus: each is added to those of its series before it.
//!
//! ```text
//!   deltas of a request ── Sums::add ── sums that would be ──┬─ the request was taken ── Sums::keep
//!                                                            └─ it was not ── the same lines come again, and make the same sums
//! ```
//!
//! A series begins with a 0 a millisecond before its first sum, so that its first delta is growth, too. It begins anew, at
//! 0, after a restart and where it was forgotten for want of room: a counter that falls has begun anew, so whoever asks for growth
//! misses nothing. So nothing has to be kept on the disk, and what a crash sends again is added once more only if the other
//! side takes samples that come late.
//!
//! Times of a series only grow: deltas of one time are one sample, and one that comes late counts a millisecond after the
//! newest. A request adds one such millisecond at most, however many deltas it has.
//!
//! | bound | value | reached |
//! |---|---|---|
//! | series | 100,000 | those that were not used for the longest time begin anew |

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Half of the series that are known: so many that were used last, and as many before them.
const HALF: usize = 50_000;

/// A sum, and the time of its last sample in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sum {
    value: f64,
    at: i64,
}

/// The sums of all series that go one way.
#[derive(Debug)]
pub struct Sums {
    half: usize,
    hasher: RandomState,
    recent: HashMap<u64, Sum>,
    before: HashMap<u64, Sum>,
    /// The sums of the request under way.
    changed: HashMap<u64, Sum>,
}

/// What one more delta makes of its series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Added {
    /// The series begins: a 0 at the first time, then the sum at the second.
    First([i64; 2]),
    /// One more sample, at this time.
    Sample(i64),
    /// The last sample has another value now.
    Same,
}

impl Sums {
    /// None yet. `hasher` tells series apart. It is random, so that a client cannot search for two series that are
    /// taken for one.
    #[must_use]
    pub fn new(hasher: RandomState) -> Self {
        let [recent, before, changed] = [(); 3].map(|()| HashMap::new());
        Self { half: HALF, hasher, recent, before, changed }
    }

    /// Forgets what the last request would have made, if it was not kept.
    pub(super) fn begin(&mut self) {
        self.changed.clear();
    }

    /// Which series these bytes stand for.
    pub(super) fn series(&self, labels: &[u8]) -> u64 {
        self.hasher.hash_one(labels)
    }

    /// Adds a delta of a time; what that makes, and the sum.
    pub(super) fn add(&mut self, series: u64, at: i64, delta: f64) -> (Added, f64) {
        if let Some(sum) = self.changed.get_mut(&series) {
            let added = if at > sum.at { Added::Sample(at) } else { Added::Same };
            *sum = Sum { value: sum.value + delta, at: at.max(sum.at) };
            return (added, sum.value);
        }
        let known = self.recent.get(&series).or_else(|| self.before.get(&series));
        let (added, sum) = match known {
            Some(known) => {
                let at = at.max(known.at.saturating_add(1));
                (Added::Sample(at), Sum { value: known.value + delta, at })
            }
            None => (Added::First([at.saturating_sub(1), at]), Sum { value: delta, at }),
        };
        self.changed.insert(series, sum);
        (added, sum.value)
    }

    /// Keeps what the last request made: the other side has taken it.
    pub fn keep(&mut self) {
        for (series, sum) in self.changed.drain() {
            if self.recent.len() == self.half && !self.recent.contains_key(&series) {
                self.before = std::mem::take(&mut self.recent);
            }
            self.recent.insert(series, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums() -> Sums {
        Sums::new(RandomState::new())
    }

    #[test]
    fn a_series_begins_at_zero_and_deltas_of_one_time_are_one_sample() {
        let mut sums = sums();
        sums.begin();
        assert_eq!(sums.add(1, 100, 3.0), (Added::First([99, 100]), 3.0));
        assert_eq!(sums.add(1, 100, 2.0), (Added::Same, 5.0));
        assert_eq!(sums.add(1, 90, 1.0), (Added::Same, 6.0), "it is late");
        assert_eq!(sums.add(1, 105, 4.0), (Added::Sample(105), 10.0));
        sums.keep();
        sums.begin();
        assert_eq!(sums.add(1, 105, 1.0), (Added::Sample(106), 11.0), "the time was sent");
        assert_eq!(sums.add(2, 7, 1.0), (Added::First([6, 7]), 1.0));
    }

    #[test]
    fn what_was_not_taken_makes_the_same_sums_again() {
        let mut sums = sums();
        for _ in 0..3 {
            sums.begin();
            assert_eq!(sums.add(1, 100, 3.0), (Added::First([99, 100]), 3.0));
        }
        sums.keep();
        for _ in 0..3 {
            sums.begin();
            assert_eq!(sums.add(1, 200, 3.0), (Added::Sample(200), 6.0));
        }
    }

    #[test]
    fn series_have_a_bound_and_those_in_use_go_on() {
        let mut sums = Sums { half: 10, ..sums() };
        for other in 0..100 {
            for series in [1_000, other] {
                sums.begin();
                sums.add(series, 100, 1.0);
                sums.keep();
            }
        }
        assert!(sums.recent.len() <= 10 && sums.before.len() <= 10);
        sums.begin();
        assert_eq!(sums.add(1_000, 1_000, 1.0), (Added::Sample(1_000), 101.0));
        assert_eq!(sums.add(0, 1_000, 1.0), (Added::First([999, 1_000]), 1.0), "it begins anew");
    }
}
