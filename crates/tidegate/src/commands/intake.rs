//! `tidegate intake ...`: looks at what a running intake has kept.

mod plot;
mod query;
mod verify;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use tidegate_wire::metrics::describe;

use super::server::{Client, IntakeServer, no_answer, refusal};
use super::terminal;

/// Exit code when the intake gave no answer.
const EXIT_NO_ANSWER: u8 = 1;
/// How long one answer may take, beside the wait that is asked for.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a request waits for lines, in seconds.
const WAIT: u64 = 30;
/// Most bytes of an answer; the server's own bound is less.
const MAX_BYTES: u64 = 64 << 20;

/// Looks at what a running intake has kept.
///
/// A token, where one is demanded, is taken from the environment, `TIDEGATE_TOKEN`, or from the file of --token-file.
#[derive(Debug, clap::Subcommand)]
pub enum IntakeCommand {
    /// Prints the newest lines, and with --follow those that come.
    ///
    /// Exit code 0: printed, 1: no answer.
    #[command(after_long_help = "\
Examples:
  tidegate intake tail
  tidegate intake tail --lines 100 --follow")]
    Tail(Tail),
    /// Prints the points of one metric.
    ///
    /// Exit code 0: printed, 1: no answer.
    #[command(after_long_help = "\
Examples:
  tidegate intake query cpu.usage --last 5m
  tidegate intake query cpu.usage --last 1h --step 10s --agg p99 --tag host=a --format csv")]
    Query(query::Query),
    /// Says what is wrong with an intake's folder.
    ///
    /// Every line is read, and nothing is changed. Of a folder in use, the newest line may seem torn. Exit code 0: all is
    /// well, 1: something is not, 2: the folder cannot be read.
    #[command(after_long_help = "\
Examples:
  tidegate intake verify tidegate-data/intake")]
    Verify(verify::Verify),
}

/// Prints the newest lines, and with `--follow` those that come. Exit code 0: printed, 1: no answer.
///
/// Of a log with several partitions these are the lines of all of them that have the newest times.
#[derive(Clone, Debug, clap::Args)]
pub struct Tail {
    /// How many lines, at most 10,000.
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    lines: u64,
    /// Prints further lines as they come, until it is stopped.
    #[arg(short, long)]
    follow: bool,
    /// One partition of the log; all of them unless it is given.
    #[arg(long)]
    partition: Option<u16>,
    #[command(flatten)]
    server: IntakeServer,
}

impl IntakeCommand {
    /// Asks, and prints the answer.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        match self {
            Self::Tail(tail) => tail.run(out),
            Self::Query(query) => query.run(out),
            Self::Verify(verify) => verify.run(out),
        }
    }
}

/// Lines, and where they end.
struct Page {
    lines: Vec<u8>,
    next: u64,
    partitions: u16,
}

/// A partition, and the offset from which on nothing is printed yet.
type PartitionOffset = (u16, u64);

impl Tail {
    fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        match self.print(out) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(TailError::Output(error)) => Err(error),
            Err(TailError::Server(reason)) => {
                terminal::say(&reason);
                Ok(ExitCode::from(EXIT_NO_ANSWER))
            }
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<(), TailError> {
        let client = self.server.client(DEADLINE + Duration::from_secs(WAIT)).map_err(TailError::Server)?;
        let partitions = match self.partition {
            Some(one) => one..one.saturating_add(1),
            None => 0..ask(&client, 0, "newest", 0)?.partitions,
        };
        let (mut places, mut lines) = (Vec::new(), Vec::new());
        for partition in partitions {
            let (of_it, next) = self.newest(&client, partition)?;
            places.push((partition, next));
            lines.extend(of_it);
        }
        if places.len() > 1 {
            lines.sort_by_key(|line| describe(line).map(|line| line.millis));
        }
        let shown_from = lines.len().saturating_sub(usize::try_from(self.lines).unwrap_or(usize::MAX));
        for line in &lines[shown_from..] {
            out.write_all(shown(line).as_bytes())?;
        }
        out.flush()?;
        if !self.follow {
            return Ok(());
        }
        for lines in following(&client, places) {
            out.write_all(shown(&lines?).as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    /// The newest lines of a partition, and where they end.
    fn newest(&self, client: &Client, partition: u16) -> Result<(Vec<Vec<u8>>, u64), TailError> {
        let end = ask(client, partition, "newest", 0)?.next;
        let mut at = end.saturating_sub(self.lines);
        let mut lines = Vec::new();
        while at < end {
            let page = ask(client, partition, &at.to_string(), 0)?;
            lines.extend(page.lines.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec));
            if page.next <= at {
                break;
            }
            at = page.next;
        }
        Ok((lines, at.max(end)))
    }
}

/// The lines of all these partitions as they come, each from its place on; ends with what went wrong. A thread for each,
/// which ends with the process.
fn following(client: &Client, places: Vec<PartitionOffset>) -> Receiver<Result<Vec<u8>, TailError>> {
    let (sender, pages) = sync_channel(places.len());
    for (partition, mut at) in places {
        let (client, sender) = (client.clone(), sender.clone());
        thread::spawn(move || {
            loop {
                let page = ask(&client, partition, &at.to_string(), WAIT);
                at = page.as_ref().map_or(at, |page| page.next);
                let is_last = page.is_err();
                // Nobody listens any more once one of them has failed.
                if sender.send(page.map(|page| page.lines)).is_err() || is_last {
                    break;
                }
            }
        });
    }
    pages
}

/// Lines of a partition from an offset on; from the oldest one, if that one is gone.
fn ask(client: &Client, partition: u16, from: &str, wait: u64) -> Result<Page, TailError> {
    let failed = |error: &dyn Display| TailError::Server(no_answer(client.url(), error));
    let get = |from: &str| {
        let query = format!("partition={partition}&from={from}&wait={wait}&max=10000");
        client.get(&format!("/v1/intake/read?{query}")).call().map_err(|error| failed(&error))
    };
    let mut reply = get(from)?;
    if reply.status() == http::StatusCode::GONE {
        reply = get("oldest")?;
    }
    let number = |name| reply.headers().get(name).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    let next = number("tidegate-next-offset");
    // A server of an older version says nothing of it, and shows its first one.
    let partitions = number("tidegate-partitions").and_then(|it| u16::try_from(it).ok()).unwrap_or(1);
    let mut lines = Vec::new();
    let read = reply.body_mut().as_reader().take(MAX_BYTES).read_to_end(&mut lines);
    read.map_err(|error| failed(&error))?;
    match next {
        Some(next) if reply.status().is_success() => Ok(Page { lines, next, partitions }),
        _ => {
            let body = String::from_utf8_lossy(&lines);
            Err(TailError::Server(refusal(client.url(), reply.status(), &body)))
        }
    }
}

/// Lines of JSON with the control characters escaped that JSON may have as they are, and that move a terminal's cursor.
fn shown(lines: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(lines);
    let is_control = |c: char| c.is_control() && c != '\n';
    if !text.contains(is_control) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

/// Why nothing more is printed.
enum TailError {
    Output(io::Error),
    Server(String),
}

impl From<io::Error> for TailError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_13_a_line_moves_no_cursor_and_stays_the_same_json() {
        let line = "{\"name\":\"a\u{9b}2J\u{7f}\u{e9}\\u001b\"}\n";
        let printed = shown(line.as_bytes());
        assert_eq!(printed, "{\"name\":\"a\\u009b2J\\u007f\u{e9}\\u001b\"}\n");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&printed), value(line));
        assert!(matches!(shown(b"{}\n"), Cow::Borrowed("{}\n")));
    }
}
