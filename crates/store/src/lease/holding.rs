//! A node's holding of one key, as a state machine over (event, now).
//!
//! ```text
//!   spend --enough held--> answered here
//!     | too little
//!     v
//!   ask --> Take(n)   the store is asked for n >= cost units --granted--> hold n - cost
//!           Exact     another request is taking, or no demand: this cost only
//!           Denied    the store said no a moment ago, and its wait is not over, or another request
//!                     is asking whether it still stands
//! ```
//!
//! The last is what keeps a key whose demand is several times its limit cheap: without it, everyone
//! who comes while one request asks would ask too, and most of all calls were such ones.
//!
//! Invariants: at most one lease is held and at most one is being taken, and never both for more
//! than `n` units; units of a lease are spent within its lifetime, which counts from *before* the
//! store was asked; units whose grant was not heard of are never spent.

use tidegate_algorithms::limit::{Verdict, Wait};
use tidegate_algorithms::time::Tick;

use super::bounds::Bounds;

/// Least units of a lease while there is plenty.
const LEAST: u64 = 4;

/// A denial stands for T divided by this, or longer.
const PAUSES: u64 = 200;

/// A node's share of one key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Holding {
    /// Units that can be spent here.
    held: u64,
    /// When they no longer can.
    expires: Tick,
    /// Units that were last asked for in a lease.
    size: u64,
    /// Most units to ask for next: twice what the store granted last, half of what it refused.
    most: u64,
    /// When `size` was last decided, and the units that requests wanted since.
    sized: Tick,
    wanted: u64,
    taking: bool,
    /// The store's last verdict, and when it was asked for.
    seen: Option<(Verdict, Tick)>,
    /// A cost that the store denied, and until when it will.
    denied: Option<(u64, Tick)>,
}

