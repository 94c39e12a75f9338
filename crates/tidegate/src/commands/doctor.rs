//! `tidegate doctor`: what is wrong with this installation, and how is it repaired?

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use super::config::Sources;
use super::terminal;
use crate::config::Environment;
use crate::doctor::Report;

/// Exit code of an installation with problems.
const EXIT_PROBLEMS: u8 = 1;

/// Says what hinders a server here, and how to repair it.
///
/// It looks at what the server needs: data directory, ports, descriptors, network, memory, processor time, certificates,
/// names, store, other nodes, clock. It takes the same flags as `serve`. Exit code 0: nothing hinders it, 1: something
/// does.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate doctor
  tidegate doctor --config /etc/tidegate/tidegate.toml --json")]
pub struct Doctor {
    #[command(flatten)]
    sources: Sources,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Looks, and prints what it found.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let report = Report::of(&self.sources.with(environment).load());
        if self.json {
            writeln!(out, "{:#}", report.json())?;
        } else if io::stdout().is_terminal() {
            out.write_all(terminal::for_output(&report.text()).as_bytes())?;
        } else {
            out.write_all(terminal::plain(&report.text()).as_bytes())?;
        }
        Ok(if report.has_problems() { ExitCode::from(EXIT_PROBLEMS) } else { ExitCode::SUCCESS })
    }
}
