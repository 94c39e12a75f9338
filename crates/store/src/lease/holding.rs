//! What one node holds of one key, as a state machine over (event, now).
//!
//! ```text
//!   spend --enough held--> answered here
//!     | too little
//!     v
//!   ask --> Take(n)   the store is asked for n >= cost units --granted--> hold n - cost
//!           Exact     another request is taking, or no demand: this cost only
//!           Denied    the store said no a moment ago, and its wait is not over
//! ```
//!
//! Invariants: at most one lease is held and at most one is being taken, and never both for more
//! than `n` units; units of a lease are spent within its lifetime, which counts from *before* the
//! store was asked; units whose grant was not heard of are never spent.

use tidegate_algorithms::limit::{Verdict, Wait};
use tidegate_algorithms::time::Tick;

use super::bounds::Bounds;

/// A node's share of one key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holding {
    /// Units that can be spent here.
    held: u64,
    /// When they no longer can.
    expires: Tick,
    /// Units to take next time.
    size: u64,
    asked: Tick,
    taking: bool,
    /// The store's last verdict, and when it was asked for.
    seen: Option<(Verdict, Tick)>,
    /// A cost that the store denied, and until when it will.
    denied: Option<(u64, Tick)>,
}

/// What to do about a request that the holding does not cover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ask {
    /// Ask the store for this many units, and report what came of it.
    Take(u64),
    /// Ask the store for the request's own cost.
    Exact,
    /// The store's last denial still stands.
    Denied(Verdict),
}

impl Holding {
    /// Whether `cost` units can be spent here.
    pub(super) fn covers(&self, now: Tick, cost: u64) -> bool {
        cost > 0 && cost <= self.held && now < self.expires
    }

    /// Spends what is covered.
    pub(super) fn spend(&mut self, now: Tick, cost: u64, quota: u64) -> Verdict {
        self.held = self.held.saturating_sub(cost);
        self.verdict(now, quota)
    }

    /// What this node would say now: the store's last word, and what is held.
    pub(super) fn verdict(&self, now: Tick, quota: u64) -> Verdict {
        let fresh =
            Verdict { allowed: true, limit: quota, remaining: 0, wait: Wait::None, reset: 0, delay: 0 };
        let (seen, at) = self.seen.unwrap_or((fresh, now));
        Verdict {
            allowed: true,
            wait: Wait::None,
            remaining: seen.remaining.saturating_add(self.held).min(quota),
            reset: seen.reset.saturating_sub(now.since(at)),
            ..seen
        }
    }

    /// What to ask the store for.
    pub(super) fn ask(&mut self, now: Tick, cost: u64, bounds: &Bounds) -> Ask {
        if let Some((least, until)) = self.denied
            && cost >= least
            && let Some((seen, at)) = self.seen
        {
            if now < until {
                let wait = Wait::For(until.since(now).max(1));
                return Ask::Denied(Verdict {
                    allowed: false,
                    wait,
                    reset: seen.reset.saturating_sub(now.since(at)),
                    ..seen
                });
            }
            self.denied = None;
        }
        if now >= self.expires {
            self.held = 0;
        }
        self.learn(now, bounds);
        // What is left is given up with the old lease, so that no more than one is ever held.
        if self.taking || self.held > 0 || self.size <= cost {
            return Ask::Exact;
        }
        self.taking = true;
        Ask::Take(self.size)
    }

    /// Doubles the lease while one lasts less than half its lifetime, halves it when it lasts long.
    fn learn(&mut self, now: Tick, bounds: &Bounds) {
        if self.taking {
            return;
        }
        let lasted = now.since(self.asked);
        let size = self.size.max(1);
        self.size = match lasted {
            _ if lasted < bounds.lifetime / 2 => size.saturating_mul(2),
            _ if lasted > bounds.lifetime.saturating_mul(2) => 1,
            _ if lasted > bounds.lifetime => size / 2,
            _ => size,
        }
        .clamp(1, bounds.units);
        self.asked = now;
    }

    /// The store granted `units` to a request of `cost` that asked at `asked`.
    pub(super) fn granted(&mut self, asked: Tick, units: u64, cost: u64, verdict: Verdict, lifetime: u64) {
        self.taking = false;
        self.denied = None;
        self.held = units.saturating_sub(cost);
        self.expires = asked.plus(lifetime);
        self.seen = Some((verdict, asked));
    }

    /// Puts back what was spent for a request that was then denied elsewhere.
    pub(super) fn put_back(&mut self, now: Tick, units: u64, bounds: &Bounds) {
        if now < self.expires {
            self.held = self.held.saturating_add(units).min(bounds.units.saturating_sub(1));
        }
    }

    /// The store gave no lease: it denied, or did not answer. The next one is asked for anew.
    pub(super) fn not_granted(&mut self) {
        self.taking = false;
        self.size = 1;
    }

    /// The store answered a request for its own cost.
    pub(super) fn answered(&mut self, asked: Tick, cost: u64, verdict: Verdict, longest: u64) {
        if let Wait::For(wait) = verdict.wait {
            self.denied = Some((cost, asked.plus(wait.min(longest))));
        }
        self.seen = Some((verdict, asked));
    }

    /// Takes back everything that is held, to return it.
    pub(super) fn surrender(&mut self, now: Tick) -> u64 {
        let held = if now < self.expires { self.held } else { 0 };
        self.held = 0;
        held
    }

    /// Whether forgetting it loses nothing.
    pub(super) fn is_idle(&self, now: Tick, lifetime: u64) -> bool {
        !self.taking
            && (self.held == 0 || now >= self.expires)
            && now.since(self.asked) > lifetime.saturating_mul(2)
    }
}
