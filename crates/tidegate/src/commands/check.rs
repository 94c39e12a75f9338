//! `tidegate check FILE`: what would the server say to this file, here?

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::EXIT_MISTAKES;
use crate::config::{Environment, Flags, Source};

/// Checks a configuration file the way the server would, environment included.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The file.
    file: PathBuf,
}

impl Check {
    /// Writes every mistake on a line of its own, or one line that says the file is good.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let source = Source { path: Some(self.file.clone()), environment, flags: Flags::default() };
        match source.load() {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    writeln!(out, "warning: {warning}")?;
                }
                let (policies, overrides) =
                    (loaded.config.layer.policies.len(), loaded.config.layer.overrides.len());
                writeln!(
                    out,
                    "{}: good (policies: {policies}, overrides: {overrides})",
                    self.file.display()
                )?;
                Ok(ExitCode::SUCCESS)
            }
            Err(mistakes) => {
                writeln!(out, "{mistakes}")?;
                Ok(ExitCode::from(EXIT_MISTAKES))
            }
        }
    }
}
