//! The one file that reads the operating system's clock.
//!
//! Everything else is told the time, so that decisions can be simulated, replayed and compared
//! with a script in another store. `clippy.toml` bans the standard clock calls elsewhere.
//!
//! A [`Clock`] is set to civil time once, at start, and from then on advances with the machine's
//! uptime: when the civil clock jumps, nobody is locked out and nobody gets a free refill
//! (fault 8). Calendar quotas need the true date, so [`Now`] carries the civil clock beside it.
//!
//! Uptime is `CLOCK_BOOTTIME`: it never goes back either, and counts the time that the machine was
//! suspended. `CLOCK_MONOTONIC`, which [`Instant`] reads, stands still then: after a night's sleep a client
//! would wait out a window that ended hours ago, and a node would spend leased units that their store has
//! long given to others. Timeouts and durations measured are of work and not of the world; they use it.
//! A virtual machine whose host paused it goes on where it was on both, unless the host tells it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_algorithms::time::{Now, SECOND, Tick, Wall};

/// A process's source of time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The uptime, and the civil time then, in nanoseconds.
    started: u64,
    started_wall: u64,
}

impl Clock {
    /// Starts a timeline at the present civil time.
    #[must_use]
    pub fn start() -> Self {
        Self { started: uptime(), started_wall: wall().0 }
    }

    /// The same clock, ahead of what it shows by as much as it is behind `tick`: it continues the timeline of
    /// a process whose civil clock was ahead of this one's.
    #[must_use]
    pub fn not_before(self, tick: Tick) -> Self {
        Self { started_wall: self.started_wall + tick.since(self.tick()), ..self }
    }

    /// Both readings, for a decision.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { tick: self.tick(), wall: wall() }
    }

    /// The timeline only.
    #[must_use]
    pub fn tick(&self) -> Tick {
        Tick(self.started_wall).plus(uptime().saturating_sub(self.started))
    }

    /// The timeline now, beside `instant`, which was read a moment ago.
    #[must_use]
    pub fn beside(&self, instant: Instant) -> Moment {
        Moment { instant, tick: self.tick() }
    }

    /// Now, on the timeline and for measuring.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.beside(monotonic())
    }
}

/// A point in time on both clocks: what is decided goes by the timeline, what is measured by the monotonic clock. Whoever
/// needs both times at the end of some work, too, reads one clock then ([`Moment::tick_at`]).
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// For measuring.
    pub instant: Instant,
    /// On the timeline.
    pub tick: Tick,
}

impl Moment {
    /// The timeline at `later`. It is behind the clock's own by as long as the machine was suspended in between, and
    /// never before this moment.
    #[must_use]
    pub fn tick_at(&self, later: Instant) -> Tick {
        self.tick.plus(nanos(later.saturating_duration_since(self.instant)))
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

/// Nanoseconds since the machine started, those asleep included.
fn uptime() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    // Invariant: neither is negative.
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel itself calls uptime, which counts a suspend; in hundredths of a second.
    fn kernels_uptime() -> u64 {
        let text = std::fs::read_to_string("/proc/uptime").unwrap();
        let (seconds, rest) = text.split_once('.').unwrap();
        seconds.parse::<u64>().unwrap() * 100 + rest[..2].parse::<u64>().unwrap()
    }

    #[test]
    fn a_timeline_is_continued_and_never_set_back() {
        let clock = Clock::start();
        let later = clock.tick().plus(3_600 * SECOND);
        let continued = clock.not_before(later);
        assert!(continued.tick() >= later && continued.tick().since(later) < 60 * SECOND);
        assert_eq!(continued.not_before(Tick(0)).started_wall, continued.started_wall);
        assert!(continued.now().wall.0 < later.0, "the civil time is not changed");
    }

    #[test]
    fn the_timeline_goes_on_from_a_moment_and_never_back_before_it() {
        let begun = Clock::start().moment();
        let later = begun.instant + Duration::from_millis(7);
        assert_eq!(begun.tick_at(later).since(begun.tick), 7_000_000);
        let before = Moment { instant: later, ..begun };
        assert_eq!(before.tick_at(begun.instant), begun.tick);
    }

    #[test]
    fn the_timeline_is_the_machines_uptime() {
        let clock = Clock::start();
        let before = kernels_uptime();
        let passed = clock.tick().since(Tick(clock.started_wall));
        let now = (clock.started + passed) / (SECOND / 100);
        assert!((before..=kernels_uptime()).contains(&now), "{before} {now}");
    }
}
