//! `cargo xtask fuzz [target] [--seconds N]`: coverage-guided fuzzing on the pinned stable toolchain.
//!
//! cargo-fuzz asks for nightly because of sanitizers. Coverage needs none: the instrumentation is an
//! LLVM pass that stable rustc can be told to run, and `libfuzzer-sys` links libFuzzer itself. What
//! is given up is AddressSanitizer, which has little to find where `unsafe` is forbidden.
//! `--target` is passed so that the flags reach our crates and not build scripts and macros.
//!
//! One program has all targets (`fuzz/src/main.rs`), and as many processes of it run at a time as there are cores. A run is
//! bounded: time, memory, input length, time per input. It starts from the checked-in `fuzz/seeds/<target>/`, keeps what it
//! learns in `fuzz/corpus/<target>/` (not checked in), and leaves a crashing input in `fuzz/artifacts/<target>/`. `make test`
//! runs no campaign: it runs every target with its seeds, in the ordinary build (`fuzz/tests/it`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};

use crate::chore::{capture, cargo, run};

/// The coverage instrumentation that libFuzzer reads, as cargo-fuzz asks for it.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Time for each target when `--seconds` is not given.
const SECONDS: u64 = 60;
/// An input is at most this long, in bytes.
const MAX_LEN: &str = "-max_len=65536";
/// Memory of one target, in MiB.
const MEMORY: &str = "-rss_limit_mb=1024";
/// Time for one input, in seconds.
const TIMEOUT: &str = "-timeout=10";

/// The targets for which all services are built: the feature `whole` of `fuzz/Cargo.toml`.
const OF_THE_WHOLE: [&str; 2] = ["config_file", "log_folder"];

/// What names the target to the program.
const TARGET: &str = "TIDEGATE_FUZZ_TARGET";

/// Builds the program and runs the target named, or all.
///
/// # Errors
/// When the program does not build, or a target crashes or has no seeds.
pub(crate) fn fuzz(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let (only, seconds) = parse(arguments)?;
    let targets = targets(root, only.as_deref())?;
    let needs_whole = targets.iter().any(|target| OF_THE_WHOLE.contains(&target.as_str()));
    let program = build(root, needs_whole)?;
    on_every_core(&targets, |target| fuzz_one(root, &program, target, seconds))
}

/// Does `work` for each item, as many at a time as there are cores: a target uses one.
///
/// # Errors
/// The first failures, one per core at most; what had not begun by then is left.
fn on_every_core<T: Sync>(items: &[T], work: impl Fn(&T) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let worker = || -> anyhow::Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(item)?;
        }
        Ok(())
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let ends: Vec<anyhow::Result<()>> = std::thread::scope(|threads| {
        let running: Vec<_> = (0..cores).map(|_| threads.spawn(worker)).collect();
        running.into_iter().map(|it| it.join().unwrap_or_else(|_| bail!("a worker panicked"))).collect()
    });
    let failures: Vec<String> = ends.into_iter().filter_map(Result::err).map(|e| format!("{e:#}")).collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

fn parse(arguments: &[String]) -> anyhow::Result<(Option<String>, u64)> {
    let (mut only, mut seconds) = (None, SECONDS);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            let value = rest.next().context("--seconds needs a number")?;
            seconds = value.parse().with_context(|| format!("--seconds {value}"))?;
        } else if only.replace(argument.clone()).is_some() {
            bail!("one target at a time, or none for all");
        }
    }
    if seconds == 0 {
        bail!("--seconds is at least 1: libFuzzer reads 0 as no end");
    }
    Ok((only, seconds))
}

/// The targets go by the folders of their seeds, which a test compares with the program's.
fn targets(root: &Path, only: Option<&str>) -> anyhow::Result<Vec<String>> {
    let folders = std::fs::read_dir(root.join("fuzz/seeds")).context("fuzz/seeds")?;
    let mut names = Vec::new();
    for folder in folders {
        names.push(folder.context("fuzz/seeds")?.file_name().display().to_string());
    }
    names.sort();
    let chosen: Vec<String> =
        names.iter().filter(|name| only.is_none_or(|only| *name == only)).cloned().collect();
    if chosen.is_empty() {
        bail!("no such target; there are {}", names.join(", "));
    }
    Ok(chosen)
}

