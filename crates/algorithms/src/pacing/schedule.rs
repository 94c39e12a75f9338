//! The due times of an open loop, one after the other.
//!
//! Even arrivals fall where the profile's mass is 0, 1, 2, ...; a Poisson process falls where it is
//! a sum of exponential gaps (time change of a process of rate 1), so any profile can have either.
//! Threads share a schedule without talking: thread `i` of `n` takes the even hits `i, i + n, ...`,
//! or a Poisson process of its own at a share of the rate (their union is the whole process).

use super::{Pace, Profile};
use crate::{random::Random, time::SECOND};

/// How arrivals fall around the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Equal gaps.
    Even,
    /// Exponential gaps, repeatable by their seed.
    Poisson {
        /// Equal seeds give equal runs.
        seed: u64,
    },
}

/// An open loop's due times, or one thread's share of them.
#[derive(Clone, Debug)]
pub struct Schedule {
    profile: Profile,
    gaps: Option<Random>,
    stride: f64,
    /// Mass at which the next hit falls, counted from the start of the current piece.
    mass: f64,
    piece: usize,
    piece_start: f64,
    next: Option<u64>,
}

impl Schedule {
    /// The whole schedule.
    #[must_use]
    pub fn new(profile: Profile, arrivals: Arrivals) -> Self {
        Self::share(profile, arrivals, 0, 1)
    }

    /// The share of thread `index` out of `shares` (at least 1).
    #[must_use]
    pub fn share(profile: Profile, arrivals: Arrivals, index: u32, shares: u32) -> Self {
        let stride = f64::from(shares.max(1));
        let (gaps, mass) = match arrivals {
            Arrivals::Even => (None, f64::from(index)),
            Arrivals::Poisson { seed } => {
                // One draw decorrelates neighbouring seeds.
                let mut random = Random::seeded(Random::seeded(seed ^ (u64::from(index) << 40)).bits());
                let first = random.exponential() * stride;
                (Some(random), first)
            }
        };
        let mut schedule = Self { profile, gaps, stride, mass, piece: 0, piece_start: 0.0, next: None };
        schedule.next = schedule.locate();
        schedule
    }

    /// When the next hit is due, in nanoseconds since the start; `None` after the last.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        self.next
    }

    /// What to do at `elapsed` nanoseconds. The hit is only taken by [`Schedule::advance`].
    #[must_use]
    pub fn pace(&self, elapsed: u64) -> Pace {
        match self.next {
            None => Pace::Stop,
            Some(planned) if planned <= elapsed => Pace::Send { planned },
            Some(planned) => Pace::Wait(planned - elapsed),
        }
    }

    /// Takes the hit that [`Schedule::due`] names.
    pub fn advance(&mut self) {
        self.mass += match &mut self.gaps {
            None => self.stride,
            Some(random) => random.exponential() * self.stride,
        };
        self.next = self.locate();
    }

    fn locate(&mut self) -> Option<u64> {
        while let Some(segment) = self.profile.segments().get(self.piece) {
            let whole = segment.mass();
            if self.mass < whole {
                let seconds = self.piece_start + segment.seconds_at(self.mass);
                return Some((seconds * SECOND as f64) as u64);
            }
            self.mass -= whole;
            self.piece_start += segment.seconds;
            self.piece += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hits(mut schedule: Schedule) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(due) = schedule.due() {
            all.push(due);
            schedule.advance();
        }
        all
    }

    #[test]
    fn a_constant_rate_has_equal_gaps() {
        let all = hits(Schedule::new(Profile::constant(1_000.0, 0.01).unwrap(), Arrivals::Even));
        assert_eq!(all, (0..10).map(|k| k * 1_000_000).collect::<Vec<u64>>());
    }

    #[test]
    fn pace_waits_then_sends_then_stops() {
        let mut schedule = Schedule::new(Profile::constant(10.0, 0.2).unwrap(), Arrivals::Even);
        assert_eq!(schedule.pace(0), Pace::Send { planned: 0 });
        schedule.advance();
        assert_eq!(schedule.pace(40_000_000), Pace::Wait(60_000_000));
        assert_eq!(
            schedule.pace(900_000_000),
            Pace::Send { planned: 100_000_000 },
            "late takes the old time"
        );
        schedule.advance();
        assert_eq!(schedule.pace(900_000_000), Pace::Stop);
    }

    #[test]
    fn poisson_counts_have_equal_mean_and_variance() {
        let profile = Profile::constant(1_000.0, 200.0).unwrap();
        let mut counts = [0f64; 2_000];
        for due in hits(Schedule::new(profile, Arrivals::Poisson { seed: 3 })) {
            counts[(due / 100_000_000) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 2_000.0;
        let variance = counts.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2_000.0;
        assert!((mean - 100.0).abs() < 1.0, "mean {mean}");
        assert!((variance / mean - 1.0).abs() < 0.15, "dispersion {}", variance / mean);
    }

    #[test]
    fn poisson_is_a_function_of_its_seed() {
        let run =
            |seed| hits(Schedule::new(Profile::ramp(10.0, 500.0, 2.0).unwrap(), Arrivals::Poisson { seed }));
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }

    proptest! {
        #[test]
        fn even_hits_follow_the_profile(pieces in prop::collection::vec((0.0f64..2_000.0, 0.0f64..2_000.0, 0.01f64..1.0), 1..5)) {
            let segments = pieces.iter().map(|&(from, to, seconds)| super::super::Segment { from, to, seconds });
            let profile = Profile::new(segments.collect()).unwrap();
            let all = hits(Schedule::new(profile.clone(), Arrivals::Even));
            prop_assert!((all.len() as f64 - profile.total()).abs() <= 1.001, "{} of {}", all.len(), profile.total());
            for (k, pair) in all.windows(2).enumerate() {
                prop_assert!(pair[0] <= pair[1]);
                let mass = profile.mass_at(pair[0] as f64 / SECOND as f64);
                prop_assert!((mass - k as f64).abs() < 0.01, "hit {k} at mass {mass}");
            }
        }

        #[test]
        fn shares_add_up_to_the_whole(rate in 1.0f64..5_000.0, shares in 1u32..9) {
            let profile = Profile::constant(rate, 0.5).unwrap();
            let whole = hits(Schedule::new(profile.clone(), Arrivals::Even));
            let mut union: Vec<u64> = (0..shares)
                .flat_map(|index| hits(Schedule::share(profile.clone(), Arrivals::Even, index, shares)))
                .collect();
            union.sort_unstable();
            prop_assert_eq!(whole, union);
        }

        #[test]
        fn poisson_shares_keep_the_rate(seed: u64, shares in 1u32..9) {
            let profile = Profile::constant(4_000.0, 1.0).unwrap();
            let count: usize = (0..shares)
                .map(|index| hits(Schedule::share(profile.clone(), Arrivals::Poisson { seed }, index, shares)).len())
                .sum();
            // Six standard deviations of a Poisson count of 4,000.
            prop_assert!((count as f64 - 4_000.0).abs() < 380.0, "{count} hits");
        }
    }
}
