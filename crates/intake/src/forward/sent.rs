//! What became of lines that a forward sent.

use std::time::Duration;

/// What became of lines that were sent.
#[derive(Debug)]
pub struct Sent {
    /// How many were taken, from the first on.
    pub(super) taken: usize,
    /// How many of these the other side says that it has left out.
    pub(super) left_out: u64,
    /// How many of these were not sent, since a later line of their series has their time.
    pub(super) superseded: u64,
    /// What it said to that.
    pub(super) said: String,
    /// Why the others were not taken; there are none if it is absent.
    pub(super) untaken: Option<Untaken>,
}

/// Why lines were not taken.
#[derive(Debug)]
pub(super) enum Untaken {
    /// Another try would be answered the same.
    Refused(String),
    /// They may be taken later.
    Failed {
        why: String,
        /// How long the other side wants to be left alone.
        retry_after: Option<Duration>,
    },
}

impl Sent {
    /// All lines were taken.
    #[must_use]
    pub fn all(lines: usize) -> Self {
        Self { taken: lines, left_out: 0, superseded: 0, said: String::new(), untaken: None }
    }

    /// The first ones were taken, and it may be that the others are later.
    #[must_use]
    pub fn failed(taken: usize, why: String) -> Self {
        let untaken = Some(Untaken::Failed { why, retry_after: None });
        Self { untaken, ..Self::all(taken) }
    }

    /// The first ones were taken, and the others are refused for good.
    #[must_use]
    pub fn refused(taken: usize, why: String) -> Self {
        Self { untaken: Some(Untaken::Refused(why)), ..Self::all(taken) }
    }
}
