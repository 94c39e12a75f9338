//! Random numbers that are no secrets: names for traces, jitter, samples.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use tidegate_algorithms::random::Random;

/// Three random numbers. Each thread begins with a seed of its own.
pub(crate) fn random() -> [u64; 3] {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
    }
    let mut random = Random::seeded(STATE.get());
    let drawn = [random.bits(), random.bits(), random.bits()];
    STATE.set(random.bits());
    drawn
}

/// A random number from 0 to below 1.
pub(crate) fn fraction() -> f64 {
    let [drawn, ..] = random();
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}
