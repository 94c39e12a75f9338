//! How many different things were seen lately, and whether one is new: two Bloom filters that take turns (Bloom,
//! "Space/time trade-offs in hash coding with allowable errors", 1970).
//!
//! ```text
//!   seen ──> this window's filter? ── known
//!            the last window's?    ── known, and carried over
//!            neither               ── new: room for it within the limit, or refused
//! ```
//!
//! HyperLogLog would count in less memory and could not say whether a thing is new, which is what a limit needs: what is
//! known goes on, what is new is refused by name (fault 73). A thing that is not seen for a window is forgotten within
//! two, and makes room. At ten bits for each thing that the limit allows, a new one is taken for known in about one of a
//! hundred cases when the filters are full: then one more than the limit passes. A known one is never taken for new.

use crate::time::Tick;

/// Bits of a filter for each thing that it may hold.
const BITS: u64 = 10;
/// Bits that a thing sets: the best number for ten bits a thing.
const HASHES: u64 = 7;

/// What is known of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was seen lately.
    Known,
    /// It is new, and there is room for it.
    New,
    /// It is new, and as many as may be are there already.
    Refused,
}

/// The things that were seen lately, at most so many.
#[derive(Clone, Debug)]
pub struct Cardinality {
    limit: u64,
    window: u64,
    since: Tick,
    current: Filter,
    last: Filter,
    /// Of those in `current`, the ones that are in `last`, too.
    carried: u64,
}

#[derive(Clone, Debug)]
struct Filter {
    bits: Box<[u64]>,
    count: u64,
}

impl Filter {
    fn of(limit: u64) -> Self {
        let words = usize::try_from((limit * BITS).div_ceil(64).max(1)).unwrap_or(usize::MAX);
        Self { bits: vec![0; words].into(), count: 0 }
    }

    /// The words and bits of a thing (Kirsch and Mitzenmacher: two hashes make as many as are needed).
    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let bits = self.bits.len() as u64 * 64;
        let step = hash.rotate_left(32) | 1;
        (0..HASHES).map(move |number| {
            let mixed = hash.wrapping_add(step.wrapping_mul(number));
            let at = ((u128::from(mixed) * u128::from(bits)) >> 64) as u64;
            ((at / 64) as usize, 1 << (at % 64))
        })
    }

    fn has(&self, hash: u64) -> bool {
        self.places(hash).all(|(word, bit)| self.bits[word] & bit != 0)
    }

    fn add(&mut self, hash: u64) {
        for (word, bit) in self.places(hash) {
            self.bits[word] |= bit;
        }
        self.count += 1;
    }

    fn clear(&mut self) {
        self.bits.fill(0);
        self.count = 0;
    }
}

impl Cardinality {
    /// Nothing was seen. Things are forgotten after one to two `window`s, in nanoseconds, without being seen.
    #[must_use]
    pub fn new(limit: u64, window: u64, now: Tick) -> Self {
        let (current, last) = (Filter::of(limit), Filter::of(limit));
        Self { limit, window, since: now, current, last, carried: 0 }
    }

    /// Bytes that one of this limit takes.
    #[must_use]
    pub fn bytes(limit: u64) -> u64 {
        2 * (limit * BITS).div_ceil(64).max(1) * 8
    }

    /// Sees a thing, by a hash of 64 well mixed bits.
    pub fn see(&mut self, hash: u64, now: Tick) -> Seen {
        self.turn(now);
        if self.current.has(hash) {
            return Seen::Known;
        }
        if self.last.has(hash) {
            self.current.add(hash);
            self.carried += 1;
            return Seen::Known;
        }
        if self.count() >= self.limit {
            return Seen::Refused;
        }
        self.current.add(hash);
        Seen::New
    }

    /// How many were seen lately.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.last.count + self.current.count - self.carried
    }

    /// Forgets what was not seen in the last window, when one has passed.
    fn turn(&mut self, now: Tick) {
        let passed = now.since(self.since);
        if passed < self.window {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.last);
        self.current.clear();
        self.carried = 0;
        if passed >= self.window.saturating_mul(2) {
            self.last.clear();
        }
        self.since = now;
    }
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
    fn fault_73_new_ones_beyond_the_limit_are_refused_and_known_ones_go_on() {
        let mut seen = Cardinality::new(1_000, WINDOW, Tick(0));
        let admitted = (0..1_000).filter(|number| seen.see(hash(*number), Tick(1)) != Seen::Refused).count();
        assert_eq!(admitted, 1_000);
        assert!((985..=1_000).contains(&seen.count()), "{}", seen.count());
        let slack = 1_000 - seen.count();
        let passed =
            (1_000..11_000).filter(|number| seen.see(hash(*number), Tick(2)) != Seen::Refused).count();
        // One of a hundred is taken for known, and some took the room that the first of these left.
        assert!(passed < 10_000 / 50 + usize::try_from(slack).unwrap(), "{passed}");
        assert!((0..1_000).all(|number| seen.see(hash(number), Tick(3)) == Seen::Known));
    }

    #[test]
    fn what_is_not_seen_makes_room_and_what_is_seen_stays() {
        let mut seen = Cardinality::new(100, WINDOW, Tick(0));
        for number in 0..100 {
            seen.see(hash(number), Tick(0));
        }
        for number in 0..10 {
            assert_eq!(seen.see(hash(number), Tick(WINDOW)), Seen::Known);
        }
        assert!(seen.count() >= 95, "nothing is forgotten in the next window");
        for number in 0..10 {
            assert_eq!(seen.see(hash(number), Tick(2 * WINDOW)), Seen::Known);
        }
        assert!((9..=11).contains(&seen.count()), "{}", seen.count());
        assert_eq!(seen.see(hash(1_000), Tick(2 * WINDOW)), Seen::New);
        assert_eq!(seen.see(hash(1), Tick(10 * WINDOW)), Seen::New, "all are forgotten after two windows");
    }

    proptest! {
        #[test]
        fn a_known_one_is_never_refused_and_no_more_than_the_limit_are_counted(
            limit in 1u64..50,
            steps in proptest::collection::vec((0u64..200, 0u64..300), 1..300),
        ) {
            let mut seen = Cardinality::new(limit, WINDOW, Tick(0));
            let mut now = 0;
            let mut last_seen = std::collections::HashMap::new();
            for (number, gap) in steps {
                now += gap;
                let found = seen.see(hash(number), Tick(now));
                let before = last_seen.get(&number);
                if before.is_some_and(|before| now - before < WINDOW) {
                    prop_assert_eq!(found, Seen::Known);
                }
                if found != Seen::Refused {
                    last_seen.insert(number, now);
                }
                prop_assert!(seen.count() <= limit);
            }
        }
    }
}
