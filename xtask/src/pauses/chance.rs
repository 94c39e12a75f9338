//! Chance: what is stopped, when and for how long, all from one seed.
//!
//! The numbers are a hash of the seed and a counter, so xtask needs no generator and no dependency.
//! The same seed gives the same choices; it does not give the same run, since the threads that are
//! chosen among are where the machine has brought them.

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::time::Duration;

/// Mean time between two choices of a thread.
const BETWEEN: Duration = Duration::from_millis(20);
/// The shortest pause: shorter ones are what any scheduler does.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest pause: what a test must hold against.
pub(super) const LONGEST: Duration = Duration::from_secs(1);
/// A thread that is to be stopped at a system call passes at most so many stops before.
const CALLS: u64 = 8;

/// Where a thread that was chosen is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldPoint {
    /// Where it is.
    Here,
    /// At the entry to or the exit from a system call, after so many others.
    SystemCall(u64),
}

/// A seeded source of choices.
#[derive(Debug)]
pub(super) struct Chance {
    seed: u64,
    drawn: u64,
}

impl Chance {
    /// Choices of this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A seed that differs from run to run.
    pub(super) fn seed() -> u64 {
        RandomState::new().hash_one(0) % 1_000_000
    }

    /// A number below `end`, which is at least 1.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// Half of the threads are held where they are, half at a system call to come.
    pub(super) fn point(&mut self) -> HoldPoint {
        let drawn = self.next();
        if drawn.is_multiple_of(2) { HoldPoint::Here } else { HoldPoint::SystemCall(drawn / 2 % CALLS) }
    }

    /// Time until the next thread is chosen; exponential, so that no rhythm of the tests is met.
    pub(super) fn until_next(&mut self) -> Duration {
        BETWEEN.mul_f64(-self.unit().ln())
    }

    /// Length of a pause: each order of magnitude is as likely as the others.
    pub(super) fn length(&mut self) -> Duration {
        let span = LONGEST.as_secs_f64() / SHORTEST.as_secs_f64();
        SHORTEST.mul_f64(span.powf(self.unit()))
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, self.drawn).hash(&mut hasher);
        self.drawn += 1;
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_choices_again() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..100).map(|_| (chance.below(7), chance.point(), chance.length())).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn pauses_are_of_every_length_up_to_a_second() {
        let mut chance = Chance::new(1);
        let lengths: Vec<Duration> = (0..3_000).map(|_| chance.length()).collect();
        assert!(lengths.iter().all(|length| (SHORTEST..=LONGEST).contains(length)));
        let share = |from: u64, to: u64| {
            let of = Duration::from_millis(from)..Duration::from_millis(to);
            lengths.iter().filter(|length| of.contains(length)).count()
        };
        for decade in [share(1, 10), share(10, 100), share(100, 1_000)] {
            assert!((800..1_200).contains(&decade), "{decade} of 3,000");
        }
    }
}
