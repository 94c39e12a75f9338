//! Placement by region: near backends first, and among equally near ones the least loaded.
//!
//! ```text
//!   score = tier x 100 + (connections / soft limit) / weight        the lowest score wins
//!
//!   tier 0   same country as the client
//!   tier 1   same region as the client
//!   tier 2   the region of this node
//!   tier 3   anywhere else
//! ```
//!
//! A backend at its hard limit is never chosen. One at its soft limit has spent what its tier gives
//! it, and [`Spill`] says whether its clients then go to the next tier. The hard limit is judged
//! here on a reading; it is kept by reserving a place before connecting, which is not here.

/// How far a backend is from a client, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// In the client's country.
    Country = 0,
    /// In the client's region.
    Region = 1,
    /// In the region of this node.
    Node = 2,
    /// Anywhere else.
    Elsewhere = 3,
}

/// When clients of a full tier go to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spill {
    /// Never: a full tier refuses.
    Never,
    /// When its backends are at their soft limits, at a penalty of one tier each.
    AtSoft,
    /// When its backends are at their hard limits.
    #[default]
    AtHard,
}

/// What placement needs to know of one backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// How far it is.
    pub tier: Tier,
    /// Its connections.
    pub connections: u32,
    /// Connections that it is meant to have; 0 counts as 1.
    pub soft_limit: u32,
    /// Connections that it may have.
    pub hard_limit: u32,
    /// Its share among its like; 0 counts as 1 in the score, and whoever calls leaves out backends that
    /// are to get nothing.
    pub weight: u32,
}

impl Load {
    /// The score of a backend, lower is better; `None`: it may not be chosen.
    #[must_use]
    pub fn score(&self, spill: Spill) -> Option<f64> {
        if self.connections >= self.hard_limit {
            return None;
        }
        let used = f64::from(self.connections) / f64::from(self.soft_limit.max(1));
        let penalty = if spill == Spill::AtSoft && used >= 1.0 { 1.0 } else { 0.0 };
        let tier = f64::from(self.tier as u8) + penalty;
        Some(tier * 100.0 + used / f64::from(self.weight.max(1)))
    }
}

/// The best of `count` backends: the first with the lowest score. `load` gives `None` for those that are
/// not to be used. `None`: there is none.
pub fn pick(count: usize, spill: Spill, load: impl Fn(usize) -> Option<Load>) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    let mut nearest = Tier::Elsewhere;
    for index in 0..count {
        let Some(load) = load(index) else { continue };
        nearest = nearest.min(load.tier);
        if let Some(score) = load.score(spill)
            && best.is_none_or(|(_, lowest)| score < lowest)
        {
            best = Some((index, score));
        }
    }
    let (index, _) = best?;
    let stays = spill != Spill::Never || load(index).is_some_and(|chosen| chosen.tier == nearest);
    stays.then_some(index)
}
