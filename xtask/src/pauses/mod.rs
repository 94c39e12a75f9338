//! `cargo xtask pauses [crate[/test]] [--times N] [--seed N] [--seconds N] [-- arguments]`: runs tests while
//! single threads of them, and of the servers that they start, stand still for up to a second.
//!
//! A test that passes only because a machine is quick fails here within minutes, where it would have
//! failed once a month. Each run has a seed, which is printed; its output is in `target/pauses/`, and is
//! printed if it fails.
//!
//! ```text
//!   binaries (cargo test --no-run) -> tracer (ptrace) <- chance (one seed)
//! ```
//!
//! Without a name: the integration tests of the crates of [`WAITING`], apart from [`TIMED`]. A name adds a crate's unit tests; a path runs that program.

mod chance;
mod tracer;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};

use self::chance::Chance;
use self::tracer::{End, Run};
use crate::chore::capture;
use crate::test_binaries::{Binary, TIMED, Target, WAITING, build, built};

/// The longest that a run may take when `--seconds` is not given.
const SECONDS: u64 = 300;

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    only: Option<String>,
    /// Of the first run; each later one has the next.
    seed: Option<u64>,
    /// Runs of each binary.
    times: u64,
    /// The longest that a run may take.
    seconds: u64,
    /// For the test binary: a filter, say.
    passed_on: Vec<String>,
}

/// Runs the tests named, or all that concern sockets and stores, under pauses.
///
/// # Errors
/// When a test fails, does not end in time, or cannot be built.
pub(crate) fn pauses(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let arguments = parse(arguments)?;
    let binaries = binaries(root, arguments.only.as_deref())?;
    let logs = root.join("target/pauses");
    std::fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    println!(
        "pauses: of 1 to {} ms; a run takes {} s at most",
        chance::LONGEST.as_millis(),
        arguments.seconds
    );
    let first = arguments.seed.unwrap_or_else(Chance::seed);
    let mut failed = Vec::new();
    let runs = (0..arguments.times).flat_map(|n| binaries.iter().map(move |binary| (binary, first + n)));
    for (binary, seed) in runs {
        let log = logs.join(format!("{}.log", binary.name.replace('/', "-")));
        let run = run(binary, &arguments, seed, &log)?;
        println!("pauses: {}: {}", binary.name, told(&run, seed));
        if run.end != End::Exit(0) {
            println!("{}", String::from_utf8_lossy(&std::fs::read(&log)?));
            failed.push(format!("{} --seed {seed}", binary.name));
        }
    }
    if !failed.is_empty() {
        bail!("under pauses these fail: {}", failed.join(", "));
    }
    Ok(())
}

fn parse(arguments: &[String]) -> anyhow::Result<Arguments> {
    let mut parsed = Arguments { only: None, seed: None, times: 1, seconds: SECONDS, passed_on: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().with_context(|| format!("{argument} needs a number"))?;
            value.parse().with_context(|| format!("{argument} {value}"))
        };
        match argument.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--times" => parsed.times = number()?,
            "--seconds" => parsed.seconds = number()?,
            "--" => parsed.passed_on = rest.by_ref().cloned().collect(),
            name if parsed.only.is_none() => parsed.only = Some(name.to_owned()),
            _ => bail!("one crate, test or program at a time, or none for all"),
        }
    }
    Ok(parsed)
}

/// The program at the path, the tests of `crate` or `crate/test`, or all that are not [`TIMED`].
fn binaries(root: &Path, only: Option<&str>) -> anyhow::Result<Vec<Binary>> {
    let mut build = build(root);
    let Some(only) = only else {
        let printed = capture(build.arg("--tests"))?;
        let wanted = |(krate, target): (&str, &Target)| {
            WAITING.contains(&krate) && target.is_integration_test() && !TIMED.contains(&target.name.as_str())
        };
        return built(&printed, wanted);
    };
    if Path::new(only).is_file() {
        let program = std::path::absolute(only).context("the program's path")?;
        let name = program.file_name().context("a program has a name")?.display().to_string();
        return Ok(vec![Binary { name, program, folder: root.to_path_buf() }]);
    }
    let (krate, test) = only.split_once('/').unwrap_or((only, ""));
    let printed = match test {
        "" => capture(build.arg("--tests"))?,
        "lib" => capture(build.arg("--lib"))?,
        test => capture(build.args(["--test", test]))?,
    };
    built(&printed, |(of, _)| of == krate)
}

fn run(binary: &Binary, arguments: &Arguments, seed: u64, log: &Path) -> anyhow::Result<Run> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = binary.command();
    command.args(&arguments.passed_on);
    tracer::run(&command, output, Chance::new(seed), Duration::from_secs(arguments.seconds))
        .with_context(|| binary.name.clone())
}

/// `passed, 812 pauses of 96.3 s in all among 41 threads, seed 5`.
fn told(run: &Run, seed: u64) -> String {
    let end = match run.end {
        End::Exit(0) => "passed".to_owned(),
        End::Exit(code) => format!("FAILED with exit code {code}"),
        End::Signal(signal) => format!("FAILED by signal {signal}"),
        End::Overrun => "FAILED to end in time".to_owned(),
    };
    let (paused, threads) = (run.paused.as_secs_f64(), run.threads);
    format!("{end}, {} pauses of {paused:.1} s in all among {threads} threads, seed {seed}", run.pauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_a_test_a_seed_and_a_time() {
        let parse = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let all = Arguments { only: None, seed: None, times: 1, seconds: SECONDS, passed_on: Vec::new() };
        assert_eq!(parse("").unwrap(), all);
        let one = parse("net/two_ways --seed 7 --times 3 --seconds 9 -- --exact a").unwrap();
        assert_eq!((one.only.as_deref(), one.seed), (Some("net/two_ways"), Some(7)));
        assert_eq!((one.times, one.seconds), (3, 9));
        assert_eq!(one.passed_on, ["--exact", "a"]);
        assert!(parse("a b").is_err() && parse("--seed").is_err() && parse("--seed x").is_err());
    }
}
