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
//!
//! More load never makes a service better, so zones never get better along a ladder. Where a level seems
//! to be in a better zone than the one before it, the two do not differ by more than their noise: they are
//! taken together, and their figures together say in which zone they are.

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

/// What the rules look at: one level's figures, or those of several together.
#[derive(Clone, Debug)]
struct Figures {
    loads: Vec<f64>,
    errors: f64,
    throughput: f64,
    /// Share of the levels that keep the objective.
    kept: f64,
}

impl Figures {
    fn of(level: &Level, settings: &Settings) -> Self {
        let kept = settings.objectives.iter().all(|o| o.met_by(level.figure(o.metric)));
        Self {
            loads: vec![level.load],
            errors: level.error_ratio(),
            throughput: level.figure(crate::threshold::Metric::Throughput),
            kept: f64::from(u8::from(kept)),
        }
    }

    fn joined(mut self, other: Self) -> Self {
        let (mine, theirs) = (self.loads.len() as f64, other.loads.len() as f64);
        let mean = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs);
        self.errors = mean(self.errors, other.errors);
        self.throughput = mean(self.throughput, other.throughput);
        self.kept = mean(self.kept, other.kept);
        self.loads.extend(other.loads);
        self
    }

    fn zone(&self, knee: Option<f64>, capacity: Option<f64>) -> Zone {
        // The share of the capacity means something past the knee only: below it there is less to do.
        let past = knee.is_some_and(|k| self.loads.iter().all(|load| *load > k));
        let done = capacity.filter(|&c| past && c > 0.0).map_or(1.0, |c| self.throughput / c);
        if self.errors >= ERRORS_BROKEN || done < CAPACITY_LOST {
            Zone::Broken
        } else if self.errors >= ERRORS_DEGRADED || done < CAPACITY_KEPT || self.kept < 0.5 {
            Zone::Degraded
        } else if self.errors >= ERRORS_STRESSED || past {
            Zone::Stressed
        } else {
            Zone::Optimal
        }
    }
}

/// The zones along the levels, none better than the one before it. Levels that the generator limited are
/// in none.
#[must_use]
pub fn spans(
    levels: &[Level],
    settings: &Settings,
    knee: Option<f64>,
    capacity: Option<f64>,
) -> Vec<ZoneSpan> {
    let mut blocks: Vec<(Zone, Figures)> = Vec::new();
    for level in levels.iter().filter(|l| !l.generator_bound()) {
        let mut figures = Figures::of(level, settings);
        let mut zone = figures.zone(knee, capacity);
        while let Some((_, before)) = blocks.pop_if(|(before, _)| *before > zone) {
            figures = before.joined(figures);
            zone = figures.zone(knee, capacity);
        }
        blocks.push((zone, figures));
    }
    let mut found: Vec<ZoneSpan> = Vec::new();
    for (zone, figures) in blocks {
        // Invariant: a block holds a level at least, and levels come by rising load.
        let (Some(&from), Some(&to)) = (figures.loads.first(), figures.loads.last()) else { continue };
        match found.last_mut() {
            Some(last) if last.zone == zone => last.to = to,
            _ => found.push(ZoneSpan { zone, from, to }),
        }
    }
    found
}

/// The zone of a load: that of its span, or of the nearest span below it.
#[must_use]
pub fn at(spans: &[ZoneSpan], load: f64) -> Zone {
    let below = spans.iter().rev().find(|span| span.from <= load);
    below.or(spans.first()).map_or(Zone::Optimal, |span| span.zone)
}
