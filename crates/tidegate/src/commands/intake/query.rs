//! `tidegate intake query`: points of one name, drawn in the terminal or printed.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use serde::Deserialize;

use super::super::server::{IntakeServer, no_answer, refusal};
use super::super::terminal;
use super::plot::plot;
use super::{EXIT_NO_ANSWER, MAX_BYTES};

/// How long an answer may take; the server's own bound is less.
const DEADLINE: Duration = Duration::from_secs(15);
/// Columns of a plot that is not printed to a terminal.
const COLUMNS: usize = 80;

/// How points are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A drawing.
    Plot,
    /// One JSON object.
    Json,
    /// Times and values.
    Csv,
}

/// Prints the points of one metric. Exit code 0: printed, 1: no answer.
#[derive(Debug, clap::Args)]
pub struct Query {
    /// The metric's name.
    name: String,
    /// From so long ago until now, as 30s, 5m, 2h or 1d.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["start", "end"])]
    last: Option<String>,
    /// From this time, in Unix milliseconds or as 2026-11-23T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// Before this time.
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// The time that one point stands for, as 10s.
    #[arg(long, value_name = "TIME")]
    step: Option<String>,
    /// min, max, avg, sum, count, rate, p50, p90, p95, p99 or p99.9.
    #[arg(long, value_name = "WORD")]
    agg: Option<String>,
    /// Only lines with this tag, as host=a. May be given again.
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    tags: Vec<String>,
    /// How points are printed.
    #[arg(long, value_enum, default_value_t = Format::Plot)]
    format: Format,
    #[command(flatten)]
    server: IntakeServer,
}

/// The part of the answer that is drawn.
#[derive(Deserialize)]
struct QueryAnswer {
    agg: String,
    start: i64,
    end: i64,
    step: i64,
    points: Vec<(i64, Option<f64>)>,
    lines: u64,
    complete: bool,
}

impl Query {
    /// Asks, and prints the answer.
    pub(super) fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let text = match self.ask() {
            Ok(text) => text,
            Err(reason) => {
                terminal::say(&reason);
                return Ok(ExitCode::from(EXIT_NO_ANSWER));
            }
        };
        match serde_json::from_str(&text) {
            Ok(answer) if self.format == Format::Plot => self.draw(&answer, out)?,
            _ if self.format == Format::Plot => {
                terminal::say(&format!(
                    "{}: this is not the answer of an intake: is the address right?\n",
                    self.server.url()
                ));
                return Ok(ExitCode::from(EXIT_NO_ANSWER));
            }
            _ => writeln!(out, "{}", text.trim_end())?,
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }

    fn ask(&self) -> Result<String, String> {
        let client = self.server.client(DEADLINE)?;
        let accepted = if self.format == Format::Csv { "text/csv" } else { "application/json" };
        let mut request = client.get("/v1/intake/query").query("name", &self.name).header("accept", accepted);
        let given = [("last", &self.last), ("start", &self.start), ("end", &self.end)];
        for (name, value) in given.into_iter().chain([("step", &self.step), ("agg", &self.agg)]) {
            if let Some(value) = value {
                request = request.query(name, value);
            }
        }
        for tag in &self.tags {
            request = request.query("tags", tag);
        }
        let failed = |error: &dyn Display| no_answer(client.url(), error);
        let mut reply = request.call().map_err(|error| failed(&error))?;
        let mut text = String::new();
        let read = reply.body_mut().as_reader().take(MAX_BYTES).read_to_string(&mut text);
        read.map_err(|error| failed(&error))?;
        if reply.status().is_success() { Ok(text) } else { Err(refusal(client.url(), reply.status(), &text)) }
    }

    fn draw(&self, answer: &QueryAnswer, out: &mut dyn Write) -> io::Result<()> {
        let QueryAnswer { agg, start, end, step, lines, complete, .. } = answer;
        let s = if *lines == 1 { "" } else { "s" };
        writeln!(
            out,
            "{agg} of {}, {lines} line{s}, a point is {}",
            terminal::plain(&self.name),
            span(*step)
        )?;
        let points: Vec<(i64, f64)> =
            answer.points.iter().filter_map(|(at, value)| value.map(|value| (*at, value))).collect();
        if points.is_empty() {
            writeln!(out, "no lines of this name in this time")?;
        } else {
            let columns = if io::stdout().is_terminal() { terminal::size().0 } else { COLUMNS };
            out.write_all(plot(&points, *start, *end, *step, columns).as_bytes())?;
        }
        if !complete {
            writeln!(out, "not all lines were read: ask for less time")?;
        }
        Ok(())
    }
}

fn span(millis: i64) -> String {
    match millis {
        whole if whole % 1_000 == 0 => format!("{} s", whole / 1_000),
        part => format!("{part} ms"),
    }
}
