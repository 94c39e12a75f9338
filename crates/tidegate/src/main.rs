//! The `tidegate` binary: flags, configuration, wiring, exit codes.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser};
use clap_complete::Shell;
use tidegate::commands::{
    audit::Audit,
    certificates::CertificatesCommand,
    check::Check,
    compare::Compare,
    config::ConfigCommand,
    decide::Decide,
    doctor::Doctor,
    edge::EdgeCommand,
    explain::Explain,
    gateway::GatewayCommand,
    groups,
    health::Health,
    import::Import,
    intake::IntakeCommand,
    keys::Keys,
    load::{self, Load},
    plan::Plan,
    reference,
    revert::Revert,
    saturate::Saturate,
    serve::Serve,
    stub::StubCommand,
    token::Token,
    top::Top,
};
use tidegate::config::Environment;

/// A decision makes some twenty small allocations; the C library's allocator takes longer over them (3
/// to 9 % of throughput: decision 0006), and its arenas do not give back to each other what they free.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Limits traffic and proves its own capacity.
#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
#[command(after_long_help = "\
Examples:
  tidegate serve
  tidegate decide client_id=user123
  tidegate gateway http://127.0.0.1:3000
  tidegate saturate http://127.0.0.1:3000/

Exit codes: 0, it is as it should be; 1, it failed or was refused; 2, flags or a file have mistakes; 3, a finding.
Each command has examples: tidegate COMMAND --help.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Serve(Serve),
    Check(Check),
    #[command(subcommand)]
    Config(ConfigCommand),
    Decide(Decide),
    Doctor(Doctor),
    Edge(EdgeCommand),
    #[command(subcommand)]
    Explain(Explain),
    Gateway(GatewayCommand),
    Health(Health),
    #[command(subcommand)]
    Import(Import),
    #[command(subcommand)]
    Intake(IntakeCommand),
    Keys(Keys),
    Certificates(CertificatesCommand),
    Revert(Revert),
    Token(Token),
    Top(Top),
    Saturate(Box<Saturate>),
    Load(Box<Load>),
    Stub(Box<StubCommand>),
    /// One generator process of several; only its parent speaks to it.
    #[command(name = load::WORKER, hide = true)]
    Worker,
    Compare(Box<Compare>),
    Plan(Plan),
    Audit(Audit),
    /// Prints a completion script for a shell.
    #[command(after_long_help = "\
Examples:
  tidegate completions bash")]
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Writes the manual pages of all commands into a folder; packages are made with it.
    #[command(hide = true)]
    ManPages {
        /// The folder, which must be there.
        folder: PathBuf,
    },
    /// Prints the reference of all commands, as Markdown; `docs/commands.md` is made with it.
    #[command(name = "command-reference", hide = true)]
    ReferencePage,
    /// Prints the version.
    #[command(after_long_help = "\
Examples:
  tidegate version")]
    Version,
}

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        // One line whatever RUST_BACKTRACE says: these are mistakes to mend, not bugs to trace. Where standard error
        // cannot be written, the exit code still says it.
        let _unheard = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    let mut out = std::io::stdout().lock();
    let matches = groups::grouped(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let code = match cli.command {
        Command::Serve(serve) => serve.run(environment, &mut out),
        Command::Check(check) => check.run(environment, &mut out),
        Command::Config(config) => config.run(environment, &mut out),
        Command::Decide(decide) => decide.run(&mut out),
        Command::Doctor(doctor) => doctor.run(environment, &mut out),
        Command::Edge(edge) => edge.run(environment, &mut out),
        Command::Explain(explain) => explain.run(&mut out),
        Command::Gateway(gateway) => gateway.run(&mut out),
        Command::Health(health) => health.run(environment, &mut out),
        Command::Import(import) => import.run(&mut out, &mut std::io::stderr().lock()),
        Command::Intake(intake) => intake.run(&mut out),
        Command::Keys(keys) => keys.run(&mut out),
        Command::Certificates(certificates) => certificates.run(&mut out),
        Command::Revert(revert) => revert.run(&mut out),
        Command::Token(token) => token.run(environment, &mut out),
        Command::Top(top) => top.run(&mut out),
        Command::Saturate(saturate) => return saturate.run(&mut out),
        Command::Load(load) => return load.run(&mut out),
        Command::Stub(stub) => return stub.run(&mut out),
        Command::Worker => return load::worker(),
        Command::Compare(compare) => return compare.run(&mut out),
        Command::Plan(plan) => plan.run(&mut out),
        Command::Audit(audit) => audit.run(&mut out),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut out);
            Ok(ExitCode::SUCCESS)
        }
        Command::ManPages { folder } => {
            clap_mangen::generate_to(Cli::command(), &folder)
                .with_context(|| format!("manual pages cannot be written to {}", folder.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::ReferencePage => {
            out.write_all(reference::reference(Cli::command()).as_bytes()).map(|()| ExitCode::SUCCESS)
        }
        Command::Version => {
            writeln!(out, "tidegate {}", env!("CARGO_PKG_VERSION")).map(|()| ExitCode::SUCCESS)
        }
    };
    match code {
        // The reader of the output has read enough: `tidegate config reference | head`.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => Ok(other?),
    }
}
