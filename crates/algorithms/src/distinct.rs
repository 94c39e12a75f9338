//! About how many different things were seen lately: HyperLogLog (Flajolet, Fusy, Gandouet and Meunier, 2007, with the
//! 64-bit hashes of Heule, Nunkesser and Hall, 2013), for two windows that take turns.
//!
//! It cannot say whether a thing is new, which a limit needs ([`crate::cardinality`]); for a number that a person looks at it
//! takes 4 KiB, however many there are, and is some 2 % off.

use crate::time::Tick;

/// Bits of a hash that choose a register.
const BITS: u32 = 11;
const REGISTERS: usize = 1 << BITS;

/// The longest run of zeros that hashes of each register began with.
type Registers = Box<[u8; REGISTERS]>;

/// The things that were seen lately.
#[derive(Clone, Debug)]
pub struct Distinct {
    window: u64,
    since: Tick,
    current: Registers,
    last: Registers,
    /// The number, until a register changes.
    counted: Option<u64>,
}

impl Distinct {
    /// What [`Distinct`] takes.
    pub const BYTES: u64 = 2 * REGISTERS as u64;

    /// Nothing was seen. Things are forgotten after one to two `window`s, in nanoseconds, without being seen.
    #[must_use]
    pub fn new(window: u64, now: Tick) -> Self {
        let empty = || Box::new([0; REGISTERS]);
        Self { window, since: now, current: empty(), last: empty(), counted: Some(0) }
    }

    /// Sees a thing, by a hash of 64 well mixed bits.
    pub fn see(&mut self, hash: u64, now: Tick) {
        self.turn(now);
        let register = (hash >> (64 - BITS)) as usize;
        // The lowest bit ends a run that would not end.
        let run = ((hash << BITS) | (1 << (BITS - 1))).leading_zeros() + 1;
        let run = u8::try_from(run).unwrap_or(u8::MAX);
        if run > self.current[register] {
            self.current[register] = run;
            if run > self.last[register] {
                self.counted = None;
            }
        }
    }

    /// About how many were seen lately.
    pub fn count(&mut self, now: Tick) -> u64 {
        self.turn(now);
        if let Some(counted) = self.counted {
            return counted;
        }
        let mut runs = [0_u32; 65];
        for (one, other) in self.current.iter().zip(self.last.iter()) {
            runs[usize::from(*one.max(other)).min(64)] += 1;
        }
        let counted = estimate(&runs);
        self.counted = Some(counted);
        counted
    }

    fn turn(&mut self, now: Tick) {
        let passed = now.since(self.since);
        if passed < self.window {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.last);
        self.current.fill(0);
        if passed >= self.window.saturating_mul(2) {
            self.last.fill(0);
        }
        self.since = now;
        self.counted = None;
    }
}

/// The number of things that explains so many registers of each run.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "an estimate"
)]
fn estimate(runs: &[u32; 65]) -> u64 {
    let registers = REGISTERS as f64;
    let halves = runs.iter().rev().fold(0.0, |sum, count| sum / 2.0 + f64::from(*count));
    let found = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / halves;
    // Of few things, the registers that saw none tell more (linear counting).
    let few = registers * (registers / f64::from(runs[0])).ln();
    let found = if found <= 2.5 * registers && runs[0] > 0 { few } else { found };
    found.round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    const WINDOW: u64 = 1_000;

    fn hash(number: u64) -> u64 {
        Random::seeded(number).bits()
    }

    #[test]
    fn many_and_few_are_counted_and_what_is_not_seen_is_forgotten() {
        let mut seen = Distinct::new(WINDOW, Tick(0));
        assert_eq!(seen.count(Tick(0)), 0);
        for (many, from) in [(1, 0), (100, 1), (10_000, 100), (1_000_000, 10_000)] {
            (from..many).for_each(|number| seen.see(hash(number), Tick(1)));
            let counted = seen.count(Tick(1));
            assert!(counted.abs_diff(many) <= many / 14, "{counted} of {many}");
        }
        (0..100).for_each(|number| seen.see(hash(number), Tick(WINDOW + 1)));
        assert!(seen.count(Tick(WINDOW + 1)) > 900_000);
        assert!(seen.count(Tick(2 * WINDOW + 1)).abs_diff(100) < 8, "{}", seen.count(Tick(2 * WINDOW + 1)));
        assert_eq!(seen.count(Tick(9 * WINDOW)), 0);
    }

    proptest! {
        #[test]
        fn seeing_a_thing_again_or_in_another_order_changes_nothing(
            mut numbers in proptest::collection::vec(any::<u64>(), 0..300),
        ) {
            let count = |numbers: &[u64]| {
                let mut seen = Distinct::new(WINDOW, Tick(0));
                numbers.iter().for_each(|number| seen.see(*number, Tick(0)));
                seen.count(Tick(0))
            };
            let once = count(&numbers);
            prop_assert_eq!(count(&[&numbers[..], &numbers].concat()), once);
            numbers.sort_unstable();
            prop_assert_eq!(count(&numbers), once);
        }
    }
}
