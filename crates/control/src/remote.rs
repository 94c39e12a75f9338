//! The configuration that all nodes share: documents and audit log in PostgreSQL.
//!
//! ```text
//!   a node's change --commit--> audit, document --NOTIFY--> every node's follower --> its watchers
//! ```
//!
//! Revisions are the primary key of the audit table, as in the local database. A change inserts the
//! revision after the one that it was decided on: of two nodes at once, one finds the row there and
//! decides again. Nothing else is locked. Beside each revision a node knows which history it is of, by
//! a digest of its audit row, because a database that lost its newest revisions gives their numbers to
//! others: a node that was out of contact meanwhile then loads everything anew.
//!
//! A follower holds one connection, listens, and also asks unprompted ([`crate::follow`]), so that a
//! lost notification, or a proxy that passes none on, costs a second and not the change. A
//! change or a look at the audit log takes the connection of the one before, or opens its own
//! ([`crate::spare`]).
//!
//! When the database is away, what is known stays in force, a change is [`Error::Unavailable`], and
//! the follower connects again (fault 24: after a random part of a growing pause). A process that
//! starts meanwhile begins with the copy on its disk ([`crate::copy`]) and follows later.
//!
//! Deliberately absent: reading the clock; changes on the copy.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_postgres::{Place, Session};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::copy::{Copy, keep};
use crate::document::{Accepted, AuditRow, Revision};
use crate::error::Error;
use crate::follow::{self, Contact};
use crate::link::{in_time, open};
use crate::presence::NodesPresent;
use crate::rows;
use crate::snapshot::{History, Snapshot, publish};
use crate::spare::Spare;

/// A database that other nodes change too.
#[derive(Debug)]
pub(crate) struct Remote {
    place: Place,
    runtime: Handle,
    contact: Arc<Contact>,
    spare: Arc<Spare>,
    /// The revision in this node's copy; 0 without one.
    kept: Arc<AtomicU64>,
    tasks: [AbortHandle; 3],
}

impl Remote {
    /// Connects, brings the schema up to date, loads everything and begins to follow; without the
    /// database, begins with the copy in `data_dir`.
    ///
    /// # Errors
    /// [`Error::NothingToStartWith`], [`Error::Newer`] or [`Error::Corrupt`].
    pub(crate) fn connect(
        place: Place,
        data_dir: &Path,
        runtime: &Handle,
    ) -> Result<(Self, watch::Sender<Arc<Snapshot>>), Error> {
        let copy = Copy::new(data_dir, place.address());
        let saved = copy.load();
        let patience = if saved.is_ok() { crate::CONNECTING_BESIDE_A_COPY } else { crate::CONNECTING };
        let first = runtime.block_on(follow::first(&place, patience));
        let reached = first.is_ok();
        let (snapshot, saved) = match (first, saved) {
            (Ok(snapshot), saved) => (snapshot, saved.ok()),
            (Err(Error::Unavailable { .. } | Error::Late), Ok(saved)) => (saved.clone(), Some(saved)),
            (Err(error @ (Error::Unavailable { .. } | Error::Late)), Err(why)) => {
                let reason = match error {
                    Error::Unavailable { reason } => reason,
                    _ => format!("no answer within {:?}", crate::OPERATION),
                };
                return Err(Error::NothingToStartWith { reason, path: copy.path().to_owned(), copy: why });
            }
            (Err(error), _) => return Err(error),
        };
        let newest = watch::Sender::new(Arc::new(snapshot));
        let contact = Arc::new(Contact::new(reached));
        let kept = Arc::new(AtomicU64::new(saved.as_ref().map_or(0, |saved| saved.revision().0)));
        let following = follow::follow(place.clone(), newest.clone(), Arc::clone(&contact));
        let keeping = keep(copy, saved, newest.subscribe(), Arc::clone(&kept));
        let spare = Arc::new(Spare::default());
        let closing = Arc::clone(&spare);
        let tasks = [
            runtime.spawn(following).abort_handle(),
            runtime.spawn(keeping).abort_handle(),
            runtime.spawn(async move { closing.close_unused().await }).abort_handle(),
        ];
        Ok((Self { place, runtime: runtime.clone(), contact, spare, kept, tasks }, newest))
    }

    /// Whether the follower is connected.
    pub(crate) fn is_reachable(&self) -> bool {
        self.contact.is_reachable.load(Ordering::Relaxed)
    }

    /// Whether the database has answered since the start.
    pub(crate) fn was_reached(&self) -> bool {
        self.contact.was_reached.load(Ordering::Relaxed)
    }

    /// The number of this node.
    pub(crate) fn node(&self) -> u32 {
        self.contact.node
    }

    /// The nodes that are there; `None` while that is not known.
    pub(crate) fn present(&self) -> Option<NodesPresent> {
        self.contact.present()
    }

    /// The revision in this node's copy.
    pub(crate) fn kept(&self) -> Revision {
        Revision(self.kept.load(Ordering::Relaxed))
    }

    /// Publishes what other nodes have changed.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub(crate) fn catch_up(&self, newest: &watch::Sender<Arc<Snapshot>>) -> Result<(), Error> {
        let known = newest.borrow().clone();
        let later = self.run(async |client| rows::later(client, &known).await)?;
        if let Some(later) = later {
            publish(newest, known.revision(), later);
        }
        Ok(())
    }

    /// Writes accepted changes and their audit rows in one transaction, prunes the audit log to
    /// `audit_rows`, and tells the other nodes. `base` is what they were decided on; the history of the
    /// last of them.
    ///
    /// # Errors
    /// [`Error::Moved`] or [`Error::Unavailable`]: then nothing was written. [`Error::Unknown`].
    pub(crate) fn commit(
        &self,
        base: &Snapshot,
        accepted: &[Accepted],
        audit_rows: u64,
    ) -> Result<History, Error> {
        let outcome = self.run(async |client| rows::commit(client, base, accepted, audit_rows).await);
        outcome.map_err(|error| match error {
            // It may have been committed a moment before it was cut.
            Error::Late => Error::Unknown { reason: Error::Late.to_string() },
            error => error,
        })
    }

    /// At most `limit` audit rows after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Corrupt`].
    pub(crate) fn audit(&self, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.run(async |client| rows::audit(client, after, limit).await)
    }

    /// Oldest and newest revision of the audit log.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn revisions(&self) -> Result<Option<(Revision, Revision)>, Error> {
        self.run(async |client| rows::revisions(client).await)
    }

    /// Runs an operation within [`crate::OPERATION`], on a connection that nobody else uses. It runs
    /// twice where the first connection was an old one and turned out to be broken.
    fn run<T>(&self, operation: impl AsyncFn(&mut Session) -> Result<T, Error>) -> Result<T, Error> {
        let whole = async {
            if let Some(session) = self.spare.take() {
                match self.run_on(session, &operation).await {
                    // The server may have restarted since. Nothing was written.
                    Err(Error::Unavailable { .. }) => {}
                    outcome => return outcome,
                }
            }
            self.run_on(open(&self.place, || {}).await?, &operation).await
        };
        self.runtime.block_on(in_time(whole))
    }

    /// Runs an operation, and keeps the connection if it is still good.
    async fn run_on<T>(
        &self,
        mut session: Session,
        operation: &impl AsyncFn(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outcome = operation(&mut session).await;
        if matches!(outcome, Ok(_) | Err(Error::Moved { .. })) {
            self.spare.keep(session);
        }
        outcome
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
