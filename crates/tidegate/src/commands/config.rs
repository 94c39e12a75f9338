//! `tidegate config`: what is the configuration, and what could it be?

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::EXIT_MISTAKES;
use super::layers::Layers;
use crate::config::{self, Environment, FILE_VARIABLE, Flags, Source};

/// Shows the configuration and its reference.
#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Shows each setting, its value and where it came from.
    ///
    /// The policies in force follow, with the layer that each is from. Secrets are redacted.
    #[command(after_long_help = "\
Examples:
  tidegate config explain --config tidegate.toml")]
    Explain(Sources),
    /// Prints the reference of all settings, as Markdown.
    #[command(after_long_help = "\
Examples:
  tidegate config reference")]
    Reference,
    /// Prints the JSON schema of the file.
    #[command(after_long_help = "\
Examples:
  tidegate config schema")]
    Schema,
}

/// Where the configuration comes from: the same for `serve` and `config explain`.
#[derive(Debug, clap::Args)]
pub struct Sources {
    /// The configuration file.
    #[arg(long = "config", value_name = "FILE", env = FILE_VARIABLE)]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

impl Sources {
    /// The flags and the file, with `environment` beside them.
    #[must_use]
    pub fn with(self, environment: Environment) -> Source {
        Source { path: self.file, environment, flags: self.flags }
    }
}

impl ConfigCommand {
    /// Writes what was asked for.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        match self {
            Self::Explain(sources) => match sources.with(environment).load() {
                Ok(loaded) => {
                    for warning in &loaded.warnings {
                        writeln!(out, "warning: {warning}")?;
                    }
                    out.write_all(loaded.explain().as_bytes())?;
                    write_layers(&Layers::of(&loaded.config), out)?;
                }
                Err(mistakes) => {
                    writeln!(out, "{mistakes}")?;
                    return Ok(ExitCode::from(EXIT_MISTAKES));
                }
            },
            Self::Reference => out.write_all(config::reference().as_bytes())?,
            Self::Schema => writeln!(out, "{:#}", config::schema())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Each policy with its layer, and what is not in force.
fn write_layers(layers: &Layers, out: &mut dyn Write) -> io::Result<()> {
    let rows = layers.rows();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or_default();
    let (first, second) = (width(0), width(1));
    writeln!(out, "\npolicies in force (built in, then the file, then stored: the last of a name wins):")?;
    for [name, numbers, layer] in &rows {
        writeln!(out, "{name:first$}  {numbers:second$}  {layer}")?;
    }
    for warning in layers.warnings() {
        writeln!(out, "warning: {warning}")?;
    }
    Ok(())
}
