//! `cargo xtask test [crate[/module]] [--jobs N]`: all tests of the workspace, or of one crate, several parts at once.
//!
//! `cargo test` runs one program after the other, and most tests wait for servers and clocks: two parts a core keep the cores
//! busy. Parts (`test_binaries.rs`) that measure time run alone, after all others. A part that does
//! not end is killed with all that it started, and has failed (`test_part.rs`). What it prints is shown when it has ended, whole if it
//! failed. Tests that failed run once more at the end (`second_try.rs`). The last lines say where the time went, and what could
//! not be tested on this machine; where `CI` is set, that fails the run.
//!
//! Deliberately absent: examples in doc comments. There are none that are code, and `cargo xtask tidy` says so of new ones.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use parking_lot::Mutex;

use crate::chore::capture;
use crate::second_try;
use crate::test_binaries::{Binary, TIMED, build, built, named};
use crate::test_part::{LONGEST, Ran, run};

/// Parts that take longest begin first, so that none of them is what the others are waited for.
const FIRST: [&str; 7] = [
    "tidegate/console",
    "kafka/forwarding",
    "tidegate/nodes",
    "tidegate/operations",
    "kafka/killed",
    "tidegate/packages",
    "store/redis",
];

/// Parts at once for each core: they wait for most of their time.
const PARTS_PER_CORE: usize = 2;

/// How many of the slowest parts are named at the end.
const SLOWEST: usize = 10;

/// Builds all tests and runs them, or those of the crate or module that is named.
///
/// # Errors
/// When one cannot be built or does not end, or a test fails twice, or may not need a second try; all others have run.
#[expect(clippy::disallowed_methods, reason = "xtask is not the service: what it measures is no simulation")]
pub(crate) fn test(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let (only, jobs) = parse(arguments)?;
    let began = Instant::now();
    let parts = match only {
        Some(name) => named(root, name)?,
        None => built(&capture(&mut build(root, None))?)?,
    };
    let built = began.elapsed();
    let logs = root.join("target/tests");
    std::fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    let is_timed = |part: &Binary| TIMED.contains(&part.crate_and_test().1);
    let (alone, mut together): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_timed);
    together.sort_by_key(|part| FIRST.iter().position(|first| *first == part.name).unwrap_or(FIRST.len()));
    let mut ran = run_all(together, jobs, &logs)?;
    ran.extend(run_all(alone, 1, &logs)?);
    ran.sort_by_key(|part| std::cmp::Reverse(part.took));
    for part in ran.iter().take(SLOWEST) {
        println!("{:4} s  {}", part.took.as_secs(), part.binary.name);
    }
    let ran_for = began.elapsed().saturating_sub(built);
    println!("built in {} s, ran for {} s", built.as_secs(), ran_for.as_secs());
    let untested: Vec<String> = ran.iter().flat_map(Ran::untested).collect();
    let count = ran.len();
    ran.retain(|part| !part.status.success());
    second_try::judge(&ran, &logs)?;
    println!("{count} parts passed");
    demand(&untested, std::env::var_os("CI").is_some())
}

/// Prints what could not be tested on this machine.
///
/// # Errors
/// When there is any and this is continuous integration, where all of it can be.
fn demand(untested: &[String], is_ci: bool) -> anyhow::Result<()> {
    for line in untested {
        println!("{line}");
    }
    if is_ci && !untested.is_empty() {
        bail!("{} of the tests could not be run, and CI is set: all are demanded", untested.len());
    }
    Ok(())
}

/// What is to be run, and how many parts at once.
fn parse(arguments: &[String]) -> anyhow::Result<(Option<&str>, usize)> {
    let mut jobs = PARTS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from);
    let (mut only, mut rest) = (None, arguments.iter());
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--jobs" => {
                let number = rest.next().and_then(|number| number.parse().ok()).filter(|jobs| *jobs > 0);
                jobs = number.context("--jobs needs a number above 0")?;
            }
            name if only.is_none() && !name.starts_with('-') => only = Some(name),
            _ => bail!("`cargo xtask test` takes a crate or crate/module, --jobs N, and nothing else"),
        }
    }
    Ok((only, jobs))
}

