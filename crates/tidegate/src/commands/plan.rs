//! `tidegate plan`: how many, at which load each, with which limit.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use tidegate_judge::plan::{HEADROOM, Target, plan};
use tidegate_judge::threshold::Threshold;

use super::compare::{refuse, report};
use super::terminal;

/// Plans instances for a rate from a report's measured figures.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate plan report.json --target 50000/s --p99 50ms")]
pub struct Plan {
    /// The report to plan from (JSON).
    report: PathBuf,
    /// Requests per second to carry, as in `50000/s`.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    target: f64,
    /// What p99 must stay below, as in `50ms`.
    #[arg(long, value_name = "TIME", value_parser = time_us)]
    p99: Option<f64>,
    /// Share of each instance that is kept free, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = HEADROOM * 100.0)]
    headroom: f64,
    /// Write the limits of one instance to this file.
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    value(&format!("throughput >= {text}"))
}

fn time_us(text: &str) -> Result<f64, String> {
    value(&format!("p99 < {text}"))
}

/// The language of thresholds has the units already.
fn value(condition: &str) -> Result<f64, String> {
    condition.parse::<Threshold>().map(|t| t.value).map_err(|e| e.to_string())
}

impl Plan {
    /// Plans, and prints the plan. Exit code 0, or 1 when the report does not support one.
    ///
    /// # Errors
    /// If `out` or the limits file cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let report = match report(&self.report) {
            Ok(report) => report,
            Err(refusal) => return refuse(out, &refusal),
        };
        let target = Target { rate: self.target, p99_us: self.p99, headroom: self.headroom / 100.0 };
        let plan = match plan(&report, target) {
            Ok(plan) => plan,
            Err(why) => return refuse(out, &why.to_string()),
        };
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&plan)?)?;
        } else {
            write!(out, "{}", terminal::plain(&plan.text()))?;
        }
        match &self.limits {
            Some(path) => {
                std::fs::write(path, &plan.limits)
                    .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
                if !self.json {
                    writeln!(out, "\nlimits written to {}", path.display())?;
                }
            }
            None if !self.json => write!(out, "\nlimits.toml:\n\n{}", terminal::plain(&plan.limits))?,
            None => {}
        }
        Ok(ExitCode::SUCCESS)
    }
}
