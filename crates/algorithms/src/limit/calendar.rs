//! Calendar quota: a count per civil day or month in a stated time zone.
//!
//! The one limit that uses the civil clock, because "per day" means the customer's day. When that
//! clock goes back a little over a boundary the later period stays in force (no second quota for
//! the same day); when a period's end turns out to lie further away than any period is long, the
//! clock was wrong when it was written: the period is found anew and what was spent counts in it
//! (neither a lock-out nor a refill).
//!
//! A day in a zone with daylight saving is 23, 24 or 25 hours long. A midnight that is skipped moves
//! on by what was skipped ([`jiff`]'s compatible resolution), which is the day's first instant when
//! the gap begins at midnight; of one that comes twice the first counts. The time zone database is
//! jiff's bundled one, so that every node agrees whatever its host has installed.

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};

use super::{State, Verdict, narrow};
use crate::time::{Now, SECOND, Tick, Wall};

/// How far a store's timeline may run ahead of the civil clock, in nanoseconds: two hours.
pub const CLOCK_SLACK: u64 = 2 * 3_600 * SECOND;

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
    /// The time zone at whose midnight a period begins.
    pub zone: TimeZone,
}

/// What is kept per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarCount {
    /// Civil time at which the period ends.
    pub end: Wall,
    /// Units spent in it.
    pub count: u32,
    /// Which kind of period.
    pub period: Period,
}

impl Calendar {
    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let period = self.settle(state, now);
        let left = period.end.0.saturating_sub(now.wall.0);
        let used = u64::from(period.count);
        let wanted = used.saturating_add(cost);
        if wanted <= self.limit {
            Verdict::allowed(self.limit, self.limit - wanted, if wanted == 0 { 0 } else { left }, left)
        } else {
            Verdict::denied(self.limit, self.limit - used, left, left)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        let period = self.settle(state, now);
        let count = period.count.saturating_add(narrow(cost));
        *state = State::Calendar(CalendarCount { count, ..period });
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let period = self.settle(state, now);
        let count = period.count.saturating_sub(narrow(cost));
        *state = State::Calendar(CalendarCount { count, ..period });
    }

    /// The end of the period that `wall` is in, always later than `wall`. Stores that decide by
    /// script are told it. [`Wall`]'s greatest value beyond the calendar's end, in the year 9999.
    #[must_use]
    pub fn end_of_period(&self, wall: Wall) -> Wall {
        self.next_period(wall).unwrap_or(Wall(u64::MAX))
    }

    fn next_period(&self, wall: Wall) -> Option<Wall> {
        let now = Timestamp::from_second(i64::try_from(wall.0 / SECOND).ok()?).ok()?;
        let mut date = now.to_zoned(self.zone.clone()).date();
        loop {
            date = self.next_date(date)?;
            let start = date.to_zoned(self.zone.clone()).ok()?;
            // Clocks set back over midnight show yesterday's date again: its end is then past.
            if start.timestamp() > now {
                let seconds = u64::try_from(start.timestamp().as_second()).ok()?;
                return seconds.checked_mul(SECOND).map(Wall);
            }
        }
    }

    /// The first date of the period after the one that `date` is in.
    fn next_date(&self, date: Date) -> Option<Date> {
        match self.period {
            Period::Day => date.tomorrow().ok(),
            Period::Month => date.first_of_month().checked_add(1.month()).ok(),
        }
    }

    /// The period that `now` is in, with what is counted in it.
    fn settle(&self, state: &mut State, now: Now) -> CalendarCount {
        if let State::Calendar(count) = state
            && count.period == self.period
            && (1..=self.period.longest()).contains(&count.end.0.saturating_sub(now.wall.0))
        {
            return CalendarCount { count: count.count.min(narrow(self.limit)), ..*count };
        }
        let end = self.end_of_period(now.wall);
        let used = state.used(now).min(self.limit);
        let count = CalendarCount { end, count: narrow(used), period: self.period };
        *state = State::Calendar(count);
        count
    }
}

impl CalendarCount {
    pub(super) fn used(&self, now: Now) -> u64 {
        if now.wall < self.end { u64::from(self.count) } else { 0 }
    }

    /// When this count says nothing any more, on the store's timeline: at once if it is 0. The
    /// civil clock may fall behind that timeline by [`CLOCK_SLACK`] before a count is lost early.
    pub(super) fn expires(&self) -> Tick {
        if self.count == 0 { Tick(0) } else { Tick(self.end.0).plus(CLOCK_SLACK) }
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
