//! Fixed window: a count per window, windows aligned to the epoch.
//!
//! Cheap and easy to explain, and up to twice the limit can pass around a boundary: that is the
//! algorithm, stated in the docs, not a fault of a store. When a store's clock goes back over a
//! boundary, what was spent counts until the end of the window that the clock is then in.

use super::{State, Verdict, narrow};
use crate::time::{Now, SECOND, Tick};

/// `limit` units in each window of `seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Units per window. 0 denies everything.
    pub limit: u64,
    /// Length of a window in seconds, >= 1.
    pub seconds: u32,
}

/// What is kept per key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowCount {
    /// End of the window that is counted.
    pub end: Tick,
    /// Units spent in it.
    pub count: u32,
    /// Length of the window, in seconds.
    pub seconds: u32,
}

impl FixedWindow {
    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let window = self.settle(state, now);
        let left = window.end.since(now.tick);
        let used = u64::from(window.count);
        let wanted = used.saturating_add(cost);
        if wanted <= self.limit {
            Verdict::allowed(self.limit, self.limit - wanted, if wanted == 0 { 0 } else { left }, left)
        } else {
            Verdict::denied(self.limit, self.limit - used, left, left)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64) {
        let window = self.settle(state, now);
        let count = window.count.saturating_add(narrow(cost));
        *state = State::FixedWindow(WindowCount { count, ..window });
    }

    pub(super) fn refund(&self, state: &mut State, now: Now, cost: u64) {
        let window = self.settle(state, now);
        let count = window.count.saturating_sub(narrow(cost));
        *state = State::FixedWindow(WindowCount { count, ..window });
    }

    /// The window that `now` is in, with what is counted in it. What another window or algorithm
    /// had counted is taken over once, here, so that the wait promised for it holds.
    fn settle(&self, state: &mut State, now: Now) -> WindowCount {
        let length = u64::from(self.seconds) * SECOND;
        if let State::FixedWindow(count) = state
            && count.seconds == self.seconds
            && (1..=length).contains(&count.end.since(now.tick))
        {
            return WindowCount { count: count.count.min(narrow(self.limit)), ..*count };
        }
        let end = Tick((now.tick.0 / length).saturating_add(1).saturating_mul(length));
        let used = state.used(now).min(self.limit);
        let count = WindowCount { end, count: narrow(used), seconds: self.seconds };
        *state = State::FixedWindow(count);
        count
    }
}

impl WindowCount {
    pub(super) fn used(&self, now: Now) -> u64 {
        if now.tick < self.end { u64::from(self.count) } else { 0 }
    }

    /// When this count says nothing any more: at once if it is 0.
    pub(super) fn expires(&self) -> Tick {
        if self.count == 0 { Tick(0) } else { self.end }
    }
}
