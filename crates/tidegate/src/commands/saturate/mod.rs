//! `tidegate saturate`: finds where a service stops scaling, says why, and writes the report.
//!
//! ```text
//!   flags -> Job, Settings -> preflight -> Cluster + Probe --steps--> Discovery -> Report -> files
//!                                             |                          |
//!                                             +---- live view (stderr) --+
//! ```
//!
//! Loads are searched, or given (`--levels`), or a scenario's own steps (`--scenario`). The server's
//! process is found by its port when it is on this machine; `--pid` names another, `--metrics` a page
//! of a server that cannot be seen. Ctrl-C ends the step and reports what was measured.

mod metrics;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use tidegate_tester::cluster::{Cluster, Job};
use tidegate_tester::diagnose::Observation;
use tidegate_tester::diagnose::evidence::collect::{Probe, listener_pid};
use tidegate_tester::diagnose::evidence::observed::Observed;
use tidegate_tester::discover::{Discovery, Mode, Settings};
use tidegate_tester::load::{Options, Reuse, Stop, Target};
use tidegate_tester::measurement::{Bench, Loop, Measurement};
use tidegate_tester::preflight::{self, Machine, Need, Severity};
use tidegate_tester::report::{self, Context, Report};
use tidegate_tester::scenario::{self, Scenario};
use tidegate_tester::threshold::Threshold;

use metrics::Metrics;
use screen::Screen;

/// Exit code when the machine does not allow the run.
const EXIT_NOT_ALLOWED: u8 = 2;
/// Connections that carry an open loop unless said otherwise.
const OPEN_CONNECTIONS: u32 = 256;

