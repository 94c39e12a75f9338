//! The `tidegate` binary: flags, configuration, wiring, exit codes.

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::Parser;
use tidegate::commands::{check::Check, config::Config};
use tidegate::config::Environment;

/// Limits traffic, routes it, ingests it, and proves its own capacity.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(Check),
    #[command(subcommand)]
    Config(Config),
}

fn main() -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    let mut out = std::io::stdout().lock();
    let code = match Cli::parse().command {
        Command::Check(check) => check.run(environment, &mut out),
        Command::Config(config) => config.run(environment, &mut out),
    };
    match code {
        // Whoever reads the output has read enough: `tidegate config reference | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => Ok(other?),
    }
}
