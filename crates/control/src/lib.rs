//! Durable configuration: documents, revisions, audit log, watchers.
//!
//! ```text
//!   admin API ──put/delete/apply──▶ Control ──one transaction──▶ SQLite (documents + audit)
//!                                      │
//!                                      └──▶ watch::Receiver<Arc<Snapshot>> ──▶ limiter, gateway
//! ```
//!
//! The crate stores *documents*: `(kind, name, body)` with a revision each. It knows nothing of
//! what a body means: services check a document before they put it and compile it after they are
//! told of it, so this crate never changes when a policy learns a new field.
//!
//! Invariants, each with a test:
//! 1. Every change makes exactly one new revision and one audit row, in its own transaction.
//!    Revisions are consecutive, so the newest revision and the number of pruned audit rows follow
//!    from the audit table itself and cannot disagree with it.
//! 2. What was acknowledged survives `kill -9` at any instant; several changes applied together
//!    are all there or none is (fault 21).
//! 3. A change made against an old revision is refused, not merged (fault 20).
//! 4. Documents, their bytes and the audit rows have limits ([`Limits`]).
//! 5. One process owns a data directory; a database that is damaged, newer than this program or
//!    not ours is refused by name and never deleted.
//!
//! Deliberately absent: the meaning of documents, HTTP, and reading the clock.

mod control;
mod database;
mod document;
mod error;
mod snapshot;

pub use control::{Control, Limits, Usage};
pub use database::{AuditRow, DATABASE_FILE, LOCK_FILE};
pub use document::{Action, Author, Change, Document, Kind, Precondition, Revision};
pub use error::Error;
pub use snapshot::Snapshot;

/// Longest name of a document, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// Longest name of an author, in bytes.
pub const MAX_ACTOR_BYTES: usize = 256;

/// Most changes that one [`Control::apply`] takes.
pub const MAX_CHANGES: usize = 1_000;

/// Most rows that one [`Control::audit`] returns.
pub const MAX_AUDIT_PAGE: usize = 1_000;
