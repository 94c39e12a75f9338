//! `tidegate saturate`: finds where a service stops scaling, and says why.
//!
//! ```text
//!   flags + scenario -> Job, Course, thresholds      (plan)
//!   preflight        -> processes, source addresses, or a refusal with the command that helps
//!   run              -> steps with evidence, shown as they go (screen)
//!   report           -> terminal, JSON, Markdown, HTML; exit status
//! ```
//!
//! Exit status: 0; 2 when the machine does not allow the run; 3 when a threshold is missed; 1 when
//! nothing, or not everything, could be measured. A Ctrl-C ends the run with the report of what was
//! measured until then, and 1. The report's files are opened before the run.

mod outputs;
mod plan;
mod screen;

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tidegate_judge::discover::Stop as Ended;
use tidegate_judge::report::{self, Context};
use tidegate_judge::threshold::Threshold;
use tidegate_net::clock::wall;
use tidegate_tester::cluster::agents::Agents;
use tidegate_tester::cluster::{Cluster, ClusterError, Job};
use tidegate_tester::evidence::machine;
use tidegate_tester::load::{Options, Reuse, Stop};
use tidegate_tester::pin::Pinned;
use tidegate_tester::preflight::{self, Machine, Need, Severity};
use tidegate_tester::saturate::{Finished, MetricsPage, Seen, Watched, run as run_course};

use super::agents::{self, AgentFlags, AgentWish};
use super::request::{RequestFlags, meet, say_address, say_replies};
use super::{EXIT_FINDING, EXIT_MISTAKES, duration, load, server, terminal};
use outputs::Outputs;

/// Longest wait for the server's metrics page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Cores from which a server here and the generator get their own without being asked.
const PINNED_FROM: usize = 4;
/// Largest metrics page that is read.
const PAGE_BYTES: u64 = 4 << 20;

/// Finds where a service stops scaling, and says why.
///
/// Exit code 0; 1: nothing or not all was measured; 2: the machine does not allow the run; 3: a threshold was missed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate saturate http://127.0.0.1:3000/ -d 5s --html report.html
  tidegate saturate http://127.0.0.1:3000/ --open --slo \"p99<50ms\" --json report.json")]
