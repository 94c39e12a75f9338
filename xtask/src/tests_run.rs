//! `cargo xtask test [--jobs N]`: all tests of the workspace, several test binaries at once.
//!
//! `cargo test` runs one binary after the other, and most tests wait for servers and clocks: two at a time take
//! half as long on two cores. Those that measure time run alone, after all others. A binary that does not end is
//! killed with all that it started, and has failed. What a binary prints is shown when it has ended, whole if it failed;
//! of one that passed, the lines that say what could not be tested on this machine. Tests that failed run once more
//! at the end (`second_try.rs`).
//!
//! Deliberately absent: examples in doc comments. There are none that are code, and `cargo xtask tidy` says so of new ones.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};
use parking_lot::Mutex;

use crate::chore::capture;
use crate::second_try;
use crate::test_binaries::{Binary, TIMED, build, built};

/// The longest that a binary may take, in seconds; the longest of them takes five minutes on two cores.
pub(crate) const LONGEST: u32 = 20 * 60;

/// The signal by which `timeout` ends it, and itself.
const KILL: i32 = 9;

/// How a line begins that says what could not be tested on this machine.
const UNTESTED: &str = "NOT TESTED";

/// How a binary ended, and what it printed.
pub(crate) struct Ran {
    pub(crate) binary: Binary,
    pub(crate) status: ExitStatus,
    pub(crate) printed: String,
}

impl Ran {
    /// One line if it passed, and what it could not test; all that it printed otherwise.
    fn told(&self) -> String {
        let Self { binary: Binary { name, .. }, status, printed } = self;
        if status.success() {
            let result = printed.lines().rev().find_map(|line| line.strip_prefix("test result: "));
            let untested: String = printed
                .lines()
                .filter(|line| line.starts_with(UNTESTED))
                .map(|line| format!("\n  {line}"))
                .collect();
            return format!("{name}: {}{untested}", result.unwrap_or("passed"));
        }
        let how = if status.signal() == Some(KILL) { ": it did not end in time" } else { "" };
        format!("{printed}\n{name}: FAILED, {status}{how}")
    }
}

/// Builds all tests and runs them.
///
/// # Errors
/// When one cannot be built or does not end, or a test fails twice, or may not need a second try; all others have run.
pub(crate) fn test(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let jobs = match arguments {
        [] => std::thread::available_parallelism().map_or(1, usize::from),
        [flag, number] if flag == "--jobs" => number.parse().context("--jobs needs a number")?,
        _ => bail!("`cargo xtask test` takes --jobs N and nothing else"),
    };
    let binaries = built(&capture(&mut build(root))?, |_| true)?;
    let logs = root.join("target/tests");
    std::fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let count = binaries.len();
    let is_timed =
        |binary: &Binary| binary.name.split_once('/').is_some_and(|(_, test)| TIMED.contains(&test));
    let (alone, together): (Vec<_>, Vec<_>) = binaries.into_iter().partition(is_timed);
    let mut failed = run_all(together, jobs.max(1), &logs)?;
    failed.extend(run_all(alone, 1, &logs)?);
    second_try::judge(&failed, &logs)?;
    println!("{count} test binaries passed");
    Ok(())
}

/// Runs the binaries, `jobs` at a time; those that failed.
fn run_all(binaries: Vec<Binary>, jobs: usize, logs: &Path) -> anyhow::Result<Vec<Ran>> {
    let (waiting, failed) = (Mutex::new(VecDeque::from(binaries)), Mutex::new(Vec::new()));
    let next = || waiting.lock().pop_front();
    std::thread::scope(|scope| {
        let work = || {
            while let Some(binary) = next() {
                let log = logs.join(format!("{}.log", binary.name.replace('/', "-")));
                let ran = run(&binary, &[], &log, LONGEST)?;
                println!("{}", ran.told());
                if !ran.status.success() {
                    failed.lock().push(ran);
                }
            }
            anyhow::Ok(())
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(failed.into_inner())
}

/// Runs one with these arguments for at most `longest` seconds; what it prints goes through the file `log`.
///
/// # Errors
/// When it cannot be started, or the file cannot be written.
pub(crate) fn run(binary: &Binary, arguments: &[&str], log: &Path, longest: u32) -> anyhow::Result<Ran> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    // It kills its group: what the binary started ends with it.
    let mut bounded = Command::new("timeout");
    bounded.args(["--signal=KILL", &longest.to_string()]);
    let mut command = binary.command_under(bounded);
    command.args(arguments).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let status = command.status().with_context(|| binary.name.clone())?;
    let printed = String::from_utf8_lossy(&std::fs::read(log)?).into_owned();
    Ok(Ran { binary: binary.clone(), status, printed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_binaries::script;

    fn ran(binary: &Binary, longest: u32) -> Ran {
        run(binary, &[], &binary.folder.join("log"), longest).unwrap()
    }

    #[test]
    fn all_run_and_the_failed_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let good = script("crate/good", "echo test result: ok. 3 passed", folder);
        let bad = script("crate/bad", "echo test a ... FAILED; exit 101", folder);
        assert_eq!(ran(&good, LONGEST).told(), "crate/good: ok. 3 passed");
        let told = ran(&bad, LONGEST).told();
        assert!(
            told.contains("test a ... FAILED") && told.contains("crate/bad: FAILED, exit status: 101"),
            "{told}"
        );
        let failed = run_all(vec![bad, good], 2, folder).unwrap();
        assert_eq!(failed.iter().map(|ran| ran.binary.name.as_str()).collect::<Vec<_>>(), ["crate/bad"]);
        let part = "echo; echo 'NOT TESTED power: no root' >&2; echo other; echo test result: ok. 1 passed";
        let part = script("crate/part", part, folder);
        assert_eq!(ran(&part, LONGEST).told(), "crate/part: ok. 1 passed\n  NOT TESTED power: no root");
    }

    #[test]
    fn one_that_does_not_end_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let endless = script("crate/endless", "sleep 600 & echo $!; wait", folder.path());
        let ran = ran(&endless, 1);
        assert!(ran.told().contains("crate/endless: FAILED, signal: 9 (SIGKILL): it did"), "{}", ran.told());
        let child = ran.printed.trim();
        assert!(!child.is_empty());
        // Killed, it may still wait for somebody to take note of it.
        while std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            std::thread::yield_now();
        }
    }
}
