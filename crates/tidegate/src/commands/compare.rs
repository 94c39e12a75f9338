//! `tidegate compare`: did it get faster, or is it noise.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_tester::compare::{Change, compare};
use tidegate_tester::report::Report;

use super::{EXIT_FINDING, EXIT_REFUSED, files};

/// Compares two reports of the same work, with an interval on every difference.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// The report to compare with (JSON).
    a: PathBuf,
    /// The report that is judged (JSON).
    b: PathBuf,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
    /// Exit with 3 when B is worse.
    #[arg(long)]
    fail_if_worse: bool,
    /// Decides the resampling; one seed gives one answer.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Compare {
    /// Compares, and prints the verdict. Exit code 0; 1 when the reports cannot be compared; 3 when B
    /// is worse and that was asked.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let (a, b) = match (report(&self.a), report(&self.b)) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(refusal), _) | (_, Err(refusal)) => return refuse(out, &refusal),
        };
        let found = match compare(&a, &b, self.seed) {
            Ok(found) => found,
            Err(why) => return refuse(out, &why.to_string()),
        };
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
        } else {
            write!(out, "{}", found.text(a.load_unit()))?;
        }
        let worse = found
            .loads
            .iter()
            .flat_map(|l| [l.throughput.change, l.p50.change, l.p99.change])
            .chain(found.capacity.map(|c| c.change))
            .any(|c| c == Change::Worse);
        Ok(if self.fail_if_worse && worse { ExitCode::from(EXIT_FINDING) } else { ExitCode::SUCCESS })
    }
}

/// Reads a report; the error is a sentence that names the file.
pub(super) fn report(path: &Path) -> Result<Report, String> {
    let text = files::text(path).map_err(|e| e.to_string())?;
    Report::from_json(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Prints why not.
pub(super) fn refuse(out: &mut dyn Write, why: &str) -> io::Result<ExitCode> {
    writeln!(out, "{why}")?;
    Ok(ExitCode::from(EXIT_REFUSED))
}
