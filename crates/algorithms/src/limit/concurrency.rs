//! Concurrency: permits that are held, released, or lapse when their lease ends.
//!
//! The lease is what makes a crashed holder harmless (fault 44): its permit comes back by itself.
//! Permits are kept in the order in which they lapse, so that lapsed ones leave from the front;
//! finding one by name is a scan, bounded by [`MAX_PERMITS`].

use std::collections::VecDeque;

use super::{State, Verdict};
use crate::time::{Now, Tick};

/// Most permits of one key.
pub const MAX_PERMITS: u64 = 10_000;

/// A permit's name, unique among the permits of a key: 64 random bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PermitId(pub u64);

/// At most `limit` units held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Units that can be held at once. 0 denies everything.
    pub limit: u64,
    /// How long a permit lasts unless renewed, in nanoseconds.
    pub lease: u64,
}

/// What is kept per key: the permits in the order in which they lapse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    held: VecDeque<Permit>,
    units: u64,
}

/// One permit that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Its name.
    pub id: PermitId,
    /// Units it holds.
    pub units: u64,
    /// When it lapses.
    pub lapses: Tick,
}

impl Slots {
    pub(super) fn check(&self, state: &mut State, now: Now, cost: u64) -> Verdict {
        let Some(permits) = self.settle(state, now) else {
            let reset = if cost == 0 { 0 } else { self.lease };
            return Verdict::allowed(self.limit, self.limit - cost, reset, 0);
        };
        let reset = permits.expires().since(now.tick);
        let wanted = permits.units.saturating_add(cost);
        if wanted <= self.limit {
            let reset = if cost == 0 { reset } else { reset.max(self.lease) };
            Verdict::allowed(self.limit, self.limit - wanted, reset, 0)
        } else {
            let remaining = self.limit.saturating_sub(permits.units);
            let wait = permits.frees(wanted - self.limit).since(now.tick);
            Verdict::denied(self.limit, remaining, wait, reset)
        }
    }

    pub(super) fn charge(&self, state: &mut State, now: Now, cost: u64, id: PermitId) {
        self.settle(state, now);
        if !matches!(state, State::Concurrency(_)) {
            *state = State::Concurrency(Box::default());
        }
        if let State::Concurrency(permits) = state {
            permits.insert(Permit { id, units: cost, lapses: now.tick.plus(self.lease) });
        }
    }

    /// Extends a permit's lease from `now`. False if it is not held: it lapsed or was released.
    #[must_use]
    pub fn renew(&self, state: &mut State, now: Now, id: PermitId) -> bool {
        let Some(permits) = self.settle(state, now) else { return false };
        let Some(permit) = permits.remove(id) else { return false };
        permits.insert(Permit { lapses: now.tick.plus(self.lease), ..permit });
        true
    }

    /// Gives a permit back. False if it is not held: it lapsed or was released before.
    #[must_use]
    pub fn release(&self, state: &mut State, now: Now, id: PermitId) -> bool {
        self.settle(state, now).and_then(|permits| permits.remove(id)).is_some()
    }

    /// Drops lapsed permits; `None` if none were ever held. Another algorithm's state has no
    /// permits in it and is dropped.
    fn settle<'s>(&self, state: &'s mut State, now: Now) -> Option<&'s mut Permits> {
        let State::Concurrency(permits) = state else {
            *state = State::Fresh;
            return None;
        };
        permits.lapse(now.tick, self.lease);
        Some(permits)
    }
}

impl Permits {
    /// When the last permit lapses.
    pub(super) fn expires(&self) -> Tick {
        self.held.back().map_or(Tick(0), |permit| permit.lapses)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<Self>() + self.held.capacity() * size_of::<Permit>()
    }

    /// The permits held, in the order in which they lapse.
    pub fn held(&self) -> impl Iterator<Item = &Permit> {
        self.held.iter()
    }

    /// Permits with this content.
    #[must_use]
    pub fn restore(held: impl IntoIterator<Item = Permit>) -> Self {
        let mut permits = Self::default();
        held.into_iter().for_each(|permit| permits.insert(permit));
        permits
    }

    fn lapse(&mut self, now: Tick, lease: u64) {
        // A lease that ends later than a fresh one would was given before the clock went back.
        for permit in self.held.iter_mut().rev() {
            if permit.lapses <= now.plus(lease) {
                break;
            }
            permit.lapses = now.plus(lease);
        }
        while let Some(first) = self.held.front()
            && first.lapses <= now
        {
            self.units = self.units.saturating_sub(first.units);
            self.held.pop_front();
        }
    }

    fn insert(&mut self, permit: Permit) {
        let at = self.held.iter().rposition(|other| other.lapses <= permit.lapses).map_or(0, |last| last + 1);
        self.held.insert(at, permit);
        self.units = self.units.saturating_add(permit.units);
    }

    fn remove(&mut self, id: PermitId) -> Option<Permit> {
        let at = self.held.iter().position(|permit| permit.id == id)?;
        let permit = self.held.remove(at)?;
        self.units = self.units.saturating_sub(permit.units);
        Some(permit)
    }

    /// When at least `units` will have lapsed.
    fn frees(&self, units: u64) -> Tick {
        let mut freed = 0_u64;
        for permit in &self.held {
            freed = freed.saturating_add(permit.units);
            if freed >= units {
                return permit.lapses;
            }
        }
        self.expires()
    }
}