pub struct Saturate {
    /// Where to: http://, https://, h2c://, h2://, grpc://, grpcs://HOST:PORT/PATH; tcp://, tls://HOST:PORT
    /// (connect), tcp://HOST:PORT/echo; redis://, rediss://HOST:PORT.
    url: String,
    #[command(flatten)]
    request: RequestFlags,
    /// Requests, checks and thresholds of a scenario: a built-in name or a file. Its own steps are
    /// run, unless --closed, --open or --levels asks for a search with its requests.
    #[arg(long, value_name = "NAME|FILE")]
    scenario: Option<String>,
    /// Raise connections, each sending as soon as it is answered (the default).
    #[arg(long, conflicts_with = "open")]
    closed: bool,
    /// Raise the rate of requests until --slo no longer holds.
    #[arg(long, requires = "slo")]
    open: bool,
    /// What must hold for a load to count as kept up with, as in "p99<50ms".
    #[arg(long, value_name = "CONDITION")]
    slo: Vec<Threshold>,
    /// Exactly these loads instead of a search: connections, or requests per second with --open.
    #[arg(long, value_delimiter = ',', value_name = "LOAD,...")]
    levels: Vec<f64>,
    /// Most connections that a search may open.
    #[arg(hide_short_help = true, long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,
    /// With --open: connections that carry the rate.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// With --open: highest rate that is tried, per second.
    #[arg(hide_short_help = true, long, default_value_t = 1_000_000.0)]
    max_rate: f64,
    /// Pause of each connection before its next request (closed loop): milliseconds, or as 2s.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "0", value_parser = duration::millis)]
    think_ms: f64,
    /// Measured time of each step: seconds, or as 30s or 2m. Under 5 s its report says that it was short.
    #[arg(short = 'd', long, value_name = "TIME", default_value = "5", value_parser = duration::seconds)]
    step_seconds: f64,
    /// Time before that is not measured: seconds, or as 500ms.
    #[arg(short = 'w', long, value_name = "TIME", default_value = "1", value_parser = duration::seconds)]
    warmup_seconds: f64,
    /// Repeats of each level near the knee; under 3 the report says so.
    #[arg(hide_short_help = true, long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    repeats: u8,
    /// Most time over all steps: minutes, or as 90s or 1h.
    #[arg(long, value_name = "TIME", default_value = "15", value_parser = duration::minutes)]
    max_minutes: f64,
    /// Longest wait for a reply: seconds, or as 500ms.
    #[arg(long, value_name = "TIME", value_parser = duration::seconds, conflicts_with = "scenario")]
    timeout_seconds: Option<f64>,
    /// A connection for each request.
    #[arg(hide_short_help = true, long, conflicts_with = "scenario")]
    connection_per_request: bool,
    /// The server's process, when it runs on this machine, with those that it started (default: all that listen on the port).
    #[arg(hide_short_help = true, long)]
    pid: Option<u32>,
    /// Give the server and the generator cores of their own, for the time of the run. The default where both
    /// are on a machine of four cores or more.
    #[arg(hide_short_help = true, long, conflicts_with_all = ["no_pin", "agents"])]
    pin: bool,
    /// Leave both on all cores.
    #[arg(hide_short_help = true, long)]
    no_pin: bool,
    /// The server's Prometheus page: http:// or https://.
    #[arg(long, value_name = "URL", value_parser = server::page)]
    metrics: Option<String>,
    /// Cores of the server, for --metrics of another machine.
    #[arg(hide_short_help = true, long, requires = "metrics")]
    server_cores: Option<f64>,
    /// Exit with 3 when this does not hold, as in "p99 < 100ms".
    #[arg(long, value_name = "CONDITION")]
    threshold: Vec<Threshold>,
    /// Write the report as one HTML file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the report as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print the report as JSON, or write it to a file that is named.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = outputs::PRINTED)]
    json: Option<PathBuf>,
    /// Local addresses to connect from, taken in turn.
    #[arg(hide_short_help = true, long, value_delimiter = ',')]
    sources: Vec<IpAddr>,
    /// Generator processes (default: as many as the descriptor limit demands).
    #[arg(hide_short_help = true, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: Option<u32>,
    /// Generator threads of each process (default: one per core).
    #[arg(hide_short_help = true, long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    #[command(flatten)]
    agents: AgentFlags,
    /// Seed of arrivals, weights and variables.
    #[arg(hide_short_help = true, long, default_value_t = 1)]
    seed: u64,
    /// One line per step, even on a terminal.
    #[arg(hide_short_help = true, long)]
    plain: bool,
    /// Run even if the preflight says that the machine does not allow it.
    #[arg(hide_short_help = true, long)]
    force: bool,
    /// End with standard input, and test this machine alone: for a server that has been asked for the run.
    #[arg(long, hide = true, conflicts_with = "agents")]
    attended: bool,
}

