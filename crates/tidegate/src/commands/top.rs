//! `tidegate top`: what a running gateway does in the minute under way, again and again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tidegate_net::clock::monotonic;

use super::keys::Server;
use super::{EXIT_REFUSED, terminal};

/// Rows that are shown where nobody looks at a terminal.
const ROWS: usize = 100;

/// What takes a terminal's cursor to the top and clears what is below.
const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// The numbers of a row: title, member of the reply, width.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("requests", "requests", 9),
    ("good", "succeeded", 9),
    ("429", "rate_limited", 7),
    ("4xx", "client_errors", 7),
    ("5xx", "failed", 7),
    ("mean ms", "mean_ms", 9),
    ("p50", "p50_ms", 9),
    ("p95", "p95_ms", 9),
    ("p99", "p99_ms", 9),
];

/// Shows the requests of a gateway as they come, the busiest first: those of the minute under way. It needs
/// `gateway.analytics` there, and the scope `read`: a token is taken from the environment, `TIDEGATE_TOKEN`.
#[derive(Debug, clap::Args)]
pub struct Top {
    /// What they are told apart by: some of route,key,upstream,server,status.
    #[arg(long, value_name = "LABELS", value_parser = labels, default_value = "route")]
    by: String,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600), default_value_t = 2)]
    every: u64,
    /// How many looks; without it there is no end.
    #[arg(long, value_name = "TIMES")]
    times: Option<u64>,
    #[command(flatten)]
    server: Server,
}

impl Top {
    /// Asks, and prints the answers.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let is_terminal = io::stdout().is_terminal();
        let path = format!("/v1/analytics?step=minute&by={}", self.by);
        let mut looks = 0;
        loop {
            let answer = match self.server.ask("GET", &path, None) {
                Ok(answer) => answer,
                Err(reason) => {
                    terminal::say(&reason);
                    return Ok(ExitCode::from(EXIT_REFUSED));
                }
            };
            let rows = if is_terminal { terminal::size().1.saturating_sub(3) } else { ROWS };
            let table = terminal::plain(&table(&answer, &self.by, rows));
            write!(out, "{}{table}", if is_terminal { REDRAW } else { "" })?;
            out.flush()?;
            looks += 1;
            if self.times.is_some_and(|times| looks >= times) {
                return Ok(ExitCode::SUCCESS);
            }
            pause(Duration::from_secs(self.every));
        }
    }
}

fn pause(lasting: Duration) {
    let begun = monotonic();
    // A thread that waits to be woken may be woken early.
    while let Some(left) = lasting.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

fn labels(text: &str) -> Result<String, String> {
    let known = ["route", "key", "upstream", "server", "status"];
    if text.split(',').all(|word| known.contains(&word)) {
        Ok(text.to_owned())
    } else {
        Err(format!("some of {}, with commas between", known.join(",")))
    }
}

/// The rows of the latest minute, those with most requests first.
fn table(answer: &Value, by: &str, most: usize) -> String {
    let rows = answer["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let begin = |row: &Value| row["begin"].as_str().unwrap_or_default().to_owned();
    let Some(latest) = rows.iter().map(begin).max() else {
        return "no requests in the last hour\n".to_owned();
    };
    let mut rows: Vec<&Value> = rows.iter().filter(|row| begin(row) == latest).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row["requests"].as_u64()));
    let name = |row: &Value| {
        let words = by.split(',').map(|label| row[label].as_str().filter(|text| !text.is_empty()));
        words.map(|word| word.unwrap_or("-").to_owned()).collect::<Vec<_>>().join(" ")
    };
    let names: Vec<String> = rows.iter().map(|row| name(row)).collect();
    let titles = by.replace(',', " ");
    let width = names.iter().map(|name| name.chars().count()).chain([titles.len()]).max().unwrap_or_default();
    let mut text = format!("since {latest}\n{titles:width$}");
    for (title, _, width) in COLUMNS {
        text.push_str(&format!(" {title:>width$}"));
    }
    text.push('\n');
    for (row, name) in rows.iter().zip(&names).take(most) {
        text.push_str(&format!("{name:width$}"));
        for (_, member, width) in COLUMNS {
            let cell = match (row[member].as_u64(), row[member].as_f64()) {
                (Some(count), _) => count.to_string(),
                (None, Some(number)) => format!("{number:.1}"),
                (None, None) => "-".to_owned(),
            };
            text.push_str(&format!(" {cell:>width$}"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_busiest_rows_of_the_latest_minute_are_shown() {
        let row = |begin: &str, route: &str, requests: u64| json!({"begin": begin, "route": route, "requests": requests, "succeeded": requests, "p99_ms": 1.5});
        let (old, new) = ("2026-11-23T08:00:00Z", "2026-11-23T08:01:00Z");
        let rows = [row(old, "gone", 99), row(new, "b", 1), row(new, "app", 20), row(new, "", 3)];
        let text = table(&json!({ "rows": rows }), "route", 2);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["since", new]);
        assert_eq!(lines[2], ["app", "20", "20", "-", "-", "-", "-", "-", "-", "1.5"]);
        assert_eq!((lines[3][0], lines.len()), ("-", 4));
        assert_eq!(table(&json!({"rows": []}), "route", 9), "no requests in the last hour\n");
        assert!(labels("route,status").is_ok() && labels("route&x=1").is_err() && labels("").is_err());
    }
}
