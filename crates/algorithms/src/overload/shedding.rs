//! Shedding: when a process cannot keep up, it refuses the requests of least priority first.
//!
//! ```text
//!   how late a core comes to what is ready ──> least delay of an interval ── above the target, or longer than the last ─> the level rises
//!                                                                         `─ below it, or shorter than the last ───────> it falls
//!
//!   level   0 ────────── 1 ────────── 2 ────────── 3
//!           low refused  normal refused  critical refused: of each, the part by which the level is beyond its beginning
//! ```
//!
//! As CoDel (RFC 8289) does, it goes by the least delay of an interval: a queue that is empty at times absorbs bursts, one
//! that never is only makes everybody late. So a process that stood still once, or that a quota stops in every period, is
//! not overloaded for that. CPU use says nothing: a core can be busy and in time.
//!
//! As in PIE (RFC 8033) the level follows both the delay and its trend. A queue that has built up takes time to be worked off: a level
//! that went by the delay alone would rise until it is, and refuse much too much by then.
//!
//! Invariants: nothing of a priority is refused before everything of the lower ones is; the most important priority is
//! never refused altogether.

use crate::time::{SECOND, Tick};

/// An interval lasts so long, in nanoseconds, and until it has [`LEAST_SAMPLES`].
pub const INTERVAL: u64 = SECOND / 10;
/// Delays that an interval's least is taken of.
pub const LEAST_SAMPLES: u32 = 3;

/// The level at which all is refused that may be.
const HIGHEST: f64 = 2.95;
/// How much the level rises in an interval for each target that its least delay is beyond the target, and falls without a delay.
const STEP: f64 = 0.02;
/// Most targets beyond that count.
const MOST_BEYOND: f64 = 3.0;
/// How much it rises or falls for each target by which the least delay differs from that of the last interval.
const TREND: f64 = 0.1;
/// Longer delays are alike, in targets.
const MOST_DELAY: f64 = 6.0;
/// The intervals that one look stands for, at most.
const MOST_INTERVALS: f64 = 10.0;

/// How much a request matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Refused first.
    Low,
    /// Refused when everything low is.
    #[default]
    Normal,
    /// Refused last, and never altogether.
    Critical,
}

impl Priority {
    /// All of them, from the first to be refused.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::Critical];

    /// The word for it in configuration and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::Critical => "critical",
        }
    }

    /// Which part of such requests is refused at `level`, from 0 to 1.
    #[must_use]
    pub fn refused(self, level: f64) -> f64 {
        (level - f64::from(self as u8)).clamp(0.0, 1.0)
    }
}

/// How much is refused, by how late a core is.
#[derive(Clone, Copy, Debug)]
pub struct Shedding {
    target: u64,
    level: f64,
    since: Option<Tick>,
    least: u64,
    samples: u32,
    /// The least delay of the last interval, in targets.
    last: f64,
}

impl Shedding {
    /// A shedding that refuses nothing, until the delay stays above `target` nanoseconds.
    #[must_use]
    pub fn new(target: u64) -> Self {
        Self { target: target.max(1), level: 0.0, since: None, least: u64::MAX, samples: 0, last: 0.0 }
    }

    /// How much is refused, from 0 to 3: see [`Priority::refused`].
    #[must_use]
    pub fn level(&self) -> f64 {
        self.level
    }

