//! The backends of one app, and placing connections at them.
//!
//! ```text
//!   where the client was ── still usable, open, not full ──> its place there
//!            │ otherwise
//!            v
//!   the lowest score ──> reserve a place ── taken meanwhile ──> the lowest score again
//! ```
//!
//! A place is reserved before the backend is connected to, by compare-and-swap, and given back when the connection
//! ends: a hard limit is never passed, however many come at once (fault 67).
//!
//! Where round trips decide the tiers, whoever places a connection first in a second looks at all of them, and arranges
//! the backends anew if a tier has changed. The others go on with the arrangement before.
//!
//! Healthy backends come first, wherever they are. If all backends of a tier and priority are unhealthy, they are the last
//! resort (panic), since the fault may be on this side: they are used when no healthy backend of the app has room.
//!
//! How many are usable is counted when a backend comes, goes, is found up or down, or is back, and not per connection.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use arc_swap::{ArcSwap, Guard};
use tidegate_algorithms::balance::region::{
    Chosen, Layout, Load, Location, Member, Region, Spill, Tier, Unplaced,
};
use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_upstream::backend::{Backend, Place};

use crate::backend::EdgeBackend;

/// How often backends are arranged by their round trips, in nanoseconds.
const ARRANGED_EVERY: u64 = SECOND;

/// The backends of one app.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) app: Arc<str>,
    backends: Vec<Arc<EdgeBackend>>,
    /// What placing reads of each of them, side by side.
    loads: Vec<LoadSource>,
    layout: ArcSwap<Layout>,
    /// Where round trips decide the tiers: their bounds, and when the tiers are looked at again.
    measured: Option<(TierBounds, AtomicU64)>,
    by_name: HashMap<Arc<str>, usize>,
    open: usize,
    /// Counts, over all pools, that a backend was found to be up or down, or was taken out.
    troubles: Arc<AtomicU64>,
    usable: ArcSwap<Usable>,
}

/// Where a backend's load is read.
#[derive(Debug)]
struct LoadSource {
    backend: Arc<Backend>,
    is_open: bool,
    slow_start: u64,
}

/// How many of the open backends were usable.
#[derive(Clone, Copy, Debug)]
struct Usable {
    count: usize,
    /// How many troubles there had been.
    troubles: u64,
    /// When the first one is back that was out only for a time.
    until: Tick,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    pub(crate) location: Location,
    /// The region of this node.
    pub(crate) node: Option<Region>,
    /// The backend that its client was at.
    pub(crate) before: Option<&'a str>,
    pub(crate) spill: Spill,
}

/// Where a connection goes, or would go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) chosen: Chosen,
    /// Whether its client was there before.
    pub(crate) is_affine: bool,
    /// Whether no healthy backend had room.
    pub(crate) is_last_resort: bool,
}

/// A place for a connection.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) index: usize,
    pub(crate) backend: Arc<EdgeBackend>,
    pub(crate) place: Place,
    pub(crate) tier: Tier,
    /// Whether the tier was measured.
    pub(crate) is_measured: bool,
    pub(crate) score: f64,
    /// Whether its client was there before.
    pub(crate) is_affine: bool,
}

impl Pool {
    /// A pool of `backends`, of which `location` says where they are. With `bounds`, those whose round trip is known
    /// are as far as that says.
    pub(crate) fn new(
        app: Arc<str>,
        backends: Vec<Arc<EdgeBackend>>,
        troubles: Arc<AtomicU64>,
        mut location: impl FnMut(&EdgeBackend) -> Location,
        bounds: Option<TierBounds>,
    ) -> Self {
        let members = backends.iter().map(|backend| Member {
            location: location(backend),
            measured: None,
            priority: backend.config.priority,
            soft_limit: backend.config.soft_limit,
            hard_limit: backend.config.hard_limit,
            weight: backend.config.weight,
        });
        let layout = ArcSwap::from_pointee(Layout::new(members.collect()));
        let measured = bounds.map(|bounds| (bounds, AtomicU64::new(0)));
        let names = backends.iter().enumerate();
        let by_name = names.map(|(index, backend)| (Arc::clone(&backend.config.name), index)).collect();
        let open = backends.iter().filter(|backend| backend.is_open()).count();
        let source = |backend: &Arc<EdgeBackend>| LoadSource {
            backend: Arc::clone(&backend.known.backend),
            is_open: backend.is_open(),
            slow_start: backend.config.slow_start,
        };
        let loads = backends.iter().map(source).collect();
        // Of before the first look.
        let usable = ArcSwap::from_pointee(Usable { count: open, troubles: 0, until: Tick(0) });
        Self { app, backends, loads, layout, measured, by_name, open, troubles, usable }
    }

