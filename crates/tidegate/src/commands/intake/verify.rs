//! `tidegate intake verify`: reads every line of a folder and says what is wrong with it.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_intake::MetricLines;
use tidegate_log::{RealFiles, verify};

use super::super::terminal;

/// Exit code when something is wrong.
const EXIT_FINDINGS: u8 = 1;
/// Exit code when the folder cannot be read.
const EXIT_UNREADABLE: u8 = 2;

/// Reads every line in an intake's folder and explains what is damaged, without changing anything. Of a folder in use, the
/// newest line may seem torn. Exit code 0: all is well, 1: something is not, 2: the folder cannot be read.
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// The folder: `intake` in the data directory.
    #[arg(default_value = "tidegate-data/intake")]
    folder: PathBuf,
}

impl Verify {
    pub(super) fn run(&self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let verification = match verify(&self.folder, &MetricLines, &RealFiles) {
            Ok(verification) => verification,
            Err(error) => {
                terminal::say(&format!("{}: {error}\n", self.folder.display()));
                return Ok(ExitCode::from(EXIT_UNREADABLE));
            }
        };
        for (number, partition) in verification.partitions.iter().enumerate() {
            let offsets = &partition.offsets;
            writeln!(
                out,
                "partition {number}: {} lines in {} segments of {} bytes, offsets {} to {}",
                partition.lines, partition.segments, partition.bytes, offsets.start, offsets.end
            )?;
        }
        for finding in &verification.findings {
            writeln!(out, "{}", terminal::plain(&finding.to_string()))?;
        }
        let well = verification.findings.is_empty();
        writeln!(out, "{}", if well { "all is well" } else { "a start mends this, and serves the rest" })?;
        out.flush()?;
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FINDINGS) })
    }
}
