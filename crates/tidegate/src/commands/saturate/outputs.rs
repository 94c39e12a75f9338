//! Where a report goes: the files that were named, and standard output.

use std::io::Write;
use std::path::{Path, PathBuf};

use tidegate_judge::report::{self, Report, summary};

use super::super::files::Output;
use super::super::terminal;

/// The value of `--json` without a file: JSON is printed in the place of words, as every command does.
pub(super) const PRINTED: &str = "-";

/// The files of a report, opened.
pub(super) struct Outputs {
    json: Option<Output>,
    markdown: Option<Output>,
    html: Option<Output>,
    prints_json: bool,
}

impl Outputs {
    /// Opens the files.
    ///
    /// # Errors
    /// When one of the paths cannot be written to.
    pub(super) fn open(
        json: Option<&PathBuf>,
        markdown: Option<&PathBuf>,
        html: Option<&PathBuf>,
    ) -> std::io::Result<Self> {
        let open = |path: Option<&PathBuf>| path.map(|path| Output::open(path)).transpose();
        let prints_json = json.is_some_and(|path| path == Path::new(PRINTED));
        Ok(Self {
            json: open(json.filter(|_| !prints_json))?,
            markdown: open(markdown)?,
            html: open(html)?,
            prints_json,
        })
    }

    /// Writes the files, and prints the report's words or its JSON.
    pub(super) fn write(self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(file) = self.json {
            file.write(&(report.to_json()? + "\n"))?;
        }
        if let Some(file) = self.markdown {
            file.write(&report::markdown(report))?;
        }
        if let Some(file) = self.html {
            file.write(&report::html::html(report))?;
        }
        if self.prints_json {
            writeln!(out, "{}", report.to_json()?)?;
        } else {
            write!(out, "{}", terminal::for_output(&summary(report)))?;
        }
        Ok(())
    }
}
