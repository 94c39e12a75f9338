//! The checks and chores that the Makefile calls: `cargo xtask <name>`.
#![expect(clippy::print_stdout, reason = "a chore talks to the person who runs it")]

mod api;
mod bench;
mod book;
mod capacity;
mod charts;
mod chore;
mod clients;
mod collector;
mod console;
mod dist;
mod fuzz;
mod go;
mod house;
mod installed;
mod kafka;
mod markdown;
mod node;
mod pauses;
mod reports;
mod second_try;
mod setup;
mod source;
mod test_binaries;
mod test_part;
mod tests_run;
mod tidy;
mod traefik;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

/// Every chore and what it does.
const CHORES: &[(&str, &str)] = &[
    ("setup", "installs what the checks need and this machine does not have"),
    ("tidy", "checks the rules of the house that a compiler does not know"),
    ("deny", "checks licences, duplicate versions and sources of dependencies [advisories: with --all]"),
    (
        "house",
        "measures what is hard to read: circles of files, names, lines [what is counted in a crate: CRATE; lowers the list: --write; as it was: --at COMMIT]",
    ),
    ("faults", "lists the faults of docs/faults.md with the tests that prove them"),
    ("api", "makes docs/api.md of docs/openapi.json"),
    (
        "dist",
        "builds what is shipped, in target/dist/ [of another binary: --binary FILE, --to FOLDER, --version V, --quick]",
    ),
    (
        "reproduce",
        "builds what is shipped twice, in two folders, and compares every byte: target/reproduce [the clients alone: --clients]",
    ),
    ("bench", "runs the performance cases of regression/, or the one named"),
    ("capacity", "runs the tester against the decision service: docs/capacity.md [a dry run: --quick]"),
    (
        "reports",
        "runs the five performance reports again, or the one or the row named: docs/reports [their pages alone: --pages]",
    ),
    ("test", "runs all tests of the workspace, or of [crate[/module]], several parts at once [--jobs N]"),
    (
        "book",
        "makes the book of the pages of docs/SUMMARY.md: target/book [and reads it in Chromium: --look]",
    ),
    (
        "charts",
        "lints the Helm chart, writes its manifests anew and compares them with their schemas: deploy/helm/rendered",
    ),
    (
        "clients",
        "checks and tests the client libraries, or the one named [without their tests: --lint; clients/javascript/dist: --build]",
    ),
    ("collector", "tests what a collector is sent once more, with OpenTelemetry's own, which it builds"),
    (
        "console",
        "builds console/dist, the pages that the binary embeds [only checks of the sources: --lint; the pictures of all views, in twenty minutes, or of scenarios: --pictures [name ...]]",
    ),
    ("fuzz", "fuzzes every parser, or the one named [--seconds N]"),
    ("pauses", "runs the tests of sockets and stores while single threads are stopped [crate[/module]]"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> anyhow::Result<()> {
    let root = root()?;
    node::put_first(&root)?;
    let Some((chore, rest)) = arguments.split_first() else {
        for (name, what) in CHORES {
            println!("cargo xtask {name:8} {what}");
        }
        return Ok(());
    };
    match chore.as_str() {
        "setup" => setup::setup(&root),
        "tidy" => tidy::run(&root),
        "deny" => deny(&root, rest),
        "house" => house::house(&root, &sources(&tidy::files(&root)?), rest),
        "faults" => faults(&root),
        "api" => api::api(&root),
        "dist" => dist::dist(&root, rest),
        "reproduce" => dist::reproduce(&root, rest),
        "bench" => bench::bench(&root, rest),
        "capacity" => capacity::capacity(&root, rest),
        "reports" => reports::reports(&root, rest),
        "test" => tests_run::test(&root, rest),
        "book" => book::book(&root, rest),
        "charts" => charts::charts(&root),
        "clients" => clients::clients(&root, rest),
        "collector" => collector::collector(&root),
        "console" => console::console(&root, rest),
        "fuzz" => fuzz::fuzz(&root, rest),
        "pauses" => pauses::pauses(&root, rest),
        unknown => bail!("`{unknown}` is no chore; `cargo xtask` lists them"),
    }
}

/// The repository that this xtask was built in.
fn root() -> anyhow::Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest.parent().context("xtask stands in the repository's root")?.to_path_buf())
}

/// Advisories need their database from the network, so only `--all` asks for them.
fn deny(root: &Path, arguments: &[String]) -> anyhow::Result<()> {
    let all = arguments.iter().any(|argument| argument == "--all");
    let checks: &[&str] = if all { &["all"] } else { &["licenses", "bans", "sources"] };
    chore::run(Command::new(root.join(".tools/bin/cargo-deny")).arg("check").args(checks).current_dir(root))
}

fn sources(files: &[tidy::TextFile]) -> Vec<source::Source> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.map(|file| source::Source::new(&file.path, &file.text)).collect()
}

fn faults(root: &Path) -> anyhow::Result<()> {
    let files = tidy::files(root)?;
    let list = files.iter().find(|file| file.path == "docs/faults.md").context("docs/faults.md")?;
    let sources = sources(&files);
    let proofs = tidy::faults::proofs(&sources, &files);
    for (number, fault) in tidy::faults::rows(&list.text) {
        println!("{number:2}  {fault}");
        for test in proofs.get(&number).into_iter().flatten() {
            println!("      {test}");
        }
    }
    println!("{} faults are proved by tests", proofs.len());
    Ok(())
}
