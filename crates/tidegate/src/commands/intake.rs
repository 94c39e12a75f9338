//! `tidegate intake ...`: looks at what a running intake has kept.

mod plot;
mod query;
mod verify;

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use super::terminal;
use crate::config::TOKEN_VARIABLE;

/// Exit code when the intake gave no answer.
const EXIT_NO_ANSWER: u8 = 1;
/// How long one answer may take, beside the wait that is asked for.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long a request waits for lines, in seconds.
const WAIT: u64 = 30;
/// Most bytes of an answer; the server's own bound is less.
const MAX_BYTES: u64 = 64 << 20;

/// What a running intake has kept. A token, where one is demanded, is taken from the environment: `TIDEGATE_TOKEN`.
#[derive(Debug, clap::Subcommand)]
pub enum IntakeCommand {
    /// Prints the newest lines.
    Tail(Tail),
    /// Prints the points of one metric.
    Query(query::Query),
    /// Says what is wrong with an intake's folder.
    Verify(verify::Verify),
}

/// Prints the newest lines, and with `--follow` those that come. Exit code 0: printed, 1: no answer.
#[derive(Debug, clap::Args)]
pub struct Tail {
    /// How many lines, at most 10,000.
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    lines: u64,
    /// Prints further lines as they come, until it is stopped.
    #[arg(short, long)]
    follow: bool,
    /// The partition of the log.
    #[arg(long, default_value_t = 0)]
    partition: u16,
    /// The intake.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:4002")]
    server: String,
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
}

impl Tail {
    fn run(self, out: &mut dyn Write) -> io::Result<ExitCode> {
        match self.print(out) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(TailError::Output(error)) => Err(error),
            Err(TailError::Server(reason)) => {
                terminal::say(&format!(
                    "{}: {reason} (is `tidegate serve` running there? --server names another)\n",
                    self.server
                ));
                Ok(ExitCode::from(EXIT_NO_ANSWER))
            }
        }
    }

    fn print(&self, out: &mut dyn Write) -> Result<(), TailError> {
        let agent = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = agent.timeout_global(Some(DEADLINE + Duration::from_secs(WAIT))).build().into();
        let end = self.ask(&agent, "newest", 0)?.next;
        let mut at = end.saturating_sub(self.lines);
        while at < end {
            let page = self.ask(&agent, &at.to_string(), 0)?;
            out.write_all(shown(&page.lines).as_bytes())?;
            if page.next <= at {
                break;
            }
            at = page.next;
        }
        out.flush()?;
        if !self.follow {
            return Ok(());
        }
        loop {
            let page = self.ask(&agent, &at.to_string(), WAIT)?;
            out.write_all(shown(&page.lines).as_bytes())?;
            out.flush()?;
            at = page.next;
        }
    }

    /// Lines from an offset on; from the oldest one, if that one is gone.
    fn ask(&self, agent: &ureq::Agent, from: &str, wait: u64) -> Result<Page, TailError> {
        let server = self.server.trim_end_matches('/');
        let partition = self.partition;
        let get = |from: &str| {
            let url =
                format!("{server}/v1/intake/read?partition={partition}&from={from}&wait={wait}&max=10000");
            let mut request = agent.get(&url);
            // There is no flag for it, because flags show in `ps`.
            if let Ok(token) = std::env::var(TOKEN_VARIABLE) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            request.call().map_err(|error| TailError::Server(error.to_string()))
        };
        let mut reply = get(from)?;
        if reply.status() == http::StatusCode::GONE {
            reply = get("oldest")?;
        }
        let next =
            reply.headers().get("tidegate-next-offset").and_then(|next| next.to_str().ok()?.parse().ok());
        let mut lines = Vec::new();
        reply.body_mut().as_reader().take(MAX_BYTES).read_to_end(&mut lines).map_err(TailError::unread)?;
        match next {
            Some(next) if reply.status().is_success() => Ok(Page { lines, next }),
            _ => {
                let said = String::from_utf8_lossy(&lines);
                Err(TailError::Server(format!("{}: {}", reply.status(), said.escape_debug())))
            }
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

impl TailError {
    fn unread(error: io::Error) -> Self {
        Self::Server(error.to_string())
    }
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