/// Finds the load at which a service stops scaling, and why.
#[derive(Debug, clap::Args)]
pub struct Saturate {
    /// Where to: <http://host:port/path>, tcp://host:port, redis://host:port.
    url: String,
    /// Requests and checks of a scenario: a built-in name or a file. Its own steps are run, unless
    /// --search is given.
    #[arg(short, long)]
    scenario: Option<String>,
    /// Search with the scenario's requests instead of running its steps.
    #[arg(long, requires = "scenario")]
    search: bool,
    /// First load of the search: connections, or requests per second with --slo.
    #[arg(long)]
    first: Option<f64>,
    /// Largest load that is tried.
    #[arg(long)]
    ceiling: Option<f64>,
    /// Loads to measure instead of searching.
    #[arg(long, value_delimiter = ',')]
    levels: Vec<f64>,
    /// Search the highest rate that keeps this, as in "p99<50ms" (open loop).
    #[arg(long, conflicts_with = "scenario")]
    slo: Option<Threshold>,
    /// Connections that carry the rate with --slo.
    #[arg(short, long, default_value_t = OPEN_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Pause of each connection between reply and next request, in milliseconds.
    #[arg(long, default_value_t = 0.0)]
    think_ms: f64,
    /// Measured seconds of each step; under 5 the report's gate (c) fails.
    #[arg(short, long, default_value_t = 5.0)]
    duration_s: f64,
    /// Seconds before that are not measured.
    #[arg(short, long, default_value_t = 1.0)]
    warmup_s: f64,
    /// Repeats of each level near the knee.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Most steps of the search.
    #[arg(long, default_value_t = 80)]
    max_steps: usize,
    /// Most seconds of the search, warm-up included.
    #[arg(long, default_value_t = 900.0)]
    max_time_s: f64,
    /// What must hold for exit code 0, as in "p99 < 100ms"; may be given again.
    #[arg(long)]
    threshold: Vec<Threshold>,
    /// The server's process on this machine (default: whoever listens on the port).
    #[arg(long)]
    pid: Option<u32>,
    /// The server's Prometheus page.
    #[arg(long, value_name = "URL")]
    metrics: Option<String>,
    /// Cores of the server that --metrics shows.
    #[arg(long, default_value_t = 1.0, requires = "metrics")]
    server_cores: f64,
    /// Generator threads of each process (default: one per core).
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Generator processes (default: as many as the descriptor limit demands).
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: Option<u32>,
    /// Local addresses to connect from, taken in turn.
    #[arg(long, value_delimiter = ',')]
    sources: Vec<IpAddr>,
    /// Connections in the making at a time, per thread.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_connecting: u32,
    /// Seed of arrivals, weights and variables.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run even if the preflight says that the machine does not allow it.
    #[arg(long)]
    force: bool,
    /// One plain line at a time instead of the live view.
    #[arg(long)]
    plain: bool,
    /// Write the report as HTML.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What the flags come to.
struct Prepared {
    job: Job,
    scenario: Scenario,
    options: Options,
    settings: Settings,
}

impl Saturate {
    /// Runs the search and writes the report. Exit code 0: all thresholds are met, 1: one is not,
    /// 2: the machine does not allow the run.
    ///
    /// # Errors
    /// When the target or scenario is not valid, no step could be run, or a report not be written.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let Prepared { mut job, scenario, options, settings } = self.prepare()?;
        let Some(processes) = self.preflight(&mut job, &options, &settings, &scenario)? else {
            return Ok(ExitCode::from(EXIT_NOT_ALLOWED));
        };
        let probe = self.probe(&options, &job);
        let executable = std::env::current_exe().context("this program's own path is needed")?;
        let screen = Screen::new(&self.url, &settings, io::stderr().is_terminal() && !self.plain);
        let cluster = Cluster::new(job, processes, executable, vec![super::load::WORKER.into()])
            .on_progress(screen.callback());
        let stop = cluster.stop_handle();
        super::stop_on_signal(stop.clone())?;
        let mut run = Run {
            bench: Observed::new(cluster, probe),
            metrics: self.metrics.as_ref().map(|url| Metrics::new(url, self.server_cores)),
            observations: Vec::new(),
            discovery: Discovery::new(settings),
            screen,
            stop,
        };
        let started = report::format::utc(tidegate_net::clock::wall().0);
        if self.own_steps() {
            run.scenario(&scenario)?;
        } else {
            run.search()?;
        }
        run.screen.close();
        let context = Context {
            target: self.url.clone(),
            scenario: self.scenario.clone().unwrap_or_else(|| "search".to_owned()),
            started,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: report::Machine::here(),
        };
        let report = Report::build(context, &run.discovery, &run.observations, &self.thresholds(&scenario)?);
        self.write(&report, out)?;
        Ok(if report.verdicts.iter().all(|v| v.met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Whether the scenario's own steps are run.
    fn own_steps(&self) -> bool {
        self.scenario.is_some() && !self.search && self.levels.is_empty()
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let (text, data) = self.scenario_text()?;
        let job = Job {
            url: self.url.clone(),
            scenario: text,
            data,
            threads: 1,
            sources: self.sources.clone(),
            max_connecting: self.max_connecting,
            seed: self.seed,
            profile_of_step: None,
            share: (0, 1),
        };
        let (scenario, options) = job.resolve()?;
        let settings = self.settings(&scenario);
        Ok(Prepared { job, scenario, options, settings })
    }

    fn settings(&self, scenario: &Scenario) -> Settings {
        let mut settings = match self.slo {
            Some(objective) => Settings::slo(objective, self.connections),
            None => {
                let think_us = (self.think_ms.max(0.0) * 1e3) as u64;
                Settings { mode: Mode::Closed { think_us }, ..Settings::default() }
            }
        };
        settings.first = self.first.unwrap_or(settings.first);
        settings.ceiling = self.ceiling.unwrap_or(settings.ceiling);
        settings.levels.clone_from(&self.levels);
        settings.measure_ms = (self.duration_s.max(0.0) * 1e3) as u64;
        settings.warmup_ms = (self.warmup_s.max(0.0) * 1e3) as u64;
        (settings.repeats, settings.max_steps) = (self.repeats, self.max_steps);
        settings.max_total_ms = (self.max_time_s.max(0.0) * 1e3) as u64;
        if self.own_steps() {
            own_steps(&mut settings, scenario);
        }
        settings
    }

    /// Says what the machine allows, and spreads the job. None when it does not allow the run.
    fn preflight(
        &self,
        job: &mut Job,
        options: &Options,
        settings: &Settings,
        scenario: &Scenario,
    ) -> anyhow::Result<Option<u32>> {
        let most = settings.levels.iter().copied().fold(0.0, f64::max);
        let connections = match settings.mode {
            _ if self.own_steps() => scenario.max_connections(),
            Mode::Open { connections, .. } => connections,
            Mode::Closed { .. } if most > 0.0 => most as u32,
            Mode::Closed { .. } => settings.ceiling as u32,
        };
        let need = Need {
            connections,
            target: options.target,
            sources: options.sources.clone(),
            per_request: options.reuse == Reuse::PerRequest,
        };
        let machine = Machine::read();
        let decision = preflight::decide(&machine, &need);
        let mut errors = io::stderr().lock();
        for finding in decision.findings.iter().filter(|finding| finding.severity > Severity::Fine) {
            writeln!(errors, "{finding}")?;
        }
        if decision.blocked() && !self.force {
            return Ok(None);
        }
        let processes = self.processes.unwrap_or(decision.processes);
        job.threads = self.threads.unwrap_or_else(|| (machine.cores / processes).max(1));
        job.sources = decision.sources;
        Ok(Some(processes))
    }

    fn probe(&self, options: &Options, job: &Job) -> Probe {
        let local = options.target.ip().is_loopback();
        let port = options.target.port();
        Probe {
            server_pid: self.pid.or_else(|| local.then(|| listener_pid(port)).flatten()),
            server_port: local.then_some(port),
            client_pids: vec![std::process::id()],
            sources: Some(job.sources.len().max(1) as u64),
        }
    }

    /// The scenario's text and its data file's; the flags as a scenario when none is named.
    fn scenario_text(&self) -> anyhow::Result<(String, Option<String>)> {
        let Some(name) = &self.scenario else {
            // JSON's strings are TOML's, for what a URL may hold.
            let path = serde_json::to_string(&Target::parse(&self.url)?.path)?;
            let step = "[[step]]\nconnections = 1\nduration_s = 5.0\n";
            return Ok((format!("name = \"search\"\n[[request]]\npath = {path}\n{step}"), None));
        };
        if let Some(text) = scenario::built_in(name) {
            return Ok((text.to_owned(), None));
        }
        let known = || scenario::names().collect::<Vec<_>>().join(", ");
        let text = super::files::text(Path::new(name)).with_context(|| {
            format!("{name:?} is neither a file nor one of the built-in scenarios {}", known())
        })?;
        let folder = Path::new(name).parent().unwrap_or(Path::new("."));
        let mut data = None;
        Scenario::parse(&text, |file| {
            let rows = super::files::text(&folder.join(file))?;
            data = Some(rows.clone());
            Ok(rows)
        })?;
        Ok((text, data))
    }

    /// The flags' thresholds and the scenario's. A scenario's percentile that reports do not keep is
    /// an error rather than a threshold that nobody checks.
    fn thresholds(&self, scenario: &Scenario) -> anyhow::Result<Vec<Threshold>> {
        let mut all = self.threshold.clone();
        if self.scenario.is_some() {
            for threshold in &scenario.thresholds {
                all.push(threshold.to_string().parse().context("a threshold of the scenario")?);
            }
        }
        Ok(all)
    }

    fn write(&self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        let save =
            |path: &Option<PathBuf>, text: &dyn Fn() -> anyhow::Result<String>| -> anyhow::Result<()> {
                let Some(path) = path else { return Ok(()) };
                std::fs::write(path, text()?).with_context(|| path.display().to_string())
            };
        save(&self.json, &|| Ok(report.to_json()?))?;
        save(&self.markdown, &|| Ok(report::markdown(report)))?;
        save(&self.html, &|| Ok(report::html::html(report)))?;
        Ok(out.write_all(report::markdown(report).as_bytes())?)
    }
}

/// A scenario's steps as the settings that describe them.
fn own_steps(settings: &mut Settings, scenario: &Scenario) {
    let Some(first) = scenario.steps.first() else { return };
    settings.mode = match first.plan.discipline {
        Loop::Closed { think_us } => Mode::Closed { think_us },
        Loop::Open { poisson, .. } => Mode::Open { connections: first.plan.connections, poisson },
    };
    settings.levels = scenario
        .steps
        .iter()
        .map(|s| match s.plan.discipline {
            Loop::Closed { .. } => f64::from(s.plan.connections),
            Loop::Open { rate, .. } => rate,
        })
        .collect();
    settings.measure_ms = scenario.steps.iter().map(|s| s.plan.measure_ms).max().unwrap_or(0);
    settings.warmup_ms = first.plan.warmup_ms;
    settings.repeats = 1;
}

/// A run in progress.
struct Run {
    bench: Observed<Cluster>,
    metrics: Option<Metrics>,
    observations: Vec<Observation>,
    discovery: Discovery,
    screen: Screen,
    stop: Stop,
}

impl Run {
    fn search(&mut self) -> anyhow::Result<()> {
        while let Some(plan) = self.discovery.next_step() {
            if !self.step(&plan)? {
                break;
            }
        }
        Ok(())
    }

    fn scenario(&mut self, scenario: &Scenario) -> anyhow::Result<()> {
        for (index, step) in scenario.steps.iter().enumerate() {
            self.bench.inner().follow_profile(step.profile.as_ref().map(|_| index));
            if !self.step(&step.plan)? {
                return Ok(());
            }
        }
        // Nothing is left to measure: this records that all levels are done.
        let _none_left = self.discovery.next_step();
        Ok(())
    }

    /// Runs one step; false when the run was ended from outside, or could not go on.
    fn step(&mut self, plan: &tidegate_tester::measurement::StepPlan) -> anyhow::Result<bool> {
        self.screen.step(&self.discovery, plan);
        let before = self.metrics.as_ref().map(Metrics::read);
        let measured = match self.bench.run(plan) {
            Ok(measured) => measured,
            Err(error) if self.discovery.steps().is_empty() => return Err(error.into()),
            Err(error) => {
                self.screen.say(&format!("the step could not be run, the search ends here: {error}"));
                self.discovery.interrupt();
                return Ok(false);
            }
        };
        let stopped = self.stop.is_stopped();
        if stopped {
            self.discovery.interrupt();
        }
        // A step that was cut short says little beside whole ones, and everything without any.
        if !stopped || self.discovery.steps().is_empty() {
            self.keep(&measured, before);
        }
        Ok(!stopped)
    }

    fn keep(&mut self, measured: &Measurement, before: Option<metrics::Page>) {
        let mut seen = self.bench.observations().last().cloned().unwrap_or_default();
        if let (Some(metrics), Some(before)) = (&self.metrics, before) {
            let seconds = measured.seconds + measured.plan.warmup_ms as f64 / 1e3;
            seen.server = seen.server.or_else(|| metrics.delta(&before, seconds));
        }
        self.observations.push(seen);
        self.discovery.observe(measured);
    }
}
