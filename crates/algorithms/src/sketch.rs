//! The heaviest keys of a stream, in bounded memory: Space-Saving (Metwally, Agrawal and El Abbadi,
//! "Efficient computation of frequent and top-k elements in data streams", ICDT 2005).
//!
//! This is how an operator sees *who* is denied without any client key becoming a metric's label
//! (fault 53). With `capacity` counters every key that makes up more than 1/capacity of the stream
//! is there, and a count is too high by at most its `error`, which is kept beside it.
//!
//! A list sorted by count would make an update O(1); a scan of a hundred counters is simpler, and
//! happens on denials only.

/// The heaviest keys seen so far, each with a note that its user keeps.
#[derive(Clone, Debug)]
pub struct TopKeys<T> {
    capacity: usize,
    counters: Vec<Counter<T>>,
}

/// One key of the sketch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter<T> {
    /// The key.
    pub key: Box<[u8]>,
    /// How often it was seen, at most.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
    /// What is noted of the key.
    pub note: T,
}

impl<T: Clone + Default> TopKeys<T> {
    /// A sketch of at most `capacity` keys.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), counters: Vec::new() }
    }

    /// Counts `key` once. Its note is empty if it was not there.
    pub fn see(&mut self, key: &[u8]) -> &mut T {
        let known = self.counters.iter().position(|counter| *counter.key == *key);
        let place = known.unwrap_or_else(|| self.admit(key));
        let counter = &mut self.counters[place];
        counter.count += 1;
        &mut counter.note
    }

    /// The place of a key that is not there, which was not seen yet as far as anybody knows.
    fn admit(&mut self, key: &[u8]) -> usize {
        let mut newcomer = Counter { key: key.into(), count: 0, error: 0, note: T::default() };
        if self.counters.len() < self.capacity {
            self.counters.push(newcomer);
            return self.counters.len() - 1;
        }
        // It takes over the least counter and may have been seen as often before. Invariant: there is room for one.
        let least = self.counters.iter().enumerate().min_by_key(|(_, counter)| counter.count);
        let (place, count) = least.map_or((0, 0), |(place, counter)| (place, counter.count));
        (newcomer.count, newcomer.error) = (count, count);
        self.counters[place] = newcomer;
        place
    }

    /// The keys, heaviest first.
    #[must_use]
    pub fn heaviest(&self) -> Vec<Counter<T>> {
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
            let mut sketch = TopKeys::<()>::new(capacity);
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
