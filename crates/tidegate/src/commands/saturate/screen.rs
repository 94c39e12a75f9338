//! The terminal of a run: redrawn in place when standard error is one, a line per step otherwise.
//!
//! `tester::live` and `tester::saturate` render the text. This file has the cursor, and the state that the step's
//! thread and the search's thread share. A terminal that cannot be written to does not end the run.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_judge::discover::{Discovery, Level, Mode};
use tidegate_judge::live::{self, Running, View};
use tidegate_judge::measurement::{Loop, StepPlan};
use tidegate_judge::report::step_line;
use tidegate_tester::cluster::Cluster;
use tidegate_tester::load::{OnProgress, Progress};
use tidegate_tester::saturate::Spectator;

use crate::commands::terminal::{self, Canvas, say};

/// Shows a run.
pub(super) struct Screen {
    shown: Arc<Mutex<ShownRun>>,
    redraw: bool,
    profiles: Vec<usize>,
}

struct ShownRun {
    target: String,
    mode: Mode,
    levels: Vec<Level>,
    steps: usize,
    max_steps: usize,
    load: f64,
    canvas: Canvas,
}

impl Screen {
    pub(super) fn new(target: &str, redraw: bool, profiles: Vec<usize>) -> Self {
        let shown = ShownRun {
            target: target.to_owned(),
            mode: Mode::Closed { think_us: 0 },
            levels: Vec::new(),
            steps: 0,
            max_steps: 0,
            load: 0.0,
            canvas: Canvas::default(),
        };
        Self { shown: Arc::new(Mutex::new(shown)), redraw, profiles }
    }

    /// The function that the load engine calls while a step runs.
    pub(super) fn progress(&self) -> OnProgress {
        let shown = Arc::clone(&self.shown);
        Box::new(move |progress| {
            shown.lock().draw(Some(progress));
        })
    }

    /// Draws the ladder a last time, with all its levels, and leaves it there.
    pub(super) fn leave(&self, measured: &Discovery) {
        let mut shown = self.shown.lock();
        shown.levels = measured.levels().to_vec();
        shown.steps = measured.steps().len();
        if self.redraw {
            let (columns, _) = terminal::size();
            let lines = live::table(&shown.view(None), columns, true);
            shown.canvas.draw(&lines);
            shown.canvas.keep();
        }
    }
}

impl Spectator<Cluster> for Screen {
    fn begins(&mut self, bench: &mut Cluster, number: usize, plan: &StepPlan, so_far: &Discovery) {
        bench.follow_profile(self.profiles.contains(&number).then_some(number));
        let mut shown = self.shown.lock();
        shown.mode = so_far.settings().mode;
        shown.max_steps = so_far.settings().max_steps;
        shown.load = match plan.discipline {
            Loop::Closed { .. } => f64::from(plan.connections),
            Loop::Open { rate, .. } => rate,
        };
        if self.redraw {
            shown.draw(None);
        }
    }

    fn add_thread(&mut self, bench: &mut Cluster) -> bool {
        bench.add_thread()
    }

    fn ended(&mut self, so_far: &Discovery) {
        let mut shown = self.shown.lock();
        shown.levels = so_far.levels().to_vec();
        shown.steps = so_far.steps().len();
        if let (false, Some(step)) = (self.redraw, so_far.steps().last()) {
            say(&format!("{}\n", step_line(shown.steps, step)));
        }
    }
}

impl ShownRun {
    fn draw(&mut self, progress: Option<&Progress>) {
        let running = progress.map(|now| Running {
            load: self.load,
            elapsed_seconds: now.elapsed_seconds,
            planned_seconds: now.planned_seconds,
            throughput: now.throughput,
            p50_us: now.p50_us as f64,
            p99_us: now.p99_us as f64,
            in_flight: now.in_flight,
            denied: now.denied,
            errors: now.errors,
        });
        let (columns, rows) = terminal::size();
        let lines = live::screen(&self.view(running), columns, rows, true);
        self.canvas.draw(&lines);
    }

    fn view(&self, running: Option<Running>) -> View<'_> {
        View {
            target: &self.target,
            mode: self.mode,
            levels: &self.levels,
            steps: self.steps,
            max_steps: self.max_steps,
            running,
        }
    }
}
