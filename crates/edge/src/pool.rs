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
//! While fewer than half of the open backends are usable, all of them count (panic): the fault may be on this side.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwap, Guard};
use tidegate_algorithms::balance::eligibility::is_panic;
use tidegate_algorithms::balance::region::{Chosen, Layout, Location, Member, Region, Spill, Tier, Unplaced};
use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_upstream::backend::Place;

use crate::backend::EdgeBackend;

/// How often backends are arranged by their round trips, in nanoseconds.
const ARRANGED_EVERY: u64 = SECOND;

/// The backends of one app.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) app: Arc<str>,
    backends: Vec<Arc<EdgeBackend>>,
    layout: ArcSwap<Layout>,
    /// Where round trips decide the tiers: their bounds, and when the tiers are looked at again.
    measured: Option<(TierBounds, AtomicU64)>,
    by_name: HashMap<Arc<str>, usize>,
    open: usize,
    /// Counts, over all pools, that a backend was found to be down or was taken out.
    troubles: Arc<AtomicU64>,
    /// How many of them there had been when all backends were found to be usable.
    settled: AtomicU64,
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
        Self { app, backends, layout, measured, by_name, open, troubles, settled: AtomicU64::new(u64::MAX) }
    }

    pub(crate) fn backends(&self) -> &[Arc<EdgeBackend>] {
        &self.backends
    }

    /// How the backends are arranged.
    pub(crate) fn layout(&self, now: Tick) -> Guard<Arc<Layout>> {
        if let Some((bounds, next)) = &self.measured {
            let due = next.load(Relaxed);
            // One of those that come then does it.
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

    /// Whether so few are usable that all count.
    pub(crate) fn is_panic(&self, now: Tick) -> bool {
        let troubles = self.troubles.load(Relaxed);
        if self.settled.load(Relaxed) == troubles {
            return false;
        }
        let open = self.backends.iter().filter(|backend| backend.is_open());
        let usable = open.filter(|backend| backend.known.backend.is_usable(now)).count();
        if usable == self.open {
            self.settled.store(troubles, Relaxed);
        }
        is_panic(usable, self.open)
    }

    /// Backends that are out for failed connections, and those that may be.
    pub(crate) fn ejected(&self, now: Tick) -> (usize, usize) {
        let open = self.backends.iter().filter(|backend| backend.is_open());
        (open.filter(|backend| backend.known.backend.is_ejected(now)).count(), self.open)
    }

    /// The place for a connection, at none of the backends at `tried`.
    pub(crate) fn place(&self, from: Origin<'_>, tried: &[usize], now: Tick) -> Result<Placed, Unplaced> {
        let (chosen, is_affine, place) = self.choose(from, tried, now, |index| self.reserve(index))?;
        let Chosen { index, tier, is_measured, score } = chosen;
        let backend = Arc::clone(&self.backends[index]);
        Ok(Placed { index, backend, place, tier, is_measured, score, is_affine })
    }

    /// What [`Pool::place`] would choose, and whether because the client was there before. Nothing is reserved.
    pub(crate) fn preview(&self, from: Origin<'_>, now: Tick) -> Result<(Chosen, bool), Unplaced> {
        self.choose(from, &[], now, |_| Some(())).map(|(chosen, is_affine, ())| (chosen, is_affine))
    }

    fn choose<T>(
        &self,
        from: Origin<'_>,
        tried: &[usize],
        now: Tick,
        reserve: impl Fn(usize) -> Option<T>,
    ) -> Result<(Chosen, bool, T), Unplaced> {
        let (is_panic, layout) = (self.is_panic(now), self.layout(now));
        let load = |index: usize| {
            let backend = &self.backends[index];
            if tried.contains(&index) || !backend.is_open() { None } else { backend.load(is_panic, now) }
        };
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
            let chosen = layout.pick(from.location, from.node, from.spill, load)?;
            if let Some(reserved) = reserve(chosen.index) {
                return Ok((chosen, false, reserved));
            }
        }
        Err(Unplaced::Full)
    }

    fn reserve(&self, index: usize) -> Option<Place> {
        let backend = &self.backends[index];
        backend.known.backend.take_place_of(backend.config.hard_limit)
    }
}

#[cfg(test)]
mod tests;