    /// Something that was ready was come to `delay` nanoseconds later. The least delay of an interval, when one is over.
    pub fn delayed(&mut self, delay: u64, now: Tick) -> Option<u64> {
        let since = *self.since.get_or_insert(now);
        self.least = self.least.min(delay);
        self.samples += 1;
        if self.samples < LEAST_SAMPLES || now.since(since) < INTERVAL {
            return None;
        }
        let delay = (self.least as f64 / self.target as f64).min(MOST_DELAY);
        // A core that is very late looks seldom: what it would have said in between is made up for.
        let intervals = (now.since(since) as f64 / INTERVAL as f64).min(MOST_INTERVALS);
        let step = STEP * (delay - 1.0).min(MOST_BEYOND) * intervals;
        self.level = (self.level + step + TREND * (delay - self.last)).clamp(0.0, HIGHEST);
        self.last = delay;
        let least = self.least;
        (self.since, self.least, self.samples) = (Some(now), u64::MAX, 0);
        Some(least)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = SECOND / 1_000;

    /// Delays every 10 ms for so long.
    fn run(shedding: &mut Shedding, now: &mut u64, seconds: f64, mut delay: impl FnMut(f64, u64) -> u64) {
        let end = *now + (seconds * SECOND as f64) as u64;
        while *now < end {
            let late = delay(shedding.level(), *now);
            *now += 10 * MS + late;
            shedding.delayed(late, Tick(*now));
        }
    }

    #[test]
    fn lower_priorities_are_refused_first_and_let_in_again_last() {
        let (mut shedding, mut now) = (Shedding::new(10 * MS), SECOND);
        let mut levels = Vec::new();
        run(&mut shedding, &mut now, 6.0, |level, _| {
            levels.push(level);
            30 * MS
        });
        assert!(levels.is_sorted() && shedding.level() > 2.0, "{levels:?}");
        for level in levels {
            let [low, normal, critical] = Priority::ALL.map(|it| it.refused(level));
            assert!(low == 1.0 || normal == 0.0, "{level}");
            assert!((normal == 1.0 || critical == 0.0) && critical < 1.0, "{level}");
        }
        run(&mut shedding, &mut now, 30.0, |_, _| 0);
        assert_eq!(shedding.level(), 0.0);
    }

    #[test]
    fn a_core_that_is_seconds_late_refuses_in_seconds_and_not_in_minutes() {
        let (mut shedding, mut now) = (Shedding::new(20 * MS), SECOND);
        run(&mut shedding, &mut now, 12.0, |_, _| SECOND);
        assert!(shedding.level() > 2.0, "{}", shedding.level());
    }

    #[test]
    fn a_process_that_stands_still_at_times_refuses_nothing() {
        // Stopped for 60 of every 100 ms, as by a quota, or for a second once in a while.
        for (period, stop) in [(100 * MS, 60 * MS), (3 * SECOND, SECOND)] {
            let (mut shedding, mut now) = (Shedding::new(5 * MS), SECOND);
            run(&mut shedding, &mut now, 30.0, |level, now| {
                assert_eq!(level, 0.0, "at {now}");
                if now % period < 10 * MS { stop } else { 0 }
            });
        }
    }

    /// What part of what a core can do is done from `from` to `to` seconds after twice as much began to come in, half of it low and
    /// half of it of `other`, and the longest delay then. A refusal costs a tenth.
    fn twice_too_much(other: Priority, from: f64, to: f64) -> (f64, f64) {
        let (mut shedding, mut now, mut queue) = (Shedding::new(10 * MS), SECOND, 0.0_f64);
        let mut done = Vec::new();
        run(&mut shedding, &mut now, to, |level, now| {
            let refused = f64::midpoint(Priority::Low.refused(level), other.refused(level));
            let cost = 2.0 * (1.0 - refused) + 2.0 * refused * 0.1;
            // What was let in and waits is done while less comes in.
            let spare = queue / 10.0;
            let used = (cost + spare).min(1.0);
            queue = (queue + (cost - 1.0) * 10.0).clamp(0.0, 2_000.0);
            if now as f64 / SECOND as f64 > 1.0 + from {
                done.push((used - 2.0 * refused * 0.1, queue));
            }
            (queue * MS as f64) as u64
        });
        let mean = done.iter().map(|(done, _)| done).sum::<f64>() / done.len() as f64;
        (mean, done.iter().map(|(_, queue)| *queue).fold(0.0, f64::max))
    }

    #[test]
    fn settles_where_what_is_let_in_is_what_can_be_done() {
        // Refusing costs a ninth of what can be done.
        for other in [Priority::Normal, Priority::Critical] {
            let (mean, longest) = twice_too_much(other, 30.0, 60.0);
            assert!(mean > 0.85, "{other:?}: {mean} of what can be done");
            assert!(longest < 100.0, "{other:?}: {longest} ms late");
        }
    }

    #[test]
    fn refuses_no_more_than_must_be_while_a_queue_is_worked_off() {
        for other in [Priority::Normal, Priority::Critical] {
            let (mean, _) = twice_too_much(other, 3.0, 8.0);
            assert!(mean > 0.75, "{other:?}: {mean} of what can be done");
        }
    }

    proptest! {
        /// Whatever the delays, nothing of a priority is refused before all of the lower ones.
        #[test]
        fn the_order_always_holds(delays in prop::collection::vec(0_u64..SECOND, 1..500), target in 0_u64..SECOND) {
            let (mut shedding, mut now) = (Shedding::new(target), 0);
            for delay in delays {
                now += delay + MS;
                shedding.delayed(delay, Tick(now));
                let [low, normal, critical] = Priority::ALL.map(|it| it.refused(shedding.level()));
                prop_assert!((low == 1.0 || normal == 0.0) && (normal == 1.0 || critical == 0.0) && critical < 1.0);
            }
        }
    }
}
