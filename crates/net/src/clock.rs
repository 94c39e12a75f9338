//! The one file that reads the operating system's clock.
//!
//! Everything else is told the time, so that decisions can be simulated, replayed and compared
//! with a script in another store. `clippy.toml` bans the standard clock calls elsewhere.
//!
//! A [`Clock`] is set to civil time once, at start, and from then on advances with the monotonic
//! clock: when the civil clock jumps, nobody is locked out and nobody gets a free refill
//! (fault 8). Calendar quotas need the true date, so [`Now`] carries the civil clock beside it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_algorithms::time::{Now, Tick, Wall};

/// A process's source of time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_wall: u64,
}

impl Clock {
    /// Starts a timeline at the present civil time.
    #[must_use]
    pub fn start() -> Self {
        Self { started: monotonic(), started_wall: wall().0 }
    }

    /// Both readings, for a decision.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { tick: self.tick(), wall: wall() }
    }

    /// The monotonic timeline only.
    #[must_use]
    pub fn tick(&self) -> Tick {
        Tick(self.started_wall.saturating_add(nanos(self.started.elapsed())))
    }
}

/// A monotonic reading, for measuring how long something took.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one file that reads the clock")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The civil time. A clock set before 1970 reads as 0.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one file that reads the clock")]
pub fn wall() -> Wall {
    Wall(nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
