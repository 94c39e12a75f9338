//! How many readers, queries and forwards are at the log's files at once, and how many streams there are.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Most readers and commits that are at the files at once.
const FILE_READERS: usize = 8;
/// Most queries that are.
const QUERIES: usize = 4;
/// Most forwards that are.
const FORWARDS: usize = 8;
/// Most streams of events.
const STREAMS: usize = 64;

/// What bounds reading.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) files: Semaphore,
    pub(crate) queries: Semaphore,
    pub(crate) forwards: Semaphore,
    pub(crate) streams: Arc<Semaphore>,
}

/// Readers that wait for the files. Each waits for its own kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A reader, or its commit.
    Read,
    /// A query.
    Query,
    /// A forward, or its commit.
    Forward,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            files: Semaphore::new(FILE_READERS),
            queries: Semaphore::new(QUERIES),
            forwards: Semaphore::new(FORWARDS),
            streams: Arc::new(Semaphore::new(STREAMS)),
        }
    }
}
