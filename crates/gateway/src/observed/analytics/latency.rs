//! Latencies as a histogram: counts in classes. Percentiles are read from it, and two histograms can be added.
//!
//! A class is at most an eighth as wide as the times in it, so that a percentile is at most 12.5 % too high. Empty classes
//! take no room. The bounds of classes must not change: sums of them are stored.

use tidegate_control::Sums;

/// Classes of equal width in each power of two.
const PARTS: u64 = 8;

/// The longest that is told apart: 2^36 microseconds are 19 hours.
const MAX_MICROS: u64 = 1 << 36;

/// How many classes there are: a time is in one below this.
pub(super) const CLASSES: usize = 273;

/// The microseconds that this share of the requests took at most; 0 without any.
pub(super) fn quantile(sums: &Sums, share: f64) -> u64 {
    let total: u64 = sums.classes.iter().map(|(_, count)| count).sum();
    let wanted = (total as f64 * share).ceil().max(1.0) as u64;
    let mut seen = 0;
    let found = sums.classes.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    found.map_or(0, |(class, _)| longest(*class))
}

/// The class of a time. Below [`PARTS`] each microsecond has its own.
pub(super) fn class(micros: u64) -> u16 {
    let micros = micros.min(MAX_MICROS);
    if micros < PARTS {
        return micros as u16;
    }
    let power = u64::from(micros.ilog2());
    let part = (micros >> (power - 3)) - PARTS;
    (PARTS * (power - 2) + part) as u16
}

/// The longest time of a class. An unknown class, which only another program can have stored, counts as the longest.
fn longest(class: u16) -> u64 {
    let class = u64::from(class);
    if class < PARTS {
        return class;
    }
    let (power, part) = ((class / PARTS + 2).min(36), class % PARTS);
    ((PARTS + part + 1) << (power - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_what_is_at_most_an_eighth_shorter_than_its_longest() {
        let mut last = 0;
        for micros in (0..5_000).chain((13..36).map(|power| 1 << power)).chain([MAX_MICROS, u64::MAX]) {
            let (class, capped) = (class(micros), micros.min(MAX_MICROS));
            let longest = longest(class);
            assert!(longest >= capped && longest - capped <= capped / 8, "{micros}: {longest}");
            assert!(class >= last, "{micros}");
            last = class;
        }
        assert_eq!((last, longest(u16::MAX) >= longest(last)), (272, true));
        assert_eq!(usize::from(last) + 1, CLASSES);
    }

    #[test]
    fn quantiles_are_those_of_all_that_was_put_together() {
        let (mut one, mut other) = (Sums::default(), Sums::default());
        assert_eq!(quantile(&one, 0.5), 0);
        one.add_to_class(class(100), 90);
        other.add_to_class(class(10_000), 10);
        one.merge(&other);
        let near = |value: u64, exact: u64| value >= exact && value <= exact + exact / 8;
        assert!(near(quantile(&one, 0.5), 100) && near(quantile(&one, 0.9), 100), "{one:?}");
        assert!(near(quantile(&one, 0.91), 10_000) && near(quantile(&one, 1.0), 10_000), "{one:?}");
    }

    /// Databases have sums of these classes.
    #[test]
    fn a_class_means_what_it_always_has() {
        let some = [0, 7, 8, 15, 16, 1_000, 1_000_000, 60_000_000];
        assert_eq!(some.map(class), [0, 7, 8, 15, 16, 63, 143, 190]);
    }
}
