//! The `tidegate` binary: flags, configuration, wiring, exit codes.

mod commands;

use std::process::ExitCode;

use clap::Parser as _;

#[derive(Debug, clap::Parser)]
#[command(name = "tidegate", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Put one step of load on a target.
    Load(commands::load::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Load(args) => commands::load::run(&args),
    }
}
