//! Nanoseconds since a common beginning: what event loops count in.

use std::time::{Duration, Instant};

use tidegate_net::clock::monotonic;

/// The beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(Instant);

impl Epoch {
    pub(crate) fn start() -> Self {
        Self(monotonic())
    }

    /// Nanoseconds since the beginning.
    pub(crate) fn now(self) -> u64 {
        nanos(monotonic().duration_since(self.0))
    }
}

/// A duration in nanoseconds, at most 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
