//! How many, how big, where: a plan made of measured figures, with the limit that keeps it true.
//!
//! An instance is planned at the highest measured load that keeps the wanted percentile, reduced by a
//! headroom, and taken at the LOW end of its 95 % interval. One instance more than needed is planned,
//! so that losing one leaves the others within what was measured. Every figure says whether it was
//! measured or extrapolated: N instances doing N times one is an extrapolation, always, for what they
//! share was not part of the measurement. Options (vertical, horizontal, geographic) are given only
//! where the report's cause supports them; "not supported by anything measured" is an answer.

mod options;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::discover::Bound;
use crate::discover::zones::ERRORS_STRESSED;
use crate::report::format::{count, percent, time};
use crate::report::{LevelRow, Report};

pub use options::PlanOption;

/// Share of the measured rate that is planned when nothing else is asked: 30 % headroom.
pub const HEADROOM: f64 = 0.30;
/// Most instances that a plan may name; more is a sign of a wrong target.
pub const MAX_INSTANCES: f64 = 10_000.0;

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Requests per second, > 0.
    pub rate: f64,
    /// The 99th percentile of the response time must stay below this, in microseconds.
    pub p99_us: Option<f64>,
    /// Share of each instance's capacity that is kept free, 0 to 0.9.
    pub headroom: f64,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// It stands in the report.
    Measured,
    /// It follows from what was measured by an assumption that was not tested.
    Extrapolated,
    /// It was asked for.
    Asked,
}

/// One figure of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it comes from.
    pub basis: Basis,
}

impl Figure {
    fn new(name: &str, value: f64, unit: &str, basis: Basis) -> Self {
        Self { name: name.to_owned(), value, unit: unit.to_owned(), basis }
    }
}

/// How far a plan can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// All gates passed and the capacity was reached.
    Good,
    /// The capacity is a lower bound: fewer instances may do.
    Cautious,
    /// A gate failed: measure again before buying.
    Poor,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is wanted.
    pub target: Target,
    /// Instances, the spare one included.
    pub instances: u64,
    /// The figures behind it.
    pub figures: Vec<Figure>,
    /// Vertical, horizontal, geographic.
    pub options: Vec<PlanOption>,
    /// How far it can be trusted.
    pub confidence: Confidence,
    /// Why no further than that.
    pub doubts: Vec<String>,
    /// `limits.toml` for each instance.
    pub limits: String,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The rate is no positive number.
    #[error("a plan needs a rate above 0 per second, not {0}")]
    Rate(f64),
    /// The headroom is out of range.
    #[error("a headroom is 0 to 90 %, not {:.0} %", .0 * 100.0)]
    Headroom(f64),
    /// Nothing is answered in no time.
    #[error("p99 has to stay below a time above 0, not {}", time(*.0))]
    Limit(f64),
    /// The report has no usable figure.
    #[error("the report has no capacity: nothing in it may stand as the server's figure")]
    NoCapacity,
    /// No measured load keeps the percentile.
    #[error("no measured load keeps p99 below {wanted}: the lowest has {best}")]
    Percentile {
        /// What is wanted.
        wanted: String,
        /// The best that was measured.
        best: String,
    },
    /// The target needs more instances than a plan is made for.
    #[error(
        "the target needs {0} instances of this size, more than a plan is made for: state a lower target, or measure a \
         larger instance"
    )]
    TooMany(String),
}

/// Makes a plan from a report.
///
/// # Errors
/// When the target makes no sense or the report does not support any plan for it.
pub fn plan(report: &Report, target: Target) -> Result<Plan, PlanError> {
    if !(target.rate.is_finite() && target.rate > 0.0) {
        return Err(PlanError::Rate(target.rate));
    }
    if !(0.0..=0.9).contains(&target.headroom) {
        return Err(PlanError::Headroom(target.headroom));
    }
    if let Some(limit) = target.p99_us.filter(|p| p.is_nan() || *p <= 0.0) {
        return Err(PlanError::Limit(limit));
    }
    let capacity = report.capacity.ok_or(PlanError::NoCapacity)?;
    let row = working_level(report, &target)?;
    let low = row.interval.map_or(row.throughput, |i| Some(i.low)).unwrap_or(0.0).max(0.0);
    let each = low * (1.0 - target.headroom);
    if each <= 0.0 {
        return Err(PlanError::NoCapacity);
    }
    let needed = (target.rate / each).ceil();
    let instances = needed + 1.0;
    if instances > MAX_INSTANCES {
        return Err(PlanError::TooMany(count(instances)));
    }
    let (confidence, doubts) = trust(report);
    let figures = vec![
        Figure::new("capacity of one instance", capacity.throughput, "/s", Basis::Measured),
        Figure::new("its 95 % interval, low end", capacity.interval.low, "/s", Basis::Measured),
        Figure::new("load that keeps the percentile", row.load, report.load_unit(), Basis::Measured),
        Figure::new("throughput there, low end", low, "/s", Basis::Measured),
        Figure::new("p99 there", row.p99_us.unwrap_or(f64::NAN) / 1e3, "ms", Basis::Measured),
        Figure::new("headroom", target.headroom * 100.0, "%", Basis::Asked),
        Figure::new("planned load of each instance", target.rate / instances, "/s", Basis::Extrapolated),
        Figure::new("load of each after losing one", target.rate / needed, "/s", Basis::Extrapolated),
        Figure::new(
            "share of capacity used",
            target.rate / instances / capacity.throughput * 100.0,
            "%",
            Basis::Extrapolated,
        ),
    ];
    Ok(Plan {
        target,
        instances: instances as u64,
        figures,
        options: options::all(report, &target, each, instances),
        confidence,
        doubts,
        limits: limits(report, row, each),
    })
}