impl Saturate {
    /// Runs the course and reports. Exit code 0; 1 when nothing or not all could be measured, 2 when
    /// the machine does not allow the run, 3 when a threshold is missed.
    ///
    /// # Errors
    /// When the flags or the scenario are wrong, nothing could be measured, or a file not be written.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let plan::SaturationPlan { mut job, course, thresholds, profiles, scenario, requests, digest } =
            plan::plan(self)?;
        let (_, options) = job.resolve()?;
        if self.attended && !options.target.ip().is_loopback() {
            bail!("{} is not on this machine", options.target);
        }
        let outputs = Outputs::open(self.json.as_ref(), self.markdown.as_ref(), self.html.as_ref())?;
        let Some(spread) = self.preflight(&mut job, &options, course.most_connections())? else {
            return Ok(ExitCode::from(EXIT_MISTAKES));
        };
        let GeneratorSpread { processes, agents } = spread;
        let agents_at_first = agents.as_ref().map(Agents::count);
        let first_reply = if self.force || agents.is_some() { None } else { meet(&options)? };
        let seen = self.witness(&options, processes, &job)?;
        let stop = Stop::default();
        super::signals::stop_on_signal(stop.clone())?;
        if self.attended {
            super::signals::stop_with_input(stop.clone())?;
        }
        let pinned = self.pin(&seen)?;
        if let (Some(pinned), None) = (&pinned, self.threads) {
            let cores = u32::try_from(pinned.split().generator.len()).unwrap_or(u32::MAX);
            job.threads = (cores / processes).max(1);
        }
        let shares_cores = agents.is_none().then(|| what_is_pinned(&seen, pinned.as_ref()));
        let said = what_is_seen(&seen) + &shares_cores.unwrap_or_default();
        write!(io::stderr(), "{}", terminal::for_errors(&said))?;

        let started = report::format::utc(wall().0);
        let mut cluster = Cluster::new(job, processes, load::own_program()?, vec![load::WORKER.into()]);
        cluster.stop_with(stop.clone());
        let cluster = match agents {
            Some(agents) => cluster.over(agents.repeating()),
            None => cluster,
        };
        let redraw = !self.plain && terminal::can_redraw();
        let mut screen = screen::Screen::new(&self.url, redraw, profiles);
        let cluster = if redraw { cluster.on_progress(screen.progress()) } else { cluster };
        let finished = run_course(&mut Watched::new(cluster, seen), &course, &stop, &mut screen);
        screen.leave(&finished.discovery);
        finished.discovery.steps().first().map_or(Ok(()), |step| say_replies(&step.statuses))?;

        let context = Context {
            target: self.url.clone(),
            engine: options.engine() + &agents::in_words(agents_at_first, finished.discovery.steps())?,
            scenario,
            started,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine::here(),
            requests,
            requests_digest: digest,
            pinned: pinned.map(|pinned| pinned.split().clone()),
            extra_worker_gain: None,
            first_reply,
        };
        conclude(&finished, context, &thresholds, outputs, out)
    }

    /// Says what the machine allows, or those of the agents, and spreads the job over it; none when the run is not allowed.
    fn preflight(
        &self,
        job: &mut Job,
        options: &Options,
        connections: u32,
    ) -> anyhow::Result<Option<GeneratorSpread>> {
        let need = Need {
            connections,
            target: options.target,
            sources: options.sources.clone(),
            per_request: options.reuse == Reuse::PerRequest,
        };
        if self.agents.are_any() {
            let (processes, threads, force) = (self.processes, self.threads, self.force);
            let wish = AgentWish { processes, threads, force, said: Severity::Fine };
            let agents = self.agents.spread(job, &need, &wish)?;
            // None of the generator's processes is here.
            return Ok(agents.map(|agents| GeneratorSpread { processes: 0, agents: Some(agents) }));
        }
        say_address(&self.url, options.target)?;
        let machine = Machine::read();
        let decision = preflight::decide(&machine, &need);
        let mut errors = io::stderr().lock();
        for finding in &decision.findings {
            write!(errors, "{}", terminal::for_errors(&format!("{finding}\n")))?;
        }
        if decision.blocked() && !self.force {
            writeln!(errors, "nothing was run; --force runs it all the same")?;
            return Ok(None);
        }
        let processes = self.processes.unwrap_or(decision.processes);
        job.threads = self.threads.unwrap_or_else(|| (machine.cores / processes).max(1));
        job.sources = decision.sources;
        Ok(Some(GeneratorSpread { processes, agents: None }))
    }

    /// Gives the server and the generator cores of their own where that is asked, or where this machine has
    /// enough of them for both. They are as before once what this gives is dropped.
    fn pin(&self, seen: &Seen) -> anyhow::Result<Option<Pinned>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = self.pin || (!self.no_pin && !self.agents.are_any() && cores >= PINNED_FROM);
        if seen.server_pids().is_empty() || !wanted || !seen.is_local() {
            if self.pin {
                bail!("--pin: the server's process is not seen on this machine (name it with --pid)");
            }
            return Ok(None);
        }
        match Pinned::new(seen.server_pids()) {
            Ok(pinned) => Ok(Some(pinned)),
            Err(error) if self.pin => Err(error).context("--pin"),
            Err(error) => {
                write!(
                    io::stderr(),
                    "{}",
                    terminal::for_errors(&format!("note    {error}: both share all cores\n"))
                )?;
                Ok(None)
            }
        }
    }

    /// What can be seen of the server, and the page to read beside it.
    fn witness(&self, options: &Options, processes: u32, job: &Job) -> anyhow::Result<Seen> {
        let seen = Seen::of(options.target, self.pid, processes, &job.sources);
        let Some(url) = self.metrics.clone() else { return Ok(seen) };
        let cores = || std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        let Some(cores) = self.server_cores.or_else(|| seen.is_local().then(cores)) else {
            bail!(
                "--metrics of a server on another machine needs --server-cores: a page does not say how many it has"
            );
        };
        let agent = server::agent(&url, self.request.ca(), PAGE_TIMEOUT);
        let agent = agent.map_err(|reason| anyhow::anyhow!("--metrics: {}", reason.trim_end()))?;
        // A page that fails is evidence that is missing, not a failed run.
        let page: MetricsPage = Box::new(move || {
            let mut reply = agent.get(&url).call().ok().filter(|reply| reply.status().is_success())?;
            reply.body_mut().with_config().limit(PAGE_BYTES).read_to_string().ok()
        });
        Ok(seen.with_page(page, cores))
    }
}