/// Runs the parts, `jobs` at a time.
fn run_all(parts: Vec<Binary>, jobs: usize, logs: &Path) -> anyhow::Result<Vec<Ran>> {
    let (waiting, ended) = (Mutex::new(VecDeque::from(parts)), Mutex::new(Vec::new()));
    let next = || waiting.lock().pop_front();
    std::thread::scope(|scope| {
        let work = || {
            while let Some(part) = next() {
                let log = logs.join(format!("{}.log", part.name.replace('/', "-")));
                let ran = run(&part, &log, LONGEST)?;
                println!("{}", ran.told());
                ended.lock().push(ran);
            }
            anyhow::Ok(())
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok(ended.into_inner())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::test_binaries::script;

    fn ran(binary: &Binary, longest: u32) -> Ran {
        run(binary, &binary.folder.join("log"), longest).unwrap()
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
        let mut ended = run_all(vec![bad, good], 2, folder).unwrap();
        ended.sort_by(|a, b| a.binary.name.cmp(&b.binary.name));
        let ended: Vec<_> =
            ended.iter().map(|ran| (ran.binary.name.as_str(), ran.status.success())).collect();
        assert_eq!(ended, [("crate/bad", false), ("crate/good", true)]);
        let part = "echo; echo 'NOT TESTED power: no root' >&2; echo other; echo test result: ok. 1 passed";
        let part = script("crate/part", part, folder);
        let part = ran(&part, LONGEST);
        assert_eq!(part.told(), "crate/part: ok. 1 passed");
        assert_eq!(part.untested(), ["NOT TESTED power: no root (crate/part)"]);
        demand(&part.untested(), false).unwrap();
        demand(&[], true).unwrap();
        assert!(demand(&part.untested(), true).unwrap_err().to_string().starts_with("1 of the tests"));
    }

    #[test]
    fn a_crate_or_a_module_can_be_named() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse(&words(&["net/streamed", "--jobs", "3"])).unwrap(), (Some("net/streamed"), 3));
        assert!(parse(&[]).unwrap().0.is_none());
        for wrong in [&["--jobs"][..], &["--jobs", "0"], &["a", "b"], &["--all"]] {
            assert!(parse(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn one_that_does_not_end_is_killed_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let endless = script("crate/endless", "sleep 600 & echo $!; wait", folder.path());
        let ran = ran(&endless, 1);
        assert!(ran.told().contains("crate/endless: FAILED, signal: 9 (SIGKILL): it did"), "{}", ran.told());
        let child = ran.printed.trim();
        assert!(!child.is_empty());
        wait_for_end(child);
    }

    /// Waits until this process has ended. Killed, it may still wait for somebody to take note of it.
    fn wait_for_end(pid: &str) {
        while std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_runs_ends_with_this_process() {
        const FOLDER: &str = "TIDEGATE_TEST_XTASK_FOLDER";
        if let Some(folder) = std::env::var_os(FOLDER) {
            let folder = Path::new(&folder);
            // Only once `timeout` waits for it: one that has just forked knows no child yet, and would only end.
            let told = "until grep -q '^State:.S' /proc/$PPID/status; do :; done; echo $!";
            let endless = script("crate/endless", &format!("sleep 600 & {told}; wait"), folder);
            drop(run(&endless, &folder.join("printed"), LONGEST));
        }
        let folder = tempfile::tempdir().unwrap();
        let mut this = Command::new(std::env::current_exe().unwrap());
        this.args(["--exact", "tests_run::tests::what_runs_ends_with_this_process"])
            .env(FOLDER, folder.path());
        let mut this = this.stdout(Stdio::null()).spawn().unwrap();
        let pid = loop {
            let printed = std::fs::read_to_string(folder.path().join("printed")).unwrap_or_default();
            if let Some(pid) = printed.strip_suffix('\n') {
                break pid.to_owned();
            }
            assert!(this.try_wait().unwrap().is_none(), "it ended too early");
        };
        this.kill().unwrap();
        this.wait().unwrap();
        wait_for_end(&pid);
    }
}