fn host() -> anyhow::Result<String> {
    let version = capture(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Builds the program of all targets, in a folder of its own: its flags are not those of other builds. Targets that need no
/// service are built without all services.
fn build(root: &Path, needs_whole: bool) -> anyhow::Result<PathBuf> {
    let features: &[&str] = if needs_whole { &[] } else { &["--no-default-features"] };
    let (host, place) = (host()?, root.join("target/fuzz"));
    run(cargo()
        .args(["build", "--locked", "--profile", "fuzz", "--target", &host])
        .args(["--package", "tidegate-fuzz", "--features", "campaign", "--bin", "fuzz"])
        .args(features)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &place)
        .env("RUSTFLAGS", COVERAGE))?;
    Ok(place.join(host).join("fuzz/fuzz"))
}

fn fuzz_one(root: &Path, program: &Path, target: &str, seconds: u64) -> anyhow::Result<()> {
    let fuzz = root.join("fuzz");
    let seeds = fuzz.join("seeds").join(target);
    let (corpus, artifacts) = (fuzz.join("corpus").join(target), fuzz.join("artifacts").join(target));
    for folder in [&corpus, &artifacts] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let output = Command::new(program)
        .env(TARGET, target)
        .args([MAX_LEN, MEMORY, TIMEOUT, "-print_final_stats=1"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args([&corpus, &seeds])
        .output()
        .with_context(|| format!("{target} does not start"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!(
            "{target} failed; the input is in fuzz/artifacts/{target}/. Once mended, keep it in \
             fuzz/seeds/{target}/.\n{log}"
        );
    }
    println!("fuzz: {target}: {} inputs in {seconds} s, {}", executed(&log), coverage(&log));
    Ok(())
}

fn executed(log: &str) -> &str {
    let line = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line.map_or("an unknown number of", str::trim)
}

/// `cov: 312 ft: 560`, from the last status line.
fn coverage(log: &str) -> String {
    let last = log.lines().rev().find_map(|line| line.split_once("cov: "));
    let edges = last.and_then(|(_, rest)| rest.split_whitespace().next());
    edges.map_or_else(|| "no coverage seen".to_owned(), |edges| format!("{edges} edges reached"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_a_target_and_a_time() {
        let parse = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse("").unwrap(), (None, SECONDS));
        assert_eq!(parse("resp --seconds 5").unwrap(), (Some("resp".to_owned()), 5));
        assert!(parse("a b").is_err());
        assert!(parse("--seconds").is_err());
        assert!(parse("--seconds 0").is_err());
    }

    #[test]
    fn targets_go_by_their_seeds() {
        let root = crate::root().unwrap();
        let all = targets(&root, None).unwrap();
        assert!(all.len() > 20 && all.is_sorted(), "{all:?}");
        assert_eq!(targets(&root, Some("policy")).unwrap(), ["policy"]);
        assert!(targets(&root, Some("polic")).unwrap_err().to_string().contains("policy"));
    }

    #[test]
    fn every_item_is_worked_on_and_no_failure_is_lost() {
        let done = AtomicUsize::new(0);
        let items: Vec<usize> = (0..50).collect();
        let work = |item: &usize| {
            done.fetch_add(*item, Ordering::Relaxed);
            Ok(())
        };
        on_every_core(&items, work).unwrap();
        assert_eq!(done.load(Ordering::Relaxed), (0..50).sum::<usize>());
        let failing = on_every_core(&items, |item| if *item == 49 { bail!("the last one") } else { Ok(()) });
        assert_eq!(failing.unwrap_err().to_string(), "the last one");
    }

    #[test]
    fn the_summary_comes_from_the_last_status_line() {
        let log =
            "#2 INITED cov: 3 ft: 4\n#99 DONE   cov: 12 ft: 20 corp: 3\nstat::number_of_executed_units: 99\n";
        assert_eq!((executed(log), coverage(log).as_str()), ("99", "12 edges reached"));
    }
}
