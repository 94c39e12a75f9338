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
//! A backend whose round trip was measured is of the tier that [`super::round_trip`] says, whatever the places are.
//!
//! Backends of equal location, priority and measured tier form a zone, so that a tier is found once for all of them:
//!
//! ```text
//!   priority 0 ──> tier 0: zones ──> members │ best score below 100? done, for no later tier can beat it
//!                  tier 1: zones ──> members │ below 200? done ...
//!   priority 1 ──> ... only if nothing of priority 0 has room
//! ```
//!
//! A backend at its hard limit is never chosen. A backend at its soft limit has used up the advantage of its tier,
//! and [`Spill`] says whether its clients then go to the next tier. The hard limit is judged here on a reading; it is
//! kept by reserving a place before connecting, which is not here.
//!
//! Rejected: one pass over all backends, which costs the same wherever the client is.

use std::fmt;

/// A country, by its two letters of ISO 3166-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

impl Country {
    /// Reads two letters, in either case. `None`: it is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let letters: [u8; 2] = text.as_bytes().try_into().ok()?;
        letters.iter().all(u8::is_ascii_alphabetic).then(|| Self(letters.map(|it| it.to_ascii_uppercase())))
    }
}

impl fmt::Display for Country {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(out, "{}", char::from(*letter)))
    }
}

/// A region, by its number among the names of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u16);

/// Where somebody is, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The country.
    pub country: Option<Country>,
    /// The region.
    pub region: Option<Region>,
}

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

impl Tier {
    /// All of them, nearest first.
    pub const ALL: [Self; 4] = [Self::Country, Self::Region, Self::Node, Self::Elsewhere];

    /// How far `backend` is from `client`, asked at a node in the region `node`. What is not known is
    /// equal to nothing.
    #[must_use]
    pub fn of(client: Location, backend: Location, node: Option<Region>) -> Self {
        if backend.country.is_some() && backend.country == client.country {
            Self::Country
        } else if backend.region.is_some() && backend.region == client.region {
            Self::Region
        } else if backend.region.is_some() && backend.region == node {
            Self::Node
        } else {
            Self::Elsewhere
        }
    }

    /// Its word in explanations and logs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Country => "country",
            Self::Region => "region",
            Self::Node => "node",
            Self::Elsewhere => "elsewhere",
        }
    }

    /// The score of an idle backend of this tier: no backend of it scores less.
    fn least_score(self) -> f64 {
        f64::from(self as u8) * 100.0
    }
}

/// When clients of a full tier go to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spill {
    /// Never: a full tier refuses.
    Never,
    /// When its backends are at their soft limits, at a penalty of one tier each.
    AtSoft,
    /// When its backends are at their hard limits.
    #[default]
    AtHard,
}

impl Spill {
    /// Its word in the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::AtSoft => "at-soft",
            Self::AtHard => "at-hard",
        }
    }
}

/// What the configuration says of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it is.
    pub location: Location,
    /// How far it is by measurement, which then counts in place of where it is.
    pub measured: Option<Tier>,
    /// Backends of a higher number are used when none of a lower one has room.
    pub priority: u16,
    /// Connections that it is meant to have; 0 counts as 1.
    pub soft_limit: u32,
    /// Connections that it may have.
    pub hard_limit: u32,
    /// Its share among its like; 0 counts as 1 in the score, and whoever calls leaves out backends that
    /// are to get nothing.
    pub weight: u32,
}

impl Member {
    /// How far it is from `client`, asked at a node in the region `node`.
    #[must_use]
    pub fn tier(&self, client: Location, node: Option<Region>) -> Tier {
        self.measured.unwrap_or_else(|| Tier::of(client, self.location, node))
    }

    /// What a connection adds to its score, the tier aside.
    fn cost(&self) -> f64 {
        1.0 / (f64::from(self.soft_limit.max(1)) * f64::from(self.weight.max(1)))
    }

    /// Its score at a distance of `tier`, lower is better; `None`: it is at its hard limit.
    #[must_use]
    pub fn score(&self, tier: Tier, load: Load, spill: Spill) -> Option<f64> {
        PlacedMember::new(0, self).score(tier, load, spill)
    }
}

/// What a backend carries at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Its connections.
    pub connections: u32,
    /// How many times over they count: 1, and more while it starts slowly.
    pub factor: f64,
}

/// The backend that a connection goes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Its position.
    pub index: usize,
    /// How far it is.
    pub tier: Tier,
    /// Whether that was measured.
    pub is_measured: bool,
    /// Its score, the lowest of all.
    pub score: f64,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unplaced {
    /// None is to be used.
    None,
    /// The backends that may be used have no room.
    Full,
}

