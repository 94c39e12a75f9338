//! `tidegate stub`: a test backend with planted behaviour.

use std::{
    ffi::OsString,
    io::{self, Read as _, Write},
    net::SocketAddr,
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use super::{duration, load::own_program};
use anyhow::{Context as _, bail};
use tidegate_tester::{
    load::Stop,
    preflight::raise_descriptors,
    stub::{Admission, Beyond, Fault, FaultKind, Freeze, Stall, Stub, StubOptions, Upstream, expect_free},
};

/// Serves with planted behaviour: what a tester is tested with.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate stub
  tidegate stub 127.0.0.1:3000 --body hello
  tidegate stub --workers 4 --delay-ms 20 --fault 100:503")]
pub struct StubCommand {
    /// Where to listen.
    #[arg(default_value = "127.0.0.1:4100")]
    listen: SocketAddr,
    /// Event-loop threads of each process.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Processes that share the port.
    #[arg(long, default_value_t = 1, overrides_with = "processes", value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Send bytes back as they come, in place of HTTP.
    #[arg(long)]
    echo: bool,
    /// Length of the accept queue.
    #[arg(hide_short_help = true, long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..))]
    backlog: u32,
    /// Pause after each accepted connection: milliseconds, or as 2s.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "0", value_parser = duration::millis)]
    accept_gap_ms: f64,
    /// Descriptor limit of each process.
    #[arg(hide_short_help = true, long)]
    max_descriptors: Option<u64>,
    /// Time that each request takes: milliseconds, or as 2s.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration::millis)]
    delay_ms: f64,
    /// Workers with one queue, each busy for the delay with one request (0: as many as needed).
    #[arg(long, default_value_t = 0)]
    workers: u32,
    /// Stand still again and again: EVERY:LENGTH, in milliseconds or as 10s:500ms.
    #[arg(hide_short_help = true, long, value_parser = pair)]
    stall_ms: Option<(f64, f64)>,
    /// Stand still once: AFTER:LENGTH from the first request, in milliseconds or as 10s:2s.
    #[arg(hide_short_help = true, long, value_parser = pair)]
    freeze_ms: Option<(f64, f64)>,
    /// Added to the delay for each second since the first request: milliseconds, or as 2s.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "0", value_parser = duration::millis)]
    drift_ms_per_s: f64,
    /// Memory kept for ever at each request.
    #[arg(hide_short_help = true, long, default_value_t = 0)]
    leak_bytes: u32,
    /// Turn requests away with this status, beyond one of the three bounds.
    #[arg(hide_short_help = true, long, default_value_t = 503, value_parser = clap::value_parser!(u16).range(400..=599))]
    refuse_status: u16,
    /// Serve the first so many requests only.
    #[arg(hide_short_help = true, long, group = "bound")]
    refuse_after: Option<u64>,
    /// Serve so many requests per second only.
    #[arg(hide_short_help = true, long, group = "bound")]
    refuse_above_rate: Option<f64>,
    /// Serve so many requests at a time only.
    #[arg(hide_short_help = true, long, group = "bound")]
    refuse_above_in_flight: Option<u64>,
    /// Length of the body.
    #[arg(long, default_value_t = 2)]
    body_bytes: u32,
    /// What the body says, and a line's end.
    #[arg(long, value_name = "TEXT", conflicts_with = "body_bytes")]
    body: Option<String>,
    /// Send the body in so many pieces.
    #[arg(hide_short_help = true, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    body_pieces: u32,
    /// Pause between two pieces: milliseconds, or as 2s.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "0", value_parser = duration::millis)]
    body_gap_ms: f64,
    /// CPU time that each request uses: milliseconds, or as 2s.
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "0", value_parser = duration::millis)]
    burn_ms: f64,
    /// A service that each request waits for.
    #[arg(hide_short_help = true, long)]
    upstream: Option<SocketAddr>,
    /// Connections to it.
    #[arg(hide_short_help = true, long, default_value_t = 64, requires = "upstream")]
    upstream_connections: u32,
    /// Something goes wrong with every so many-th request: EVERY:KIND, KIND one of reset, truncate,
    /// garbage, hang, close or a status.
    #[arg(long, value_parser = fault)]
    fault: Option<Fault>,
    /// Stop at the end of standard input.
    #[arg(long, hide = true, overrides_with = "until_eof")]
    until_eof: bool,
    /// One of several processes: the port is shared.
    #[arg(long, hide = true)]
    share_port: bool,
}

