//! Runs of the tester that the console starts: this binary once more, as a child process against this machine.
//!
//! ```text
//!   start ──> tidegate saturate TARGET --attended --json data_dir/saturation/run-….json
//!               stdin:  open while this process lives; its end ends the run      <── cancel
//!               stderr: the last lines are kept ──> state
//! ```
//!
//! Only loopback addresses, as literals or `localhost`, so that no name leads anywhere else; the child checks again.
//! One run at a time. The child has none of this process's environment, which may hold secrets, and none of its
//! sockets. When this process ends, however it does, the pipe closes and the child stops.
//!
//! Nothing is pinned to cores: a child that is killed could not undo it.
//!
//! Bounds: [`MAX_LINES`] lines, [`MAX_REPORTS`] reports of its own in the folder, a run's minutes ([`MAX_MINUTES`]).

mod reports;

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tidegate_admin::api::{NoExplanation, NotStarted, SaturationRuns, WantedRun};
use tidegate_admin::{Families, Family};
use tidegate_net::clock::wall;
use tidegate_tester::load::Target;
use tidegate_tester::preflight::{self, Machine, Need, Severity};

use crate::commands::load::own_program;

/// Last lines of a run that are kept.
const MAX_LINES: usize = 200;
/// Longest of them, in bytes.
const MAX_LINE_BYTES: u64 = 1_000;
/// Reports of its own that are kept in the folder; the oldest go.
const MAX_REPORTS: usize = 50;
/// Most connections of a run.
const MAX_CONNECTIONS: u32 = 10_000;
/// Measured seconds of a step.
const STEP_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=60.0;
/// Longest run, in minutes.
const MAX_MINUTES: f64 = 60.0;

/// Where targets may be.
const LOOPBACK: &str = "http://127.0.0.1:PORT/, with 127.0.0.1, [::1] or localhost";

/// The tester, as the admin API has it started.
#[derive(Debug)]
pub(super) struct Runs {
    folder: PathBuf,
    last: Arc<Mutex<Option<SaturationRun>>>,
}

/// The last run.
#[derive(Debug)]
struct SaturationRun {
    wanted: WantedRun,
    began_ms: u64,
    report: String,
    said: VecDeque<String>,
    /// Closing it ends the run.
    input: Option<ChildStdin>,
    /// `None` while it is under way; then its exit status, as far as it had one.
    ended: Option<Option<i32>>,
}

impl Runs {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { folder: data_dir.join("saturation"), last: Arc::default() }
    }

    fn last(&self) -> MutexGuard<'_, Option<SaturationRun>> {
        self.last.lock()
    }

    fn spawn(&self, wanted: &WantedRun, report: &str) -> anyhow::Result<Child> {
        reports::make_room(&self.folder, MAX_REPORTS)?;
        let mut command = Command::new(own_program()?);
        command
            .args(["saturate", &wanted.target, "--attended", "--no-pin", "--plain", "--json"])
            .arg(self.folder.join(report))
            .args(["--max-connections", &wanted.max_connections.to_string()])
            .args(["--step-seconds", &wanted.step_seconds.to_string()])
            .args(["--warmup-seconds", &wanted.step_seconds.min(1.0).to_string()])
            .args(["--max-minutes", &wanted.max_minutes.to_string()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(command.spawn()?)
    }
}

impl SaturationRuns for Runs {
    fn preflight(&self, wanted: &WantedRun) -> Result<Value, NoExplanation> {
        check(wanted)?;
        let need = Need {
            connections: wanted.max_connections,
            target: address(&wanted.target)?,
            sources: Vec::new(),
            per_request: false,
        };
        let decision = preflight::decide(&Machine::read(), &need);
        let findings = decision.findings.iter().map(|finding| {
            let severity = match finding.severity {
                Severity::Fine => "ok",
                Severity::Note => "note",
                Severity::Blocked => "blocked",
            };
            json!({ "severity": severity, "text": finding.text, "remedy": finding.remedy })
        });
        Ok(json!({ "blocked": decision.blocked(), "findings": findings.collect::<Vec<_>>() }))
    }

    fn is_running(&self) -> bool {
        self.last().as_ref().is_some_and(|run| run.ended.is_none())
    }

    fn start(&self, wanted: &WantedRun) -> Result<(), NotStarted> {
        check(wanted).map_err(NotStarted::Refused)?;
        // Held until the child is there, so that of two who start at once one is told.
        let mut last = self.last();
        if last.as_ref().is_some_and(|run| run.ended.is_none()) {
            return Err(NotStarted::Busy);
        }
        let began_ms = wall().0 / 1_000_000;
        let report = format!("run-{began_ms}.json");
        let failed = |error: anyhow::Error| NotStarted::Failed(format!("the run cannot be started: {error}"));
        let mut child = self.spawn(wanted, &report).map_err(failed)?;
        let (input, errors) = (child.stdin.take(), child.stderr.take());
        let (said, ended) = (VecDeque::new(), None);
        *last = Some(SaturationRun { wanted: wanted.clone(), began_ms, report, said, input, ended });
        drop(last);
        let last = Arc::clone(&self.last);
        let follow = move || follow(child, errors, &last);
        // Without the thread the child's input is closed here, and it ends.
        thread::Builder::new().name("saturation".to_owned()).spawn(follow).map(drop).map_err(|error| {
            *self.last() = None;
            failed(error.into())
        })
    }

    fn cancel(&self) -> Option<WantedRun> {
        let mut last = self.last();
        let run = last.as_mut().filter(|run| run.ended.is_none())?;
        run.input = None;
        Some(run.wanted.clone())
    }

    fn state(&self) -> Value {
        let run = self.last().as_ref().map(|run| {
            let state = match (&run.ended, &run.input) {
                (Some(_), _) => "ended",
                (None, None) => "ending",
                (None, Some(_)) => "running",
            };
            json!({
                "state": state, "wanted": run.wanted, "began_unix_ms": run.began_ms, "said": run.said,
                "exit": run.ended.flatten(), "report": run.report,
            })
        });
        json!({ "run": run, "reports": reports::list(&self.folder) })
    }

    fn report(&self, name: &str) -> Option<String> {
        reports::read(&self.folder, name)
    }
}

/// Keeps what the child says, until it has ended.
fn follow(mut child: Child, errors: Option<ChildStderr>, last: &Mutex<Option<SaturationRun>>) {
    if let Some(errors) = errors {
        let mut errors = BufReader::new(errors);
        loop {
            let mut line = Vec::new();
            // A longer line is kept as several.
            match errors.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => note(last, String::from_utf8_lossy(&line).trim_end()),
            }
        }
    }
    let status = child.wait().ok().and_then(|status| status.code());
    if let Some(run) = &mut *last.lock() {
        run.ended = Some(status);
        run.input = None;
    }
}

