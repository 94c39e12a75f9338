//! `tidegate audit`: what a published load test's own figures say about it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_judge::audit::{audit, read, text};

use super::compare::refuse;
use super::{EXIT_FINDING, files, terminal};

/// Audits the claims of a published load test, typed into a TOML file.
///
/// Exit code 0; 1: a file is no list of claims; 3: a claim meets an objection and --strict was given.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate audit scenarios/audit/*.toml
  tidegate audit claims.toml --strict --json")]
pub struct Audit {
    /// The claims (TOML); examples are in `scenarios/audit`.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print the verdicts as JSON, one list per file.
    #[arg(long)]
    json: bool,
    /// Exit with 3 when a claim meets an objection.
    #[arg(long)]
    strict: bool,
}

impl Audit {
    /// Audits each file, and prints the verdicts. Exit code 0; 1 when a file is no list of claims; 3
    /// when a claim meets an objection and that was asked.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let mut objections = 0;
        for (i, path) in self.files.iter().enumerate() {
            let content = match files::text(path) {
                Ok(content) => content,
                Err(error) => return refuse(out, &error.to_string()),
            };
            let file = match read(&content) {
                Ok(file) => file,
                Err(why) => return refuse(out, &format!("{}: {why}", path.display())),
            };
            let verdicts = audit(&file);
            objections += verdicts.iter().filter(|v| !v.findings.is_empty()).count();
            if self.json {
                writeln!(out, "{}", serde_json::to_string_pretty(&verdicts)?)?;
            } else {
                let said = terminal::plain(&text(&file, &verdicts));
                write!(out, "{}{said}", if i > 0 { "\n" } else { "" })?;
            }
        }
        Ok(if self.strict && objections > 0 { ExitCode::from(EXIT_FINDING) } else { ExitCode::SUCCESS })
    }
}
