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
//! While fewer than half of the open backends are usable, all of them count (panic): the fault may be on this side.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_algorithms::balance::eligibility::is_panic;
use tidegate_algorithms::balance::region::{Chosen, Layout, Location, Member, Region, Spill, Tier, Unplaced};
use tidegate_algorithms::time::Tick;
use tidegate_upstream::backend::Place;

use crate::backend::EdgeBackend;

/// The backends of one app.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) app: Arc<str>,
    backends: Vec<Arc<EdgeBackend>>,
    layout: Layout,
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
    pub(crate) score: f64,
    /// Whether its client was there before.
    pub(crate) is_affine: bool,
}

impl Pool {
    /// A pool of `backends`, of which `location` says where they are.
    pub(crate) fn new(
        app: Arc<str>,
        backends: Vec<Arc<EdgeBackend>>,
        troubles: Arc<AtomicU64>,
        mut location: impl FnMut(&EdgeBackend) -> Location,
    ) -> Self {
        let members = backends.iter().map(|backend| Member {
            location: location(backend),
            priority: backend.config.priority,
            soft_limit: backend.config.soft_limit,
            hard_limit: backend.config.hard_limit,
            weight: backend.config.weight,
        });
        let layout = Layout::new(members.collect());
        let names = backends.iter().enumerate();
        let by_name = names.map(|(index, backend)| (Arc::clone(&backend.config.name), index)).collect();
        let open = backends.iter().filter(|backend| backend.is_open()).count();
        Self { app, backends, layout, by_name, open, troubles, settled: AtomicU64::new(u64::MAX) }
    }

    pub(crate) fn backends(&self) -> &[Arc<EdgeBackend>] {
        &self.backends
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
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
        let Chosen { index, tier, score } = chosen;
        Ok(Placed { index, backend: Arc::clone(&self.backends[index]), place, tier, score, is_affine })
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
        let is_panic = self.is_panic(now);
        let load = |index: usize| {
            let backend = &self.backends[index];
            if tried.contains(&index) || !backend.is_open() { None } else { backend.load(is_panic, now) }
        };
        if let Some(index) = from.before.and_then(|name| self.by_name.get(name).copied())
            && let Some(reading) = load(index)
            && let Some(member) = self.layout.member(index)
        {
            let tier = Tier::of(from.location, member.location, from.node);
            if let Some(score) = member.score(tier, reading, from.spill)
                && let Some(reserved) = reserve(index)
            {
                return Ok((Chosen { index, tier, score }, true, reserved));
            }
        }
        // Each round that fails found a backend full that had room a moment ago. That this ends is certain only in
        // practice, so it is bounded.
        for _ in 0..=2 * self.backends.len() {
            let chosen = self.layout.pick(from.location, from.node, from.spill, load)?;
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
