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
use self::tracer::{TraceEnd, TracedRun};
use crate::chore::capture;
use crate::test_binaries::{Binary, TIMED, WAITING, build, built, named};

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
    /// For the test program. Words without a dash choose tests.
    passed_on: Vec<String>,
}

/// Runs the tests named, or all that concern sockets and stores, under pauses.
///
/// # Errors
/// When a test fails, does not end in time, or cannot be built.
pub(crate) fn pauses(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let arguments = parse(arguments)?;
    let binaries = chosen(binaries(root, arguments.only.as_deref())?, &arguments.passed_on);
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
        if run.end != TraceEnd::Exit(0) {
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
    let Some(only) = only else {
        let mut parts = built(&capture(build(root, None).arg("--tests"))?)?;
        parts.retain(|part| {
            let (krate, test) = part.crate_and_test();
            WAITING.contains(&krate) && test != "lib" && !TIMED.contains(&test)
        });
        return Ok(parts);
    };
    if Path::new(only).is_file() {
        let program = std::path::absolute(only).context("the program's path")?;
        let name = program.file_name().context("a program has a name")?.display().to_string();
        return Ok(vec![Binary { name, program, folder: root.to_path_buf(), tests: Vec::new() }]);
    }
    named(root, only)
}

/// The parts with the tests whose names contain one of the words; all of them without a word.
fn chosen(mut parts: Vec<Binary>, words: &[String]) -> Vec<Binary> {
    let filters: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
    let wanted = |test: &String| filters.iter().any(|filter| test.contains(filter));
    parts.retain_mut(|part| {
        // A program without a list of tests chooses by itself.
        if filters.is_empty() || part.tests.is_empty() {
            return true;
        }
        part.tests.retain(wanted);
        !part.tests.is_empty()
    });
    parts
}

fn run(binary: &Binary, arguments: &Arguments, seed: u64, log: &Path) -> anyhow::Result<TracedRun> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    let mut command = binary.command();
    if binary.tests.is_empty() {
        command.args(&arguments.passed_on);
    } else {
        command.args(arguments.passed_on.iter().filter(|word| word.starts_with('-')));
    }
    tracer::run(&command, output, Chance::new(seed), Duration::from_secs(arguments.seconds))
        .with_context(|| binary.name.clone())
}

/// `passed, 812 pauses of 96.3 s in all among 41 threads, seed 5`.
fn told(run: &TracedRun, seed: u64) -> String {
    let end = match run.end {
        TraceEnd::Exit(0) => "passed".to_owned(),
        TraceEnd::Exit(code) => format!("FAILED with exit code {code}"),
        TraceEnd::Signal(signal) => format!("FAILED by signal {signal}"),
        TraceEnd::Overrun => "FAILED to end in time".to_owned(),
    };
    let (paused, threads) = (run.paused.as_secs_f64(), run.threads);
    format!("{end}, {} pauses of {paused:.1} s in all among {threads} threads, seed {seed}", run.pauses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_tests_of_a_part() {
        let part = |tests: &[&str]| Binary {
            name: "net/streamed".to_owned(),
            program: "it".into(),
            folder: ".".into(),
            tests: tests.iter().map(|test| (*test).to_owned()).collect(),
        };
        let words = ["--nocapture".to_owned(), "slow".to_owned()];
        let parts =
            vec![part(&["streamed::slow_reader", "streamed::quick"]), part(&["other::quick"]), part(&[])];
        let chosen: Vec<_> = chosen(parts, &words).into_iter().map(|part| part.tests).collect();
        assert_eq!(chosen, [vec!["streamed::slow_reader".to_owned()], vec![]]);
    }

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
