//! `tidegate load`: runs a scenario, or one step given by flags, and prints what it measured.
//!
//! This is load without judgement: no search, no diagnosis (that is `tidegate saturate`). With `--agents` other machines
//! make it, and with `--agent` this one does for them (`agents/`). Exit status: 0; 1 when nothing, or not everything, could
//! be measured (no reply was good, it was interrupted, or an agent was lost); 2 when the machine does not allow the run; 3
//! when a threshold of the scenario is missed: the same as of `tidegate saturate`.

mod printed;

use std::{
    io::{self, Write},
    net::IpAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use parking_lot::Mutex;
use tidegate_judge::{
    live::{self, Running},
    measurement::Bench as _,
    record::StepRecord,
};
use tidegate_tester::{
    cluster::{Cluster, Job, agents::AgentDesk, run_worker},
    load::{OnProgress, Options, Reuse},
    preflight::{self, Machine, Need, Severity},
    scenario::{self, Scenario},
};

use super::{
    EXIT_FINDING, EXIT_MISTAKES,
    agents::{self, AgentFlags, AgentListenFlags, AgentWish},
    duration, files,
    request::{RequestFlags, meet, say_address, say_replies},
    terminal::{self, Canvas},
};

use printed::{print, print_thresholds};

/// Name of the hidden command that a generator process is started with.
pub const WORKER: &str = "saturate-worker";

/// Puts load on a target: a scenario, or one step given by flags.
///
/// It prints what it measured, without judging it: that is `tidegate saturate`. Exit code 0; 1: nothing or not all was
/// measured; 2: the machine does not allow the run; 3: a threshold was missed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate load http://127.0.0.1:3000/ -c 64 -d 30s
  tidegate load http://127.0.0.1:3000/ --rate 1000 -d 1m --json
  tidegate load redis://127.0.0.1:6380 --command \"CL.THROTTLE user{{counter}} 15 30 60\" -d 10s
  tidegate load --agent 10.0.0.2:4200 --agent-token-file agent.token
  tidegate load http://10.0.0.9/ -c 50000 --agents 10.0.0.2:4200,10.0.0.3:4200 --agent-token-file agent.token")]
pub struct Load {
    /// Where to: http://, https://, h2c://, h2://, grpc://, grpcs://HOST:PORT/PATH; tcp://, tls://HOST:PORT
    /// (connect), tcp://HOST:PORT/echo; redis://, rediss://HOST:PORT.
    #[arg(required_unless_present = "agent")]
    url: Option<String>,
    #[command(flatten)]
    request: RequestFlags,
    /// A scenario: a built-in name or a file. Without it, one step of GET requests to the URL.
    #[arg(short, long)]
    scenario: Option<String>,
    /// Connections held open.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    #[arg(conflicts_with = "scenario")]
    connections: u32,
    /// Requests per second (open loop); without it each connection sends as soon as it is answered.
    #[arg(short, long, conflicts_with = "scenario")]
    rate: Option<f64>,
    /// Exponential gaps between requests in place of equal ones.
    #[arg(hide_short_help = true, long, requires = "rate")]
    poisson: bool,
    /// Measured time: seconds, or as 500ms, 30s or 2m.
    #[arg(short = 'd', long, alias = "duration-s", value_name = "TIME", default_value = "10")]
    #[arg(value_parser = duration::seconds, conflicts_with = "scenario")]
    step_seconds: f64,
    /// Time before that is not measured: seconds, or as 500ms.
    #[arg(short = 'w', long, alias = "warmup-s", value_name = "TIME", default_value = "1")]
    #[arg(value_parser = duration::seconds, conflicts_with = "scenario")]
    warmup_seconds: f64,
    /// Stop after so many requests.
    #[arg(short = 'n', long, conflicts_with = "scenario")]
    requests: Option<u64>,
    /// A connection for each request.
    #[arg(hide_short_help = true, long, conflicts_with = "scenario")]
    connection_per_request: bool,
    /// Longest wait for a reply: seconds, or as 500ms.
    #[arg(long, value_name = "TIME", value_parser = duration::seconds, conflicts_with = "scenario")]
    timeout_seconds: Option<f64>,
    /// Generator threads of each process (default: one per core).
    #[arg(hide_short_help = true, short, long, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
    /// Generator processes (default: as many as the descriptor limit demands).
    #[arg(hide_short_help = true, short, long, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: Option<u32>,
    /// Local addresses to connect from, taken in turn.
    #[arg(hide_short_help = true, long, value_delimiter = ',')]
    sources: Vec<IpAddr>,
    /// Connections in the making at a time, per thread.
    #[arg(hide_short_help = true, long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    max_connecting: u32,
    #[command(flatten)]
    agents: AgentFlags,
    #[command(flatten)]
    listen: AgentListenFlags,
    /// Seed of arrivals, weights and variables.
    #[arg(hide_short_help = true, long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON record per step.
    #[arg(long)]
    json: bool,
    /// Run even if the preflight says that the machine does not allow it.
    #[arg(hide_short_help = true, long)]
    force: bool,
}

impl Load {
    /// Runs all steps and prints what each measured. Exit code 0: all thresholds were met, 1: nothing or
    /// not all was measured, 2: the machine does not allow the run, 3: a threshold was missed.
    ///
    /// # Errors
    /// When the target or the scenario is not valid, nothing listens there, or the load cannot be run.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        if let Some(address) = self.listen.address() {
            let desk = AgentDesk::new(env!("CARGO_PKG_VERSION"), own_program()?, vec![WORKER.into()]);
            return agents::listen(&self.listen, address, self.agents.token()?, desk, out);
        }
        run(self, out)
    }

    /// Where to; empty for an agent, which is told by its coordinator.
    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or_default()
    }
}

