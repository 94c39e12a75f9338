//! The two kinds of time a decision may use, kept apart by type.
//!
//! ```text
//!   Tick   the timeline of the store that owns a state: never runs backwards on one node
//!   Wall   the civil clock: may jump, so it decides nothing but calendar periods
//! ```
//!
//! Both count nanoseconds from the Unix epoch, so that a `Tick` can be shown as a date and windows
//! align to whole minutes and hours. A memory store derives its ticks from a monotonic clock that
//! was set to civil time once, at start; Redis and PostgreSQL stores take the server's clock.
//! Mixing the two kinds is how a clock that jumps locks people out, hence two newtypes.
//!
//! Deliberately absent: reading a clock. `now` is always an argument.

use serde::{Deserialize, Serialize};

/// Nanoseconds in one second.
pub const SECOND: u64 = 1_000_000_000;

/// A point on a store's own timeline, in nanoseconds since the Unix epoch (good until 2554).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Tick(pub u64);

/// A civil time in nanoseconds since the Unix epoch. It may jump in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Wall(pub u64);

/// The time at which a decision is made, on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// Position on the store's timeline.
    pub tick: Tick,
    /// Civil time, for calendar periods only.
    pub wall: Wall,
}

impl Tick {
    /// Nanoseconds from `earlier` to `self`, 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The tick `nanos` later, at most the end of time.
    #[must_use]
    pub fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl Now {
    /// The later of two readings, by the store's timeline. Both clocks of a reading belong together: a late
    /// reading brings its civil time along, be it earlier or later.
    #[must_use]
    pub fn latest(self, other: Self) -> Self {
        if (other.tick, other.wall) > (self.tick, self.wall) { other } else { self }
    }

    /// Both clocks at the same reading, as on a store whose clock is its wall clock.
    #[must_use]
    pub fn at(nanos: u64) -> Self {
        Self { tick: Tick(nanos), wall: Wall(nanos) }
    }
}
