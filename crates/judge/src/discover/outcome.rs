//! The outcome of a search, from all its steps: capacity, knee, zones, fit and gates.

use serde::{Deserialize, Serialize};
use tidegate_algorithms::stats::{Interval, usl};

use super::gates::{self, Gate};
use super::level::TOO_WIDE;
use super::zones::{self, ZoneSpan};
use super::{Level, Settings, Stop, ladder, rate};
use crate::record::StepRecord;
use crate::threshold::Metric;

/// Whether a capacity is the service's, or only as much as could be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// More load was tried and did not give more.
    Reached,
    /// The ceiling or the generator ended the search first: the service may do more.
    AtLeast,
}

/// The most good replies per second that the service kept up while its objective held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Per second.
    pub throughput: f64,
    /// 95 % interval.
    pub interval: Interval,
    /// Reached, or a lower bound.
    pub bound: Bound,
    /// The load at which it was measured.
    pub load: f64,
    /// Usable repeats behind it.
    pub repeats: usize,
}

impl Capacity {
    /// Whether its interval is so wide that it says nothing.
    #[must_use]
    pub fn is_unsteady(&self) -> bool {
        self.interval.half() > TOO_WIDE * self.throughput
    }
}

/// Where more load stops giving more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Requests in flight at the knee: the connections of a closed loop, the mean count of an open
    /// one.
    pub concurrency: f64,
    /// Throughput there, per second.
    pub throughput: f64,
    /// 99th percentile of the response time there, in microseconds.
    pub p99_us: f64,
    /// Loads measured next to it, below and above: the knee is known to lie between.
    pub between: Interval,
}

/// The Universal Scalability Law beside the measured curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UslFit {
    /// Throughput of one, per second.
    pub lambda: f64,
    /// Contention.
    pub sigma: f64,
    /// Its 95 % interval.
    pub sigma_interval: Interval,
    /// Coherency.
    pub kappa: f64,
    /// Its 95 % interval.
    pub kappa_interval: Interval,
    /// Share of the variance explained.
    pub r2: f64,
    /// Concurrency of the fitted peak, if the curve has one.
    pub peak: Option<f64>,
    /// Whether the fit should not be trusted.
    pub poor: bool,
}

impl UslFit {
    /// Throughput that the law gives at `n` connections.
    #[must_use]
    pub fn at(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }
}

/// The conclusion of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why the search ended.
    pub stop: Stop,
    /// None when no step has a usable figure whose objective holds.
    pub capacity: Option<Capacity>,
    /// None when throughput still grew at the end, or there is no capacity.
    pub knee: Option<Knee>,
    /// The zones along the ladder.
    pub zones: Vec<ZoneSpan>,
    /// The fit, from four closed-loop levels on.
    pub usl: Option<UslFit>,
    /// The verdict gates.
    pub gates: Vec<Gate>,
    /// All levels by rising load.
    pub levels: Vec<Level>,
}

pub(super) fn conclude(settings: &Settings, levels: &[Level], steps: &[StepRecord], stop: Stop) -> Outcome {
    let (capacity, knee, near) =
        if settings.is_closed() { closed(settings, levels) } else { open(settings, levels, steps) };
    let near: Vec<f64> = near.into_iter().map(|i| levels[i].load).collect();
    let knee_load = if settings.is_closed() {
        knee.map(|k| k.concurrency)
    } else {
        capacity.filter(|c| c.bound == Bound::Reached).map(|c| c.load)
    };
    Outcome {
        stop,
        capacity,
        knee,
        zones: zones::spans(levels, settings, knee_load, capacity.map(|c| c.throughput)),
        usl: settings.is_closed().then(|| law(levels)).flatten(),
        gates: gates::verdicts(settings, levels, steps, &near),
        levels: levels.to_vec(),
    }
}

type Concluded = (Option<Capacity>, Option<Knee>, Vec<usize>);

fn closed(settings: &Settings, levels: &[Level]) -> Concluded {
    let (Some(at), Some(best)) = (ladder::knee(settings, levels), ladder::best(settings, levels)) else {
        return (None, None, Vec::new());
    };
    let unbounded = ladder::unbounded(levels, at);
    let Some(estimate) = levels[best].throughput() else { return (None, None, Vec::new()) };
    let capacity = Capacity {
        throughput: estimate.mean,
        interval: levels[best].interval().unwrap_or_default(),
        bound: if unbounded { Bound::AtLeast } else { Bound::Reached },
        load: levels[best].load,
        repeats: levels[best].usable(),
    };
    let level = &levels[at];
    let knee = (!unbounded).then(|| Knee {
        concurrency: level.load,
        // What its row says, which leaves out what the generator limited.
        throughput: level.throughput().map_or_else(|| level.figure(Metric::Throughput), |found| found.mean),
        p99_us: level.figure(Metric::P99),
        between: Interval {
            low: at.checked_sub(1).map_or(0.0, |i| levels[i].load),
            high: levels.get(at + 1).map_or(level.load, |l| l.load),
        },
    });
    (Some(capacity), knee, ladder::deciding(settings, levels, at))
}

fn open(settings: &Settings, levels: &[Level], steps: &[StepRecord]) -> Concluded {
    let (Some(holds), fails) = rate::bracket(settings, levels) else { return (None, None, Vec::new()) };
    let Some(estimate) = levels[holds].throughput() else { return (None, None, Vec::new()) };
    let reached = fails.is_some_and(|i| !levels[i].generator_bound());
    let own = levels[holds].interval().unwrap_or_default();
    // What limits the knowledge is the gap to the rate that failed, not the noise of the rate itself.
    let high = fails.filter(|_| reached).map_or(own.high, |i| levels[i].load.max(own.high));
    let capacity = Capacity {
        throughput: estimate.mean,
        interval: Interval { low: own.low, high },
        bound: if reached { Bound::Reached } else { Bound::AtLeast },
        load: levels[holds].load,
        repeats: levels[holds].usable(),
    };
    let in_flight: Vec<f64> = levels[holds].usable_steps().map(|i| steps[i].mean_in_flight).collect();
    let knee = reached.then(|| Knee {
        concurrency: tidegate_algorithms::stats::mean::mean(&in_flight),
        throughput: estimate.mean,
        p99_us: levels[holds].figure(Metric::P99),
        between: Interval { low: levels[holds].load, high },
    });
    (Some(capacity), knee, [Some(holds), fails].into_iter().flatten().collect())
}

fn law(levels: &[Level]) -> Option<UslFit> {
    let points: Vec<(f64, f64)> =
        levels.iter().filter_map(|l| l.throughput().map(|t| (l.load, t.mean))).collect();
    let widest = points.iter().map(|p| p.0).fold(0.0, f64::max);
    let fit = usl::fit(&points)?;
    Some(UslFit {
        lambda: fit.lambda,
        sigma: fit.sigma,
        sigma_interval: fit.intervals[1],
        kappa: fit.kappa,
        kappa_interval: fit.intervals[2],
        r2: fit.r2,
        peak: fit.peak,
        poor: fit.poor(widest),
    })
}
