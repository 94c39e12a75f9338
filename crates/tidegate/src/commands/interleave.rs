//! The flags of `tidegate compare --interleave`, and the run of two targets turn by turn.

use std::io::{self, Write as _};

use anyhow::bail;
use tidegate_judge::discover::{Discovery, Mode, Settings};
use tidegate_judge::report::step_line;
use tidegate_judge::report::{self, Context, Report};
use tidegate_net::clock::wall;
use tidegate_tester::cluster::{Cluster, Job};
use tidegate_tester::evidence::machine;
use tidegate_tester::interleave::{Side, interleave};
use tidegate_tester::preflight::{self, Machine, Need, Severity};

use super::request::{RequestFlags, meet, say_address};
use super::{EXIT_MISTAKES, duration, load, terminal};

/// How two targets are measured.
#[derive(Debug, clap::Args)]
pub(super) struct Interleaved {
    /// Measure two URLs turn by turn, in place of reading two reports.
    #[arg(long)]
    interleave: bool,
    /// Requests and checks of a scenario, for both: a built-in name or a file.
    #[arg(long, value_name = "NAME|FILE", requires = "interleave")]
    scenario: Option<String>,
    #[command(flatten)]
    request: RequestFlags,
    /// Connections at which both are measured; with --rate one number, the connections that carry it.
    #[arg(long, value_delimiter = ',', default_value = "64", requires = "interleave")]
    connections: Vec<u32>,
    /// Requests per second (open loop), in place of as fast as replies come.
    #[arg(long, requires = "interleave")]
    rate: Option<f64>,
    /// Turns of each side.
    #[arg(long, default_value_t = 5, requires = "interleave", value_parser = clap::value_parser!(u8).range(1..=20))]
    repeats: u8,
    /// Measured time of a turn: seconds, or as 500ms, 30s or 2m.
    #[arg(short = 'd', long, value_name = "TIME", default_value = "5", value_parser = duration::seconds)]
    #[arg(requires = "interleave")]
    step_seconds: f64,
    /// Time before that is not measured: seconds, or as 500ms.
    #[arg(short = 'w', long, value_name = "TIME", default_value = "1", value_parser = duration::seconds)]
    #[arg(requires = "interleave")]
    warmup_seconds: f64,
    /// Longest wait for a reply: seconds, or as 500ms.
    #[arg(long, value_name = "TIME", value_parser = duration::seconds, requires = "interleave")]
    #[arg(conflicts_with = "scenario")]
    timeout_seconds: Option<f64>,
}

impl Interleaved {
    pub(super) fn asked(&self) -> bool {
        self.interleave
    }

    /// The reports of both, or the exit code of a run that the machine does not allow.
    pub(super) fn measure(
        &self,
        a: &str,
        b: &str,
        seed: u64,
    ) -> anyhow::Result<Result<(Report, Report), u8>> {
        let settings = self.settings()?;
        let (Some(mut left), Some(mut right)) = (self.side(a, seed)?, self.side(b, seed)?) else {
            return Ok(Err(EXIT_MISTAKES));
        };
        // One stop ends both.
        let stop = left.cluster.stop_handle();
        right.cluster.stop_with(stop.clone());
        super::signals::stop_on_signal(stop.clone())?;
        let mut said = |side: Side, so_far: &Discovery| {
            if let Some(step) = so_far.steps().last() {
                // A terminal that is gone is no reason to lose the run.
                let _gone =
                    writeln!(io::stderr(), "{side:?} {}", step_line(so_far.steps().len(), step)).is_err();
            }
        };
        let (found_a, found_b) =
            interleave(&mut left.cluster, &mut right.cluster, &settings, &stop, &mut said)?;
        if found_a.steps().is_empty() || found_b.steps().is_empty() {
            bail!("nothing was measured of one side at least");
        }
        let build = |context: Context, found: &Discovery| Report::build(context, found, &[], &[]);
        Ok(Ok((build(left.context, &found_a), build(right.context, &found_b))))
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let ms = |seconds: f64| (seconds.max(0.0) * 1e3) as u64;
        let (mode, levels) = match (self.rate, self.connections.as_slice()) {
            (Some(rate), &[connections]) => (Mode::Open { connections, poisson: true }, vec![rate]),
            (Some(_), _) => bail!("--rate takes one number of --connections"),
            (None, levels) => (Mode::Closed { think_us: 0 }, levels.iter().copied().map(f64::from).collect()),
        };
        Ok(Settings {
            mode,
            levels,
            repeats: usize::from(self.repeats),
            measure_ms: ms(self.step_seconds),
            warmup_ms: ms(self.warmup_seconds),
            max_total_ms: u64::MAX / 4,
            max_steps: usize::MAX,
            ..Settings::default()
        })
    }

    /// One target's generator; none when the machine does not allow it.
    fn side(&self, url: &str, seed: u64) -> anyhow::Result<Option<Measured>> {
        let (scenario, data) = match &self.scenario {
            Some(name) => {
                self.request.only_connection()?;
                load::named_scenario(name)?
            }
            None => {
                let request = self.request.table(url)?;
                let wait = load::request_timeout(self.timeout_seconds);
                (
                    format!(
                        "name = \"compare\"\n[connection]\n{wait}{request}[[step]]\nconnections = 1\nduration_s = 1.0\n"
                    ),
                    None,
                )
            }
        };
        let mut job = Job {
            http2: self.request.http2(),
            trust: self.request.trust()?,
            ..Job::new(url.to_owned(), scenario, data, seed)
        };
        let (scenario, options) = job.resolve()?;
        say_address(url, options.target)?;
        let machine = Machine::read();
        let decision = preflight::decide(
            &machine,
            &Need {
                connections: self.connections.iter().copied().max().unwrap_or(1),
                target: options.target,
                sources: options.sources.clone(),
                per_request: options.reuse == tidegate_tester::load::Reuse::PerRequest,
            },
        );
        for finding in decision.findings.iter().filter(|finding| finding.severity > Severity::Fine) {
            write!(io::stderr(), "{}", terminal::for_errors(&format!("{finding}\n")))?;
        }
        if decision.blocked() {
            return Ok(None);
        }
        let first_reply = meet(&options)?;
        job.threads = (machine.cores / decision.processes).max(1);
        job.sources = decision.sources;
        let context = Context {
            target: url.to_owned(),
            engine: options.engine(),
            requests: scenario.requests_in_words(&options.exchange),
            scenario: scenario.name,
            started: report::format::utc(wall().0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine::here(),
            first_reply,
            // Two targets that are named together are meant to be compared, whatever their paths.
            ..Context::default()
        };
        let cluster = Cluster::new(job, decision.processes, load::own_program()?, vec![load::WORKER.into()]);
        Ok(Some(Measured { cluster, context }))
    }
}

/// A side with what its report says of it.
struct Measured {
    cluster: Cluster,
    context: Context,
}
