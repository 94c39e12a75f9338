//! The calls that a closed breaker judges together.
//!
//! By number: the last n calls, each in a byte of a ring. By time: ten slots of a tenth of the span
//! each; a slot that is over a span old is empty, so the calls of the last 0.9 to 1.0 spans are
//! judged. Either takes a bounded block of memory and a constant number of steps per call.

use crate::time::Tick;

/// Which calls are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The last so many, 1 to [`MAX_CALLS`].
    Calls(u32),
    /// The calls of the last so many nanoseconds, >= 10.
    Span(u64),
}

/// Most calls that a window by number holds.
pub const MAX_CALLS: u32 = 10_000;

/// Parts of a window by time.
const SLOTS: usize = 10;

const FAILED: u8 = 1;
const SLOW: u8 = 2;

/// Calls, and how many of them failed or were slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallCounts {
    pub(super) calls: u32,
    pub(super) failed: u32,
    pub(super) slow: u32,
}

impl CallCounts {
    /// One call.
    pub(super) fn of(failed: bool, slow: bool) -> Self {
        Self { calls: 1, failed: u32::from(failed), slow: u32::from(slow) }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            failed: self.failed.saturating_add(other.failed),
            slow: self.slow.saturating_add(other.slow),
        }
    }

    /// The same if all that are missing to so many calls failed and were slow.
    pub(super) fn at_worst(self, calls: u32) -> Self {
        let missing = calls.saturating_sub(self.calls);
        self.plus(Self { calls: missing, failed: missing, slow: missing })
    }

    fn minus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(other.calls),
            failed: self.failed.saturating_sub(other.failed),
            slow: self.slow.saturating_sub(other.slow),
        }
    }

    fn to_byte(self) -> u8 {
        (if self.failed > 0 { FAILED } else { 0 }) | (if self.slow > 0 { SLOW } else { 0 })
    }

    fn from_byte(byte: u8) -> Self {
        Self::of(byte & FAILED != 0, byte & SLOW != 0)
    }
}

/// The calls in the window.
#[derive(Clone, Debug)]
pub(super) enum Recent {
    Calls { ring: Box<[u8]>, next: usize, sum: CallCounts },
    Span { slot_length: u64, slots: Box<[(u64, CallCounts); SLOTS]> },
}

impl Recent {
    pub(super) fn new(window: Window, minimum_calls: u32) -> Self {
        match window {
            Window::Calls(calls) => {
                let calls = calls.max(minimum_calls).clamp(1, MAX_CALLS);
                Self::Calls { ring: vec![0; calls as usize].into(), next: 0, sum: CallCounts::default() }
            }
            Window::Span(nanos) => Self::Span {
                slot_length: (nanos / SLOTS as u64).max(1),
                slots: Box::new([(0, CallCounts::default()); SLOTS]),
            },
        }
    }

    /// Adds a call that ended at `now`; what the window then holds.
    pub(super) fn add(&mut self, one: CallCounts, now: Tick) -> CallCounts {
        match self {
            Self::Calls { ring, next, sum } => {
                if sum.calls as usize == ring.len() {
                    *sum = sum.minus(CallCounts::from_byte(ring[*next]));
                }
                ring[*next] = one.to_byte();
                *next = (*next + 1) % ring.len();
                *sum = sum.plus(one);
                *sum
            }
            Self::Span { slot_length, slots } => {
                let number = now.0 / *slot_length;
                let (held, counts) = &mut slots[(number % SLOTS as u64) as usize];
                // A clock that went back counts in the newer slot that is there.
                if *held < number {
                    (*held, *counts) = (number, CallCounts::default());
                }
                *counts = counts.plus(one);
                self.counts(now)
            }
        }
    }

    /// Whether it holds calls by number, none of which failed or was slow.
    pub(super) fn has_successes_alone(&self) -> bool {
        matches!(self, Self::Calls { sum: CallCounts { failed: 0, slow: 0, .. }, .. })
    }

    /// Adds so many calls that neither failed nor were slow to a window by number.
    pub(super) fn add_successes(&mut self, calls: u32) {
        // Those beyond its length would only replace one another.
        let most = if let Self::Calls { ring, .. } = self { ring.len() } else { 0 };
        for _ in 0..most.min(calls as usize) {
            self.add(CallCounts::of(false, false), Tick(0));
        }
    }

    /// What the window holds at `now`.
    pub(super) fn counts(&self, now: Tick) -> CallCounts {
        match self {
            Self::Calls { sum, .. } => *sum,
            Self::Span { slot_length, slots } => {
                let number = now.0 / slot_length;
                let in_span = slots.iter().filter(|(held, _)| held + SLOTS as u64 > number);
                in_span.fold(CallCounts::default(), |sum, (_, counts)| sum.plus(*counts))
            }
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Calls { next, sum, .. } => (*next, *sum) = (0, CallCounts::default()),
            Self::Span { slots, .. } => **slots = [(0, CallCounts::default()); SLOTS],
        }
    }
}