fn run(args: &Load, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (text, data) = scenario_text(args)?;
    let job = Job {
        http2: args.request.http2(),
        trust: args.request.trust()?,
        sources: args.sources.clone(),
        max_connecting: args.max_connecting,
        ..Job::new(args.url().to_owned(), text, data, args.seed)
    };
    let (scenario, options) = job.resolve()?;
    let engine = options.engine();
    let Some(mut cluster) = generator(args, job, &options, scenario.max_connections())? else {
        return Ok(ExitCode::from(EXIT_MISTAKES));
    };
    let canvas = Arc::new(Mutex::new(Canvas::default()));
    if terminal::can_redraw() {
        cluster = cluster.on_progress(drawn_on(Arc::clone(&canvas)));
    }
    steps(args, &scenario, &mut cluster, &engine, &canvas, out)
}

/// What makes the load: this machine, or agents. None when a machine does not allow it.
fn generator(
    args: &Load,
    mut job: Job,
    options: &Options,
    connections: u32,
) -> anyhow::Result<Option<Cluster>> {
    let need = Need {
        connections,
        target: options.target,
        sources: options.sources.clone(),
        per_request: options.reuse == Reuse::PerRequest,
    };
    if args.agents.are_any() {
        let (processes, threads, force) = (args.processes, args.threads, args.force);
        let wish = AgentWish { processes, threads, force, said: Severity::Note };
        let Some(agents) = args.agents.spread(&mut job, &need, &wish)? else { return Ok(None) };
        return Ok(Some(Cluster::new(job, 1, own_program()?, vec![WORKER.into()]).over(agents)));
    }
    say_address(args.url(), options.target)?;
    let machine = Machine::read();
    let decision = preflight::decide(&machine, &need);
    let mut errors = io::stderr().lock();
    for finding in decision.findings.iter().filter(|finding| finding.severity > Severity::Fine) {
        write!(errors, "{}", terminal::for_errors(&format!("{finding}\n")))?;
    }
    drop(errors);
    if decision.blocked() && !args.force {
        return Ok(None);
    }
    match (args.force, args.requests) {
        (true, _) => {}
        // So many are asked for, and no more are sent.
        (false, Some(_)) => preflight::contact(options)?,
        (false, None) => drop(meet(options)?),
    }
    let processes = args.processes.unwrap_or(decision.processes);
    job.threads = args.threads.unwrap_or_else(|| (machine.cores / processes).max(1));
    job.sources = decision.sources;
    Ok(Some(Cluster::new(job, processes, own_program()?, vec![WORKER.into()])))
}

