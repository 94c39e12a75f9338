//! The heaviest keys of a stream, in bounded memory: Space-Saving (Metwally, Agrawal and El Abbadi,
//! "Efficient computation of frequent and top-k elements in data streams", ICDT 2005).
//!
//! This is how an operator sees *who* is denied without any client key becoming a metric's label
//! (fault 53). With `capacity` counters every key that makes up more than 1/capacity of the stream
//! is there, and a count is too high by at most its `error`, which is kept beside it.
//!
//! A list sorted by count would make an update O(1); a scan of a hundred counters is simpler, and
//! happens on denials only.

/// The heaviest keys seen so far.
#[derive(Clone, Debug)]
pub struct TopKeys {
    capacity: usize,
    counters: Vec<Counter>,
}

/// One key of the sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The key.
    pub key: Box<[u8]>,
    /// How often it was seen, at most.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
}

impl TopKeys {
    /// A sketch of at most `capacity` keys.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), counters: Vec::new() }
    }

    /// Counts `key` once.
    pub fn see(&mut self, key: &[u8]) {
        if let Some(counter) = self.counters.iter_mut().find(|counter| *counter.key == *key) {
            counter.count += 1;
        } else if self.counters.len() < self.capacity {
            self.counters.push(Counter { key: key.into(), count: 1, error: 0 });
        } else if let Some(least) = self.counters.iter_mut().min_by_key(|counter| counter.count) {
            // The newcomer takes over the least counter and may have been seen as often before.
            *least = Counter { key: key.into(), count: least.count + 1, error: least.count };
        }
    }

    /// The keys, heaviest first.
    #[must_use]
    pub fn heaviest(&self) -> Vec<Counter> {
        let mut counters = self.counters.clone();
        counters.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn counts_are_bounded_from_both_sides_and_no_heavy_key_is_missing(
            stream in proptest::collection::vec(0u8..40, 0..400), capacity in 1usize..20
        ) {
            let mut sketch = TopKeys::new(capacity);
            let mut truth: HashMap<u8, u64> = HashMap::new();
            for key in &stream {
                sketch.see(&[*key]);
                *truth.entry(*key).or_default() += 1;
            }
            let heaviest = sketch.heaviest();
            prop_assert!(heaviest.len() <= capacity);
            for counter in &heaviest {
                let seen = truth[&counter.key[0]];
                prop_assert!(counter.count - counter.error <= seen && seen <= counter.count);
            }
            for (key, seen) in truth {
                if seen > stream.len() as u64 / capacity as u64 {
                    prop_assert!(heaviest.iter().any(|counter| *counter.key == [key]), "{} of {}", seen, stream.len());
                }
            }
        }
    }
}
