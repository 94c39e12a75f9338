//! How an agent's clocks are compared with the coordinator's.
//!
//! As NTP does (RFC 5905, 8): what an agent's clock shows belongs to a moment between question and answer, and the middle is wrong by
//! half the round trip at most. Of several round trips the shortest is believed. Steps begin by a clock that nobody sets; the civil
//! clocks are compared for people, who put the logs of several machines side by side.

use tidegate_net::clock::wall;

use super::{AgentCall, AgentClock, AgentError, AgentLink};
use crate::epoch::Epoch;

/// Round trips of a comparison.
const ROUND_TRIPS: usize = 8;

/// Two clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockComparison {
    /// The coordinator's, in nanoseconds since its epoch.
    ours: u64,
    /// The agent's, in nanoseconds since its own.
    theirs: u64,
    /// How wrong that may be, in nanoseconds.
    pub(super) error: u64,
    /// How far the agent's civil clock is ahead, in microseconds.
    pub(super) ahead_us: i64,
}

impl ClockComparison {
    /// By one round trip: asked at `sent`, when the civil time was `civil`, and answered at `back`.
    fn new(sent: u64, back: u64, civil: u64, shown: &AgentClock) -> Self {
        let half = back.saturating_sub(sent) / 2;
        let ahead = i128::from(shown.wall_ns) - i128::from(civil) - i128::from(half);
        Self {
            ours: sent + half,
            theirs: shown.tick_ns,
            error: half,
            ahead_us: i64::try_from(ahead / 1_000).unwrap_or(i64::MAX),
        }
    }

    /// What the agent's clock will show when the coordinator's shows `ours`.
    pub(super) fn theirs_at(&self, ours: u64) -> u64 {
        if ours >= self.ours {
            self.theirs.saturating_add(ours - self.ours)
        } else {
            self.theirs.saturating_sub(self.ours - ours)
        }
    }
}

/// Compares the clocks by several round trips.
pub(super) fn compare(link: &dyn AgentLink, epoch: Epoch) -> Result<ClockComparison, AgentError> {
    let mut least: Option<ClockComparison> = None;
    for _ in 0..ROUND_TRIPS {
        let (sent, civil) = (epoch.now(), wall().0);
        let answer = link.ask(AgentCall::Clock, "{}")?;
        let back = epoch.now();
        let shown =
            serde_json::from_str(&answer).map_err(|error| AgentError(format!("its clock: {error}")))?;
        let found = ClockComparison::new(sent, back, civil, &shown);
        if least.is_none_or(|least| found.error < least.error) {
            least = Some(found);
        }
    }
    least.ok_or_else(|| AgentError("its clock was not compared".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_read_in_the_middle_of_the_round_trip() {
        let shown = AgentClock { tick_ns: 70_000, wall_ns: 1_000_000_000 };
        let found = ClockComparison::new(1_000, 5_000, 900_000_000, &shown);
        assert_eq!((found.error, found.ahead_us), (2_000, 99_998));
        assert_eq!(
            (found.theirs_at(3_000), found.theirs_at(13_000), found.theirs_at(0)),
            (70_000, 80_000, 67_000)
        );
        let behind = AgentClock { tick_ns: 0, wall_ns: 0 };
        assert_eq!(ClockComparison::new(0, 0, 5_000_000, &behind).ahead_us, -5_000);
    }
}
