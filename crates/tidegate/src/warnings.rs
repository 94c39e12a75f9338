//! The last warnings and errors of this process, for who cannot read its standard error.
//!
//! A layer beside the one that writes log lines: it keeps what that one was given at the levels `warn` and `error`, as far as
//! `log.level` lets it through. An event costs a copy of its text, which is less than writing it.
//!
//! Bounds: [`MAX_KEPT`] events, of each [`MAX_BYTES`] of text.

use std::collections::VecDeque;
use std::fmt;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tidegate_net::clock::wall;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Most warnings and errors that are kept.
pub const MAX_KEPT: usize = 1_000;

/// Most bytes that are kept of the text of one.
const MAX_BYTES: usize = 2_048;

/// The warnings of this process, as there is one log.
pub static WARNINGS: Warnings = Warnings(Mutex::new(Kept { errors: 0, warnings: 0, last: VecDeque::new() }));

/// A warning or an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// `warn` or `error`.
    pub level: &'static str,
    /// The part of the program that says it.
    pub target: &'static str,
    /// What happened.
    pub message: String,
    /// What is known of it: names and values in words.
    pub fields: String,
}

/// The last ones, and how many there were.
#[derive(Debug)]
pub struct Warnings(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    errors: u64,
    warnings: u64,
    last: VecDeque<Warning>,
}

impl Warnings {
    /// The last ones, the newest first.
    #[must_use]
    pub fn last(&self) -> Vec<Warning> {
        self.kept().last.iter().rev().cloned().collect()
    }

    /// How many errors and how many warnings there were since the process began.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let kept = self.kept();
        (kept.errors, kept.warnings)
    }

    fn keep(&self, warning: Warning) {
        let mut kept = self.kept();
        if warning.level == ERROR {
            kept.errors += 1;
        } else {
            kept.warnings += 1;
        }
        let oldest = if kept.last.len() < MAX_KEPT { None } else { kept.last.pop_front() };
        kept.last.push_back(warning);
        drop(kept);
        drop(oldest);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock()
    }
}

const ERROR: &str = "error";
const WARN: &str = "warn";

/// The layer that keeps them.
#[derive(Clone, Copy, Debug)]
pub struct KeepsWarnings(pub &'static Warnings);

impl<S: Subscriber> Layer<S> for KeepsWarnings {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        // The most important level is the least one.
        if *metadata.level() > Level::WARN {
            return;
        }
        let mut words = Words::default();
        event.record(&mut words);
        self.0.keep(Warning {
            at_unix_ms: wall().0 / 1_000_000,
            level: if *metadata.level() == Level::ERROR { ERROR } else { WARN },
            target: metadata.target(),
            message: words.message.0,
            fields: words.fields.0,
        });
    }
}

#[derive(Default)]
struct Words {
    message: Bounded,
    fields: Bounded,
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Invariant: what is bounded leaves out and does not fail.
        let _infallible = if field.name() == "message" {
            fmt::write(&mut self.message, format_args!("{value:?}"))
        } else {
            let before = if self.fields.0.is_empty() { "" } else { " " };
            fmt::write(&mut self.fields, format_args!("{before}{}={value:?}", field.name()))
        };
    }
}

/// A text of at most [`MAX_BYTES`]; what is beyond is left out.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_BYTES.saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    static KEPT: Warnings = Warnings(Mutex::new(Kept { errors: 0, warnings: 0, last: VecDeque::new() }));

    #[test]
    fn the_last_warnings_and_errors_are_kept_cut_and_nothing_else_is() {
        let log = tracing_subscriber::registry().with(KeepsWarnings(&KEPT));
        tracing::subscriber::with_default(log, || {
            tracing::info!("all is well");
            tracing::error!(path = %"/a\n/b", count = 2, "it {}", "fails");
            for number in 0..=MAX_KEPT {
                tracing::warn!(number, "once more");
            }
            tracing::warn!(text = %"\u{e9}".repeat(MAX_BYTES), "long");
        });
        let last = KEPT.last();
        assert_eq!((last.len(), KEPT.counts()), (MAX_KEPT, (1, MAX_KEPT as u64 + 2)));
        assert_eq!((last[0].message.as_str(), last[0].fields.len()), ("long", MAX_BYTES - 1));
        let (second, oldest) = (&last[1], &last[MAX_KEPT - 1]);
        assert_eq!(
            (second.level, second.message.as_str(), second.fields.as_str()),
            ("warn", "once more", "number=1000")
        );
        assert_eq!(oldest.fields, "number=2", "the oldest ones made room");
    }

    #[test]
    fn values_are_in_words() {
        static KEPT: Warnings = Warnings(Mutex::new(Kept { errors: 0, warnings: 0, last: VecDeque::new() }));
        let log = tracing_subscriber::registry().with(KeepsWarnings(&KEPT));
        tracing::subscriber::with_default(log, || {
            tracing::error!(path = %"/a", kind = "policy", name = ?"b c", count = 2, "it {}", "fails");
        });
        let last = KEPT.last();
        assert_eq!((last[0].level, last[0].message.as_str()), ("error", "it fails"));
        assert_eq!(last[0].fields, "path=/a kind=policy name=\"b c\" count=2");
    }
}
