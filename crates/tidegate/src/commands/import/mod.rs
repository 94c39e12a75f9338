//! `tidegate import`: what other software is configured with, as a Tidegate configuration.
//!
//! Nothing is dropped in silence. What is not understood keeps the whole file from being written, unless
//! `--partial` asks for the rest; what has no effect here, or another one, is a warning. Both are listed by
//! file, line and column on standard error, and the exit code says which there is:
//!
//! | exit code | what became of it |
//! |---|---|
//! | 0 | all of it was understood; there may be warnings |
//! | 1 | a file could not be read or written |
//! | 2 | something was not understood |

mod bootstrap;
mod caddy;
mod envoy;
mod fields;
mod nginx;
mod pattern;
mod product;
mod traefik;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_wire::yaml::{Finding, MAX_BYTES};

use super::{EXIT_MISTAKES, EXIT_REFUSED};

/// Turns another program's configuration into one of Tidegate's.
#[derive(Debug, clap::Subcommand)]
pub enum Import {
    /// Reads a Caddyfile.
    #[command(after_long_help = "\
Examples:
  tidegate import caddy /etc/caddy/Caddyfile --output tidegate.toml")]
    Caddy(ImportedFile),
    /// Reads a static bootstrap of Envoy, or a file of its reference rate-limit service.
    #[command(after_long_help = "\
Examples:
  tidegate import envoy envoy.yaml --output tidegate.toml")]
    Envoy(ImportedFile),
    /// Reads an nginx configuration, with the files that it includes.
    #[command(after_long_help = "\
Examples:
  tidegate import nginx /etc/nginx/nginx.conf --output tidegate.toml")]
    Nginx(ImportedFile),
    /// Reads a dynamic configuration of Traefik, as its file provider reads it (YAML, or TOML by the file's name).
    #[command(after_long_help = "\
Examples:
  tidegate import traefik dynamic.yaml --output tidegate.toml")]
    Traefik(ImportedFile),
}

/// What to read, and where to write.
#[derive(Debug, clap::Args)]
pub struct ImportedFile {
    /// The file.
    file: PathBuf,
    /// Where to write the configuration; standard output if absent. A file that is there is not overwritten.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes what is understood, although something is not; rules of a rate-limit service are all or nothing.
    #[arg(long)]
    partial: bool,
}

/// A finding, and the file that it is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Located {
    file: Arc<str>,
    finding: Finding,
}

/// What a file says, in Tidegate's words.
#[derive(Debug)]
struct Imported {
    /// The text of a configuration file.
    toml: String,
    /// What it has, for people: `policies: 2`.
    counts: String,
    /// What has no effect here, or another one.
    warnings: Vec<Located>,
    /// What was not understood.
    missing: Vec<Located>,
}

/// Why there is nothing to write.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// The file could not be read.
    #[error("{0}: {1}")]
    Unreadable(String, io::Error),
    /// Nothing of it can be used.
    #[error("the file has mistakes")]
    Mistakes(Vec<Located>),
}

impl Import {
    /// Writes the configuration to `out` or its file, and what is to be known of it to `errors`.
    ///
    /// # Errors
    /// If `out` or `errors` cannot be written to.
    pub fn run(self, out: &mut dyn Write, errors: &mut dyn Write) -> io::Result<ExitCode> {
        let (Self::Caddy(arguments)
        | Self::Envoy(arguments)
        | Self::Nginx(arguments)
        | Self::Traefik(arguments)) = &self;
        let imported = match &self {
            Self::Caddy(_) => caddy::import(&arguments.file),
            Self::Envoy(_) => import_envoy(&arguments.file),
            Self::Nginx(_) => nginx::import(&arguments.file),
            Self::Traefik(_) => traefik::import(&arguments.file),
        };
        match imported {
            Ok(imported) => arguments.write(imported, out, errors),
            Err(Refused::Mistakes(mut mistakes)) => {
                mistakes.sort();
                list(&mistakes, "", errors)?;
                Ok(ExitCode::from(EXIT_MISTAKES))
            }
            Err(refused) => {
                writeln!(errors, "{refused}")?;
                Ok(ExitCode::from(EXIT_REFUSED))
            }
        }
    }
}

impl ImportedFile {
    fn write(
        &self,
        mut imported: Imported,
        out: &mut dyn Write,
        errors: &mut dyn Write,
    ) -> io::Result<ExitCode> {
        imported.warnings.sort();
        imported.missing.sort();
        let is_whole = imported.missing.is_empty();
        if !is_whole && !self.partial {
            list(&imported.missing, "not imported: ", errors)?;
            list(&imported.warnings, "warning: ", errors)?;
            writeln!(errors, "nothing is written; --partial writes the rest")?;
            return Ok(ExitCode::from(EXIT_MISTAKES));
        }
        let code = if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_MISTAKES) };
        let mut text = Vec::new();
        list(&imported.missing, "# not imported: ", &mut text)?;
        let Some(output) = &self.output else {
            list(&imported.missing, "not imported: ", errors)?;
            list(&imported.warnings, "# warning: ", &mut text)?;
            text.extend_from_slice(imported.toml.as_bytes());
            out.write_all(&text)?;
            return Ok(code);
        };
        text.extend_from_slice(imported.toml.as_bytes());
        if let Err(error) = fs::File::create_new(output).and_then(|mut file| file.write_all(&text)) {
            writeln!(errors, "{}: {error}", output.display())?;
            return Ok(ExitCode::from(EXIT_REFUSED));
        }
        list(&imported.missing, "not imported: ", errors)?;
        list(&imported.warnings, "warning: ", errors)?;
        writeln!(out, "{}: written ({})", output.display(), imported.counts)?;
        Ok(code)
    }
}

/// A bootstrap, which is what has `static_resources`, or the rules of a rate-limit service.
fn import_envoy(path: &Path) -> Result<Imported, Refused> {
    let name: Arc<str> = path.display().to_string().into();
    let bytes = bounded(path).map_err(|error| Refused::Unreadable(name.to_string(), error))?;
    if let Some(root) = bootstrap::root(&bytes) {
        return Ok(bootstrap::import(&root, &name));
    }
    let located = |findings: Vec<Finding>| -> Vec<Located> {
        findings.into_iter().map(|finding| Located { file: Arc::clone(&name), finding }).collect()
    };
    let envoy::ImportedPolicies { toml, policies, warnings } =
        envoy::import(&bytes, &name).map_err(|mistakes| Refused::Mistakes(located(mistakes)))?;
    let counts = format!("policies: {policies}");
    Ok(Imported { toml, counts, warnings: located(warnings), missing: Vec::new() })
}

/// A file, or as much of it as shows that it is too large.
fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn list(found: &[Located], before: &str, to: &mut dyn Write) -> io::Result<()> {
    found.iter().try_for_each(|it| writeln!(to, "{before}{}", line(&it.file, &it.finding)))
}

/// `file:line:column: path: problem (accepted: ...)`, as mistakes of Tidegate's own files look.
fn line(file: &str, finding: &Finding) -> String {
    let Finding { place, path, problem, accepted } = finding;
    let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
    let accepted = if accepted.is_empty() { String::new() } else { format!(" (accepted: {accepted})") };
    format!("{file}:{}:{}: {path}{problem}{accepted}", place.line, place.column)
}
