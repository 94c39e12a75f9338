//! `tidegate load URL`: one step of load, and what it measured.

use std::{net::IpAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use tidegate_tester::{
    load::{Engine, Exchange, Options, Reuse, Target, Workload},
    measurement::{Bench as _, Loop, Measurement, StepPlan},
};

/// Puts one step of load on a target.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to: http://host:port/path.
    url: String,
    /// Connections held open.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Requests per second (open loop); without it each connection sends as fast as it is answered.
    #[arg(short, long)]
    rate: Option<f64>,
    /// Exponential gaps between requests instead of equal ones.
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Measured seconds.
    #[arg(short, long, default_value_t = 10.0)]
    duration: f64,
    /// Seconds that are not measured, before.
    #[arg(short, long, default_value_t = 1.0)]
    warmup: f64,
    /// Generator threads.
    #[arg(short, long)]
    threads: Option<u32>,
    /// A connection for each request.
    #[arg(long)]
    no_keep_alive: bool,
    /// Local addresses to connect from, taken in turn.
    #[arg(long, value_delimiter = ',')]
    sources: Vec<IpAddr>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let target = Target::parse(&args.url)?;
    let workload = Workload::get(&target.host, &target.path)?;
    let mut options = Options::new(target.resolve()?, Exchange::Http(Arc::new(workload)));
    options.threads = args.threads.unwrap_or(options.threads);
    options.sources.clone_from(&args.sources);
    if args.no_keep_alive {
        options.reuse = Reuse::PerRequest;
    }
    let plan = StepPlan {
        connections: args.connections,
        discipline: match args.rate {
            Some(rate) => Loop::Open { rate, poisson: args.poisson },
            None => Loop::Closed { think_us: 0 },
        },
        warmup_ms: millis(args.warmup),
        measure_ms: millis(args.duration),
        max_requests: 0,
    };
    let measured = Engine::new(options).run(&plan).context("the load could not be run")?;
    print(&measured)?;
    Ok(ExitCode::SUCCESS)
}

fn millis(seconds: f64) -> u64 {
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn print(measured: &Measurement) -> std::io::Result<()> {
    use std::io::Write as _;
    let ms = |histogram: &tidegate_tester::measurement::Latency, q| {
        histogram.value_at_quantile(q) as f64 / 1_000.0
    };
    let response = &measured.response;
    let mut out = std::io::stdout().lock();
    writeln!(out, "throughput      {:.1} good/s over {:.3} s", measured.throughput(), measured.seconds)?;
    writeln!(
        out,
        "replies         {} good, {} denied, {} errors, {} sent",
        measured.good,
        measured.denied,
        measured.errors.values().sum::<u64>(),
        measured.sent
    )?;
    writeln!(
        out,
        "response        p50 {:.3}  p90 {:.3}  p99 {:.3}  max {:.3} ms",
        ms(response, 0.5),
        ms(response, 0.9),
        ms(response, 0.99),
        response.max() as f64 / 1_000.0
    )?;
    writeln!(
        out,
        "service         p50 {:.3}  p99 {:.3} ms",
        ms(&measured.service, 0.5),
        ms(&measured.service, 0.99)
    )?;
    writeln!(
        out,
        "connect         p50 {:.3}  p99 {:.3} ms, {} established",
        ms(&measured.connect, 0.5),
        ms(&measured.connect, 0.99),
        measured.established
    )?;
    let expected = measured.throughput() * measured.service.mean() / 1e6;
    writeln!(
        out,
        "in flight       {:.2} mean (rate x mean service time: {expected:.2})",
        measured.mean_in_flight
    )?;
    let generator = &measured.generator;
    writeln!(
        out,
        "generator       {} threads, {:.2} CPU s ({:.2} per million), busiest {:.0} %, lag p99 {} us, run delay {:.3} s",
        generator.threads,
        generator.cpu_seconds,
        generator.cpu_seconds * 1e6 / (measured.good.max(1) as f64),
        generator.busiest_thread * 100.0,
        generator.send_lag_p99_us,
        generator.run_delay_seconds
    )?;
    for (class, count) in &measured.errors {
        writeln!(out, "error           {class:?} {count}")?;
    }
    Ok(())
}
