//! `tidegate compare`: did it get faster, or is it noise.
//!
//! Two reports, or with `--interleave` two targets that are measured turn by turn. Exit status: 0; 1 when
//! the two cannot be compared or a target cannot be measured; 2 when the machine does not allow the run;
//! 3 when B is worse and `--fail-if-worse` was given.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use tidegate_judge::compare::{Change, compare};
use tidegate_judge::report::Report;

use super::interleave::Interleaved;
use super::{EXIT_FINDING, EXIT_REFUSED, files, terminal};

/// Compares two reports of the same work, or two targets.
///
/// Every difference has an interval: what lies within noise is called so. Exit code 0; 1: they cannot be compared; 2: the
/// machine does not allow to measure them; 3: B is worse and --fail-if-worse was given.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate compare before.json after.json --fail-if-worse
  tidegate compare --interleave http://127.0.0.1:3000/ http://127.0.0.1:3001/ -d 5s")]
pub struct Compare {
    /// What to compare with: a report (JSON), or a URL with --interleave.
    a: String,
    /// What is judged: a report (JSON), or a URL with --interleave.
    b: String,
    #[command(flatten)]
    interleaved: Interleaved,
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
    /// Compares, and prints the verdict. Exit code 0; 1 when the two cannot be compared; 2 when the
    /// machine does not allow to measure them; 3 when B is worse and that was asked.
    ///
    /// # Errors
    /// When a target cannot be measured, or `out` cannot be written to.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let (a, b) = if self.interleaved.asked() {
            match self.interleaved.measure(&self.a, &self.b, self.seed)? {
                Ok(both) => both,
                Err(code) => return Ok(ExitCode::from(code)),
            }
        } else {
            match (report(Path::new(&self.a)), report(Path::new(&self.b))) {
                (Ok(a), Ok(b)) => (a, b),
                (Err(refusal), _) | (_, Err(refusal)) => return Ok(refuse(out, &refusal)?),
            }
        };
        let found = match compare(&a, &b, self.seed) {
            Ok(found) => found,
            Err(why) => return Ok(refuse(out, &why.to_string())?),
        };
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
        } else {
            write!(out, "{}", terminal::plain(&found.text(a.load_unit())))?;
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
    writeln!(out, "{}", terminal::plain(why))?;
    Ok(ExitCode::from(EXIT_REFUSED))
}
