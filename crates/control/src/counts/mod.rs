//! How many requests there were: sums by minute, hour and day, of all nodes together, for as long as they are kept.
//!
//! ```text
//!   a node's batch (of one minute) --add--> its minute, its hour, its day --read--> whoever asks, at any node
//! ```
//!
//! A batch is added, and never put in the place of something, so nodes need not know of each other. It has a writer and a
//! number: one that is given again after an outcome that was lost changes nothing. Reading tells the number of the last
//! batch of one's own that is in the sums, so that what has not been stored can be counted beside them exactly once.
//!
//! What requests are told apart by is a text that means nothing here.
//!
//! Bounds: [`MAX_COUNTED`] texts in a minute, hour or day of all nodes; further requests go to the text that their row
//! names for that. [`Span::kept`] of each span are kept up to the writer's clock, and as many after it. The oldest are
//! forgotten by their number, so that a clock that is wrong by years costs the spans that it writes, and no others. A sum is
//! read whole before it is written, under a lock: merging classes of times in two dialects of SQL would be two things to keep
//! equal.
//!
//! Deliberately absent: the clock (`now` comes with a batch), and what waits while the database is away.

mod local;
mod shared;

use std::collections::{HashMap, HashSet};

pub(crate) use local::{TABLES, read, write};
pub(crate) use shared::{load, store};

/// Most texts that are told apart in one minute, hour or day, but for those that rows name for the others.
pub const MAX_COUNTED: usize = 1_000;

/// For how long the number of a writer's last batch is kept after it, in seconds.
const WRITER_KEPT: u64 = 2 * 86_400;

/// How long a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Span {
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours, in UTC.
    Day,
}

impl Span {
    /// All of them, the shortest first.
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// How long one is, in seconds.
    #[must_use]
    pub fn seconds(self) -> u64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }

    /// How many spans with requests are kept: two hours, a week, a year without a gap.
    #[must_use]
    pub fn kept(self) -> u64 {
        match self {
            Self::Minute => 120,
            Self::Hour => 168,
            Self::Day => 366,
        }
    }

    /// When the one begins in which this second is.
    #[must_use]
    pub fn begin(self, second: u64) -> u64 {
        second - second % self.seconds()
    }

    /// The first one that is surely kept at this second.
    #[must_use]
    pub fn oldest(self, now: u64) -> u64 {
        self.begin(now).saturating_sub((self.kept() - 1) * self.seconds())
    }

    /// [`Self::kept`] as databases take it.
    fn kept_rows(self) -> i32 {
        self.kept() as i32
    }

    /// As it is stored.
    fn number(self) -> i32 {
        match self {
            Self::Minute => 0,
            Self::Hour => 1,
            Self::Day => 2,
        }
    }
}

/// Requests with the same labels, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// How many there were.
    pub requests: u64,
    /// Of their replies' bodies.
    pub bytes: u64,
    /// How long they took together.
    pub micros: u64,
    /// Classes of times and how many were in each, by class. What a class is, its writers agree on.
    pub classes: Vec<(u16, u64)>,
}

impl Sums {
    /// Adds others to these.
    pub fn merge(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.micros = self.micros.saturating_add(other.micros);
        for (class, count) in &other.classes {
            self.add_to_class(*class, *count);
        }
    }

    /// Counts times in a class.
    pub fn add_to_class(&mut self, class: u16, count: u64) {
        match self.classes.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => self.classes[at].1 = self.classes[at].1.saturating_add(count),
            Err(at) => self.classes.insert(at, (class, count)),
        }
    }
}

/// A part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// What these requests are told apart by.
    pub labels: String,
    /// What they are counted as where there is no room for that.
    pub otherwise: String,
    /// The requests.
    pub sums: Sums,
}

/// What a node has counted in a minute, or in a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The process that has counted: a random number, drawn when it starts. 63 bits are stored.
    pub writer: u64,
    /// Larger with each batch of this writer; 1 or more. 63 bits are stored.
    pub number: u64,
    /// The second at which the minute begins.
    pub minute: u64,
    /// Requests by labels, each of which is there once.
    pub rows: Vec<Counted>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// Requests for which the minute had no room: they are counted as their row said.
    pub without_room: u64,
    /// Texts that the minute has now, of all nodes.
    pub texts: usize,
}

/// Which sums are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// How long the spans are.
    pub span: Span,
    /// The first second that counts. A span counts that is in part within the period.
    pub from: u64,
    /// The first second that does not.
    pub to: u64,
}

impl Period {
    /// Whether the span that begins then is at least in part within it.
    #[must_use]
    pub fn has(self, begin: u64) -> bool {
        begin + self.span.seconds() > self.from && begin < self.to
    }

    /// Where the spans begin that are in it: after the first second, before the second one.
    fn bounds(self) -> (i64, i64) {
        let after = i64::try_from(self.from).unwrap_or(i64::MAX) - self.span.seconds() as i64;
        (after, i64::try_from(self.to).unwrap_or(i64::MAX))
    }
}

