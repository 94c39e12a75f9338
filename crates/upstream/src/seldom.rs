//! Lines of the log that many connections would have at once: the first one has it, and then one in a while, which says how
//! many had none.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_algorithms::time::{SECOND, Tick};

/// Nanoseconds from one line to the next.
const PAUSE: u64 = 10 * SECOND;

/// When a kind of line may be written again.
#[derive(Debug, Default)]
pub struct SeldomLine {
    next: AtomicU64,
    unsaid: AtomicU64,
}

impl SeldomLine {
    /// How many had no line since the last one, if this one has a line.
    #[must_use]
    pub fn unsaid(&self, now: Tick) -> Option<u64> {
        let due = self.next.load(Relaxed);
        // Of those that come at once one has it.
        if now.0 >= due && self.next.compare_exchange(due, now.plus(PAUSE).0, Relaxed, Relaxed).is_ok() {
            return Some(self.unsaid.swap(0, Relaxed));
        }
        self.unsaid.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_has_a_line_and_then_one_in_ten_seconds_which_counts_the_others() {
        let line = SeldomLine::default();
        assert_eq!(line.unsaid(Tick(1)), Some(0));
        assert!((0..1_000).all(|at| line.unsaid(Tick(at)).is_none()));
        assert_eq!(line.unsaid(Tick(1 + 10 * SECOND)), Some(1_000));
        assert_eq!(line.unsaid(Tick(2 + 10 * SECOND)), None);
        assert_eq!(line.unsaid(Tick(60 * SECOND)), Some(1));
    }
}
