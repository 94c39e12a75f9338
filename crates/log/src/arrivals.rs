//! When lines came, by their offsets: a mark a second at most, and fewer of long ago.
//!
//! A line says its own time, which its sender states: of a backfill it is years ago, and of a sender whose clock is
//! wrong it is tomorrow. How long a line has waited here is told by these marks. They are on the clock that never
//! goes back; lines of an earlier process count as if they had come when their segment was last written to.

use std::time::{Duration, Instant};

/// Most marks; before there are more, those that are close to the one before them go.
const MARKS: usize = 4_096;
/// Least time between two marks.
const GAP: Duration = Duration::from_secs(1);

/// Offsets, and when the lines from there on came; in order.
#[derive(Debug, Default)]
pub(crate) struct LineArrivals {
    marks: Vec<(u64, Instant)>,
}

impl LineArrivals {
    /// Notes that lines from `first` on have come at `now`; `oldest` is the first that is kept.
    pub(crate) fn note(&mut self, first: u64, now: Instant, oldest: u64) {
        if self.marks.last().is_some_and(|(_, last)| now.saturating_duration_since(*last) < GAP) {
            return;
        }
        if self.marks.len() >= MARKS {
            self.thin(oldest);
        }
        self.marks.push((first, now));
    }

    /// When the line at `offset` came, or the one of a mark before it.
    pub(crate) fn of(&self, offset: u64) -> Option<Instant> {
        let after = self.marks.partition_point(|(first, _)| *first <= offset);
        self.marks.get(after.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// Leaves half of the marks: none of lines that are gone, and of the others those after the longest times, so that
    /// a line that came after a long silence never counts as older than it.
    fn thin(&mut self, oldest: u64) {
        let gone = self.marks.partition_point(|(first, _)| *first <= oldest).saturating_sub(1);
        drop(self.marks.drain(..gone));
        let mut gap = GAP;
        while self.marks.len() > MARKS / 2 {
            gap = gap.saturating_mul(2);
            let mut last: Option<Instant> = None;
            self.marks.retain(|(_, at)| {
                let is_kept = last.is_none_or(|last| at.saturating_duration_since(last) >= gap);
                if is_kept {
                    last = Some(*at);
                }
                is_kept
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "some instant to count from")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_line_came_when_the_mark_before_it_was_made() {
        let (mut arrivals, start) = (LineArrivals::default(), start());
        assert_eq!(arrivals.of(0), None);
        for second in 0..10_u32 {
            arrivals.note(u64::from(second) * 100, start + second * GAP, 0);
            arrivals.note(u64::from(second) * 100 + 50, start + second * GAP + GAP / 2, 0);
        }
        for (offset, second) in [(0, 0), (99, 0), (100, 1), (150, 1), (999, 9), (5_000, 9)] {
            assert_eq!(arrivals.of(offset), Some(start + second * GAP), "{offset}");
        }
    }

    #[test]
    fn marks_are_bounded_and_a_silence_is_never_forgotten() {
        let (mut arrivals, start) = (LineArrivals::default(), start());
        arrivals.note(0, start, 0);
        let later = start + Duration::from_secs(86_400);
        for second in 0..100_000_u32 {
            arrivals.note(10 + u64::from(second), later + second * GAP, 0);
            assert!(arrivals.marks.len() <= MARKS);
        }
        assert_eq!(
            (arrivals.of(0), arrivals.of(9), arrivals.of(10)),
            (Some(start), Some(start), Some(later))
        );
        for second in (0..100_000_u32).step_by(997) {
            let exact = later + second * GAP;
            let told = arrivals.of(10 + u64::from(second)).unwrap();
            assert!(told <= exact && exact.duration_since(told) < Duration::from_secs(256), "{second}");
        }
        let newest = arrivals.of(u64::MAX).unwrap();
        assert_eq!(newest, later + 99_999 * GAP);
        arrivals.thin(90_000);
        assert!(arrivals.of(80_000).is_none() && arrivals.of(90_000).is_some());
    }
}