    pub(crate) fn backends(&self) -> &[Arc<EdgeBackend>] {
        &self.backends
    }

    /// How the backends are arranged.
    pub(crate) fn layout(&self, now: Tick) -> Guard<Arc<Layout>> {
        if let Some((bounds, next)) = &self.measured {
            let due = next.load(Relaxed);
            // One of the connections that come then does it.
            if due <= now.0
                && next.compare_exchange(due, now.plus(ARRANGED_EVERY).0, Relaxed, Relaxed).is_ok()
            {
                self.arrange(*bounds, now);
            }
        }
        self.layout.load()
    }

    /// Arranges the backends by what their round trips are now.
    fn arrange(&self, bounds: TierBounds, now: Tick) {
        let mut members = self.layout.load().members().to_vec();
        let mut is_other = false;
        for (member, backend) in members.iter_mut().zip(&self.backends) {
            let tier = backend.known.round_trip(now).map(|nanos| bounds.tier(nanos, member.measured));
            is_other |= tier != member.measured;
            member.measured = tier;
        }
        if is_other {
            self.layout.store(Arc::new(Layout::new(members)));
        }
    }

    /// Whether none is usable, so that all count.
    pub(crate) fn is_panic(&self, now: Tick) -> bool {
        self.open > 0 && self.usable(now).count == 0
    }

    /// How many are usable: counted anew only if that may have changed.
    fn usable(&self, now: Tick) -> Usable {
        let usable = **self.usable.load();
        // A thread changes the backend before it counts one more, so the change is seen here.
        let troubles = self.troubles.load(Acquire);
        if usable.troubles == troubles && now < usable.until {
            return usable;
        }
        let counted = self.count_usable(troubles, now);
        self.usable.store(Arc::new(counted));
        counted
    }

    fn count_usable(&self, troubles: u64, now: Tick) -> Usable {
        let mut counted = Usable { count: 0, troubles, until: Tick(u64::MAX) };
        for source in self.loads.iter().filter(|source| source.is_open) {
            counted.count += usize::from(source.backend.is_usable(now));
            let back = source.backend.ejected_until();
            if now < back {
                counted.until = counted.until.min(back);
            }
        }
        counted
    }

    /// The place for a connection, at none of the backends at `tried`.
    pub(crate) fn place(&self, from: Origin<'_>, tried: &[usize], now: Tick) -> Result<Placed, Unplaced> {
        let (choice, place) = self.choose(from, tried, now, |index, is_last_resort| {
            if is_last_resort { self.reserve(index) } else { self.reserve_or_try(index, now) }
        })?;
        let Chosen { index, tier, is_measured, score } = choice.chosen;
        let backend = Arc::clone(&self.backends[index]);
        Ok(Placed { index, backend, place, tier, is_measured, score, is_affine: choice.is_affine })
    }

    /// What [`Pool::place`] would choose. Nothing is reserved.
    pub(crate) fn preview(&self, from: Origin<'_>, tried: &[usize], now: Tick) -> Result<Choice, Unplaced> {
        self.choose(from, tried, now, |_, _| Some(())).map(|(choice, ())| choice)
    }

    fn choose<T>(
        &self,
        from: Origin<'_>,
        tried: &[usize],
        now: Tick,
        reserve: impl Fn(usize, bool) -> Option<T>,
    ) -> Result<(Choice, T), Unplaced> {
        let layout = self.layout(now);
        // All of them: then there is no need to look at each, which is most of the work.
        let all_count = Cell::new(tried.is_empty() && self.usable(now).count == self.open);
        let healthy = |index: usize| {
            // A backend in doubt is tried first or not at all, so that it costs a client one attempt at most.
            let is_left_out =
                !tried.is_empty() && (tried.contains(&index) || self.backends[index].known.is_in_doubt());
            if is_left_out { None } else { self.loads[index].read(all_count.get(), now) }
        };
        let one_of_them = |index: usize| {
            let reserved = reserve(index, false);
            // Another one has begun to try it, or has filled it.
            all_count.set(all_count.get() && reserved.is_some());
            reserved
        };
        let unplaced = match self.choose_of(&layout, from, healthy, one_of_them) {
            Ok((chosen, is_affine, reserved)) => {
                return Ok((Choice { chosen, is_affine, is_last_resort: false }, reserved));
            }
            Err(unplaced) => unplaced,
        };
        let Some(counts) = self.in_panic(&layout, from, now) else { return Err(unplaced) };
        let any = |index: usize| {
            if tried.contains(&index) { None } else { self.load(index, counts[index], now) }
        };
        let last = self.choose_of(&layout, from, any, |index| reserve(index, true));
        let (chosen, is_affine, reserved) =
            last.map_err(|last| if unplaced == Unplaced::Full { unplaced } else { last })?;
        Ok((Choice { chosen, is_affine, is_last_resort: true }, reserved))
    }

