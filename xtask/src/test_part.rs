//! Running one part of the tests: how long it may take, how it ended, and what it printed.
//!
//! Beneath both the first run of all parts (`tests_run.rs`) and the second try of those that failed (`second_try.rs`).

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::test_binaries::Binary;

/// The longest that a part may take, in seconds; the longest of them takes five minutes on two cores.
pub(crate) const LONGEST: u32 = 20 * 60;

/// The signal by which `timeout` ends it, and itself.
const KILL: i32 = 9;

/// How a line begins that says what could not be tested on this machine.
const UNTESTED: &str = "NOT TESTED";

/// How a part ended, what it printed and how long it took.
pub(crate) struct Ran {
    pub(crate) binary: Binary,
    pub(crate) status: ExitStatus,
    pub(crate) printed: String,
    pub(crate) took: Duration,
}

impl Ran {
    /// One line if it passed; all that it printed otherwise.
    pub(crate) fn told(&self) -> String {
        let Self { binary: Binary { name, .. }, status, printed, .. } = self;
        if status.success() {
            let result = printed.lines().rev().find_map(|line| line.strip_prefix("test result: "));
            return format!("{name}: {}", result.unwrap_or("passed"));
        }
        let how = if status.signal() == Some(KILL) { ": it did not end in time" } else { "" };
        format!("{printed}\n{name}: FAILED, {status}{how}")
    }

    /// What it could not test on this machine, a line each.
    pub(crate) fn untested(&self) -> Vec<String> {
        let lines = self.printed.lines().filter(|line| line.starts_with(UNTESTED));
        lines.map(|line| format!("{line} ({})", self.binary.name)).collect()
    }
}

/// Runs what it is given as arguments for at most `longest` seconds, in a group of its own that it kills then, and also when this process
/// ends, by Ctrl-C for one: what was started ends with it.
pub(crate) fn bounded(longest: u32) -> Command {
    let mut bounded = Command::new("setpriv");
    bounded.args(["--pdeathsig", "TERM", "timeout", "--signal=KILL", &longest.to_string()]);
    bounded
}

/// Runs one for at most `longest` seconds; what it prints goes through the file `log`.
///
/// # Errors
/// When it cannot be started, or the file cannot be written.
#[expect(clippy::disallowed_methods, reason = "xtask is not the service: what it measures is no simulation")]
pub(crate) fn run(binary: &Binary, log: &Path, longest: u32) -> anyhow::Result<Ran> {
    let began = Instant::now();
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = binary.command_under(bounded(longest));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let status = command.status().with_context(|| binary.name.clone())?;
    let printed = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    Ok(Ran { binary: binary.clone(), status, printed, took: began.elapsed() })
}