fn note(last: &Mutex<Option<SaturationRun>>, line: &str) {
    let Some(run) = &mut *last.lock() else { return };
    if run.said.len() >= MAX_LINES {
        run.said.pop_front();
    }
    run.said.push_back(line.to_owned());
}

/// Whether a run may be started from here.
fn check(wanted: &WantedRun) -> Result<(), NoExplanation> {
    let wrong = |parameter: &str, problem: String, accepted| {
        Err(NoExplanation { parameter: parameter.to_owned(), problem, accepted })
    };
    let WantedRun { target, max_connections, step_seconds, max_minutes } = wanted;
    if target.len() > 2_000 || !is_loopback(target) {
        return wrong("target", format!("is {target:?}"), LOOPBACK);
    }
    if !(1..=MAX_CONNECTIONS).contains(max_connections) {
        return wrong("max_connections", format!("is {max_connections}"), "1 to 10000");
    }
    if !STEP_SECONDS.contains(step_seconds) {
        return wrong("step_seconds", format!("is {step_seconds}"), "0.1 to 60");
    }
    if !(*max_minutes > 0.0 && *max_minutes <= MAX_MINUTES) {
        return wrong("max_minutes", format!("is {max_minutes}"), "up to 60");
    }
    if *max_minutes * 60.0 < 3.0 * step_seconds {
        return wrong("max_minutes", format!("is {max_minutes}"), "time for three steps at least");
    }
    Ok(())
}

/// Whether a URL is of this machine, however it is read: its host is a loopback address or `localhost`, with a port or
/// none, and nothing else.
fn is_loopback(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = &rest[..end];
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, "")) => (name, None),
        Some((name, rest)) if rest.starts_with(':') => (name, rest.get(1..)),
        Some(_) => return false,
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let is_number = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_here = name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && is_number
        && is_here
        && url.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The target's address, as the tester itself reads it.
fn address(url: &str) -> Result<SocketAddr, NoExplanation> {
    let address = Target::parse(url).and_then(|target| target.resolve());
    let wrong = |problem| NoExplanation { parameter: "target".to_owned(), problem, accepted: LOOPBACK };
    match address {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(address) => Err(wrong(format!("is {url:?}, which is at {address}"))),
        Err(error) => Err(wrong(format!("is {url:?}: {error}"))),
    }
}

/// Whether a run is under way, on the metrics page.
#[derive(Debug)]
pub(super) struct RunMetrics(pub(super) Arc<Runs>);

impl Family for RunMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "1 while a run of the tester that was started here puts load on this machine";
        families.gauge("tidegate_saturation_running", help, u64::from(self.0.is_running()))
    }
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn fault_51_only_this_machine_is_a_target() {
        for url in [
            "http://127.0.0.1:4000/v1/check?client_id=a",
            "https://[::1]:8443/",
            "http://localhost",
            "redis://127.0.0.1:6380",
            "grpc://127.9.9.9:4001",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://192.0.2.1/",
            "http://127.0.0.1@192.0.2.1/",
            "http://127.0.0.1:80@192.0.2.1/",
            "http://localhost.example/",
            "http://127.0.0.1.example/",
            "http://[::1]example/",
            "http://[::ffff:192.0.2.1]/",
            "http://127.0.0.1\\@192.0.2.1/",
            "http:///127.0.0.1/",
            "http://0.0.0.0/",
            "http://127.0.0.1 /",
            "--force",
            "-x://127.0.0.1/",
            "127.0.0.1",
            "",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