/// The highest measured load up to the knee that keeps the percentile and the errors allowed.
fn working_level<'a>(report: &'a Report, target: &Target) -> Result<&'a LevelRow, PlanError> {
    let usable = |l: &&LevelRow| {
        let settled = l.throughput.is_some() && !l.unsteady && !l.generator_bound;
        settled && l.error_ratio <= ERRORS_STRESSED
    };
    let keeps = |l: &&LevelRow| target.p99_us.is_none_or(|p| l.p99_us.is_some_and(|found| found < p));
    let knee = report.knee.filter(|_| report.is_closed()).map_or(f64::INFINITY, |k| k.concurrency);
    let found = report
        .levels
        .iter()
        .filter(usable)
        .filter(|l| l.load <= knee)
        .filter(keeps)
        .max_by(|a, b| a.throughput.unwrap_or(0.0).total_cmp(&b.throughput.unwrap_or(0.0)));
    found.ok_or_else(|| {
        let best = report.levels.iter().filter(usable).filter_map(|l| l.p99_us).fold(f64::INFINITY, f64::min);
        if best.is_finite() {
            PlanError::Percentile { wanted: time(target.p99_us.unwrap_or(0.0)), best: time(best) }
        } else {
            PlanError::NoCapacity
        }
    })
}

fn trust(report: &Report) -> (Confidence, Vec<String>) {
    let mut doubts: Vec<String> = report
        .gates
        .iter()
        .filter(|g| !g.passed)
        .map(|g| format!("gate ({}) failed: {} ({})", g.id, g.rule, g.detail))
        .collect();
    let failed = !doubts.is_empty();
    let at_least = report.capacity.is_some_and(|c| c.bound == Bound::AtLeast);
    if at_least {
        doubts.push("the capacity was not reached, so it is a lower bound".to_owned());
    }
    doubts.push("several instances together were not measured: what they share may be the limit".to_owned());
    let confidence = match (failed, at_least) {
        (true, _) => Confidence::Poor,
        (false, true) => Confidence::Cautious,
        (false, false) => Confidence::Good,
    };
    (confidence, doubts)
}

/// The limits that keep one instance left of its knee: requests inside, and requests per second.
fn limits(report: &Report, row: &LevelRow, each: f64) -> String {
    let inside = if report.is_closed() {
        row.load
    } else {
        // An open loop's level is a rate; what was in flight then is Little's law on it.
        report.knee.map_or(1.0, |k| k.concurrency)
    };
    let inside = (inside.floor().max(1.0)) as u64;
    let rate = (each.floor().max(1.0)) as u64;
    let burst = (each / 10.0).ceil().max(1.0) as u64;
    format!(
        "# One instance of {target}, kept left of its knee. Made by `tidegate plan` from a report of {started}.\n\
         # Measured: {throughput}/s at {load} {unit}, p99 {p99}.\n\n\
         [[policy]]\nname = \"left-of-knee\"\nkey = []\nalgorithm = \"concurrency\"\nlimit = {inside}\n\n\
         [[policy]]\nname = \"rate-left-of-knee\"\nkey = []\nalgorithm = \"token_bucket\"\nlimit = {rate}\nwindow_seconds = 1\nburst = {burst}\n",
        target = one_line(&report.context.target),
        started = one_line(&report.context.started),
        throughput = count(row.throughput.unwrap_or(0.0)),
        load = count(row.load),
        unit = report.load_unit(),
        p99 = row.p99_us.map_or("-".to_owned(), time),
    )
}

/// Text that cannot leave its comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Plan {
    /// The plan as text.
    #[must_use]
    pub fn text(&self) -> String {
        let tag = |basis: Basis| match basis {
            Basis::Measured => "measured",
            Basis::Extrapolated => "extrapolated",
            Basis::Asked => "asked",
        };
        let wanted = self.target.p99_us.map_or(String::new(), |p| format!(" with p99 below {}", time(p)));
        let mut out = format!(
            "{} instances for {}/s{wanted} [extrapolated], one of them spare, {} headroom\nconfidence: {}\n\n",
            self.instances,
            count(self.target.rate),
            percent(self.target.headroom),
            match self.confidence {
                Confidence::Good => "good",
                Confidence::Cautious => "cautious",
                Confidence::Poor => "poor",
            },
        );
        for f in &self.figures {
            out.push_str(&format!("  {:<34} {:>12} {} [{}]\n", f.name, count(f.value), f.unit, tag(f.basis)));
        }
        for o in &self.options {
            out.push_str(&format!("\n{}: {}\n", o.name, o.advice));
            for f in &o.figures {
                out.push_str(&format!(
                    "  {:<34} {:>12} {} [{}]\n",
                    f.name,
                    count(f.value),
                    f.unit,
                    tag(f.basis)
                ));
            }
        }
        out.push_str("\ndoubts:\n");
        for doubt in &self.doubts {
            out.push_str(&format!("  - {doubt}\n"));
        }
        out
    }
}
