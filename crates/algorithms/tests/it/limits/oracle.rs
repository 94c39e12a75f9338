//! What each limit means, by its definition and as slowly as it likes: a function of the list of
//! everything admitted. It shares no arithmetic with the code under test.

use jiff::{Timestamp, Zoned};
use proptest::prelude::*;
use tidegate_algorithms::limit::calendar::Period;
use tidegate_algorithms::limit::{
    Bucket, Calendar, FixedWindow, Limit, PermitId, SlidingCounter, SlidingLog, Slots, State, Verdict,
};
use tidegate_algorithms::time::{Now, SECOND};

/// What was admitted when, oldest first.
pub(crate) type History = Vec<(u64, u64)>;

/// A key under test: the state that the code keeps, and the list that the oracle keeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    pub(crate) state: State,
    pub(crate) history: History,
}

impl Key {
    /// Decides, and charges both sides if allowed.
    pub(crate) fn spend(&mut self, limit: &Limit, at: u64, cost: u64) -> Verdict {
        let now = Now::at(at);
        let verdict = limit.check(&mut self.state, now, cost);
        if verdict.allowed && cost > 0 {
            let permit = PermitId(self.history.len() as u64);
            limit.charge(&mut self.state, now, cost, permit);
            self.history.push((at, cost));
        }
        verdict
    }

    /// What `cost` would get at `at`, on a copy.
    pub(crate) fn peek(&self, limit: &Limit, at: u64, cost: u64) -> Verdict {
        limit.check(&mut self.state.clone(), Now::at(at), cost)
    }
}

/// Units that may be spent at `now`, given what was admitted before.
pub(crate) fn room(limit: &Limit, history: &History, now: u64) -> u64 {
    let sum = |counts: &dyn Fn(u64) -> bool| -> u64 {
        history.iter().filter(|(at, _)| counts(*at)).map(|(_, cost)| cost).sum()
    };
    let used = match limit {
        Limit::TokenBucket(bucket) | Limit::LeakyBucket(bucket) => return tokens(bucket, history, now),
        Limit::FixedWindow(FixedWindow { seconds, .. }) => {
            let window = u64::from(*seconds) * SECOND;
            sum(&|at| at / window == now / window)
        }
        Limit::SlidingLog(SlidingLog { window, .. }) => sum(&|at| now - at < *window),
        Limit::SlidingCounter(SlidingCounter { seconds, .. }) => {
            let window = u64::from(*seconds) * SECOND;
            let current = sum(&|at| at / window == now / window);
            let previous = sum(&|at| at / window + 1 == now / window);
            let uncovered = window - now % window;
            // The least whole number that is not below the weighted sum.
            let weighed = u128::from(previous) * u128::from(uncovered);
            current + (0..=previous).find(|n| u128::from(*n) * u128::from(window) >= weighed).unwrap()
        }
        Limit::Concurrency(Slots { lease, .. }) => sum(&|at| now - at < *lease),
        Limit::Calendar(calendar) => {
            let civil = |at| {
                let date = zoned(calendar, at).date();
                (date.year(), date.month(), if calendar.period == Period::Day { date.day() } else { 0 })
            };
            sum(&|at| civil(at) == civil(now))
        }
    };
    limit.quota().saturating_sub(used)
}

/// A bucket as one thinks of it: it starts full, gains a token every interval, holds `burst`.
fn tokens(bucket: &Bucket, history: &History, now: u64) -> u64 {
    let interval = u128::from(bucket.interval);
    let full = u128::from(bucket.burst) * interval;
    let (mut level, mut last) = (full, 0);
    for (at, cost) in history.iter().copied().chain([(now, 0)]) {
        level = full.min(level + u128::from(at - last)) - u128::from(cost) * interval;
        last = at;
    }
    (level / interval) as u64
}

/// The civil time in the calendar's zone.
pub(crate) fn zoned(calendar: &Calendar, at: u64) -> Zoned {
    Timestamp::from_nanosecond(i128::from(at)).unwrap().to_zoned(calendar.zone.clone())
}

/// The longest that anyone may have to wait under `limit`, in nanoseconds.
pub(crate) fn span(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(bucket) | Limit::LeakyBucket(bucket) => bucket.capacity(),
        Limit::FixedWindow(FixedWindow { seconds, .. }) => u64::from(*seconds) * SECOND,
        Limit::SlidingLog(SlidingLog { window, .. }) => *window,
        Limit::SlidingCounter(SlidingCounter { seconds, .. }) => 2 * u64::from(*seconds) * SECOND,
        Limit::Concurrency(Slots { lease, .. }) => *lease,
        Limit::Calendar(Calendar { period: Period::Day, .. }) => 26 * 3_600 * SECOND,
        Limit::Calendar(Calendar { period: Period::Month, .. }) => (31 * 24 + 2) * 3_600 * SECOND,
    }
}

/// A time on a window boundary of every window used here, in November 2023.
pub(crate) const START: u64 = 1_700_006_400 * SECOND;

/// Any limit that counts units, with small numbers so that its edges are met often.
pub(crate) fn any_limit() -> impl Strategy<Value = Limit> {
    let calendar = || {
        let zones = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"];
        (prop::sample::select(zones.to_vec()), any::<bool>()).prop_map(|(zone, day)| {
            let period = if day { Period::Day } else { Period::Month };
            (period, jiff::tz::TimeZone::get(zone).unwrap())
        })
    };
    prop_oneof![
        any_bucket().prop_map(Limit::TokenBucket),
        any_bucket().prop_map(Limit::LeakyBucket),
        (0..=12_u64, 1..=5_u32)
            .prop_map(|(limit, seconds)| Limit::FixedWindow(FixedWindow { limit, seconds })),
        (0..=12_u64, 1..=5_u64).prop_map(|(limit, seconds)| {
            Limit::SlidingLog(SlidingLog { limit, window: seconds * SECOND })
        }),
        (0..=12_u64, 1..=5_u32)
            .prop_map(|(limit, seconds)| Limit::SlidingCounter(SlidingCounter { limit, seconds })),
        (0..=12_u64, 1..=5_u64)
            .prop_map(|(limit, seconds)| Limit::Concurrency(Slots { limit, lease: seconds * SECOND })),
        (0..=12_u64, calendar()).prop_map(|(limit, (period, zone))| Limit::Calendar(Calendar {
            limit,
            period,
            zone
        })),
    ]
}

pub(crate) fn any_bucket() -> impl Strategy<Value = Bucket> {
    (0..=12_u64, 1..=12_u64, 1..=5_u64)
        .prop_map(|(limit, burst, seconds)| Bucket::new(limit, burst, seconds * SECOND))
}

/// How long after the last request the next one comes, as a share of the limit's span: often not
/// at all, often right at an edge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    share: f64,
    beside: i64,
}

impl Gap {
    pub(crate) fn nanos(self, limit: &Limit) -> u64 {
        ((span(limit) as f64 * self.share) as u64).saturating_add_signed(self.beside)
    }
}

pub(crate) fn any_gap() -> impl Strategy<Value = Gap> {
    let share = prop_oneof![
        3 => Just(0.0),
        4 => 0.0..0.3,
        2 => prop::sample::select(vec![1.0 / 31.0, 0.2, 0.25, 0.5, 1.0, 2.0]),
        1 => 0.3..3.0,
    ];
    (share, -1..=1_i64).prop_map(|(share, beside)| Gap { share, beside })
}
