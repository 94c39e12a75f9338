//! The facts that the servers of shared stores give of themselves, and how long they may take.

use std::time::Duration;

use tidegate_algorithms::time::Wall;

/// Longest that a server may take for an answer when it is examined.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What one server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// Where it is, without secrets.
    pub address: String,
    /// Its version, in its own words.
    pub version: String,
    /// The first number of its version; none if the version cannot be read.
    pub major: Option<u32>,
    /// Its clock, and this machine's just before the question and just after the answer.
    pub clock: Option<ClockReading>,
    /// The policy by which it drops counters when its memory is full.
    pub drops_keys: Option<String>,
    /// How far its tables are, where it has any.
    pub schema: Option<SchemaFacts>,
    /// The versions of nodes that are connected, where it tells.
    pub nodes: Option<Vec<String>>,
}

/// A server's clock between two readings of this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Before the question.
    pub asked: Wall,
    /// The server's.
    pub server: Wall,
    /// After the answer.
    pub answered: Wall,
}

/// The counters' tables in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaFacts {
    /// Their version; none where there are none.
    pub found: Option<i32>,
    /// The version that this program makes.
    pub own: i32,
    /// Whether the user may make a schema in this database.
    pub may_create: bool,
}

impl SchemaFacts {
    /// Whether nodes can count in these tables without changing them first.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.found.is_some_and(|found| found >= self.own)
    }
}
