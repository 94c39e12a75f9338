//! Zones by stated rules, so that two people reading one ladder name them alike.
//!
//! | zone | rule, the first that applies from the bottom |
//! |---|---|
//! | optimal | up to the knee, errors below 1 %, the objective holds |
//! | stressed | past the knee, throughput at least 90 % of capacity, errors below 5 %, the objective holds |
//! | degraded | throughput below 90 % of capacity, or errors from 5 %, or the objective missed |
//! | broken | errors from 15 %, or throughput below a tenth of capacity |
//!
//! The error bounds are those of the edge report in common use (95 / 85 % success).

use serde::{Deserialize, Serialize};

use super::{Level, Settings};

/// Errors from which a level is broken.
pub const ERRORS_BROKEN: f64 = 0.15;
/// Errors from which a level is degraded.
pub const ERRORS_DEGRADED: f64 = 0.05;
/// Errors from which a level is no longer optimal.
pub const ERRORS_STRESSED: f64 = 0.01;
/// Share of capacity below which a level past the knee is degraded.
pub const CAPACITY_KEPT: f64 = 0.90;
/// Share of capacity below which a level past the knee is broken.
pub const CAPACITY_LOST: f64 = 0.10;

/// How well a service does at a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// More load gives more work done.
    Optimal,
    /// More load only waits longer.
    Stressed,
    /// Work is lost or too late.
    Degraded,
    /// Most users see errors.
    Broken,
}

/// Consecutive levels in one zone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneSpan {
    /// The zone.
    pub zone: Zone,
    /// Smallest load measured in it.
    pub from: f64,
    /// Largest load measured in it.
    pub to: f64,
}

/// The zone of one level.
#[must_use]
pub fn of(level: &Level, settings: &Settings, knee: Option<f64>, capacity: Option<f64>) -> Zone {
    let errors = level.error_ratio();
    let done = level.figure(crate::threshold::Metric::Throughput);
    // The share of the capacity means something past the knee only: below it there is less to do.
    let past = knee.is_some_and(|k| level.load > k);
    let kept = capacity.filter(|&c| past && c > 0.0).map_or(1.0, |c| done / c);
    if errors >= ERRORS_BROKEN || kept < CAPACITY_LOST {
        Zone::Broken
    } else if errors >= ERRORS_DEGRADED || kept < CAPACITY_KEPT || !objective_holds(level, settings) {
        Zone::Degraded
    } else if errors >= ERRORS_STRESSED || past {
        Zone::Stressed
    } else {
        Zone::Optimal
    }
}

fn objective_holds(level: &Level, settings: &Settings) -> bool {
    settings.objectives.iter().all(|o| o.met_by(level.figure(o.metric)))
}

/// Joins neighbours that are in one zone.
#[must_use]
pub fn spans(
    levels: &[Level],
    settings: &Settings,
    knee: Option<f64>,
    capacity: Option<f64>,
) -> Vec<ZoneSpan> {
    let mut found: Vec<ZoneSpan> = Vec::new();
    for level in levels.iter().filter(|l| !l.generator_bound()) {
        let zone = of(level, settings, knee, capacity);
        match found.last_mut() {
            Some(last) if last.zone == zone => last.to = level.load,
            _ => found.push(ZoneSpan { zone, from: level.load, to: level.load }),
        }
    }
    found
}
