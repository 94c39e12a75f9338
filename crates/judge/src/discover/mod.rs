//! Finding the knee: which load to try next, when to stop, and what the steps together say.
//!
//! ```text
//!            plan                     measurement
//!   Discovery ----> any Bench (sockets or simulation) ----> Discovery ----> Outcome
//!      |  next(): ladder (closed loop) or rate (open loop), a pure function of the levels
//!      |  observe(): condenses the step and applies the gates
//! ```
//!
//! The search is a state machine without clock or sockets, so the same code is driven by the load
//! engine, by a simulated queue with a known answer and by a live view that wants to show progress.
//! Steps and measured time have hard bounds; reaching one ends the search with what is known.
//!
//! The verdict gates: (a) a generator-bound step is refused as the server's figure; (b) Little's law
//! holds within 10 % in a closed loop; (c) steps of 5 s or more, batch means, three repeats near the
//! knee; (d) the knee is the last step whose gain in throughput is significant and whose objective
//! holds, then refined by bisection; (e) response time and service time are both kept; (f) planned
//! figures are tagged measured or extrapolated (see `plan`).

pub mod gates;
mod ladder;
mod level;
mod outcome;
mod rate;
mod settings;
pub mod zones;

#[cfg(test)]
mod tests;

use crate::measurement::{Bench, Loop, Measurement, StepPlan};
use crate::record::StepRecord;

pub use level::Level;
pub use outcome::{Bound, Capacity, Knee, Outcome, UslFit};
pub use settings::{Mode, Settings};

use serde::{Deserialize, Serialize};

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The knee, or the highest rate that keeps the objective, is bracketed and replicated.
    Found,
    /// Every level asked for was measured.
    LevelsDone,
    /// The load's ceiling was reached while throughput still grew.
    Ceiling,
    /// The generator was the limit before the server was.
    Generator,
    /// Not even the smallest load meets the objective.
    ObjectiveNeverHolds,
    /// The bound on steps was reached.
    Steps,
    /// The bound on time was reached.
    Time,
    /// The run was ended from outside.
    Interrupted,
}

/// How many times the length asked for a step may be, so that it holds enough latencies.
const MOST_TIMES_LONGER: u64 = 4;

/// What the search wants next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    /// Measure (again) at this load.
    Measure(f64),
    /// Nothing more.
    Done(Stop),
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Discovery {
    settings: Settings,
    levels: Vec<Level>,
    steps: Vec<StepRecord>,
    spent_ms: u64,
    stop: Option<Stop>,
}

impl Discovery {
    /// A search that has measured nothing yet. Settings out of range are brought into it.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings: settings.in_range(), levels: Vec::new(), steps: Vec::new(), spent_ms: 0, stop: None }
    }

    /// The step to run next; none when the search is over.
    pub fn next_step(&mut self) -> Option<StepPlan> {
        if self.stop.is_some() {
            return None;
        }
        let step_ms = self.settings.warmup_ms + self.settings.measure_ms;
        let decided = if self.steps.len() >= self.settings.max_steps {
            Move::Done(Stop::Steps)
        } else if self.spent_ms + step_ms > self.settings.max_total_ms {
            Move::Done(Stop::Time)
        } else if !self.settings.levels.is_empty() {
            self.listed()
        } else {
            match self.settings.mode {
                Mode::Closed { .. } => ladder::next(&self.settings, &self.levels),
                Mode::Open { .. } => rate::next(&self.settings, &self.levels),
            }
        };
        match decided {
            Move::Measure(load) => Some(self.long_enough(self.settings.plan(load), load)),
            Move::Done(stop) => {
                self.stop = Some(stop);
                None
            }
        }
    }

    /// Lengthens a closed step that would hold too few latencies for Little's law to be checked: at
    /// most [`MOST_TIMES_LONGER`] times, and within the search's time.
    fn long_enough(&self, plan: StepPlan, load: f64) -> StepPlan {
        let seen = self.steps.iter().filter(|step| step.load() <= load).map(|step| step.response.mean_us);
        let wanted_ms = (gates::LATENCIES * seen.fold(0.0, f64::max) / 1e3) as u64;
        let left_ms = self.settings.max_total_ms.saturating_sub(self.spent_ms + plan.warmup_ms);
        let most_ms = plan.measure_ms.saturating_mul(MOST_TIMES_LONGER).min(left_ms);
        if !is_closed(&plan) || most_ms <= plan.measure_ms {
            return plan;
        }
        StepPlan { measure_ms: wanted_ms.clamp(plan.measure_ms, most_ms), ..plan }
    }

    /// Takes in the result of the step that [`Discovery::next_step`] asked for.
    pub fn observe(&mut self, measurement: &Measurement) {
        let mut record = StepRecord::of(measurement);
        gates::apply(&mut record);
        self.spent_ms += measurement.plan.warmup_ms + (measurement.seconds * 1e3) as u64;
        let load = record.load();
        let index = self.steps.len();
        match self.levels.iter_mut().find(|level| level.load == load) {
            Some(level) => level.add(index, &record),
            None => {
                self.levels.push(Level::new(load, index, &record));
                self.levels.sort_by(|a, b| a.load.total_cmp(&b.load));
            }
        }
        self.steps.push(record);
    }

    /// Ends the search from outside (Ctrl-C, or a step that could not be run).
    pub fn interrupt(&mut self) {
        self.stop.get_or_insert(Stop::Interrupted);
    }

    /// The levels so far, by rising load.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The steps so far, in the order in which they ran.
    #[must_use]
    pub fn steps(&self) -> &[StepRecord] {
        &self.steps
    }

    /// Whether connections are raised rather than a rate.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.settings.is_closed()
    }

    /// The settings in use.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the steps so far say.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        outcome::conclude(&self.settings, &self.levels, &self.steps, self.stop.unwrap_or(Stop::Interrupted))
    }

    fn listed(&self) -> Move {
        let wanted = |load: &&f64| {
            let measured = self.levels.iter().find(|l| l.load == **load).map_or(0, Level::repeats);
            measured < self.settings.repeats
        };
        self.settings
            .levels
            .iter()
            .find(wanted)
            .map_or(Move::Done(Stop::LevelsDone), |&load| Move::Measure(load))
    }
}

/// Drives a bench to the end of the search.
///
/// # Errors
/// The bench's own, when a step could not be run; what was measured before is lost with it, so a
/// caller that wants it drives [`Discovery`] itself.
pub fn discover<B: Bench>(bench: &mut B, settings: Settings) -> Result<Discovery, B::Error> {
    let mut discovery = Discovery::new(settings);
    while let Some(plan) = discovery.next_step() {
        let measurement = bench.run(&plan)?;
        discovery.observe(&measurement);
    }
    Ok(discovery)
}

/// Whether a plan is a closed loop.
#[must_use]
pub fn is_closed(plan: &StepPlan) -> bool {
    matches!(plan.discipline, Loop::Closed { .. })
}
