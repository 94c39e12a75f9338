//! A generator thread's watch on itself: CPU used, and time it was runnable without a core.
//!
//! `/proc/thread-self/schedstat` holds both in nanoseconds: time on a core, time waiting for one,
//! slices. A kernel without it reads as zeroes, and the report then has no such evidence.

use std::fs;

/// A thread's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadLoad {
    pub(crate) cpu_ns: u64,
    pub(crate) run_delay_ns: u64,
}

impl ThreadLoad {
    /// The account of the calling thread since it began.
    pub(crate) fn read() -> Self {
        fs::read_to_string("/proc/thread-self/schedstat")
            .map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().unwrap_or(0));
        Self { cpu_ns: fields.next().unwrap_or(0), run_delay_ns: fields.next().unwrap_or(0) }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            run_delay_ns: self.run_delay_ns.saturating_sub(earlier.run_delay_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_accounts_for_this_thread() {
        assert_eq!(ThreadLoad::parse("76094 56785 2\n"), ThreadLoad { cpu_ns: 76_094, run_delay_ns: 56_785 });
        assert_eq!(ThreadLoad::parse(""), ThreadLoad::default());
        let before = ThreadLoad::read();
        let sum: u64 = (0..20_000_000u64).map(std::hint::black_box).sum();
        let used = ThreadLoad::read().since(before);
        assert!(sum > 0 && used.cpu_ns < 60_000_000_000, "{used:?}");
    }
}