/// Where the load comes from.
struct GeneratorSpread {
    /// Generator processes on this machine.
    processes: u32,
    agents: Option<Agents>,
}

/// Prints the answer, writes the files, and decides the exit code.
fn conclude(
    finished: &Finished<ClusterError>,
    context: Context,
    thresholds: &[Threshold],
    outputs: Outputs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    if let Some(error) = &finished.failure {
        writeln!(io::stderr(), "a step could not be run: {error}")?;
    }
    let Some(report) = finished.report(context, thresholds) else {
        bail!("nothing was measured");
    };
    outputs.write(&report, out)?;
    let whole = finished.failure.is_none() && report.stop != Ended::Interrupted && report.was_answered();
    Ok(match (report.verdicts.iter().all(|verdict| verdict.met), whole) {
        (false, _) => ExitCode::from(EXIT_FINDING),
        (true, false) => ExitCode::FAILURE,
        (true, true) => ExitCode::SUCCESS,
    })
}

fn what_is_seen(seen: &Seen) -> String {
    match (seen.server_pids(), seen.is_local()) {
        ([pid], _) => {
            format!("ok      the server is process {pid}: its threads and descriptors are watched\n")
        }
        ([first, others @ ..], _) => format!(
            "ok      the server is process {first} and {} more: their threads and descriptors are watched\n",
            others.len()
        ),
        ([], true) => {
            "note    the server's process cannot be seen: name it with --pid, or run as its user\n".to_owned()
        }
        ([], false) => {
            "note    the server is on another machine: --metrics URL lets it speak for itself\n".to_owned()
        }
    }
}

/// Which cores each has; where they share them, how to change that.
fn what_is_pinned(seen: &Seen, pinned: Option<&Pinned>) -> String {
    let list = |cores: &[usize]| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    match pinned {
        Some(pinned) => format!(
            "ok      for the time of the run the server has cores {}, the generator {} (--no-pin leaves both on all)\n",
            list(&pinned.split().server),
            list(&pinned.split().generator)
        ),
        None if seen.is_local() && !seen.server_pids().is_empty() => {
            "note    the generator takes cores from the server: --pin gives each its own\n".to_owned()
        }
        None => String::new(),
    }
}