/// The statement that keeps of a span (`$1`) so many (`$3`) that begin until `now`, the newest, and as many after `latest`,
/// the oldest. It looks for one beginning after another: sums have a thousand rows for each.
fn forget(table: &str, now: &str, latest: &str) -> String {
    format!(
        "WITH RECURSIVE past (begin, nth) AS (
             SELECT max(begin), 1 FROM {table} WHERE span = $1 AND begin <= {now}
             UNION ALL
             SELECT (SELECT max(c.begin) FROM {table} AS c WHERE c.span = $1 AND c.begin < past.begin), nth + 1
             FROM past WHERE past.begin IS NOT NULL AND nth < $3
         ), future (begin, nth) AS (
             SELECT min(begin), 1 FROM {table} WHERE span = $1 AND begin > {latest}
             UNION ALL
             SELECT (SELECT min(c.begin) FROM {table} AS c WHERE c.span = $1 AND c.begin > future.begin), nth + 1
             FROM future WHERE future.begin IS NOT NULL AND nth < $3
         )
         DELETE FROM {table} WHERE span = $1 AND (begin < (SELECT begin FROM past WHERE nth = $3)
             OR begin > (SELECT begin FROM future WHERE nth = $3))"
    )
}

/// Puts rows into the sums of one span: those that have changed, and what became of the rows.
fn merged(mut there: HashMap<String, Sums>, rows: &[Counted]) -> (HashMap<String, Sums>, Added) {
    let mut changed: HashSet<&str> = HashSet::new();
    let mut without_room = 0;
    let is_other = |row: &&Counted| row.labels == row.otherwise;
    // Rows for `others` come last, so that they take no room from rows that are counted apart.
    let others = rows.iter().filter(is_other);
    for row in rows.iter().filter(|row| !is_other(row)).chain(others) {
        let has_room = is_other(&row) || there.contains_key(&row.labels) || there.len() < MAX_COUNTED;
        let text = if has_room { &row.labels } else { &row.otherwise };
        if !has_room {
            without_room += row.sums.requests;
        }
        there.entry(text.clone()).or_default().merge(&row.sums);
        changed.insert(text);
    }
    let texts = there.len();
    there.retain(|text, _| changed.contains(text.as_str()));
    (there, Added { without_room, texts })
}

/// Classes as they are stored.
fn written(classes: &[(u16, u64)]) -> String {
    // Pairs of numbers always serialise.
    serde_json::to_string(classes).unwrap_or_default()
}

/// What was stored; nothing if somebody else has written there.
fn classes(text: &str) -> Vec<(u16, u64)> {
    let mut classes: Vec<(u16, u64)> = serde_json::from_str(text).unwrap_or_default();
    classes.sort_unstable();
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FNV-1a, 64 bits.
    fn digest(text: &str) -> u64 {
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    #[test]
    fn a_change_of_the_schema_raises_its_version() {
        assert_eq!(
            (shared::VERSION, digest(shared::SCHEMA), digest(TABLES)),
            (1, 0x638b_bcf5_a980_25ea, 0x7430_0857_9b45_a240),
            "databases keep the tables that they have: raise VERSION, or add a migration to the data directory's; \
             then put the numbers here"
        );
    }

    #[test]
    fn a_row_without_room_is_counted_as_it_says_and_one_that_is_there_has_room() {
        let row = |labels: &str, requests| Counted {
            labels: labels.to_owned(),
            otherwise: "others".to_owned(),
            sums: Sums { requests, classes: vec![(3, requests)], ..Sums::default() },
        };
        let there: HashMap<_, _> =
            (1..MAX_COUNTED).map(|number| (number.to_string(), Sums::default())).collect();
        let rows = [row("others", 9), row("new", 1), row("newer", 20), row("7", 300), row("newest", 4_000)];
        let (changed, added) = merged(there, &rows);
        assert_eq!(added, Added { without_room: 4_020, texts: MAX_COUNTED + 1 });
        let mut changed: Vec<_> = changed.iter().map(|(text, sums)| (text.as_str(), sums.requests)).collect();
        changed.sort_unstable();
        assert_eq!(changed, [("7", 300), ("new", 1), ("others", 4_029)]);
    }

    #[test]
    fn classes_are_read_as_they_were_written_and_nothing_else_is() {
        let (mut one, other) = (Sums::default(), [(3, 1), (9, 7)]);
        other.iter().rev().for_each(|(class, count)| one.add_to_class(*class, *count));
        assert_eq!(classes(&written(&one.classes)), other);
        assert_eq!(written(&other), "[[3,1],[9,7]]");
        for text in ["", "[3]", "[[3,-1]]", "[[70000,1]]"] {
            assert_eq!(classes(text), [], "{text}");
        }
    }

    #[test]
    fn a_span_is_in_a_period_that_has_a_second_of_it() {
        let period = |from, to| Period { span: Span::Hour, from, to };
        assert!(period(3_600, 3_601).has(3_600) && period(7_199, 7_200).has(3_600));
        assert!(!period(7_200, 9_000).has(3_600) && !period(0, 3_600).has(3_600));
        assert_eq!(period(0, u64::MAX).bounds(), (-3_600, i64::MAX));
        assert_eq!((Span::Minute.oldest(7_260), Span::Minute.oldest(60)), (120, 0));
    }
}
