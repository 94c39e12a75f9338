//! `tidegate top`: what a running gateway does in the minute under way, again and again.
//!
//! ```text
//!   look:  GET /v1/analytics?step=minute          the newest minute that has requests, by the server's clock
//!          ...&by=LABELS&from=that minute         a panel for each question, of that minute alone
//! ```
//!
//! A panel asks for one minute and no more, so that an answer has all of its rows: the server keeps at most 1,000 combinations
//! of a minute apart, and answers with at most 10,000 rows, the oldest first. The minute is the server's own, since the clock
//! here may be wrong.
//!
//! On a terminal the panels share its rows, and a line is never longer than a terminal is wide: one that is broken would push the
//! rest off the screen.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tidegate_net::clock::monotonic;

use super::server::{Client, DEADLINE, Server};
use super::{EXIT_REFUSED, duration, terminal};

/// Rows that are shown of a panel where nobody looks at a terminal.
const ROWS: usize = 100;

/// Longest name in a panel: the numbers behind it count for more.
const NAME: usize = 32;

/// What takes a terminal's cursor to the top and clears what is below.
const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// The numbers of a row: title, member of the reply, width. A narrow terminal lacks the last ones.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("requests", "requests", 9),
    ("good", "succeeded", 9),
    ("429", "rate_limited", 7),
    ("4xx", "client_errors", 7),
    ("5xx", "failed", 7),
    ("p99 ms", "p99_ms", 8),
    ("p95", "p95_ms", 8),
    ("p50", "p50_ms", 8),
    ("mean", "mean_ms", 8),
];

/// Statuses by which a gateway turns a request away before a server has it: no identity, not this one's, too many.
const DENIALS: [&str; 3] = ["401", "403", "429"];

/// Shows the requests of a gateway as they come, the busiest first.
///
/// They are those of the minute under way: by route, by API key, by denial and by server. It needs `gateway.analytics`,
/// which is on by default, and the scope `read`. A token, where one is demanded, is taken from the environment, `TIDEGATE_TOKEN`, or from
/// the file of --token-file.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tidegate top
  tidegate top --by route,status --every 5s
  tidegate top --times 1 --server https://limits.example --ca ca.pem")]
pub struct Top {
    /// One table instead, told apart by some of route,key,upstream,server,status.
    #[arg(long, value_name = "LABELS", value_parser = labels)]
    by: Option<String>,
    /// Time between two looks, 1 s to 1 h: seconds, or as 2s or 1m.
    #[arg(long, value_name = "TIME", value_parser = pause_of, default_value = "2")]
    every: Duration,
    /// How many looks; without it there is no end.
    #[arg(long, value_name = "TIMES")]
    times: Option<u64>,
    #[command(flatten)]
    server: Server,
}

/// A question, and which rows of its answer are shown.
struct Panel {
    title: String,
    by: String,
    shows: fn(&Value) -> bool,
}

impl Panel {
    fn new(title: &str, by: &str, shows: fn(&Value) -> bool) -> Self {
        Self { title: title.to_owned(), by: by.to_owned(), shows }
    }

    /// Everything that there is, or one table by `labels`.
    fn all(labels: Option<&str>) -> Vec<Self> {
        if let Some(labels) = labels {
            return vec![Self::new(&labels.replace(',', " "), labels, |_| true)];
        }
        let is_denial = |row: &Value| DENIALS.iter().any(|status| row["status"] == *status);
        vec![
            Self::new("route", "route", |_| true),
            Self::new("key", "key", |row| row["key"] != ""),
            Self::new("denied: route key status", "route,key,status", is_denial),
            Self::new("backend: upstream server", "upstream,server", |row| row["server"] != ""),
        ]
    }
}

impl Top {
    /// Asks, and prints the answers.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        let is_terminal = io::stdout().is_terminal();
        let client = match self.server.client(DEADLINE) {
            Ok(client) => client,
            Err(reason) => return refused(&reason),
        };
        let panels = Panel::all(self.by.as_deref());
        let mut looks = 0;
        loop {
            let (columns, rows) =
                if is_terminal { terminal::output_size() } else { (usize::MAX, usize::MAX) };
            let picture = match look(&client, &panels, columns, rows) {
                Ok(picture) => terminal::plain(&picture),
                Err(reason) => return refused(&reason),
            };
            write!(out, "{}{picture}", if is_terminal { REDRAW } else { "" })?;
            out.flush()?;
            looks += 1;
            if self.times.is_some_and(|times| looks >= times) {
                return Ok(ExitCode::SUCCESS);
            }
            pause(self.every);
        }
    }
}

fn refused(reason: &str) -> io::Result<ExitCode> {
    terminal::say(reason);
    Ok(ExitCode::from(EXIT_REFUSED))
}

/// A pause that neither asks all the time nor hardly ever.
fn pause_of(text: &str) -> Result<Duration, String> {
    let accepted = Duration::from_secs(1)..=Duration::from_secs(3_600);
    let pause = duration::of_seconds(text)?;
    if accepted.contains(&pause) { Ok(pause) } else { Err("expected 1s to 1h".to_owned()) }
}