/// Runs the steps of a scenario one after the other.
fn steps(
    args: &Load,
    scenario: &Scenario,
    cluster: &mut Cluster,
    engine: &str,
    canvas: &Mutex<Canvas>,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let stop = cluster.stop_handle();
    super::signals::stop_on_signal(stop.clone())?;
    let (mut kept, mut answered, mut whole) = (true, false, true);
    for (index, step) in scenario.steps.iter().enumerate() {
        if stop.is_stopped() {
            break;
        }
        cluster.follow_profile(step.profile.as_ref().map(|_| index));
        let measured = cluster.run(&step.plan);
        canvas.lock().erase();
        let measured = measured?;
        if stop.is_stopped() && measured.seconds <= 0.0 {
            // Interrupted before its measured time began.
            break;
        }
        let record = StepRecord::of(&measured);
        say_replies(&record.statuses)?;
        answered |= record.good + record.denied > 0;
        whole &= agents::say_lost(&measured.agents, "its share of this step is left out")?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&record)?)?;
        } else {
            let mut text = format!("engine          {engine}\n").into_bytes();
            print(&mut text, step, &measured)?;
            write!(out, "{}", terminal::for_output(&String::from_utf8_lossy(&text)))?;
        }
        kept &= print_thresholds(out, scenario, step, &record, args.json)?;
    }
    if stop.is_stopped() {
        writeln!(io::stderr(), "interrupted: this is what was measured until then")?;
    } else if !answered {
        writeln!(
            io::stderr(),
            "no reply was good: see whether the server works, and whether this is its address"
        )?;
    }
    Ok(match (kept, answered && whole && !stop.is_stopped()) {
        (false, _) => ExitCode::from(EXIT_FINDING),
        (true, false) => ExitCode::FAILURE,
        (true, true) => ExitCode::SUCCESS,
    })
}

/// Draws the running step over itself.
fn drawn_on(canvas: Arc<Mutex<Canvas>>) -> OnProgress {
    Box::new(move |progress| {
        let (columns, _) = terminal::size();
        let lines = live::step(&Running::from(progress), columns);
        canvas.lock().draw(&lines);
    })
}

/// This program, to be started again.
pub(crate) fn own_program() -> anyhow::Result<PathBuf> {
    // Without /proc the system does not know; then as it was called.
    let called = || std::env::args_os().next().map(PathBuf::from);
    std::env::current_exe().ok().or_else(called).context("this program's own path is needed")
}

/// The hidden worker command.
///
/// # Errors
/// When its parent cannot be understood or spoken to.
pub fn worker() -> anyhow::Result<ExitCode> {
    run_worker()?;
    Ok(ExitCode::SUCCESS)
}

/// The scenario's text and its data file's.
fn scenario_text(args: &Load) -> anyhow::Result<(String, Option<String>)> {
    match &args.scenario {
        Some(name) => {
            args.request.only_connection()?;
            named_scenario(name)
        }
        None => Ok((one_step(args)?, None)),
    }
}

/// The text of a built-in scenario or of a file, and its data file's.
pub(super) fn named_scenario(name: &str) -> anyhow::Result<(String, Option<String>)> {
    if let Some(text) = scenario::built_in(name) {
        return Ok((text.to_owned(), None));
    }
    let known = || scenario::names().collect::<Vec<_>>().join(", ");
    let text = files::text(Path::new(name)).with_context(|| {
        format!("{name:?} is neither a file nor one of the built-in scenarios {}", known())
    })?;
    let mut data = None;
    let folder = Path::new(name).parent().unwrap_or(Path::new("."));
    Scenario::parse(&text, |file| {
        let text = files::text_within(&folder.join(file), scenario::data::MAX_BYTES)?;
        data = Some(text.clone());
        Ok(text)
    })?;
    Ok((text, data))
}

/// The flags as a scenario, so that there is one way to run.
fn one_step(args: &Load) -> anyhow::Result<String> {
    let reuse = if args.connection_per_request { "per-request" } else { "keep-alive" };
    let mut text = format!(
        "name = \"load\"\n[connection]\nreuse = \"{reuse}\"\n{}{}\
         [[step]]\nconnections = {}\nduration_s = {:?}\nwarmup_s = {:?}\n",
        request_timeout(args.timeout_seconds),
        args.request.table(args.url())?,
        args.connections,
        args.step_seconds,
        args.warmup_seconds
    );
    if let Some(requests) = args.requests {
        text.push_str(&format!("requests = {requests}\n"));
    }
    if let Some(rate) = args.rate {
        let arrivals = if args.poisson { "poisson" } else { "even" };
        text.push_str(&format!("rate = {rate:?}\narrivals = \"{arrivals}\"\n"));
    }
    Ok(text)
}

/// The line of a scenario that `--timeout-seconds` stands for.
pub(super) fn request_timeout(seconds: Option<f64>) -> String {
    seconds.map_or(String::new(), |s| format!("request_timeout_ms = {}\n", (s.max(0.0) * 1e3) as u64))
}