    /// Which backends are of a tier and priority without a healthy one; `None`: there is no such.
    pub(crate) fn in_panic(&self, layout: &Layout, from: Origin<'_>, now: Tick) -> Option<Vec<bool>> {
        let group = |member: &Member| (member.priority, member.tier(from.location, from.node));
        let mut groups: Vec<((u16, Tier), bool)> = Vec::new();
        for ((member, source), backend) in layout.members().iter().zip(&self.loads).zip(&self.backends) {
            if !source.is_open {
                continue;
            }
            let is_healthy = source.backend.is_usable(now) && !backend.known.is_in_doubt();
            match groups.iter_mut().find(|(known, _)| *known == group(member)) {
                Some((_, has_healthy)) => *has_healthy |= is_healthy,
                None => groups.push((group(member), is_healthy)),
            }
        }
        groups.retain(|(_, has_healthy)| !has_healthy);
        let is_in_panic = |member: &Member| groups.iter().any(|(known, _)| *known == group(member));
        (!groups.is_empty()).then(|| layout.members().iter().map(is_in_panic).collect())
    }

    fn choose_of<T>(
        &self,
        layout: &Layout,
        from: Origin<'_>,
        load: impl Fn(usize) -> Option<Load>,
        reserve: impl Fn(usize) -> Option<T>,
    ) -> Result<(Chosen, bool, T), Unplaced> {
        if let Some(index) = from.before.and_then(|name| self.by_name.get(name).copied())
            && let Some(reading) = load(index)
            && let Some(member) = layout.members().get(index)
        {
            let (tier, is_measured) = (member.tier(from.location, from.node), member.measured.is_some());
            if let Some(score) = member.score(tier, reading, from.spill)
                && let Some(reserved) = reserve(index)
            {
                return Ok((Chosen { index, tier, is_measured, score }, true, reserved));
            }
        }
        // Each round that fails found a backend full that had room a moment ago. That this ends is certain only in
        // practice, so it is bounded.
        for _ in 0..=2 * self.backends.len() {
            let chosen = layout.pick(from.location, from.node, from.spill, &load)?;
            if let Some(reserved) = reserve(chosen.index) {
                return Ok((chosen, false, reserved));
            }
        }
        Err(Unplaced::Full)
    }

    /// What a backend carries; `None`: it is not to be used.
    pub(crate) fn load(&self, index: usize, is_panic: bool, now: Tick) -> Option<Load> {
        self.loads[index].read(is_panic && !self.backends[index].known.is_in_circle(), now)
    }

    /// A place at a backend; at one that is in doubt for one connection alone, which tries it.
    fn reserve_or_try(&self, index: usize, now: Tick) -> Option<Place> {
        let known = &self.backends[index].known;
        if !known.is_in_doubt() {
            return self.reserve(index);
        }
        let place = self.reserve(index)?;
        let may_try = known.try_again(now);
        // It is out for all others now; or it was, and somebody has not seen it.
        self.troubles.fetch_add(1, Release);
        may_try.then_some(place)
    }

    fn reserve(&self, index: usize) -> Option<Place> {
        let backend = &self.backends[index];
        backend.known.backend.take_place_of(backend.config.hard_limit)
    }
}

impl LoadSource {
    /// `all_count`: whether it is usable is known, or does not matter.
    fn read(&self, all_count: bool, now: Tick) -> Option<Load> {
        if !self.is_open || !(all_count || self.backend.is_usable(now)) {
            return None;
        }
        let factor = match self.slow_start {
            0 => 1.0,
            warm_up => 1.0 / self.backend.share(warm_up, now),
        };
        Some(Load { connections: self.backend.in_flight(), factor })
    }
}

#[cfg(test)]
mod tests;
