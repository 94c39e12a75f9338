//! Log lines on standard error: one event, one line, whatever is in its values (fault 13).
//!
//! Warnings and errors are kept, too, for who cannot read it ([`crate::warnings`]).
//!
//! JSON lines are escaped by their format. Text lines are escaped here, at the last step, so that
//! no message and no value can begin a line of its own: control characters inside an event are
//! written as `\n`, `\r` or `\u{7}`.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat, LogLevel};
use crate::warnings::{KeepsWarnings, WARNINGS};

/// Starts logging. A second call changes nothing.
pub fn start(settings: &Log) {
    let level = match settings.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let terminal = io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_max_level(level).with_ansi(terminal);
    // A line that cannot be written, as on a full disk, is lost. Otherwise it would be complained of to standard error,
    // too, by a macro that panics where that fails (fault 77).
    let lines = lines.log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Json => {
            lines.json().with_writer(io::stderr).finish().with(KeepsWarnings(&WARNINGS)).try_init()
        }
        LogFormat::Text => {
            let escaped = move || OneLine { out: io::stderr(), colours: terminal };
            lines.with_writer(escaped).finish().with(KeepsWarnings(&WARNINGS)).try_init()
        }
    };
    // Only a second call fails, and then there is a log already.
    drop(started);
}

/// Writes each event, which the formatter hands over whole, as one line.
struct OneLine<W> {
    out: W,
    /// The formatter's own escape sequences pass; it escapes those in values itself.
    colours: bool,
}

impl<W: Write> Write for OneLine<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let mut escaped = Vec::with_capacity(event.len() + 16);
        for byte in line {
            match byte {
                b'\n' => escaped.extend_from_slice(b"\\n"),
                b'\r' => escaped.extend_from_slice(b"\\r"),
                0x1b if self.colours => escaped.push(0x1b),
                b'\t' => escaped.push(b'\t'),
                control if control.is_ascii_control() => write!(escaped, "\\u{{{control:x}}}")?,
                other => escaped.push(*other),
            }
        }
        if line.len() < event.len() {
            escaped.push(b'\n');
        }
        self.out.write_all(&escaped)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_13_a_value_cannot_begin_a_line_of_its_own() {
        let mut out = Vec::new();
        let event = "WARN refused key=a\r\nERROR forged\u{1b}[31m\u{7}\u{e9}\n";
        OneLine { out: &mut out, colours: false }.write_all(event.as_bytes()).unwrap();
        let written = String::from_utf8(out).unwrap();
        assert_eq!(written, "WARN refused key=a\\r\\nERROR forged\\u{1b}[31m\\u{7}\u{e9}\n");
    }
}
