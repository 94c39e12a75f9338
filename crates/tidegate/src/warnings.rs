//! The last warnings and errors of this process, for who cannot read its standard error.
//!
//! A layer beside the one that writes log lines: it keeps what that one was given at the levels `warn` and `error`, as far as
//! `log.level` lets it through. An event costs a copy of its text, which is less than writing it.
//!
//! What is said again, with other numbers at most, is one line with how often it was said: a warning that comes every ten seconds
//! would have filled the list in three hours. Two lines whose words differ are two.
//!
//! Bounds: [`MAX_KEPT`] lines, of each [`MAX_BYTES`] of text.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

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

/// A warning or an error, as it was said last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// When it was said first, while it was kept.
    pub first_at_unix_ms: u64,
    /// How often since then.
    pub times: u64,
    /// `warn` or `error`.
    pub level: &'static str,
    /// The part of the program that says it.
    pub target: &'static str,
    /// What happened.
    pub message: String,
    /// What is known of it: names and values in words.
    pub fields: String,
    /// The hash of all of it but its numbers.
    #[serde(skip)]
    same: u64,
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

    fn keep(&self, mut warning: Warning) {
        let mut kept = self.kept();
        if warning.level == ERROR {
            kept.errors += 1;
        } else {
            kept.warnings += 1;
        }
        let before = kept.last.iter().rposition(|it| it.same == warning.same);
        let replaced = match before {
            Some(place) => kept.last.remove(place),
            None if kept.last.len() < MAX_KEPT => None,
            None => kept.last.pop_front(),
        };
        if let (Some(_), Some(before)) = (before, &replaced) {
            warning.first_at_unix_ms = before.first_at_unix_ms;
            warning.times = before.times + 1;
        }
        kept.last.push_back(warning);
        drop(kept);
        drop(replaced);
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
        let mut words = WarningWords::default();
        event.record(&mut words);
        let level = if *metadata.level() == Level::ERROR { ERROR } else { WARN };
        let target = metadata.target();
        let mut same = DefaultHasher::new();
        (level, target, &words.message.0, &words.without_numbers.0).hash(&mut same);
        let at_unix_ms = wall().0 / 1_000_000;
        self.0.keep(Warning {
            at_unix_ms,
            first_at_unix_ms: at_unix_ms,
            times: 1,
            level,
            target,
            message: words.message.0,
            fields: words.fields.0,
            same: same.finish(),
        });
    }
}

#[derive(Default)]
struct WarningWords {
    message: BoundedText,
    fields: BoundedText,
    /// The fields, those of numbers with their names alone.
    without_numbers: BoundedText,
}

impl WarningWords {
    fn number(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.add(field, value);
        self.without_numbers.add(field, &"");
    }
}

impl Visit for WarningWords {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, &value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, &value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.number(field, &value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.number(field, &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.number(field, &value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Invariant: what is bounded leaves out and does not fail.
            let _infallible = fmt::write(&mut self.message, format_args!("{value:?}"));
        } else {
            self.fields.add(field, value);
            self.without_numbers.add(field, value);
        }
    }
}

/// A text of at most [`MAX_BYTES`]; what is beyond is left out.
#[derive(Default)]
struct BoundedText(String);

impl BoundedText {
    fn add(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let before = if self.0.is_empty() { "" } else { " " };
        // Invariant: what is bounded leaves out and does not fail.
        let _infallible = fmt::write(self, format_args!("{before}{}={value:?}", field.name()));
    }
}

impl fmt::Write for BoundedText {
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
                tracing::warn!(number = %number, "once more");
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
    fn what_is_said_again_with_other_numbers_is_one_line() {
        static KEPT: Warnings = Warnings(Mutex::new(Kept { errors: 0, warnings: 0, last: VecDeque::new() }));
        let log = tracing_subscriber::registry().with(KeepsWarnings(&KEPT));
        tracing::subscriber::with_default(log, || {
            for requests in 1..=3_u64 {
                tracing::warn!(attributes = "client_id", requests, "no policy applies");
                tracing::warn!(attributes = "ip", requests, "no policy applies");
            }
            tracing::error!(attributes = "ip", requests = 4_u64, "no policy applies");
            tracing::warn!(attributes = "client_id", requests = 5_u64, "no policy applies");
        });
        let last = KEPT.last();
        let told: Vec<_> = last.iter().map(|it| (it.level, it.fields.as_str(), it.times)).collect();
        assert_eq!(
            told,
            [
                ("warn", "attributes=client_id requests=5", 4),
                ("error", "attributes=ip requests=4", 1),
                ("warn", "attributes=ip requests=3", 3),
            ]
        );
        assert_eq!(KEPT.counts(), (1, 7), "each is counted");
        assert!(last.iter().all(|it| it.first_at_unix_ms <= it.at_unix_ms));
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
