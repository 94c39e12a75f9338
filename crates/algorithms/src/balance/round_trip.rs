//! How far a backend is, by the round trips that connecting to it took.
//!
//! ```text
//!   connect times ──> median of the last three ──> moving average ──> tier, with a margin
//! ```
//!
//! The median leaves single long ones out: when the first packet of a connection is lost, connecting takes a second
//! more and says nothing of the distance. The average moves by an eighth of the difference, as TCP's own does
//! (RFC 6298). A backend leaves the tier that it has only when its average is a tenth beyond the bound, so that one
//! right at a bound does not change its tier with every connection.
//!
//! What is older than [`FRESH`] does not count: the backend is then placed as if it had never been measured.
//!
//! Deliberately absent: measuring, and the distance from clients to this node, which is the same for all backends.

use super::region::Tier;
use crate::time::{SECOND, Tick};

/// How long a measurement counts: ten minutes, in nanoseconds.
pub const FRESH: u64 = 600 * SECOND;

/// How much of the difference the average moves by.
const GAIN: f64 = 0.125;

/// How far beyond a bound the average has to be for a change of tier.
const MARGIN: f64 = 0.1;

/// The round trip to one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrip {
    /// The last three, in turns.
    recent: [u64; 3],
    count: u64,
    average: f64,
    heard: Tick,
}

impl RoundTrip {
    /// Takes a round trip of so many nanoseconds.
    pub fn observe(&mut self, nanos: u64, now: Tick) {
        if now.since(self.heard) > FRESH {
            *self = Self::default();
        }
        self.recent[(self.count % 3) as usize] = nanos;
        self.count = self.count.saturating_add(1);
        self.heard = self.heard.max(now);
        if self.count < 3 {
            return;
        }
        let mut sorted = self.recent;
        sorted.sort_unstable();
        let median = sorted[1] as f64;
        self.average = if self.count == 3 { median } else { self.average + GAIN * (median - self.average) };
    }

    /// The average in nanoseconds; `None` before the third measurement, and when the last one is too old.
    #[must_use]
    pub fn nanos(&self, now: Tick) -> Option<f64> {
        (self.count >= 3 && now.since(self.heard) <= FRESH).then_some(self.average)
    }
}

/// Below which round trips a backend is of the first, second and third tier; beyond them it is of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierBounds([u64; 3]);

impl TierBounds {
    /// Bounds in nanoseconds. `None`: each must be more than the one before, and the first more than 0.
    #[must_use]
    pub fn new(nanos: [u64; 3]) -> Option<Self> {
        (0 < nanos[0] && nanos[0] < nanos[1] && nanos[1] < nanos[2]).then_some(Self(nanos))
    }

    /// The bounds in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> [u64; 3] {
        self.0
    }

    /// The tier of a backend at a round trip of so many nanoseconds that was of the tier `last` before.
    #[must_use]
    pub fn tier(&self, nanos: f64, last: Option<Tier>) -> Tier {
        let mut tier = Tier::ALL[0];
        for (bound, (inside, beyond)) in self.0.iter().zip(Tier::ALL.into_iter().zip(Tier::ALL[1..].iter())) {
            let margin = match last {
                None => 0.0,
                Some(last) if last <= inside => MARGIN,
                Some(_) => -MARGIN,
            };
            if nanos >= *bound as f64 * (1.0 + margin) {
                tier = *beyond;
            }
        }
        tier
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn bounds() -> TierBounds {
        TierBounds::new([10 * MS, 40 * MS, 100 * MS]).expect("they rise")
    }

    fn after(nanos: &[u64]) -> RoundTrip {
        let mut measured = RoundTrip::default();
        nanos.iter().for_each(|nanos| measured.observe(*nanos, Tick(5)));
        measured
    }

    #[test]
    fn bounds_rise() {
        assert_eq!(bounds().nanos(), [10 * MS, 40 * MS, 100 * MS]);
        for wrong in [[0, 1, 2], [1, 1, 2], [1, 3, 2]] {
            assert_eq!(TierBounds::new(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn nothing_is_known_before_the_third_measurement_and_after_ten_minutes() {
        assert_eq!(after(&[]).nanos(Tick(5)), None);
        assert_eq!(after(&[7, 7]).nanos(Tick(5)), None);
        let mut measured = after(&[7, 9, 8]);
        assert_eq!(measured.nanos(Tick(5 + FRESH)), Some(8.0));
        assert_eq!(measured.nanos(Tick(6 + FRESH)), None);
        measured.observe(1, Tick(6 + FRESH));
        assert_eq!(measured.nanos(Tick(6 + FRESH)), None, "what is known begins anew");
    }

    #[test]
    fn a_lost_packet_now_and_then_moves_nothing_and_a_longer_way_does() {
        let second = 1_000 * MS;
        let lost = after(&[5 * MS, 5 * MS, second, 5 * MS, 5 * MS, second, 5 * MS]);
        assert_eq!(lost.nanos(Tick(5)), Some(5.0 * MS as f64));
        let mut moved = after(&[5 * MS; 3]);
        (0..60).for_each(|_| moved.observe(90 * MS, Tick(5)));
        let nanos = moved.nanos(Tick(5)).expect("it is measured");
        assert!((89.0 * MS as f64..90.0 * MS as f64).contains(&nanos), "{nanos}");
    }

    #[test]
    fn tiers_are_those_of_the_bounds_and_are_left_with_a_margin() {
        let tier = |millis: f64, last| bounds().tier(millis * MS as f64, last);
        for (millis, expected) in
            [(0.0, 0), (9.9, 0), (10.0, 1), (39.9, 1), (40.0, 2), (99.9, 2), (100.0, 3), (9e9, 3)]
        {
            assert_eq!(tier(millis, None), Tier::ALL[expected], "{millis}");
        }
        let [first, second, third, last] = Tier::ALL;
        assert_eq!((tier(10.9, Some(first)), tier(11.1, Some(first))), (first, second));
        assert_eq!((tier(9.1, Some(second)), tier(8.9, Some(second))), (second, first));
        assert_eq!((tier(10.9, Some(last)), tier(36.5, Some(last))), (second, third));
    }

    proptest! {
        /// Whatever came, the average lies within what came, and the tier does not fall when it rises.
        #[test]
        fn averages_lie_within_what_came(
            nanos in proptest::collection::vec(0_u64..10_000 * MS, 3..40), more in 0_u64..1_000 * MS,
        ) {
            let (least, most) = (*nanos.iter().min().expect("some"), *nanos.iter().max().expect("some"));
            let average = after(&nanos).nanos(Tick(5)).expect("three came");
            prop_assert!((least as f64 - 1.0..=most as f64 + 1.0).contains(&average), "{average}");
            for last in [None, Some(Tier::Country), Some(Tier::Region), Some(Tier::Node), Some(Tier::Elsewhere)] {
                prop_assert!(bounds().tier(average, last) <= bounds().tier(average + more as f64, last));
            }
        }
    }
}
