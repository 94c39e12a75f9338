//! Calendar quota: a count per civil day or month in a stated time zone.
//!
//! The one limit that uses the civil clock, because "per day" means the customer's day. When that
//! clock goes back over a boundary the later period stays in force (no second quota for the same
//! day); when a period's end turns out to lie further away than any period is long, the clock was
//! wrong when it was written, and the period is found anew (no lock-out).
//!
//! A day in a zone with daylight saving is 23, 24 or 25 hours long; a boundary that falls into a
//! skipped hour is at the first instant that exists, as [`jiff`] resolves it.

use jiff::{Timestamp, ToSpan, tz::TimeZone};
use serde::{Deserialize, Serialize};

use super::{State, Verdict};
use crate::time::{Now, SECOND, Tick, Wall};

/// The civil period that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From the first of a month to the first of the next.
    Month,
}

/// `limit` units in each civil period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// Units per period. 0 denies everything.
    pub limit: u64,
    /// Day or month.
    pub period: Period,
    /// Whose midnight.
    pub zone: TimeZone,
}

/// What is kept per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Civil time at which the period ends.
    pub end: Wall,
    /// Units spent in it.
    pub count: u64,
    /// Which kind of period.
    pub period: Period,
}

impl Calendar {
    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let period = self.settle(state, now);
        let left = period.end.0.saturating_sub(now.wall.0);
        let wanted = period.count.saturating_add(cost);
        if wanted <= self.limit {
            Verdict::allowed(self.limit, self.limit - wanted, if wanted == 0 { 0 } else { left })
        } else {
            Verdict::denied(self.limit, self.limit.saturating_sub(period.count), left, left)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        let period = self.settle(state, now);
        *state = State::Calendar(Count { count: period.count.saturating_add(cost), ..period });
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let period = self.settle(state, now);
        *state = State::Calendar(Count { count: period.count.saturating_sub(cost), ..period });
    }

    /// The end of the period that `wall` is in. Stores that decide by script are told it.
    #[must_use]
    pub fn end_of_period(&self, wall: Wall) -> Wall {
        let seconds = i64::try_from(wall.0 / SECOND).unwrap_or(i64::MAX);
        let Ok(timestamp) = Timestamp::from_second(seconds) else { return Wall(u64::MAX) };
        let date = timestamp.to_zoned(self.zone.clone()).date();
        let next = match self.period {
            Period::Day => date.tomorrow(),
            Period::Month => date.first_of_month().checked_add(1.month()),
        };
        let end =
            next.and_then(|date| date.to_zoned(self.zone.clone())).map(|end| end.timestamp().as_second());
        Wall(
            end.ok()
                .and_then(|end| u64::try_from(end).ok())
                .map_or(u64::MAX, |end| end.saturating_mul(SECOND)),
        )
    }

    /// The period that `now` is in, with what is counted in it.
    fn settle(&self, state: &State, now: Now) -> Count {
        if let State::Calendar(count) = state
            && count.period == self.period
            && (1..=self.period.longest()).contains(&count.end.0.saturating_sub(now.wall.0))
        {
            return Count { count: count.count.min(self.limit), ..*count };
        }
        let end = self.end_of_period(now.wall);
        Count { end, count: state.used(now).min(self.limit), period: self.period }
    }
}

impl Count {
    pub(super) fn used(&self, now: Now) -> u64 {
        if now.wall < self.end { self.count } else { 0 }
    }

    /// The end on a store's timeline, which keeps close to civil time.
    pub(super) fn end_tick(&self) -> Tick {
        Tick(self.end.0)
    }
}

impl Period {
    /// The longest such period, in nanoseconds, with room for any change of offset.
    #[must_use]
    pub fn longest(self) -> u64 {
        let hours = match self {
            Self::Day => 26,
            Self::Month => 31 * 24 + 2,
        };
        hours * 3_600 * SECOND
    }
}
