//! Shedding: the requests that the gateway refuses while this process cannot keep up.
//!
//! ```text
//!   each core: a timer ── how late it is ──> Shedding ──> level ──> its requests: before who they are is found out,
//!                                                                   and before limits, breakers and servers
//! ```
//!
//! Each core is measured and refuses for itself, since each has its own queue ([`tidegate_net::runtime`]). What is measured
//! is how late a core comes to a timer that is due: as late as to a request that has just come.
//!
//! A refusal waits [`HOLD`] before it is told, while there is room for it. It costs a part of what a request does, and a
//! client that comes again as soon as it is refused would be refused as fast as it can ask: those refusals alone would
//! take the time that is meant for the others.
//!
//! Bounds: [`MAX_HELD`] refusals wait in this process; those beyond are told at once.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;
pub use tidegate_algorithms::overload::shedding::Priority;
use tidegate_algorithms::overload::shedding::Shedding;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::{Clock, monotonic};

/// How long a refusal waits.
const HOLD: Duration = Duration::from_millis(250);
/// Most refusals that wait.
pub const MAX_HELD: usize = 4_096;
/// Time between two looks at a core.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Timers are due at whole milliseconds.
const TIMER_STEP: Duration = Duration::from_millis(1);
/// A level is kept in so many parts.
const PARTS: f64 = 1_000.0;

/// How much each core refuses.
#[derive(Debug)]
pub struct Shedder {
    cores: Vec<Core>,
    held: AtomicUsize,
    refused: [AtomicU64; Priority::ALL.len()],
}

#[derive(Debug)]
struct Core {
    /// Written by the core's own task alone.
    state: Mutex<Shedding>,
    level: AtomicU32,
    /// The least delay of the last interval, in nanoseconds.
    delay: AtomicU64,
    draws: AtomicU32,
}

/// What is known of shedding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SheddingStats {
    /// Requests refused so far, by [`Priority::ALL`].
    pub refused: [u64; Priority::ALL.len()],
    /// The level of the core that refuses most: see [`Priority::refused`].
    pub level: f64,
    /// The longest of the least delays of the last intervals of each core, in nanoseconds.
    pub delay: u64,
    /// Refusals that wait to be told.
    pub held: usize,
}

impl Shedder {
    /// One for `cores` cores, each of which may be late by `target` for good.
    #[must_use]
    pub fn new(cores: usize, target: Duration) -> Self {
        let target = u64::try_from(target.as_nanos()).unwrap_or(u64::MAX);
        let core = || Core {
            state: Mutex::new(Shedding::new(target)),
            level: AtomicU32::new(0),
            delay: AtomicU64::new(0),
            draws: AtomicU32::new(0),
        };
        let cores = std::iter::repeat_with(core).take(cores.max(1)).collect();
        Self { cores, held: AtomicUsize::new(0), refused: <[AtomicU64; 3]>::default() }
    }

    /// Core `index` came to something that was ready `delay` later.
    pub fn delayed(&self, index: usize, delay: Duration, now: Tick) {
        let core = self.core(index);
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let mut state = core.state.lock();
        if let Some(least) = state.delayed(delay, now) {
            core.delay.store(least, Relaxed);
            // From 0 to 3,000.
            let before = core.level.swap((state.level() * PARTS) as u32, Relaxed);
            let after = core.level.load(Relaxed);
            if (before == 0) != (after == 0) {
                let delay_ms = least / 1_000_000;
                tracing::warn!(
                    core = index,
                    delay_ms,
                    "{}",
                    if before == 0 {
                        "this core cannot keep up: requests are refused, those of low priority first"
                    } else {
                        "this core keeps up again: no request is refused for its sake"
                    }
                );
            }
        }
    }

    /// Whether a request of this priority that came to core `index` is refused.
    pub(crate) fn refuses(&self, index: usize, priority: Priority) -> bool {
        let core = self.core(index);
        let part = priority.refused(f64::from(core.level.load(Relaxed)) / PARTS);
        if part == 0.0 {
            return false;
        }
        // Multiples of the golden ratio: of any few in a row, the right part is refused.
        let turn = core.draws.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9);
        let refuses = f64::from(turn) < part * 2_f64.powi(32);
        if refuses {
            self.refused[priority as usize].fetch_add(1, Relaxed);
        }
        refuses
    }

    /// Waits until a refusal may be told.
    pub(crate) async fn hold(&self) {
        struct Held<'a>(&'a AtomicUsize);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Relaxed);
            }
        }
        let before = self.held.fetch_add(1, Relaxed);
        let _held = Held(&self.held);
        if before < MAX_HELD {
            tokio::time::sleep(HOLD).await;
        }
    }

    /// Looks at core `index`, whose task this is, for ever.
    pub(crate) async fn watch(self: Arc<Self>, index: usize, clock: Clock) {
        loop {
            let due = monotonic() + LOOK_EVERY;
            tokio::time::sleep_until(due.into()).await;
            let late = monotonic().saturating_duration_since(due).saturating_sub(TIMER_STEP);
            self.delayed(index, late, clock.tick());
        }
    }

    /// What has been refused, and what is.
    #[must_use]
    pub fn stats(&self) -> SheddingStats {
        let level = self.cores.iter().map(|core| core.level.load(Relaxed)).max().unwrap_or(0);
        SheddingStats {
            refused: [0, 1, 2].map(|priority| self.refused[priority].load(Relaxed)),
            level: f64::from(level) / PARTS,
            delay: self.cores.iter().map(|core| core.delay.load(Relaxed)).max().unwrap_or(0),
            held: self.held.load(Relaxed),
        }
    }

    fn core(&self, index: usize) -> &Core {
        &self.cores[index % self.cores.len()]
    }
}
