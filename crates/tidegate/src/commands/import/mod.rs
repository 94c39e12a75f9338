//! `tidegate import envoy FILE`: the rules of Envoy's reference rate-limit service as policies.

mod envoy;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_wire::yaml::{Finding, MAX_BYTES};

use super::{EXIT_MISTAKES, EXIT_REFUSED};

/// Turns another service's rules into policies.
#[derive(Debug, clap::Subcommand)]
pub enum Import {
    /// Reads a file of Envoy's reference rate-limit service; writes a Tidegate configuration.
    Envoy(Envoy),
}

/// What to read, and where to write.
#[derive(Debug, clap::Args)]
pub struct Envoy {
    /// The YAML file.
    file: PathBuf,
    /// Where to write the policies; standard output if absent. A file that is there is not overwritten.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Import {
    /// Writes the policies, or every mistake and nothing else.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let Self::Envoy(Envoy { file, output }) = self;
        let name = file.display().to_string();
        let bytes = match bounded(&file) {
            Ok(bytes) => bytes,
            Err(error) => {
                writeln!(out, "{name}: {error}")?;
                return Ok(ExitCode::from(EXIT_REFUSED));
            }
        };
        let imported = match envoy::import(&bytes, &name) {
            Ok(imported) => imported,
            Err(mut mistakes) => {
                mistakes.sort();
                for mistake in &mistakes {
                    writeln!(out, "{}", line(&name, mistake))?;
                }
                return Ok(ExitCode::from(EXIT_MISTAKES));
            }
        };
        let warnings: Vec<String> =
            imported.warnings.iter().map(|it| format!("warning: {}", line(&name, it))).collect();
        let Some(output) = output else {
            for warning in warnings {
                writeln!(out, "# {warning}")?;
            }
            out.write_all(imported.toml.as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        };
        let written =
            fs::File::create_new(&output).and_then(|mut file| file.write_all(imported.toml.as_bytes()));
        if let Err(error) = written {
            writeln!(out, "{}: {error}", output.display())?;
            return Ok(ExitCode::from(EXIT_REFUSED));
        }
        for warning in warnings {
            writeln!(out, "{warning}")?;
        }
        writeln!(out, "{}: written (policies: {})", output.display(), imported.policies)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A file, or as much of it as shows that it is too large.
fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// `file:line:column: path: problem (accepted: ...)`, as mistakes of Tidegate's own files look.
fn line(file: &str, finding: &Finding) -> String {
    let Finding { place, path, problem, accepted } = finding;
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let accepted = if accepted.is_empty() { String::new() } else { format!(" (accepted: {accepted})") };
    format!("{file}:{}:{}: {path}{problem}{accepted}", place.line, place.column)
}
