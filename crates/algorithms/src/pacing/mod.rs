//! When requests are due: pure pacers for closed and open loops.
//!
//! ```text
//!   Profile   rate against time, piecewise linear: constant, ramp, steps and spike are one thing
//!   Schedule  a profile and a kind of arrival (even or Poisson), shared out over threads
//!   Closed    a reply, a pause, the next request
//! ```
//!
//! An open-loop schedule never waits for replies, so it needs no queue either: the requests that
//! are due but not yet sent are exactly those between the schedule's next hit and now. A connection that is late
//! takes the *oldest* due time, and latency counted from there shows the stall (the idea of wrk2 and of vegeta's
//! pacer). Time is nanoseconds since the schedule began, always an argument.

mod profile;
mod schedule;

pub use profile::{MAX_RATE, Profile, ProfileError, Segment};
pub use schedule::{Arrivals, Schedule};

/// What a pacer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Nothing is due for this many nanoseconds.
    Wait(u64),
    /// A request is due, since this moment.
    Send {
        /// Planned time, in nanoseconds since the start; latency counts from here.
        planned: u64,
    },
    /// Nothing more will ever be due.
    Stop,
}

/// One connection of a closed loop: send, wait for the reply, think, send again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Pause between a reply and the next request, in nanoseconds.
    pub think: u64,
    /// No request is sent at or after this time, in nanoseconds since the start.
    pub end: u64,
    /// No more than this many requests (`u64::MAX`: no such bound).
    pub max_hits: u64,
}

impl Closed {
    /// What to do at `elapsed` when `hits` requests were sent and the last reply came at `replied`
    /// (`None`: the connection has not sent yet).
    #[must_use]
    pub fn pace(&self, elapsed: u64, hits: u64, replied: Option<u64>) -> Pace {
        let planned = replied.map_or(elapsed, |at| at.saturating_add(self.think));
        if hits >= self.max_hits || planned.max(elapsed) >= self.end {
            Pace::Stop
        } else if planned > elapsed {
            Pace::Wait(planned - elapsed)
        } else {
            Pace::Send { planned }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_closed_loop_sends_at_once_then_thinks_then_stops() {
        let pacer = Closed { think: 10, end: 100, max_hits: 3 };
        assert_eq!(pacer.pace(5, 0, None), Pace::Send { planned: 5 });
        assert_eq!(pacer.pace(22, 1, Some(20)), Pace::Wait(8));
        assert_eq!(pacer.pace(33, 1, Some(20)), Pace::Send { planned: 30 });
        assert_eq!(pacer.pace(33, 3, Some(20)), Pace::Stop, "all hits are used");
        assert_eq!(pacer.pace(95, 1, Some(92)), Pace::Stop, "the next request would fall after the end");
    }

    proptest! {
        #[test]
        fn a_closed_loop_keeps_its_pause(think in 0u64..1_000, replied in 0u64..1_000, late in 0u64..1_000) {
            let pacer = Closed { think, end: u64::MAX, max_hits: u64::MAX };
            match pacer.pace(replied + late, 1, Some(replied)) {
                Pace::Wait(wait) => prop_assert_eq!(late + wait, think),
                Pace::Send { planned } => {
                    prop_assert_eq!(planned, replied + think);
                    prop_assert!(late >= think);
                }
                Pace::Stop => prop_assert!(false, "there is no end"),
            }
        }
    }
}