impl StubCommand {
    /// Serves until a signal; then prints what it did, as JSON.
    ///
    /// # Errors
    /// When it cannot listen, or a thread or a process fails.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        run(self, out)
    }
}

fn run(args: &StubCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    raise_descriptors().context("the descriptor limit cannot be raised")?;
    let stop = Stop::default();
    super::signals::stop_on_signal(stop.clone())?;
    if args.until_eof {
        stop_at_end_of_input(stop.clone())?;
    }
    if args.processes > 1 {
        return several(args, &stop);
    }
    let stub = Stub::start(options(args), stop)?;
    writeln!(out, "listening on {}", stub.address())?;
    out.flush()?;
    let stats = stub.join()?;
    writeln!(out, "{}", serde_json::to_string(&stats)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Starts this program again for each process and waits for their end.
fn several(args: &StubCommand, stop: &Stop) -> anyhow::Result<ExitCode> {
    if args.listen.port() == 0 {
        bail!("several processes need a port that they can share");
    }
    expect_free(args.listen)?;
    let own: Vec<OsString> = std::env::args_os().skip(1).collect();
    let executable = own_program()?;
    let mut children = Vec::new();
    for _ in 0..args.processes {
        let mut command = Command::new(&executable);
        // The last of two equal flags wins.
        command.args(&own).args(["--processes", "1", "--until-eof", "--share-port"]).stdin(Stdio::piped());
        children.push(command.spawn().context("a process could not be started")?);
    }
    while !stop.is_stopped() && children.iter_mut().all(runs) {
        thread::park_timeout(Duration::from_millis(50));
    }
    for child in &mut children {
        drop(child.stdin.take());
    }
    let mut all_well = true;
    for mut child in children {
        all_well &= child.wait()?.success();
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn runs(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

fn stop_at_end_of_input(stop: Stop) -> io::Result<()> {
    let wait = move || {
        // An error of the input ends it too.
        let _ended = io::stdin().lock().read_to_end(&mut Vec::new()).is_ok();
        stop.stop();
    };
    thread::Builder::new().name("input".to_owned()).spawn(wait).map(drop)
}

fn options(args: &StubCommand) -> StubOptions {
    let beyond = match (args.refuse_after, args.refuse_above_rate, args.refuse_above_in_flight) {
        (Some(count), _, _) => Some(Beyond::Requests(count)),
        (_, Some(rate), _) => Some(Beyond::Rate(rate)),
        (_, _, Some(count)) => Some(Beyond::InFlight(count)),
        _ => None,
    };
    StubOptions {
        threads: args.threads,
        share_port: args.share_port,
        echo: args.echo,
        backlog: args.backlog,
        accept_gap: millis(args.accept_gap_ms),
        max_descriptors: args.max_descriptors,
        delay: millis(args.delay_ms),
        workers: args.workers,
        stall: args.stall_ms.map(|(every, length)| Stall { every: millis(every), length: millis(length) }),
        freeze: args.freeze_ms.map(|(after, length)| Freeze { after: millis(after), length: millis(length) }),
        drift_per_second: millis(args.drift_ms_per_s),
        leak_bytes: args.leak_bytes,
        admission: beyond.map(|beyond| Admission { status: args.refuse_status, beyond }),
        body_bytes: args.body_bytes,
        body: args.body.as_ref().map(|text| format!("{text}\n").into()),
        body_pieces: args.body_pieces,
        body_gap: millis(args.body_gap_ms),
        burn: millis(args.burn_ms),
        upstream: args.upstream.map(|address| Upstream { address, connections: args.upstream_connections }),
        fault: args.fault,
        ..StubOptions::new(args.listen)
    }
}

/// Milliseconds; what is no duration counts as none.
fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

fn pair(text: &str) -> Result<(f64, f64), String> {
    let (first, second) =
        text.split_once(':').ok_or_else(|| format!("{text:?} is not two durations with a colon between"))?;
    Ok((duration::millis(first)?, duration::millis(second)?))
}

fn fault(text: &str) -> Result<Fault, String> {
    let parse = || {
        let (every, kind) = text.split_once(':')?;
        let kind = match kind {
            "reset" => FaultKind::Reset,
            "truncate" => FaultKind::Truncate,
            "garbage" => FaultKind::Garbage,
            "hang" => FaultKind::Hang,
            "close" => FaultKind::Close,
            status => FaultKind::Status(status.parse().ok().filter(|status| (200..=599).contains(status))?),
        };
        Some(Fault { every: every.parse().ok().filter(|every| *every > 0)?, kind })
    };
    parse().ok_or_else(|| format!("{text:?} is not EVERY:KIND"))
}
