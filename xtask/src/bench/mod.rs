//! `cargo xtask bench [case]`: the performance cases of `regression/`, side by side with their peers.
//!
//! ```text
//!   case.toml -> Case -> measure (BenchServer + generator or client, turn by turn) -> Figure -> report
//! ```
//!
//! A ratio outside its range is marked and fails nothing: what a machine yields is a measurement, not
//! a test. All cases together write `docs/benchmarks.md`; a single one is only printed.

mod case;
mod client;
mod figure;
mod generator;
mod machine;
mod measure;
mod protocols;
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) use case::Subject;
pub(crate) use client::{BenchConnection, post};
pub(crate) use machine::{MachineFacts, facts};
pub(crate) use report::{number, thousands};
pub(crate) use server::{BenchServer, free_port, scratch_folder};

use crate::chore::{capture, cargo, run};
use crate::setup;

/// Descriptors for 10,000 connections on either side.
const DESCRIPTORS: u64 = 12_000;
/// What stands above the tables.
const INTRODUCTION: &str = "# Benchmarks

Written by `make bench`; not edited by hand. Ratios within one run are what to read: each subject was
measured turn by turn with the others on the machine below, so absolute figures move with the machine
and ratios hardly do. The load generator shares the cores with the server. Figures are medians of the
repeats, their range in brackets; only replies with status 200 count. throttlecrab-server is 0.4.40
from crates.io. redis-server is driven by redis-benchmark, not wrk, and speaks no HTTP: beside HTTP it is
a reference, not a like-for-like peer. gRPC is driven by h2load, which does not report percentiles.
";

/// Runs the case named, or all.
///
/// # Errors
/// When something needed is missing, or a server or generator fails. Never because of a figure.
pub(crate) fn bench(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let only = match arguments {
        [] => None,
        [name] => Some(name.as_str()),
        _ => bail!("one case at a time, or none for all"),
    };
    let cases = case::load(&root.join("regression"), only)?;
    raise_descriptor_limit()?;
    setup::bench(root)?;
    build(root)?;

    let mut text = format!("{INTRODUCTION}\n{}", machine::describe());
    let mut failed = Vec::new();
    for case in &cases {
        println!("{}", case.name);
        let section = section(root, case).unwrap_or_else(|error| {
            failed.push(case.name.as_str());
            report::not_measured(case, &error)
        });
        println!("{section}");
        text.push_str(&section);
        // After each case: a run that is cut short leaves what it has measured.
        if only.is_none() {
            std::fs::write(root.join("docs/benchmarks.md"), &text).context("docs/benchmarks.md")?;
        }
    }
    if !failed.is_empty() {
        bail!("not measured: {}", failed.join(", "));
    }
    Ok(())
}

fn section(root: &Path, case: &case::Case) -> anyhow::Result<String> {
    if let case::Load::Script { run, arguments } = &case.load {
        let printed = capture(Command::new(case.folder.join(run)).args(arguments).current_dir(&case.folder))?;
        return Ok(report::printed(case, &printed));
    }
    Ok(report::section(case, &measure::case(root, case)?))
}

/// Builds Tidegate as it is shipped.
///
/// # Errors
/// When it does not build.
pub(crate) fn build(root: &Path) -> anyhow::Result<()> {
    run(cargo().args(["build", "--release", "--locked", "--package", "tidegate"]).current_dir(root))
}

/// The release build of Tidegate.
pub(crate) fn binary(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("release/tidegate")
}

/// Raises this process's limit; children inherit it, servers and generators alike.
///
/// # Errors
/// When the hard limit is too low for 10,000 connections.
pub(crate) fn raise_descriptor_limit() -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < DESCRIPTORS) {
        bail!("10,000 connections need {DESCRIPTORS} descriptors: `ulimit -Hn {DESCRIPTORS}` as root first");
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .context("raising the descriptor limit")
}
