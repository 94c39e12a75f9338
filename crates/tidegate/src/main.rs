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
    /// Put load on a target: a scenario, or one step given by flags.
    Load(Box<commands::load::Args>),
    /// Serve with planted behaviour: what a tester is tested with.
    Stub(Box<commands::stub::Args>),
    /// One generator process of several; spoken to by its parent only.
    #[command(name = commands::load::WORKER, hide = true)]
    SaturateWorker,
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Load(args) => commands::load::run(&args),
        Command::Stub(args) => commands::stub::run(&args),
        Command::SaturateWorker => commands::load::worker(),
    }
}