/// What to do about a request that the holding does not cover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LeaseAsk {
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
        self.wanted = self.wanted.saturating_add(cost);
        self.verdict(now, quota)
    }

    /// What this node would say now: the store's last word, and what is held.
    pub(super) fn verdict(&self, now: Tick, quota: u64) -> Verdict {
        let (wait, limit) = (Wait::None, quota);
        let fresh = Verdict { allowed: true, limit, remaining: 0, wait, reset: 0, delay: 0, next: 0 };
        let (seen, at) = self.seen.unwrap_or((fresh, now));
        Verdict {
            allowed: true,
            wait: Wait::None,
            remaining: seen.remaining.saturating_add(self.held).min(quota),
            reset: seen.reset.saturating_sub(now.since(at)),
            next: seen.next.saturating_sub(now.since(at)),
            ..seen
        }
    }

    /// What to ask the store for.
    pub(super) fn ask(&mut self, now: Tick, cost: u64, bounds: &Bounds) -> LeaseAsk {
        if let Some(verdict) = self.denial(now, cost, bounds) {
            return LeaseAsk::Denied(verdict);
        }
        if now >= self.expires {
            self.held = 0;
        }
        // What is left is given up with the old lease, so that no more than one is ever held.
        let may_take = !self.taking && self.held == 0;
        if may_take {
            self.size_up(now, bounds);
        }
        self.wanted = self.wanted.saturating_add(cost);
        if !may_take || self.size <= cost {
            return LeaseAsk::Exact;
        }
        self.taking = true;
        LeaseAsk::Take(self.size)
    }

    /// The store's last denial, if it still stands for this cost.
    fn denial(&mut self, now: Tick, cost: u64, bounds: &Bounds) -> Option<Verdict> {
        let ((least, until), (seen, at)) = (self.denied?, self.seen?);
        let is_fresh = now < until.plus(bounds.turn);
        if !is_fresh {
            self.denied = None;
        }
        if cost < least || !is_fresh || (now >= until && !self.taking) {
            return None;
        }
        let wait = Wait::For(until.since(now).max(1));
        Some(Verdict { allowed: false, wait, reset: seen.reset.saturating_sub(now.since(at)), ..seen })
    }

    /// Makes the lease as large as what is wanted in a lifetime, at the pace since it was last sized, and
    /// two standard deviations of a Poisson count more, so that chance seldom ends it earlier. While the store has half of the quota or more left, a lease is of [`LEAST`] units at least:
    /// keys that are asked for rarely are many, and then cost the store less.
    fn size_up(&mut self, now: Tick, bounds: &Bounds) {
        let span = u128::from(now.since(self.sized).max(1));
        let wanted = u128::from(self.wanted) * u128::from(bounds.lifetime) / span;
        let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
        let with_chance = wanted.saturating_add(2 * wanted.isqrt());
        self.size = with_chance.min(self.most).clamp(self.least().min(bounds.units), bounds.units);
        self.sized = now;
        self.wanted = 0;
    }

    fn least(&self) -> u64 {
        let is_plenty = |(seen, _): &(Verdict, Tick)| seen.remaining >= seen.limit / 2;
        if self.seen.as_ref().is_some_and(is_plenty) { LEAST } else { 1 }
    }

    /// The store granted `units` to a request of `cost` that asked at `asked`.
    pub(super) fn granted(&mut self, asked: Tick, units: u64, cost: u64, verdict: Verdict, lifetime: u64) {
        self.taking = false;
        self.most = units.saturating_mul(2);
        self.held = units.saturating_sub(cost);
        self.expires = asked.plus(lifetime);
        self.seen = Some((verdict, asked));
    }

    /// Puts back what was spent for a request that was then denied elsewhere.
    pub(super) fn put_back(&mut self, now: Tick, units: u64, bounds: &Bounds) {
        self.wanted = self.wanted.saturating_sub(units);
        if now < self.expires {
            self.held = self.held.saturating_add(units).min(bounds.units.saturating_sub(1));
        }
    }

    /// The store gave no lease: it denied, did not answer, or nobody waits for its answer any more.
    /// The next one is smaller.
    pub(super) fn not_granted(&mut self) {
        self.taking = false;
        self.most = (self.size / 2).max(1);
    }

    /// The store answered a request for its own cost. A denial stands for a part of `longest` at
    /// least: where units come back within microseconds, they are then taken together.
    pub(super) fn answered(&mut self, asked: Tick, cost: u64, verdict: Verdict, longest: u64) {
        if verdict.allowed {
            self.most = self.most.max(2);
        }
        if let Wait::For(wait) = verdict.wait {
            self.denied = Some((cost, asked.plus(wait.max(longest / PAUSES).min(longest))));
        }
        self.seen = Some((verdict, asked));
    }

    /// Takes back everything that is held, to return it.
    pub(super) fn surrender(&mut self, now: Tick) -> u64 {
        let held = if now < self.expires { self.held } else { 0 };
        self.held = 0;
        held
    }

    /// Whether the holding can be forgotten: it has no units, takes none, and what it learnt of the key's demand is older
    /// than two T.
    pub(super) fn is_idle(&self, now: Tick, turn: u64) -> bool {
        !self.taking
            && (self.held == 0 || now >= self.expires)
            && now.since(self.sized) > turn.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::{Bucket, Limit};
    use tidegate_algorithms::time::SECOND;

    use super::super::bounds::{LeaseConfig, bounds};
    use super::*;

    fn of_a_million_a_minute() -> Bounds {
        let limit = Limit::TokenBucket(Bucket::new(1_000_000, 1_000_000, 60 * SECOND));
        bounds(&limit, &LeaseConfig::default())
    }

    fn verdict(allowed: bool, remaining: u64) -> Verdict {
        let wait = if allowed { Wait::None } else { Wait::For(1) };
        Verdict { allowed, limit: 1_000_000, remaining, wait, reset: 0, delay: 0, next: 0 }
    }

    /// Asks as often as `per_second` says for `seconds`, of a store that grants everything. How often
    /// the store was asked.
    fn calls(per_second: u64, seconds: u64) -> u64 {
        let (bounds, mut holding, mut calls) = (of_a_million_a_minute(), Holding::default(), 0);
        for number in 0..per_second * seconds {
            let now = Tick(SECOND + number * SECOND / per_second);
            if holding.covers(now, 1) {
                holding.spend(now, 1, 1_000_000);
                continue;
            }
            calls += 1;
            match holding.ask(now, 1, &bounds) {
                LeaseAsk::Take(units) => {
                    holding.granted(now, units, 1, verdict(true, 900_000), bounds.lifetime);
                }
                LeaseAsk::Exact => holding.answered(now, 1, verdict(true, 900_000), bounds.turn),
                LeaseAsk::Denied(_) => panic!("nothing was denied"),
            }
        }
        calls
    }

    #[test]
    fn a_lease_grows_to_what_is_wanted_in_its_lifetime() {
        for per_second in [1, 10, 100, 500] {
            let (first, second) = (calls(per_second, 300), calls(per_second, 600));
            let each = second - first;
            assert!((9..=11).contains(&each), "{each} calls in 300 s for {per_second} a second");
            assert!(first < 25, "{first} calls until then");
        }
        // Beyond the cap, a call for each lease of 16,667.
        assert!((30..60).contains(&calls(50_000, 10)), "{}", calls(50_000, 10));
    }

    #[test]
    fn one_request_asks_whether_a_denial_still_stands_and_the_others_are_denied() {
        let (bounds, mut holding) = (of_a_million_a_minute(), Holding::default());
        assert_eq!(holding.ask(Tick(SECOND), 1, &bounds), LeaseAsk::Exact);
        holding.answered(Tick(SECOND), 1, verdict(true, 900_000), bounds.turn);
        let asks = |ask: LeaseAsk| matches!(ask, LeaseAsk::Take(_));
        assert!(asks(holding.ask(Tick(SECOND + 1), 1, &bounds)));
        assert_eq!(holding.ask(Tick(SECOND + 2), 1, &bounds), LeaseAsk::Exact, "nothing was denied yet");
        holding.not_granted();
        holding.answered(Tick(SECOND + 1), 1, verdict(false, 0), bounds.turn);
        let denies = |ask: LeaseAsk| matches!(ask, LeaseAsk::Denied(verdict) if !verdict.allowed);
        assert!(denies(holding.ask(Tick(SECOND + 3), 1, &bounds)), "its wait is not over");

        let later = Tick(SECOND + bounds.turn / 100);
        holding.most = 64;
        holding.wanted = 1_000;
        assert!(asks(holding.ask(later, 1, &bounds)));
        assert!(denies(holding.ask(later, 1, &bounds)), "somebody asks already");
        holding.granted(later, 64, 1, verdict(true, 0), bounds.lifetime);
        assert!(holding.covers(later, 63));
        let much_later = later.plus(2 * bounds.turn);
        holding.taking = true;
        assert_eq!(holding.ask(much_later, 64, &bounds), LeaseAsk::Exact, "a denial is forgotten");
    }
}
