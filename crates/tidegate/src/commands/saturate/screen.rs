//! The live view on stderr: redrawn in place on a terminal, else a line now and then.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_tester::discover::{Discovery, Level, Mode, Settings};
use tidegate_tester::live::{Running, View, plain, screen};
use tidegate_tester::load::{OnProgress, Progress};
use tidegate_tester::measurement::{Loop, StepPlan};

/// Seconds between plain lines.
const PLAIN_EVERY: f64 = 2.0;
/// Columns when the terminal does not say.
const COLUMNS: usize = 80;

struct Shown {
    target: String,
    mode: Mode,
    levels: Vec<Level>,
    steps: usize,
    max_steps: usize,
    load: f64,
    terminal: bool,
    columns: usize,
    /// Lines on the screen that the next drawing replaces.
    drawn: usize,
    /// When in the step the last plain line was written.
    said_at: f64,
}

/// The view, shared with the callback of the running step.
pub(super) struct Screen(Arc<Mutex<Shown>>);

impl Screen {
    pub(super) fn new(target: &str, settings: &Settings, terminal: bool) -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).unwrap_or(COLUMNS);
        Self(Arc::new(Mutex::new(Shown {
            target: target.to_owned(),
            mode: settings.mode,
            levels: Vec::new(),
            steps: 0,
            max_steps: settings.max_steps,
            load: 0.0,
            terminal,
            columns,
            drawn: 0,
            said_at: 0.0,
        })))
    }

    /// What a running step calls.
    pub(super) fn callback(&self) -> OnProgress {
        let shown = Arc::clone(&self.0);
        Box::new(move |progress| lock(&shown).progress(progress))
    }

    /// A step begins.
    pub(super) fn step(&self, discovery: &Discovery, plan: &StepPlan) {
        let mut shown = lock(&self.0);
        shown.levels = discovery.levels().to_vec();
        shown.steps = discovery.steps().len();
        shown.load = match plan.discipline {
            Loop::Closed { .. } => f64::from(plan.connections),
            Loop::Open { rate, .. } => rate,
        };
        shown.said_at = 0.0;
    }

    /// One line that stays.
    pub(super) fn say(&self, line: &str) {
        let mut shown = lock(&self.0);
        shown.drawn = 0;
        shown.put(&format!("{line}\n"));
    }

    /// The view stays as it is, and what follows is written below it.
    pub(super) fn close(&self) {
        lock(&self.0).drawn = 0;
    }
}

/// A panic in a callback leaves figures that are still good to show.
fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shown {
    fn progress(&mut self, p: &Progress) {
        let running = Running {
            load: self.load,
            elapsed_seconds: p.elapsed_seconds,
            planned_seconds: p.planned_seconds,
            throughput: p.throughput,
            p50_us: p.p50_us as f64,
            p99_us: p.p99_us as f64,
            in_flight: p.in_flight,
            denied: p.denied,
            errors: p.errors,
        };
        if !self.terminal && p.elapsed_seconds - self.said_at < PLAIN_EVERY {
            return;
        }
        self.said_at = p.elapsed_seconds;
        let view = View {
            target: &self.target,
            mode: self.mode,
            levels: &self.levels,
            steps: self.steps,
            max_steps: self.max_steps,
            running: Some(running),
        };
        if !self.terminal {
            let line = plain(&view);
            self.put(&format!("{line}\n"));
            return;
        }
        let lines = screen(&view, self.columns, true);
        // Up to the first line drawn last time, and clear from there.
        let up = if self.drawn > 0 { format!("\u{1b}[{}A\r\u{1b}[J", self.drawn) } else { String::new() };
        self.drawn = lines.len();
        self.put(&format!("{up}{}\n", lines.join("\n")));
    }

    /// A view that cannot be written is no reason to end a run.
    fn put(&self, text: &str) {
        let _unseen = io::stderr().lock().write_all(text.as_bytes());
    }
}
