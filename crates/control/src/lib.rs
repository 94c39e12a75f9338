//! Durable configuration: documents, revisions, audit log, watchers.
//!
//! ```text
//!   admin API ──put/delete/apply──▶ Control ──one transaction──▶ SQLite, or PostgreSQL for all nodes
//!                                      │                          (documents + audit)
//!                                      └──▶ watch::Receiver<Arc<Snapshot>> ──▶ limiter, gateway
//! ```
//!
//! The crate stores *documents*: `(kind, name, body)` with a revision each. It knows no kind, and nothing
//! of what a body means: services check a document before they put it and compile it after they are
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
//!    not ours is refused by name and never deleted. A database in PostgreSQL has many owners, and
//!    each hears of the others' changes within a second; without it, the last revision stays, and
//!    a process that starts meanwhile begins with its own copy of it.
//!
//! Beside the documents are *secrets* (`secrets.rs`), which have no history and which nobody is shown: private keys; and *counts* (`counts/`), sums of
//! requests by time that nodes add to; *uses* (`uses.rs`), when a document was last of use; and *nodes* (`nodes.rs`), who shares a database.
//!
//! Both keep one contract, and the tests in `tests/contract` hold for both.
//!
//! Deliberately absent: the meaning of documents, HTTP, and reading the clock.

mod asked_from;
mod beside;
mod configuration;
mod control;
mod copy;
mod counts;
mod database;
mod database_error;
mod difference;
mod document;
mod draft;
mod error;
mod follow;
mod layered;
mod link;
mod local;
mod messages;
mod nodes;
mod presence;
mod remote;
mod replace;
mod revert;
mod rows;
mod secrets;
mod service;
mod snapshot;
mod spare;
mod statements;
mod turn;
mod uses;

pub use configuration::{ChangeStats, Configuration, Edit, MAX_TOGETHER};
pub use control::{Control, Usage};
pub use copy::COPY_FILE;
pub use counts::{Added, Batch, Counted, MAX_COUNTED, Period, Span, Sums};
pub use database::{DATABASE_FILE, LOCK_FILE};
pub use difference::difference;
pub use document::{Action, Altered, AuditRow, Author, Change, Document, FILE, Kind, Precondition, Revision};
pub use draft::Draft;
pub use error::{ChangeError, CopyError, Error};
pub use layered::{Layered, LayeredDocument};
pub use messages::{Heard, MAX_MESSAGE_BYTES, MAX_MESSAGES, MessageStats};
pub use nodes::{KnownNode, NodeIdentity, NodeList, known_nodes};
pub use presence::{NodesPresent, versions_present};
pub use replace::replace_file;
pub use revert::{Preview, PreviewedChange, Revert, Reverted};
pub use secrets::{MAX_SECRET_BYTES, MAX_SECRETS, SECRETS_COPY_FILE, Secret};
pub use service::{Layers, Origin, Parts, Service, Services, SetAside};
pub use snapshot::{Limits, Snapshot};
pub use tidegate_postgres::{Place, UrlError};
pub use turn::Turn;
pub use uses::Use;

/// Longest word for a kind of documents, in bytes.
pub const MAX_KIND_BYTES: usize = 32;

/// Most kinds that a database may have; one with more is refused.
pub const MAX_KINDS: usize = 64;

/// Longest name of a document, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// Longest that [`Control::connect`] tries to reach the database where there is nothing else to
/// start from.
pub const CONNECTING: std::time::Duration = std::time::Duration::from_secs(10);

/// The same, where this node has a copy of the last revision.
pub const CONNECTING_BESIDE_A_COPY: std::time::Duration = std::time::Duration::from_secs(3);

/// Longest that one operation on a shared database may take, connecting included.
pub const OPERATION: std::time::Duration = std::time::Duration::from_secs(5);

/// How often a change that other nodes' overtook is decided anew before it is refused. Only nodes that wait for no
/// turn overtake: those of an earlier version, and after a turn that took too long.
pub const MAX_OVERTAKEN: usize = 64;

/// Longest name of an author, in bytes.
pub const MAX_ACTOR_BYTES: usize = 256;

/// Most changes that one [`Control::apply`] takes.
pub const MAX_CHANGES: usize = 1_000;

/// Most edits that wait; more are turned away with 503.
pub const MAX_WAITING: usize = 4_096;

/// Most rows that one [`Control::audit`] returns.
pub const MAX_AUDIT_PAGE: usize = 1_000;
