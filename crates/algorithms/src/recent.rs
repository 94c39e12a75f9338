//! How long the last replies took, and the time within which almost all of them came.
//!
//! The last [`KEPT`] times are kept, and the percentile is looked up anew after each [`EVERY`] of them: a sort of a few
//! hundred numbers, some nanoseconds a reply. There is no clock and no decay: new times push out old ones.

/// Times that are kept.
pub const KEPT: usize = 256;
/// Times between two looks.
const EVERY: usize = 32;
/// Times before anything is said.
pub const LEAST: usize = 128;

/// The last times, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct RecentTimes {
    kept: Vec<u32>,
    next: usize,
    slow: Option<u32>,
}

impl RecentTimes {
    /// Adds a time.
    pub fn add(&mut self, micros: u64) {
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        match self.kept.get_mut(self.next) {
            Some(oldest) => *oldest = micros,
            None => self.kept.push(micros),
        }
        self.next = (self.next + 1) % KEPT;
        if self.kept.len() >= LEAST && self.next.is_multiple_of(EVERY) {
            self.slow = Some(slow(self.kept.clone()));
        }
    }

    /// The microseconds that 95 of a hundred took at most, once there were [`LEAST`].
    #[must_use]
    pub fn slow(&self) -> Option<u64> {
        self.slow.map(u64::from)
    }
}

/// The 95th percentile by the nearest rank.
fn slow(mut times: Vec<u32>) -> u32 {
    let rank = (times.len() * 95).div_ceil(100).max(1) - 1;
    *times.select_nth_unstable(rank).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_said_of_a_few() {
        let mut times = RecentTimes::default();
        for _ in 1..LEAST {
            times.add(1);
            assert_eq!(times.slow(), None);
        }
        times.add(1);
        assert_eq!(times.slow(), Some(1));
        times.add(u64::MAX);
        assert_eq!(times.slow(), Some(1));
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let mut times = RecentTimes::default();
        (0..10 * KEPT).for_each(|_| times.add(1_000_000));
        (0..KEPT).for_each(|_| times.add(10));
        assert_eq!(times.slow(), Some(10));
    }

    proptest! {
        /// At most 5 % of the times are longer than the time that is returned, and at most 95 % are shorter.
        #[test]
        fn at_most_a_twentieth_are_longer(given in prop::collection::vec(0_u64..5_000, LEAST..3 * KEPT)) {
            let mut times = RecentTimes::default();
            let mut looked = 0;
            for (index, micros) in given.iter().enumerate() {
                times.add(*micros);
                if (index + 1) % EVERY == 0 {
                    looked = index + 1;
                }
            }
            let last = &given[looked.saturating_sub(KEPT)..looked];
            let slow = times.slow().expect("there were enough");
            let longer = last.iter().filter(|it| **it > slow).count();
            let shorter = last.iter().filter(|it| **it < slow).count();
            prop_assert!(longer * 20 <= last.len() && shorter * 100 < last.len() * 95, "{longer} {shorter}");
        }
    }
}
