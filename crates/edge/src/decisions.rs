//! The last placements and why they were made: a ring of [`MAX_DECISIONS`].

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tidegate_algorithms::balance::region::{Location, Tier};
use tidegate_algorithms::time::Wall;

use crate::geo::{KnownBy, RegionNames};
use crate::stats::Refusal;

/// Most placements that are remembered; the oldest one is forgotten for a new one.
pub const MAX_DECISIONS: usize = 1_000;

/// What became of one connection.
#[derive(Clone, Debug)]
pub struct PlacementDecision {
    /// When, by the civil clock.
    pub at: Wall,
    /// The address of the listener that took it.
    pub listener: Arc<str>,
    /// The app that it was for.
    pub app: Arc<str>,
    /// Whose it is.
    pub client: IpAddr,
    /// Its country, and the name of its region.
    pub country: Option<String>,
    /// See `country`.
    pub region: Option<Arc<str>>,
    /// How that is known.
    pub known_by: KnownBy,
    /// How many backends were tried.
    pub attempts: u32,
    /// Where it went, or why nowhere.
    pub outcome: Result<Went, Refusal>,
}

/// Where a connection went.
#[derive(Clone, Debug)]
pub struct Went {
    /// The backend's name.
    pub backend: Arc<str>,
    /// How far it is.
    pub tier: Tier,
    /// Whether that was measured.
    pub is_measured: bool,
    /// Its score then.
    pub score: f64,
    /// Whether the client was there before.
    pub is_affine: bool,
}

impl PlacementDecision {
    fn to_json(&self) -> Value {
        let mut json = json!({
            "at_unix_ms": self.at.0 / 1_000_000,
            "listener": &*self.listener,
            "app": &*self.app,
            "client": self.client,
            "known_by": self.known_by.word(),
            "attempts": self.attempts,
        });
        for (name, value) in [("country", self.country.as_deref()), ("region", self.region.as_deref())] {
            if let Some(value) = value {
                json[name] = json!(value);
            }
        }
        match &self.outcome {
            Ok(went) => {
                json["backend"] = json!(&*went.backend);
                json["tier"] = json!(went.tier.word());
                json["tier_by"] = json!(tier_by(went.is_measured));
                json["score"] = json!(rounded(went.score));
                json["affine"] = json!(went.is_affine);
            }
            Err(refusal) => json["refused"] = json!(refusal.word()),
        }
        json
    }
}

/// What a tier is known by.
pub(crate) fn tier_by(is_measured: bool) -> &'static str {
    if is_measured { "round_trip" } else { "place" }
}

/// A score with as many digits as people read.
pub(crate) fn rounded(score: f64) -> f64 {
    (score * 10_000.0).round() / 10_000.0
}

/// What is said of a place.
pub(crate) fn named(location: Location, names: &RegionNames) -> (Option<String>, Option<Arc<str>>) {
    let country = location.country.map(|country| country.to_string());
    (country, location.region.and_then(|region| names.name(region)).cloned())
}

/// The ring.
#[derive(Debug, Default)]
pub struct DecisionRing {
    ring: Mutex<VecDeque<PlacementDecision>>,
}

impl DecisionRing {
    pub(crate) fn push(&self, decision: PlacementDecision) {
        let mut ring = self.ring();
        if ring.len() == MAX_DECISIONS {
            ring.pop_front();
        }
        ring.push_back(decision);
    }

    /// All of them, the newest first.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let newest: Vec<PlacementDecision> = self.ring().iter().rev().cloned().collect();
        json!({ "decisions": newest.iter().map(PlacementDecision::to_json).collect::<Vec<_>>() })
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<PlacementDecision>> {
        self.ring.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_the_newest_is_first() {
        let ring = DecisionRing::default();
        for attempts in 0..1_500 {
            ring.push(PlacementDecision {
                at: Wall(7_000_000),
                listener: "127.0.0.1:1".into(),
                app: "web".into(),
                client: IpAddr::from([192, 0, 2, 1]),
                country: None,
                region: Some("sa".into()),
                known_by: KnownBy::Network,
                attempts,
                outcome: Err(Refusal::Full),
            });
        }
        let json = ring.to_json();
        let list = json["decisions"].as_array().expect("a list");
        assert_eq!(list.len(), MAX_DECISIONS);
        let newest = json!({
            "at_unix_ms": 7, "listener": "127.0.0.1:1", "app": "web", "client": "192.0.2.1", "region": "sa",
            "known_by": "network", "attempts": 1_499, "refused": "full",
        });
        assert_eq!((&list[0], &list[999]["attempts"]), (&newest, &json!(500)));
    }
}
