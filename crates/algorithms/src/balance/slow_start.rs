//! Slow start: a backend that has just come up gets its share of the load by and by, since caches are
//! cold and pools are empty.

use crate::time::Tick;

/// The least share of its weight that a backend has, so that it is warmed at all.
pub const LEAST: f64 = 0.1;

/// The share of its weight that counts at `now`, from [`LEAST`] to 1, for a backend that came up at `up`
/// and is warm after `warm_up` nanoseconds (0: at once).
#[must_use]
pub fn share(up: Tick, warm_up: u64, now: Tick) -> f64 {
    if warm_up == 0 {
        return 1.0;
    }
    (now.since(up) as f64 / warm_up as f64).clamp(LEAST, 1.0)
}
