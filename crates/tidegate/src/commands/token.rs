//! `tidegate token`: the operator's token, where the first start made one.

use std::io::{self, Write};
use std::process::ExitCode;

use super::config::Sources;
use super::{EXIT_REFUSED, terminal};
use crate::config::Environment;

/// Prints the operator's token, where the first start made one.
///
/// It is in the file that `TIDEGATE_ADMIN_TOKEN_FILE` names, which the first start makes where nothing else has a token.
/// Exit code 1: there is none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate token")]
pub struct Token {
    #[command(flatten)]
    sources: Sources,
}

impl Token {
    /// Prints it.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let refused = match self.sources.with(environment).token() {
            Ok(Some(token)) => {
                writeln!(out, "{token}")?;
                return Ok(ExitCode::SUCCESS);
            }
            Ok(None) => "no token is in a file: the configuration has one itself, names no file \
                         (TIDEGATE_ADMIN_TOKEN_FILE), or the server has not started yet\n"
                .to_owned(),
            Err(error) => format!("the token's file cannot be read: {error}\n"),
        };
        terminal::say(&refused);
        Ok(ExitCode::from(EXIT_REFUSED))
    }
}