/// The backends of one app, arranged for picking.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    members: Vec<Member>,
    /// By priority; within it in no order that matters.
    zones: Vec<RegionZone>,
    /// Zone after zone.
    placed: Vec<PlacedMember>,
}

/// What a pick reads of a member: little, and without a division, for there may be thousands in a zone.
#[derive(Clone, Copy, Debug)]
struct PlacedMember {
    /// Its position.
    index: usize,
    /// See [`Member::cost`].
    cost: f64,
    soft_limit: u32,
    hard_limit: u32,
}

impl PlacedMember {
    fn new(index: usize, member: &Member) -> Self {
        let soft_limit = member.soft_limit.max(1);
        Self { index, cost: member.cost(), soft_limit, hard_limit: member.hard_limit }
    }

    /// See [`Member::score`].
    fn score(&self, tier: Tier, load: Load, spill: Spill) -> Option<f64> {
        let Load { connections, factor } = load;
        if connections >= self.hard_limit {
            return None;
        }
        let penalty = if spill == Spill::AtSoft && connections >= self.soft_limit { 100.0 } else { 0.0 };
        Some(tier.least_score() + penalty + f64::from(connections) * self.cost * factor)
    }
}

#[derive(Clone, Copy, Debug)]
struct RegionZone {
    /// Its first one, which is where all of them are.
    like: Member,
    first: usize,
    end: usize,
}

/// What members of a zone have in common.
fn zone_of(member: &Member) -> (u16, Location, Option<Tier>) {
    (member.priority, member.location, member.measured)
}

impl Layout {
    /// Arranges `members`; positions are those in this list.
    #[must_use]
    pub fn new(members: Vec<Member>) -> Self {
        let mut sorted: Vec<(usize, &Member)> = members.iter().enumerate().collect();
        // Stable, so that members of a zone stay in their order.
        sorted.sort_by_key(|(_, member)| zone_of(member));
        let mut zones: Vec<RegionZone> = Vec::new();
        for (place, (_, member)) in sorted.iter().enumerate() {
            match zones.last_mut() {
                Some(zone) if zone_of(&zone.like) == zone_of(member) => zone.end = place + 1,
                _ => zones.push(RegionZone { like: **member, first: place, end: place + 1 }),
            }
        }
        let placed = sorted.into_iter().map(|(index, member)| PlacedMember::new(index, member)).collect();
        Self { members, zones, placed }
    }

    /// What is known of the backends, in the order in which they were given.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The best backend for a client: the one with the lowest score, the first of several. `load` is asked for
    /// each backend that may win, by its position, and gives `None` for those that are not to be used.
    ///
    /// # Errors
    /// When there is none.
    pub fn pick(
        &self,
        client: Location,
        node: Option<Region>,
        spill: Spill,
        load: impl Fn(usize) -> Option<Load>,
    ) -> Result<Chosen, Unplaced> {
        let mut is_any_usable = false;
        for zones in self.zones.chunk_by(|one, other| one.like.priority == other.like.priority) {
            let mut best: Option<Chosen> = None;
            for tier in Tier::ALL {
                if best.is_some_and(|best| best.score < tier.least_score()) {
                    break;
                }
                for zone in zones.iter().filter(|zone| zone.like.tier(client, node) == tier) {
                    let (found, is_usable) = self.best_of(zone, tier, spill, &load);
                    is_any_usable |= is_usable;
                    if let Some(found) = found
                        && best.is_none_or(|best| found.is_better_than(&best))
                    {
                        best = Some(found);
                    }
                }
                if spill == Spill::Never && is_any_usable {
                    return best.ok_or(Unplaced::Full);
                }
            }
            if let Some(best) = best {
                return Ok(best);
            }
        }
        Err(if is_any_usable { Unplaced::Full } else { Unplaced::None })
    }

    /// The best of a zone, and whether any of it is to be used.
    fn best_of(
        &self,
        zone: &RegionZone,
        tier: Tier,
        spill: Spill,
        load: &impl Fn(usize) -> Option<Load>,
    ) -> (Option<Chosen>, bool) {
        let (mut is_any_usable, mut lowest, mut best) = (false, f64::INFINITY, None);
        for member in &self.placed[zone.first..zone.end] {
            let Some(load) = load(member.index) else { continue };
            is_any_usable = true;
            // Members of a zone are in their order, so that the first of equal ones stays.
            if let Some(score) = member.score(tier, load, spill)
                && score < lowest
            {
                (lowest, best) = (score, Some(member.index));
            }
        }
        let is_measured = zone.like.measured.is_some();
        let chosen = best.map(|index| Chosen { index, tier, is_measured, score: lowest });
        (chosen, is_any_usable)
    }
}

impl Chosen {
    fn is_better_than(&self, other: &Self) -> bool {
        self.score < other.score || (self.score == other.score && self.index < other.index)
    }
}
