//! The settings of a search, and its bounds.

use serde::{Deserialize, Serialize};

use crate::measurement::{Loop, StepPlan};
use crate::threshold::Threshold;

/// Most steps that any search may take.
pub(super) const STEPS_CEILING: usize = 500;
/// Most connections that a level may have.
const CONNECTIONS_CEILING: f64 = 1_000_000.0;
/// Most requests per second that a level may have.
const RATE_CEILING: f64 = 100_000_000.0;

/// Which quantity the search raises.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Mode {
    /// Connections, each sending when its reply is in and it has thought.
    Closed {
        /// Pause before the next request, in microseconds.
        think_us: u64,
    },
    /// Requests per second over a fixed number of connections.
    Open {
        /// Connections that carry the rate, >= 1.
        connections: u32,
        /// Exponential gaps instead of equal ones.
        poisson: bool,
    },
}

/// The search's parameters. The defaults find a knee up to 10,000 connections in about five minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Closed or open loop.
    pub mode: Mode,
    /// First load: connections, or requests per second.
    pub first: f64,
    /// Largest load that may be tried.
    pub ceiling: f64,
    /// Loads to measure instead of searching, each `repeats` times; empty to search.
    pub levels: Vec<f64>,
    /// Discarded time of each step, in milliseconds.
    pub warmup_ms: u64,
    /// Measured time of each step, in milliseconds; under 5,000 the gate (c) is failed.
    pub measure_ms: u64,
    /// Repeats of each level near the knee, >= 1; under 3 the gate (c) is failed.
    pub repeats: usize,
    /// Most repeats of a noisy level.
    pub max_repeats: usize,
    /// A level is noisy while the half width of its interval exceeds this share of its mean.
    pub precision: f64,
    /// Ratio of neighbouring levels at which bisection stops, > 1.
    pub resolution: f64,
    /// Conditions that a load must meet to count as kept up with; errors < 1 % is always one.
    pub objectives: Vec<Threshold>,
    /// Most steps, up to 500.
    pub max_steps: usize,
    /// Most time over all steps, warm-up included, in milliseconds.
    pub max_total_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Closed { think_us: 0 },
            first: 1.0,
            ceiling: 10_000.0,
            levels: Vec::new(),
            warmup_ms: 1_000,
            measure_ms: 5_000,
            repeats: 3,
            max_repeats: 6,
            precision: 0.03,
            resolution: 1.12,
            objectives: Vec::new(),
            max_steps: 80,
            max_total_ms: 15 * 60 * 1_000,
        }
    }
}

impl Settings {
    /// The highest rate that keeps `objective`, carried by `connections`.
    #[must_use]
    pub fn slo(objective: Threshold, connections: u32) -> Self {
        Self {
            mode: Mode::Open { connections, poisson: true },
            first: 100.0,
            ceiling: 1_000_000.0,
            resolution: 1.05,
            objectives: vec![objective],
            ..Self::default()
        }
    }

    /// The step at one load.
    #[must_use]
    pub fn plan(&self, load: f64) -> StepPlan {
        let (connections, discipline) = match self.mode {
            Mode::Closed { think_us } => (load as u32, Loop::Closed { think_us }),
            Mode::Open { connections, poisson } => (connections, Loop::Open { rate: load, poisson }),
        };
        StepPlan {
            connections,
            discipline,
            warmup_ms: self.warmup_ms,
            measure_ms: self.measure_ms,
            max_requests: 0,
        }
    }

    /// Whether the loop is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.mode, Mode::Closed { .. })
    }

    /// The nearest load that can be asked for: whole connections, or a rate of three digits.
    pub(super) fn rounded(&self, load: f64) -> f64 {
        if self.is_closed() {
            return load.round().clamp(1.0, self.ceiling);
        }
        let digit = 10_f64.powf(load.max(1e-3).log10().floor() - 2.0);
        ((load / digit).round() * digit).min(self.ceiling)
    }

    pub(super) fn in_range(mut self) -> Self {
        let most = if self.is_closed() { CONNECTIONS_CEILING } else { RATE_CEILING };
        let sane = |v: f64, least: f64| if v.is_finite() { v.clamp(least, most) } else { least };
        self.ceiling = sane(self.ceiling, 1.0);
        self.first = sane(self.first, 1.0).min(self.ceiling);
        self.levels = self.levels.iter().map(|&l| self.rounded_level(sane(l, 1.0))).collect();
        self.measure_ms = self.measure_ms.clamp(1, 24 * 3_600_000);
        self.warmup_ms = self.warmup_ms.min(3_600_000);
        self.repeats = self.repeats.clamp(1, 20);
        self.max_repeats = self.max_repeats.clamp(self.repeats, 50);
        self.precision = self.precision.clamp(0.001, 1.0);
        self.resolution = self.resolution.clamp(1.01, 2.0);
        self.max_steps = self.max_steps.clamp(1, STEPS_CEILING);
        self
    }

    fn rounded_level(&self, load: f64) -> f64 {
        if self.is_closed() { load.round() } else { load }
    }
}