/// What is shown, on so many columns and rows.
fn look(client: &Client, panels: &[Panel], columns: usize, rows: usize) -> Result<String, String> {
    let minutes = client.ask("GET", "/v1/analytics?step=minute", None)?;
    let Some(newest) = newest(&minutes) else { return Ok("no requests in the last hour\n".to_owned()) };
    let mut heading = format!("since {newest}");
    let mut shown = Vec::with_capacity(panels.len());
    let (mut is_whole, mut is_shared) = (true, true);
    for panel in panels {
        let path = format!("/v1/analytics?step=minute&from={newest}&by={}", panel.by);
        let answer = client.ask("GET", &path, None)?;
        is_whole &= answer["series_left_out"].as_u64().unwrap_or_default() == 0;
        is_shared &= answer["complete"] != false;
        shown.push(answer);
    }
    if !is_whole {
        heading.push_str(" (not all rows: there are too many)");
    }
    if !is_shared {
        let named = own_name(client).map_or_else(|| "this node".to_owned(), |name| format!("node {name}"));
        heading = format!("{heading} ({named} alone: the store does not answer)");
    }
    // The heading, and of each panel its titles and the line above them; the last line is the cursor's.
    let rows =
        if rows == usize::MAX { ROWS } else { rows.saturating_sub(2 + 2 * panels.len()) / panels.len() };
    let mut picture = cut(&heading, columns);
    for (panel, answer) in panels.iter().zip(&shown) {
        if panels.len() > 1 {
            picture.push('\n');
        }
        picture.push_str(&table(panel, answer, &newest, columns, rows));
    }
    Ok(picture)
}

/// The name of the node that is asked; `None` where it does not say.
fn own_name(client: &Client) -> Option<String> {
    let answer = client.ask("GET", "/v1/nodes", None).ok()?;
    let own = answer["nodes"].as_array()?.iter().find(|node| node["self"] == true)?;
    own["name"].as_str().map(str::to_owned)
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

/// The beginning of the newest minute that an answer has.
fn newest(answer: &Value) -> Option<String> {
    let rows = answer["rows"].as_array()?;
    rows.iter().filter_map(|row| row["begin"].as_str()).max().map(str::to_owned)
}

/// A panel's rows of the minute that begins then, those with most requests first.
fn table(panel: &Panel, answer: &Value, begin: &str, columns: usize, most: usize) -> String {
    let rows = answer["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut rows: Vec<&Value> =
        rows.iter().filter(|row| row["begin"] == begin && (panel.shows)(row)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row["requests"].as_u64()));
    rows.truncate(most);
    let names: Vec<String> = rows.iter().map(|row| name(panel, row)).collect();
    let width = names.iter().map(|name| name.chars().count()).chain([panel.title.len()]).max();
    let width = width.unwrap_or_default();
    let mut numbers = &COLUMNS[..];
    while let Some((_, fewer)) = numbers.split_last()
        && width + numbers.iter().map(|(_, _, width)| width + 1).sum::<usize>() > columns
    {
        numbers = fewer;
    }
    let mut line = format!("{:width$}", panel.title);
    for (title, _, width) in numbers {
        line.push_str(&format!(" {title:>width$}"));
    }
    let mut text = cut(&line, columns);
    for (row, name) in rows.iter().zip(&names) {
        line = format!("{name:width$}");
        for (_, member, width) in numbers {
            let cell = match (row[member].as_u64(), row[member].as_f64()) {
                (Some(count), _) => count.to_string(),
                (None, Some(number)) => format!("{number:.1}"),
                (None, None) => "-".to_owned(),
            };
            line.push_str(&format!(" {cell:>width$}"));
        }
        text.push_str(&cut(&line, columns));
    }
    text
}

/// What a row is called: its labels, `-` for one that it does not have.
fn name(panel: &Panel, row: &Value) -> String {
    let words = panel.by.split(',').map(|label| row[label].as_str().filter(|text| !text.is_empty()));
    let name = words.map(|word| word.unwrap_or("-")).collect::<Vec<_>>().join(" ");
    if name.chars().count() <= NAME {
        return name;
    }
    name.chars().take(NAME - 1).chain(['\u{2026}']).collect()
}

/// A line, no longer than this.
fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).chain(['\n']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_busiest_rows_of_the_newest_minute_are_shown() {
        let row = |begin: &str, route: &str, requests: u64| json!({"begin": begin, "route": route, "requests": requests, "succeeded": requests, "p99_ms": 1.5});
        let (old, new) = ("2026-11-23T08:00:00Z", "2026-11-23T08:01:00Z");
        let rows = [row(old, "gone", 99), row(new, "b", 1), row(new, "app", 20), row(new, "", 3)];
        let answer = json!({ "rows": rows });
        assert_eq!(newest(&answer).unwrap(), new);
        let panel = &Panel::all(Some("route"))[0];
        let text = table(panel, &answer, new, usize::MAX, 2);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["app", "20", "20", "-", "-", "-", "1.5", "-", "-", "-"]);
        assert_eq!((lines[2][0], lines.len()), ("-", 3));
        assert_eq!(newest(&json!({"rows": []})), None);
        assert!(labels("route,status").is_ok() && labels("route&x=1").is_err() && labels("").is_err());
    }

    #[test]
    fn a_narrow_terminal_has_fewer_numbers_and_no_broken_line() {
        let begin = "2026-11-23T08:01:00Z";
        let row = |key: &str, status: &str| json!({"begin": begin, "route": "r".repeat(60), "key": key, "status": status, "requests": 7});
        let answer = json!({"rows": [row("k", "429"), row("k", "200"), row("", "401")]});
        let denied = &Panel::all(None)[2];
        let text = table(denied, &answer, begin, 60, 9);
        assert_eq!(text.lines().count(), 3, "the titles and two denials: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        let titles: Vec<&str> = text.lines().next().unwrap().split_whitespace().skip(4).collect();
        assert_eq!(titles, ["requests", "good", "429"]);
    }
}
