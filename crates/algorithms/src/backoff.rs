//! How long to wait before the next try of something that failed: twice as long each time, up to a bound, and a part
//! of it by chance, so that many who failed at once do not come back at once.

use std::time::Duration;

use crate::random::Random;

/// Tries that failed one after the other.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    random: Random,
}

impl Backoff {
    /// Waits from about `first` to at most `longest`; the seed decides the part that is chance.
    #[must_use]
    pub fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, failures: 0, random: Random::seeded(seed) }
    }

    /// The same after so many failures in a row.
    #[must_use]
    pub fn after(self, failures: u32) -> Self {
        Self { failures, ..self }
    }

    /// The wait after one more failure: from half of what is due to all of it.
    pub fn failed(&mut self) -> Duration {
        let due = self.first.saturating_mul(1 << self.failures.min(30)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        due.mul_f64(0.5 + 0.5 * self.random.unit())
    }

    /// It succeeded: the next failure is the first again.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// How many failures there were in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn waits_double_up_to_their_bound(seed: u64, failures in 1u32..100) {
            let (first, longest) = (Duration::from_millis(100), Duration::from_secs(30));
            let mut backoff = Backoff::new(first, longest, seed);
            for failure in 0..failures {
                let due = (first * 2u32.pow(failure.min(20))).min(longest);
                let wait = backoff.failed();
                prop_assert!(due.mul_f64(0.5) <= wait && wait <= due, "{wait:?} of {due:?}");
            }
            prop_assert_eq!(backoff.failures(), failures);
            backoff.succeeded();
            prop_assert!(backoff.failed() <= first);
        }
    }
}
